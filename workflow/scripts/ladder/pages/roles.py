"""Names of the roles of a report's artifacts on the pages: stages, classifiers, and the encoders whose features they read."""

import collections
import dataclasses

from ladder.store.roles import PIXELS, RANDOM, START, Role

# The stages of a run and of its controls, in the order of the work. A control repeats those from `features` on.
STAGES = {"data": "data", "normalized": "normalized", "initial": "initial weights",
          "initial_random": "initial weights, untrained network", "patches": "fit to patches", "train": "train",
          "train_reference": "train, reference", "evaluate": "evaluate"}
REPEATED = {"features": "features", "joined": "features joined", "shifted": "features of shifted images", "svm": "svm",
            "linear": "linear", "ridge": "ridge", "knn": "knn"}
CONTROLS = {START: "encoder at the start", RANDOM: "untrained network", PIXELS: "raw pixels"}
TITLES = {
    **STAGES, **REPEATED,
    **{str(Role(stage, kind)): f"{title}, {encoder}"
       for kind, encoder in CONTROLS.items() for stage, title in REPEATED.items()},
    "map": "map of the features",
}
CONTROL_TITLES = {title for role, title in TITLES.items() if Role.parse(role).kind}

# In tables of accuracies: stage of a role -> classifier, and its kind -> encoder.
CLASSIFIERS = {"evaluate": "the network itself", "svm": "SVM", "linear": "linear", "ridge": "kernel ridge",
               "knn": "nearest neighbours"}
ENCODERS = ("", START, RANDOM, PIXELS)

# The classifiers of features that can judge a run, in sentences; `The` and `A` begin one.
Judge = collections.namedtuple("Judge", "name the The a A")
JUDGES = {"svm": Judge("SVM", "the SVM", "The SVM", "an SVM", "An SVM"),
          "ridge": Judge("Kernel ridge", *["kernel ridge regression", "Kernel ridge regression"] * 2)}

# In the chart of accuracies: kind of the judge's role -> (name, note), by the kind of network. {made}: how the run got its
# weights, {judge}: the judge's name.
AUTOENCODER = {"": ("{made} encoder", "this run"), RANDOM: ("Untrained encoder", "control"),
               PIXELS: ("Raw pixels", "control")}
CLASSIFYING = {"": ("{judge}, {made} network", "its features"), START: ("{judge}, encoder at the start", "control"),
               RANDOM: ("{judge}, untrained network", "control"),
               PIXELS: ("{judge}, raw pixels", "control")}


def in_order(roles):
    """The roles that have a title, in the order of the work; features_part2 follows features."""
    order = list(TITLES)
    return sorted((role for role in roles if _whole(role) in TITLES), key=lambda role: (order.index(_whole(role)), role))


def title(role):
    """The role's title; 'features, part 2' of features_part2."""
    part = Role.parse(role).part
    return TITLES[_whole(role)] + (f", part {part}" if part > 1 else "")


def encoder(kind, made):
    """The encoder of a kind of features in tables; made: how the run got its weights, 'trained'."""
    return {"": made, START: "at the start", RANDOM: "untrained", PIXELS: "raw pixels"}[kind]


def _whole(role):
    return str(dataclasses.replace(Role.parse(role), part=1))
