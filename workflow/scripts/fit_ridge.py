"""Stage `ridge`: classify the test features by kernel ridge regression on the training features.

params: seed (of the rows that choose its settings).  inputs: features, data (for the labels and the classes' names).
Writes predictions.npy uint8 (test rows,).
"""

import time

import numpy as np

from ladder.classifiers import metrics
from ladder.classifiers import ridge as kernel_ridge
from ladder.progress import duration, log, size
from ladder.store import scores as scoring_record
from ladder.workflow import stage_script


def make(work, inputs, params):
    data, features = inputs["data"], inputs["features"]
    train = features.array("train.npy")
    log.info("kernel ridge: %d rows x %d features, about %s of memory", *train.shape,
             size(2 * len(train) ** 2 + 2 * train.nbytes))
    start = time.perf_counter()
    model = kernel_ridge.fit(train, np.asarray(data.array("train_labels.npy")), params["seed"], work.threads)
    predictions = kernel_ridge.predict(model, features.array("test.npy"), work.threads).astype(np.uint8)
    work.write_array("predictions.npy", predictions)
    work.metrics = {**metrics.classification(data.array("test_labels.npy"), predictions, data.metrics["classes"]),
                    "width": model.width, "strength": model.strength,
                    "validation": {f"{width:g}, {strength:g}": share for (width, strength), share in model.validation.items()}}
    scoring_record.record(work, inputs)
    log.info("kernel ridge, width %g, strength %g: %s accuracy %.1f %%, in %s", model.width, model.strength,
             metrics.scored_on(data.manifest["spec"]["params"]), 100 * work.metrics["accuracy"],
             duration(time.perf_counter() - start))


if __name__ == "__main__":
    stage_script.run(make)
