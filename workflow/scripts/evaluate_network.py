"""Stage `evaluate`: classify the test images (or the validation set) with a network that
classifies.

params: network with its options, image, classes, variant, multiplier unless it is exact.
inputs: normalized, data, weights: an artifact with the weights.
options: data_residency, multiplier: a name or the file of a table.
Writes predictions.npy uint8 (N,) and probabilities.npy float32 (N, classes).
"""

import time

import numpy as np

from ladder import progress
from ladder.classifiers import metrics, scoring
from ladder.data.normalization import Statistics
from ladder.machine import compiling
from ladder.stage import stage_script
from ladder.training.inference import Inference


def make(work, inputs, params, options):
    model = Inference.load(
        params, inputs["weights"], Statistics.load(inputs["normalized"]), work.threads, options
    )
    images, labels = (
        inputs["normalized"].array("test.npy"),
        np.asarray(inputs["data"].array("test_labels.npy")),
    )
    with compiling.shown():
        model.prepare(images)
    started = time.perf_counter()
    outputs = classify(model, images, params["classes"])
    seconds = time.perf_counter() - started
    work.write_array("probabilities.npy", metrics.softmax(outputs).astype(np.float32))
    loss = float(-metrics.log_softmax(outputs)[np.arange(len(labels)), labels].mean())
    scoring.score(
        work,
        inputs,
        np.argmax(outputs, axis=1),
        f"{params['network']}, loss {loss:.4f}",
        started,
        loss=loss,
        images_per_second=len(images) / seconds,
    )


def classify(model, images, classes):
    """The network's outputs for all images, float32 (N, classes)."""
    outputs = np.empty((len(images), classes), np.float32)
    with progress.bar(total=len(images), label="classifying", unit=" images") as bar:
        for start, values in model.batches(images):
            outputs[start : start + len(values)] = values.reshape(len(values), classes)
            bar.update(len(values))
    return outputs


if __name__ == "__main__":
    stage_script.run(make)
