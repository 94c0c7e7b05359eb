"""Stage `linear`: fit a linear classifier to the training features and classify the test features with it.

params: seed (of the rows that choose its strength).  inputs: features, data (for the labels and the classes' names).
Writes linear.safetensors (ladder.linear.Model's arrays: all that predictions need) and predictions.npy uint8 (test rows,).
"""

import time

import numpy as np

from ladder.classifiers import linear, metrics
from ladder.progress import duration, log
from ladder.store import scores as scoring_record
from ladder.workflow import stage_script


def make(work, inputs, params):
    data, features = inputs["data"], inputs["features"]
    start = time.perf_counter()
    model = linear.fit(features.array("train.npy"), np.asarray(data.array("train_labels.npy")), params["seed"], work.threads)
    predictions = linear.predict(model, features.array("test.npy"), work.threads).astype(np.uint8)
    work.write_tensors("linear.safetensors", model.tensors())
    work.write_array("predictions.npy", predictions)
    work.metrics = {**metrics.classification(data.array("test_labels.npy"), predictions, data.metrics["classes"]),
                    "strength": model.strength,
                    "validation": {f"{strength:g}": share for strength, share in model.validation.items()}}
    scoring_record.record(work, inputs)
    log.info("linear, strength %g: %s accuracy %.1f %%, in %s", model.strength,
             metrics.scored_on(data.manifest["spec"]["params"]), 100 * work.metrics["accuracy"],
             duration(time.perf_counter() - start))


if __name__ == "__main__":
    stage_script.run(make)
