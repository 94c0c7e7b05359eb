"""Names of the roles of a report's artifacts on the pages: stages, classifiers, and the encoders whose features they read."""

import collections

from ladder.store import lineage

# The stages of a run and of its controls, in the order of the work. A control repeats those from `features` on.
STAGES = {"data": "data", "normalized": "normalized", "initial": "initial weights",
          "initial_random": "initial weights, untrained network", "patches": "fit to patches", "train": "train",
          "train_reference": "train, reference", "evaluate": "evaluate"}
REPEATED = {"features": "features", "joined": "features joined", "shifted": "features of shifted images", "svm": "svm",
            "linear": "linear", "ridge": "ridge", "knn": "knn"}
CONTROLS = {"start": "encoder at the start", **dict(zip(lineage.CONTROLS, ("untrained network", "raw pixels"), strict=True))}
TITLES = {
    **STAGES, **REPEATED,
    **{f"{role}_{control}": f"{title}, {encoder}" for control, encoder in CONTROLS.items() for role, title in REPEATED.items()},
    "map": "map of the features",
}
CONTROL_TITLES = {title for role, title in TITLES.items() if "_" in role}

# In tables of accuracies: head of a role -> classifier, and its tail -> encoder.
CLASSIFIERS = {"evaluate": "the network itself", "svm": "SVM", "linear": "linear", "ridge": "kernel ridge",
               "knn": "nearest neighbours"}
ENCODERS = ("", "_start", "_random", "_pixels")

# The classifiers of features that can judge a run, in sentences; `The` and `A` begin one.
Judge = collections.namedtuple("Judge", "name the The a A")
JUDGES = {"svm": Judge("SVM", "the SVM", "The SVM", "an SVM", "An SVM"),
          "ridge": Judge("Kernel ridge", *["kernel ridge regression", "Kernel ridge regression"] * 2)}

# In the chart of accuracies: tail of the judge's role -> (name, note), by the kind of network. {made}: how the run got its
# weights, {judge}: the judge's name.
AUTOENCODER = {"": ("{made} encoder", "this run"), "_random": ("Untrained encoder", "control"),
               "_pixels": ("Raw pixels", "control")}
CLASSIFYING = {"": ("{judge}, {made} network", "its features"), "_start": ("{judge}, encoder at the start", "control"),
               "_random": ("{judge}, untrained network", "control"),
               "_pixels": ("{judge}, raw pixels", "control")}


def in_order(roles):
    """The roles that have a title, in the order of the work; features_part2 follows features."""
    order = list(TITLES)
    return sorted((role for role in roles if _whole(role) in TITLES), key=lambda role: (order.index(_whole(role)), role))


def title(role):
    """The role's title; 'features, part 2' of features_part2."""
    _, _, part = role.partition("_part")
    return TITLES[_whole(role)] + (f", part {part}" if part else "")


def encoder(tail, made):
    """The encoder of a role's tail in tables; made: how the run got its weights, 'trained'."""
    return {"": made, "_start": "at the start", "_random": "untrained", "_pixels": "raw pixels"}[tail]


def _whole(role):
    return role.partition("_part")[0]
