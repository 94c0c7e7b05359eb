"""Stage `labels`: the accuracy of the features with few labels.

params: label_counts (numbers of labels, ascending, balanced over the classes), seed (of the rows
that are drawn), classify_rows (of how many they are drawn, unless of all).
inputs: features, with their odd part if they have one, and data (for the labels).
Writes no file but a line in the record of scores. The metrics are: of, how many labels there are,
counts, and scores, for each count a list with the Score of each draw (classifiers/few_labels.py) as
{"accuracy", "width", "strength"}.
"""

import time

import numpy as np

from ladder.classifiers import few_labels, metrics, scoring
from ladder.progress import duration, log
from ladder.stage import stage_script
from ladder.store import scores


def make(work, inputs, params):
    started = time.perf_counter()
    train, labels, test, odd = scoring.load_with_odd_part(inputs, params)
    expected, counts = np.asarray(inputs["data"].array("test_labels.npy")), params["label_counts"]
    train, test = np.asarray(train), np.asarray(test)
    measured = few_labels.curve(
        (train, labels), (test, expected), counts, params["seed"], work.threads, odd
    )
    by_count = [[score for score in measured if score.labels == count] for count in counts]
    keys = "accuracy", "width", "strength"
    work.metrics = {
        "of": len(labels),
        "counts": counts,
        "scores": [
            [{key: getattr(score, key) for key in keys} for score in draws] for draws in by_count
        ],
    }
    scores.record(work, inputs)
    means = ", ".join(
        f"{100 * np.mean([score.accuracy for score in draws]):.1f} % with {count}"
        for count, draws in zip(counts, by_count, strict=True)
    )
    log.info(
        "few labels: %s accuracy %s; in %s",
        metrics.scored_on(inputs["data"].manifest["spec"]["params"]),
        means,
        duration(time.perf_counter() - started),
    )


if __name__ == "__main__":
    stage_script.run(make)
