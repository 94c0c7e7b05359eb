"""Names of the roles of a report's artifacts on the pages: stages, classifiers, and the encoders
whose features they read.
"""

import collections

from ladder.store.roles import PIXELS, RANDOM, START, STRONG

# The stages of a run and of its controls, in the order of the work. A control repeats those from
# `features` on.
STAGES = {
    "data": "data",
    "normalized": "normalized",
    "normalized_random": "normalized, untrained network",
    "normalized_pixels": "normalized, raw pixels",
    "initial": "initial weights",
    "initial_random": "initial weights, untrained network",
    "initial_strong": "initial weights, best cheap untrained network",
    "patches": "fit to patches",
    "train": "train",
    "train_reference": "train, reference",
    "evaluate": "evaluate",
}
REPEATED = {
    "features": "features",
    "joined": "features joined",
    "shifted": "features of shifted images",
    "changed": "features of changed copies",
    "svm": "svm",
    "linear": "linear",
    "ridge": "ridge",
    "knn": "knn",
    "labels": "few labels",
}
CONTROLS = {
    START: "encoder at the start",
    RANDOM: "untrained network",
    STRONG: "best cheap untrained network",
    PIXELS: "raw pixels",
}
TITLES = {
    **STAGES,
    **REPEATED,
    **{
        f"{role}_{control}": f"{title}, {encoder}"
        for control, encoder in CONTROLS.items()
        for role, title in REPEATED.items()
    },
    "map": "map of the features",
    "neighbours": "neighbours",
}

# In tables of accuracies: head of a role -> classifier, and its tail -> encoder.
CLASSIFIERS = {
    "evaluate": "the network itself",
    "svm": "SVM",
    "linear": "logistic regression",
    "ridge": "kernel ridge",
    "knn": "nearest neighbours",
}
ENCODERS = {
    "": "{how}",
    "_start": "at the start",
    "_random": "untrained",
    "_strong": "best cheap untrained",
    "_pixels": "raw pixels",
}

# The classifiers of features that a run can be scored by, in sentences; `The` and `A` begin one.
Classifier = collections.namedtuple("Classifier", "name the The a A")
PRIMARY = {
    "svm": Classifier("SVM", "the SVM", "The SVM", "an SVM", "An SVM"),
    "ridge": Classifier(
        "Kernel ridge", *["kernel ridge regression", "Kernel ridge regression"] * 2
    ),
}

# In the chart of accuracies: tail of the primary classifier's role -> (name, note), by the kind of
# network. {how}: the run got its weights, {classifier}: the name of the primary classifier.
AUTOENCODER = {
    "": ("{how} encoder", "this run"),
    "_random": ("Untrained encoder", "control"),
    "_strong": ("Best cheap untrained encoder", "control"),
    "_pixels": ("Raw pixels", "control"),
}
CLASSIFYING = {
    "": ("{classifier}, {how} network", "its features"),
    "_start": ("{classifier}, encoder at the start", "control"),
    "_random": ("{classifier}, untrained network", "control"),
    "_strong": ("{classifier}, best cheap untrained encoder", "control"),
    "_pixels": ("{classifier}, raw pixels", "control"),
}


def in_order(roles):
    """The roles that have a title, in the order of the work; features_part2 follows features."""
    order = list(TITLES)
    return sorted(
        (role for role in roles if _whole(role) in TITLES),
        key=lambda role: (order.index(_whole(role)), role),
    )


def title(role):
    """The role's title; 'features, part 2' of features_part2."""
    _, _, part = role.partition("_part")
    return TITLES[_whole(role)] + (f", part {part}" if part else "")


def encoder(tail, how):
    """The encoder of a role's tail in tables; how: the run got its weights, 'trained'."""
    return ENCODERS[tail].format(how=how)


def _whole(role):
    return role.partition("_part")[0]
