"""Stage `ridge`: classify the test features (or the validation set) by kernel ridge regression on
the training features.

params: seed (of the validation rows that choose the settings), array_library, classify_shifts
unless it is none, classify_rows unless it is all. inputs: features, with their odd part if they
have one, data (for the labels and the class names), and shifted1, shifted2, ... of the features'
parts if images are shifted.
Writes model.safetensors (with the training features all that predictions need), predictions.npy
uint8 (test rows,), margins.npy float64 (test rows,), by how much each prediction has won, and
decisions.npy float32 (test rows, classes), the scores that the predictions were made from
(ridge.classify).
"""

import time

from ladder.arithmetic import arrays
from ladder.classifiers import decisions, ridge, scoring
from ladder.features import shifts
from ladder.progress import log, size
from ladder.stage import stage_script


def make(work, inputs, params):
    started = time.perf_counter()
    train, labels, test, odd_columns = scoring.load_with_odd_part(inputs, params)
    library = arrays.library(params["array_library"], work.threads)
    log.info(
        "kernel ridge by %s: %d rows x %d features, about %s of memory",
        library.name,
        *train.shape,
        size(max(ridge.needed_bytes(len(train), work.threads, odd_columns), train.nbytes)),
    )
    model = ridge.fit(train, labels, params["seed"], library, odd_columns)
    predictions, margins, scores = ridge.classify(
        model, test, library, shifts.of_test(inputs, with_odd=True)
    )
    with work.file("model.safetensors") as path:
        model.save(path)
    work.write_array(scoring.MARGINS, margins)
    work.write_array(decisions.FILE, scores)
    scoring.score(
        work,
        inputs,
        predictions,
        f"kernel ridge, width {model.width:g}, strength {model.strength:g}",
        started,
        width=model.width,
        strength=model.strength,
        **library.facts(),
        validation={
            f"{width:g}, {strength:g}": loss for (width, strength), loss in model.validation.items()
        },
    )


if __name__ == "__main__":
    stage_script.run(make)
