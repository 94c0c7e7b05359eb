"""Stage `ridge`: classify the test features (or the hold-out set) by kernel ridge regression on the training features.

params: seed (of the validation rows that choose the settings), array_library, classify_shifts unless it is none.
inputs: features, with their odd part if they have one, data (for the labels and the class names), and shifted1, shifted2, ...
of the features' parts if images are shifted.
Writes model.safetensors (with the training features all that predictions need) and predictions.npy uint8 (test rows,).
"""

import time

import numpy as np

from ladder.arithmetic import arrays
from ladder.classifiers import ridge, scoring
from ladder.features import features, shifts
from ladder.progress import log, size
from ladder.workflow import stage_script


def make(work, inputs, params):
    started = time.perf_counter()
    even_train, labels, even_test = scoring.load(inputs)
    train, odd_columns = with_odd_part(even_train, inputs["features"], "train")
    test, _ = with_odd_part(even_test, inputs["features"], "test")
    library = arrays.library(params["array_library"], work.threads)
    log.info("kernel ridge by %s: %d rows x %d features, about %s of memory", library.name, *train.shape,
             size(ridge.needed_bytes(len(train), work.threads) + 2 * train.nbytes))
    model = ridge.fit(train, labels, params["seed"], library, odd_columns)
    predictions = ridge.predict(model, test, library, shifts.of_test(inputs, with_odd=True))
    with work.file("model.safetensors") as path:
        model.save(path)
    scoring.score(work, inputs, predictions, f"kernel ridge, width {model.width:g}, strength {model.strength:g}", started,
                  width=model.width, strength=model.strength, **library.facts(),
                  validation={f"{width:g}, {strength:g}": loss for (width, strength), loss in model.validation.items()})


def with_odd_part(even, artifact, name):
    """(`even`, the rows of `train` or `test`, with the columns of their odd part appended, the number of these columns)."""
    odd = features.odd_part(artifact, name)
    columns = odd.shape[1]
    return (np.concatenate((even, odd), axis=1), columns) if columns else (even, 0)   # without one, memory-mapped as they are


if __name__ == "__main__":
    stage_script.run(make)
