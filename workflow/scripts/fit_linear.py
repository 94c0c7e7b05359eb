"""Stage `linear`: fit logistic regression to the training features and classify the test features
(or the validation set).

params: seed (of the validation rows that choose the strength), classify_shifts unless it is none,
classify_rows unless it is all.
inputs: features, data (for the labels and the class names), and shifted1, shifted2, ... of the
features' parts if images are shifted.
Writes linear.safetensors (the arrays of linear.LinearModel: all that predictions need) and
predictions.npy uint8 (test rows,).
"""

import time

from ladder.classifiers import linear, scoring
from ladder.features import shifts
from ladder.stage import stage_script


def make(work, inputs, params):
    started = time.perf_counter()
    train, labels, test = scoring.load(inputs, params)
    model = linear.fit(train, labels, params["seed"])
    predictions = linear.predict(model, test, work.threads, shifts.of_test(inputs))
    work.write_tensors("linear.safetensors", model.tensors())
    scoring.score(
        work,
        inputs,
        predictions,
        f"logistic regression, strength {model.strength:g}",
        started,
        strength=model.strength,
        validation={f"{strength:g}": share for strength, share in model.validation.items()},
    )


if __name__ == "__main__":
    stage_script.run(make)
