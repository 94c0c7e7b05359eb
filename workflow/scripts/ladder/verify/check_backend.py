"""The check of cuML before its first use (backends.py): small machines beside scikit-learn's, in
seconds.
"""

import numpy as np

from ladder.classifiers import backends, svm
from ladder.classifiers.kernel_functions import KERNELS
from ladder.machine import gpu_errors, gpus

ROWS, FEATURES, CLASSES = 200, 16, 3
# Largest difference of a decision value, and the most rows of another class. Both solvers stop
# within 1e-3 of the conditions of an optimum; libsvm with and without a precomputed kernel matrix
# differs by up to 1.2e-3 here.
TOLERANCE, OTHERS = 0.05, 4


def check():
    """The outcome as store/first_use.py takes it."""
    gpus.claim()
    try:
        deviations = {kernel: compared(kernel) for kernel in KERNELS}
    except Exception as error:  # whatever cuML and the GPU do wrong
        return gpu_errors.outcome("svm_backend cuml", error)
    wrong = [
        f"with kernel {kernel} a decision value differs by {largest:.1e} from scikit-learn's, {TOLERANCE} at most, and "
        f"{others} of {ROWS} rows get another class, {OTHERS} at most"
        for kernel, (largest, others) in deviations.items()
        if not (largest <= TOLERANCE and others <= OTHERS)
    ]
    summary = ", ".join(
        f"{kernel} within {largest:.1e}" for kernel, (largest, _) in deviations.items()
    )
    return {
        "passed": not wrong,
        "fault": f"svm_backend cuml: {'; '.join(wrong)}" if wrong else "",
        "passing": False,
        "report": bool(wrong),
        "summary": f"{summary} (at most {TOLERANCE})",
        "largest": deviations,
    }


def compared(kernel):
    """(largest difference of a decision value, number of rows of another class) of cuML and
    scikit-learn.

    Both are fitted to ROWS rows and predict as many others.
    """
    random = np.random.default_rng(0)
    labels = np.arange(2 * ROWS) % CLASSES
    rows = random.standard_normal((CLASSES, FEATURES))[labels] + 1.5 * random.standard_normal(
        (2 * ROWS, FEATURES)
    )
    rows = rows.astype(np.float32)
    answers = []
    for backend in (backends.ON_GPU, "sklearn"):
        model, _ = svm.fit(rows[:ROWS], labels[:ROWS], backend, kernel, C=1.0)
        answers.append(
            (
                svm.predict(model, rows[ROWS:], backend=backend),
                _decisions(model, rows[ROWS:], backend),
            )
        )
    (mine, my_decisions), (right, right_decisions) = answers
    return float(np.abs(my_decisions - right_decisions).max()), int(np.count_nonzero(mine != right))


def _decisions(model, rows, backend):
    if backend == backends.ON_GPU:
        return svm.decisions_on_gpu(model, rows)
    return np.concatenate(svm.decision_blocks(model, rows))
