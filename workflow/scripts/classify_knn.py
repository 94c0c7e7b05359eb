"""Stage `knn`: classify the test features (or the validation set) by their k nearest training
features.

params: knn_k, array_library, classify_shifts unless it is none, classify_rows unless it is all.
inputs: features, data (for the labels and the class names), and shifted1, shifted2, ... of the
features' parts if images are shifted.
Writes predictions.npy uint8 (test rows,).
"""

import time

from ladder.arithmetic import arrays
from ladder.classifiers import knn, scoring
from ladder.features import shifts
from ladder.stage import stage_script


def make(work, inputs, params):
    started = time.perf_counter()
    library = arrays.library(params["array_library"], work.threads)
    predictions = knn.predict(
        *scoring.load(inputs, params),
        params["knn_k"],
        library,
        shifts.of_test(inputs),
    )
    scoring.score(
        work,
        inputs,
        predictions,
        f"{params['knn_k']} nearest neighbours by {library.name}",
        started,
        **library.facts(),
    )


if __name__ == "__main__":
    stage_script.run(make)
