"""What a run says of each image that it is scored on, and the difference of two runs by it."""

import dataclasses

import numpy as np

from ladder.classifiers import decisions
from ladder.errors import UserError
from ladder.pages import intervals
from ladder.store import artifacts, lineage


@dataclasses.dataclass(frozen=True)
class Answers:
    """images: checksums of what the run is scored on; labels, predictions: (N,), of changed copies
    1 and whether each finds its original first.

    data, score: the artifacts that they are from; classifier: the role of the second.
    """

    data: artifacts.Artifact
    score: artifacts.Artifact
    classifier: str
    images: tuple
    labels: np.ndarray
    predictions: np.ndarray


def answers(run):
    """The Answers of a finished discovery.Run; None if the artifacts are no longer there, or
    damaged.
    """
    versions = run.summary["versions"] if run.summary else {}
    copies = run.about.get("scored_on") == "changed copies"
    role = "neighbours" if copies else lineage.answering(versions)
    try:
        data, score = (
            artifacts.Artifact(run.results / stage / versions[stage]) for stage in ("data", role)
        )
        images = tuple(
            facts["sha256"]
            for name, facts in sorted(data.manifest["files"].items())
            if name in ("test_images.npy", "test_labels.npy")
        )
        if copies:
            hits = np.asarray(score.array("found.npy"))[:, 0] == 1
            return Answers(data, score, role, images, np.ones(len(hits), int), hits.astype(int))
        labels = np.asarray(data.array("test_labels.npy"))
        named = np.asarray(score.array("predictions.npy"))
        return Answers(data, score, role, images, labels, named)
    except (UserError, OSError, KeyError):
        return None


def difference(first, other, key):
    """The intervals.Difference of two runs' numbers in a column of columns.WITH_INTERVAL: paired
    where both keep their answers for the same images.
    """
    a, b = answers(first), answers(other)
    if a and b and a.images == b.images and len(a.labels) == len(b.labels):
        return intervals.counted(a.labels, a.predictions, b.predictions)
    return intervals.unpaired(
        *(run.numbers[column] for run in (first, other) for column in (key, "images"))
    )


def decided(run_answers):
    """{"kind": the classifier, "classes", "values"}: float32 (N, pairs or classes), what the
    answers were decided on, for the mean of several runs; None where that is not kept.
    """
    data, score, kind = run_answers.data, run_answers.score, run_answers.classifier
    try:
        if kind == "evaluate":
            classes = range(len(data.metrics["classes"]))
            return {"kind": kind, "classes": [*classes], "values": score.array("probabilities.npy")}
        classes = np.unique(data.array("train_labels.npy")).tolist()
        return {"kind": kind, "classes": classes, "values": score.array(decisions.FILE)}
    except (UserError, OSError):
        return None
