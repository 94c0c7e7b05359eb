"""Stage `svm`: fit a support vector machine to the training features and classify those of the test images (or the
hold-out) with it.

params: backend (resolved), kernel, C, gamma.  inputs: features, data (for the labels and the classes' names).
Writes model.safetensors (arrays as ladder.svm.Model describes them; alone it is all that predictions need) and
predictions.npy uint8 (test rows,).
"""

import time

import numpy as np

from ladder.classifiers import metrics, svm
from ladder.progress import duration, log
from ladder.store import scores as scoring_record
from ladder.workflow import stage_script


def make(work, inputs, params):
    data, features = inputs["data"], inputs["features"]
    start = time.perf_counter()
    model, solver = svm.fit(features.array("train.npy"), data.array("train_labels.npy"), params["backend"],
                            params["kernel"], params["C"], params["gamma"], work.threads)
    fitted = time.perf_counter()
    predictions = svm.predict(model, features.array("test.npy")).astype(np.uint8)
    predicted = time.perf_counter()

    with work.file("model.safetensors") as path:
        model.save(path)
    work.write_array("predictions.npy", predictions)
    work.metrics.update(
        **metrics.classification(data.array("test_labels.npy"), predictions, data.metrics["classes"]),
        backend=params["backend"], solver=solver, kernel=model.kernel.name, C=model.C, gamma=model.kernel.gamma,
        support_vectors=len(model.support), fit_seconds=fitted - start, predict_seconds=predicted - fitted)
    scoring_record.record(work, inputs)
    log.info("SVM by %s: %s accuracy %.1f %%, %d support vectors; fit %s, predict %s", solver,
             metrics.scored_on(data.manifest["spec"]["params"]), 100 * work.metrics["accuracy"], len(model.support),
             duration(fitted - start), duration(predicted - fitted))


if __name__ == "__main__":
    stage_script.run(make)
