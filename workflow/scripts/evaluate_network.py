"""Stage `evaluate`: what a network that classifies makes of the test images (or the hold-out), each of them once.

params: network with its options, image, classes, variant, multiplier where it is not exact.
inputs: normalized, data, weights: an artifact with the weights.
options: data_residency, multiplier: a name or the file of a table.
Writes predictions.npy uint8 (N,) and probabilities.npy float32 (N, classes).
"""

import time

import numpy as np

from ladder import progress
from ladder.arithmetic import multipliers
from ladder.classifiers import metrics
from ladder.data.normalization import Statistics
from ladder.network import networks, weights
from ladder.progress import log
from ladder.store import scores as scoring_record
from ladder.training.inference import Inference
from ladder.workflow import stage_script


def make(work, inputs, params, options):
    network = networks.from_params(params)
    statistics = Statistics.load(inputs["normalized"])
    images, labels = inputs["normalized"].array("test.npy"), np.asarray(inputs["data"].array("test_labels.npy"))
    values = weights.load(inputs["weights"].path(weights.file_name(network)), network)
    model = Inference(network, params["variant"], values, statistics.scale, statistics.offset, work.threads,
                      data_residency=options["data_residency"], products=multipliers.products(params, options["multiplier"]))
    scored_on = metrics.scored_on(inputs["data"].manifest["spec"]["params"])
    started = time.monotonic()
    scores = classify(model, images, params["classes"], f"{scored_on} images")
    seconds = time.monotonic() - started
    probabilities = metrics.softmax(scores)
    predictions = np.argmax(scores, axis=1).astype(np.uint8)
    work.write_array("predictions.npy", predictions)
    work.write_array("probabilities.npy", probabilities.astype(np.float32))
    work.metrics = {**metrics.classification(labels, predictions, inputs["data"].metrics["classes"]),
                    "loss": float(-metrics.log_softmax(scores)[np.arange(len(labels)), labels].mean()),
                    "images_per_second": len(images) / seconds}
    scoring_record.record(work, inputs)
    log.info("%s accuracy %.2f %%, loss %.4f, on %d images", scored_on, 100 * work.metrics["accuracy"], work.metrics["loss"],
             len(images))


def classify(model, images, classes, label):
    """float32 (N, classes): what the network puts out for each image; label: of the progress bar."""
    scores = np.empty((len(images), classes), np.float32)
    with progress.bar(total=len(images), label=label, unit=" images") as bar:
        for start, values in model.batches(images):
            scores[start:start + len(values)] = values.reshape(len(values), classes)
            bar.update(len(values))
    return scores


if __name__ == "__main__":
    stage_script.run(make)
