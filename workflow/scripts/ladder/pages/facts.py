"""Facts about a run that several of its pages' sentences need.

inputs are artifacts by role, as in report.py. A fact that the run does not have is None.
"""

import pathlib

from ladder import sources
from ladder.classifiers import metrics
from ladder.network import networks
from ladder.pages import intervals, roles
from ladder.store import lineage

# The roles whose artifact has a run's weights: the first that it has.
WEIGHTS = "train", "patches", "initial"


def in_order(inputs):
    """[(role, artifact)] in the order of the work."""
    return [(role, inputs[role]) for role in roles.in_order(inputs)]


def params(inputs, role):
    return inputs[role].manifest["spec"]["params"]


def accuracy(inputs, role):
    return inputs[role].metrics["accuracy"] if role in inputs else None


def predictions(inputs):
    """The artifact with the run's predictions (lineage.answering)."""
    return inputs.get(lineage.answering(inputs))


def difference(inputs, score, other):
    """The intervals.Difference of two artifacts with predictions for the images that the run is
    scored on.
    """
    labels = inputs["data"].array("test_labels.npy")
    return intervals.counted(
        labels, *(artifact.array("predictions.npy") for artifact in (score, other))
    )


def final(inputs):
    """The artifact with the run's final weights: of the training, of the fit if nothing is trained,
    or the initial ones.
    """
    return next(inputs[role] for role in WEIGHTS if role in inputs)


def network(inputs):
    """The run's networks.Network."""
    return networks.from_params(final(inputs).manifest["spec"]["params"])


def how(inputs):
    """How the run got its weights, before 'encoder' or 'network': 'fitted', 'trained', 'given' by a
    file, or 'untrained'.
    """
    if "patches" in inputs:
        return "fitted"
    if "train" in inputs:
        return "trained"
    return "given" if start(inputs) else "untrained"


def start(inputs):
    """The file whose weights the run started from, {"file", "sha256"}; None if they were random."""
    return lineage.start_file(inputs["initial"].manifest)


def head(inputs):
    """How labels trained a network with a head (networks.HEADED): {"start", "frozen"}; None for
    another or no training.

    start: how its encoder was made before, 'fitted', 'given' by a file, or 'untrained'; frozen:
    whether it stayed as it was.
    """
    settings = params(inputs, "train") if "train" in inputs else {}
    if settings.get("network") not in networks.HEADED:
        return None
    return {
        "start": "fitted" if "patches" in inputs else "given" if start(inputs) else "untrained",
        "frozen": settings["freeze_encoder"] or settings["training"] == "patches",
    }


def without_labels(inputs):
    """Whether the encoder of a network with a head had seen no labels before: it was fitted, or is
    an autoencoder's.
    """
    return "patches" in inputs or inputs["initial"].metrics.get("part") is not None


def reconstructs(inputs):
    return "reconstructions.npy" in final(inputs).manifest["files"]


def scored_on(inputs):
    """The kind of images that the run is scored on: 'test' or 'validation'."""
    return metrics.scored_on(params(inputs, "data"))


def from_root(path):
    """`path`, relative to the repository root if it is below it."""
    path = pathlib.Path(path)
    return (
        path.relative_to(sources.ROOT) if path.is_relative_to(sources.ROOT) else path
    ).as_posix()
