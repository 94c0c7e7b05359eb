"""Stage `svm`: fit a support vector machine to the training features and classify the test features
(or the validation set).

params: backend (resolved), kernel, C, gamma (not for linear), classify_shifts unless it is none,
classify_rows unless it is all.
inputs: features, data (for the labels and the class names), and shifted1, shifted2, ... of the
features' parts if images are shifted.
Files:
    model.safetensors  the arrays of svm.SvmModel: all that predictions need
    predictions.npy    uint8 (test rows,)
    margins.npy        float64 (test rows,), by how much each prediction has won
    decisions.npy      float32 (test rows, pairs of classes), what the predictions were made from
                       (svm.classify)
"""

import time

from ladder.arithmetic import arrays
from ladder.classifiers import decisions, scoring, svm
from ladder.features import shifts
from ladder.progress import log
from ladder.stage import stage_script


def make(work, inputs, params):
    started = time.perf_counter()
    train, labels, test = scoring.load(inputs, params)
    kind, C = (params["backend"], params["kernel"]), params["C"]
    gamma = params.get("gamma", "scale")  # absent for the linear kernel, which does not use it
    if C == svm.VALIDATED:
        C, gamma = svm.choose(train, labels, *kind, gamma, work.threads)
        log.info("C %g and gamma %.3g, chosen by training images that were left out", C, gamma)
    model, solver = svm.fit(train, labels, *kind, C, gamma, work.threads)
    fitted = time.perf_counter()
    predictions, margins, decided = svm.classify(
        model, test, work.threads, params["backend"], shifts.of_test(inputs)
    )
    predicted = time.perf_counter()
    with work.file("model.safetensors") as path:
        model.save(path)
    work.write_array(scoring.MARGINS, margins)
    work.write_array(decisions.FILE, decided)
    scoring.score(
        work,
        inputs,
        predictions,
        f"SVM by {solver}, {len(model.support)} support vectors",
        started,
        backend=params["backend"],
        solver=solver,
        kernel=model.kernel.name,
        C=model.C,
        gamma=model.kernel.gamma,
        support_vectors=len(model.support),
        fit_seconds=fitted - started,
        predict_seconds=predicted - fitted,
        **(arrays.CuPy().facts() if params["backend"] == "cuml" else {}),
    )


if __name__ == "__main__":
    stage_script.run(make)
