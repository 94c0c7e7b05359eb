"""Stage `knn`: classify the test features by the nearest training features.

params: knn_k, knn_distance.  inputs: features, data (for the labels and the classes' names).
Writes predictions.npy uint8 (test rows,).
"""

import time

import numpy as np

from ladder.classifiers import knn, metrics
from ladder.progress import duration, log
from ladder.store import scores as scoring_record
from ladder.workflow import stage_script


def make(work, inputs, params):
    data, features = inputs["data"], inputs["features"]
    start = time.perf_counter()
    predictions = knn.predict(features.array("train.npy"), np.asarray(data.array("train_labels.npy")),
                              features.array("test.npy"), params["knn_k"], params["knn_distance"], work.threads)
    work.write_array("predictions.npy", predictions.astype(np.uint8))
    work.metrics = metrics.classification(data.array("test_labels.npy"), predictions, data.metrics["classes"])
    scoring_record.record(work, inputs)
    log.info("%d nearest neighbours: %s accuracy %.1f %%, in %s", params["knn_k"],
             metrics.scored_on(data.manifest["spec"]["params"]), 100 * work.metrics["accuracy"],
             duration(time.perf_counter() - start))


if __name__ == "__main__":
    stage_script.run(make)
