"""Several runs as one classifier, which decides on the mean of their decisions: its row on the page
that compares them.

Decisions are averaged as they are: those of one kind of classifier have the scale of its training
already. At 1 and -1 lie the margins of an SVM and the targets of kernel ridge regression, and what
a network decides on are probabilities. A scale taken from the test images would make the class of
each depend on all the others.
"""

import dataclasses

import numpy as np

from ladder.classifiers import decisions
from ladder.errors import UserError
from ladder.pages import intervals, run_table, templates
from ladder.store import lineage

DECISIONS = {
    "svm": "the decision values of the SVM’s pairs of classes",
    "ridge": "the scores of kernel ridge regression",
    "evaluate": "the networks’ probabilities",
}


@dataclasses.dataclass(frozen=True)
class _Member:
    """kind: stage of a run's classifier; decisions (N, pairs or classes) behind its answers;
    classes: labels, ascending.
    """

    kind: str
    answers: run_table.Answers
    decisions: np.ndarray
    classes: tuple


def numbers(ranked):
    """The accuracy of the mean of runs that all have one, best first, JSON-able; None for fewer
    than two.

    {"runs": their numbers} and {"reason": why they have no mean}, or {"accuracy",
    "accuracy_interval", "classifier", "tested", "best": the number of the first run, and the
    numbers of the intervals.Difference to it}.
    """
    if len(ranked) < 2:
        return None
    members = {run.number: _member(run) for run in sorted(ranked, key=lambda run: run.number)}
    if reason := _reason(members):
        return {"runs": list(members), "reason": reason}
    best = members[ranked[0].number]
    labels, values = (
        best.answers.labels,
        [np.asarray(member.decisions, np.float64) for member in members.values()],
    )
    named = decisions.named(decisions.mean(values), np.array(best.classes), best.kind == "svm")
    accuracy = float(np.mean(named == labels))
    return {
        "runs": list(members),
        "accuracy": accuracy,
        "accuracy_interval": list(intervals.wilson(accuracy, len(labels))),
        "classifier": best.kind,
        "tested": len(labels),
        "best": ranked[0].number,
        **intervals.counted(labels, named, best.answers.predictions).numbers,
    }


def texts(ensemble):
    """`numbers` for the page: {"runs", "reason"} and, if there is no reason, "of", "against", and
    those of intervals.share.
    """
    if not ensemble or "reason" in ensemble:
        return ensemble
    difference = intervals.Difference(
        ensemble["difference"], tuple(ensemble["difference_interval"]), ensemble["paired"]
    )
    return {
        "runs": ensemble["runs"],
        "reason": "",
        "of": DECISIONS[ensemble["classifier"]],
        **intervals.share(ensemble["accuracy"], ensemble["tested"]),
        "against": intervals.words(difference, f"run {ensemble['best']}")["against"],
    }


def csv_lines(ensemble):
    """The lines of compare.csv of `numbers`: one or none."""
    return (
        [
            {
                "run": "mean",
                "test_accuracy": ensemble.get("accuracy"),
                "reason": ensemble.get("reason"),
            }
        ]
        if ensemble
        else []
    )


def _member(run):
    """The run as a _Member; None if its decisions are not there, or damaged."""
    answers = run_table.answers(run)
    if not answers:
        return None
    data, score, kind = answers.data, answers.score, lineage.answering(run.summary["versions"])
    try:
        if kind == "evaluate":
            return _Member(
                kind,
                answers,
                score.array("probabilities.npy"),
                tuple(range(len(data.metrics["classes"]))),
            )
        return _Member(
            kind,
            answers,
            score.array(decisions.FILE),
            tuple(np.unique(data.array("train_labels.npy")).tolist()),
        )
    except (UserError, OSError):
        return None


def _reason(members):
    """Why the decisions of these members, by the numbers of their runs, have no mean; '' if they
    have one.
    """
    gone = [number for number, member in members.items() if not member]
    if gone:
        return f"the decisions of run{'s' if len(gone) > 1 else ''} {templates.listed(sorted(gone))} are not there"
    alike = {
        "their classifiers are of different kinds": lambda member: member.kind,
        "they were scored on different images": lambda member: member.answers.images,
        "they know different classes": lambda member: member.classes,
    }
    return next(
        (reason for reason, part in alike.items() if len(set(map(part, members.values()))) > 1), ""
    )
