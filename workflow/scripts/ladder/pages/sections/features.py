"""The report's section on the features: their processing, their parts, and a map of test images.

inputs are artifacts by role, as in report.py.
"""

import collections
import re

import numpy as np

from ladder.features import shifts
from ladder.machine import runtime
from ladder.pages import charts, facts, figures, templates
from ladder.pages.sections.classes import FEW
from ladder.store import lineage

NEAREST = 5  # images that the map shows beside the one that a reader points at
NOT_FOR_PIXELS = {
    "features_pool",
    "features_max_pool",
    "features_two_polarity",
    "features_polarity_scale",
}

# How a network got the weights behind its features, in words after its name.
LEARNED = {
    "with labels": "trained with labels",
    "without labels": "trained without labels",
    "from patches": "fitted to patches without labels",
    "nothing": "not trained",
}


def section(inputs, numbers):
    """The numbers of the features, of all parts together; None without features."""
    if numbers["extraction"] is None:
        return None
    return {
        **numbers["extraction"],
        "parts": parts(inputs),
        "shifted": shifted(inputs),
        "raw_pixels": pixels(inputs),
        "map": feature_map(inputs, numbers["share"]) if facts.predictions(inputs) else None,
    }


def extraction(inputs):
    """How many features an image has, and how fast they are computed, JSON-able; None without
    features.
    """
    if "features" not in inputs:
        return None
    whole = {
        "odd_dimensions": 0,
        **inputs["features"].metrics,
        **inputs.get("joined", inputs["features"]).metrics,
    }
    return {
        **{key: whole[key] for key in ("dimensions", "odd_dimensions", "images_per_second")},
        "parts": [features.metrics["dimensions"] for features, _ in _joined(inputs)],
    }


# Where they come from.


def origins(inputs):
    """Where the features of the run's parts come from, JSON-able: [{"network", "layer", "weight",
    "learned", "file"}].

    weight: its factor, None for a single part; learned: a key of LEARNED; file: as facts.start, of
    its network.
    """
    by_version = {artifact.version: artifact for artifact in inputs.values()}
    return [_origin(features, weight, by_version) for features, weight in _joined(inputs)]


def with_labels(origins):
    """Those of `origins` whose networks were trained with labels."""
    return [origin for origin in origins if origin["learned"] == "with labels"]


def networks(inputs):
    """Titles of the networks whose features a run has, and of the untrained ones beside those that
    learned.

    Those of a kind are counted: (["2 patch networks", "an autoencoder"], ["an untrained
    autoencoder"]).
    """
    learned, random = [], []
    for (features, _), origin in zip(_joined(inputs), origins(inputs), strict=True):
        beside = (
            facts.how(inputs) != "untrained"
            and origin["learned"] == "nothing"
            and not origin["file"]
        )
        (random if beside else learned).append(_title(features.manifest["spec"]["params"]))
    counts = collections.Counter(
        learned or [_title(facts.final(inputs).manifest["spec"]["params"])]
    )
    first, *others = (
        re.sub(r"^An? (.*)", rf"{count} \1s", title) if count > 1 else title
        for title, count in counts.items()
    )
    kinds = collections.Counter(re.sub(r"^An? ", "", title) for title in random).items()
    return (
        [first, *(re.sub(r"^A(?=n? )", "a", title) for title in others)],
        [
            f"{count} untrained {kind}s" if count > 1 else f"an untrained {kind}"
            for kind, count in kinds
        ],
    )


def _title(settings):
    return templates.network_title(settings["network"], settings.get("variational", False))


def _joined(inputs):
    """[(artifact of features, its factor)]"""
    if "joined" not in inputs:
        return [(inputs["features"], None)] if "features" in inputs else []
    spec = inputs["joined"].manifest["spec"]
    by_version = {artifact.version: artifact for artifact in inputs.values()}
    return [
        (by_version[spec["parents"][f"part{number}"]], weight)
        for number, weight in enumerate(spec["params"]["weights"], 1)
    ]


def _origin(features, weight, by_version):
    params = features.manifest["spec"]["params"]
    source = by_version[features.manifest["spec"]["parents"]["weights"]]
    learned = {"patches": "from patches", "initial": "nothing"}.get(
        source.manifest["spec"]["stage"]
    )
    return {
        "network": params["network"],
        "layer": params["features_layer"],
        "weight": weight,
        "learned": learned or ("with labels" if "classes" in params else "without labels"),
        "file": lineage.start_file(_initial(source, by_version).manifest),
    }


def _initial(artifact, by_version):
    """The artifact of stage `initial` that an artifact with weights comes from."""
    while artifact.manifest["spec"]["stage"] != "initial":
        parents = artifact.manifest["spec"]["parents"]
        artifact = by_version[parents.get("patches", parents.get("initial"))]
    return artifact


# How they are processed.


def parts(inputs):
    """The run's features and those joined to them: [{"network", "layer", "how", "weight", "steps",
    "dimensions"}].

    network: its title; how: it got its weights; weight: None for a single part; steps: in words, in
    the order of the work.
    """
    return [
        {
            "network": _title(features.manifest["spec"]["params"]),
            "layer": origin["layer"],
            "weight": origin["weight"],
            "how": _how(origin),
            "steps": _steps(features.manifest["spec"]["params"], features.metrics),
            "dimensions": features.metrics["dimensions"],
        }
        for origin, (features, _) in zip(origins(inputs), _joined(inputs), strict=True)
    ]


def _how(origin):
    learned, file = LEARNED[origin["learned"]], origin["file"]
    if not file:
        return learned
    return f"{learned}, {'with the weights of' if origin['learned'] == 'nothing' else 'starting from'} {file['file']}"


def _steps(params, metrics):
    steps = []
    if "features_two_polarity" in params:
        a = f"{params['features_two_polarity']:g}"
        z = (
            "standardised by channel to z"
            if "features_polarity_scale" in params
            else "z, not scaled"
        )
        steps.append(f"{z}: relu(z − {a}) and relu(−z − {a})")
    if "features_max_pool" in params:
        steps.append("max pooling over {0} × {0} windows".format(params["features_max_pool"]))
    if params.get("features_pool", "none") != "none":
        steps.append("average pooling to a {0} × {0} grid".format(params["features_pool"]))
    if params.get("features_flip"):
        steps.append(
            "averaged with the features of the mirrored image"
            + (
                "; half their difference is kept apart, for kernel ridge"
                if params["features_flip"] == "apart"
                else ""
            )
        )
    if params.get("features_standardize"):
        steps.append("standardised to mean 0 and standard deviation 1 over the training images")
    if "features_pca" in params:
        steps.append(
            f"PCA: {metrics['dimensions']:,} components of {metrics['dimensions_before_pca']:,} values, which keep "
            f"{templates.percent(metrics['variance_kept'])} of the variance"
        )
    return steps


def shifted(inputs):
    """How classifiers of features take shifted images: {"pixels": distance, "images": number that a
    decision is the mean over}.

    None if they decide by each image alone.
    """
    classifier = lineage.primary_classifier(inputs)
    distance = facts.params(inputs, classifier).get("classify_shifts") if classifier else None
    return distance and {"pixels": distance, "images": 1 + len(shifts.offsets(distance))}


def pixels(inputs):
    """How the control's raw pixels are processed: {"steps", "not_for_them": whether the run has
    options that do not apply}.
    """
    if not inputs.keys() >= {"features_pixels", "features"}:
        return None
    of_pixels, own = (facts.params(inputs, role) for role in ("features_pixels", "features"))
    on = {key for key in NOT_FOR_PIXELS & own.keys() if own[key] not in ("none", 1)}
    return {
        "steps": _steps(of_pixels, inputs["features_pixels"].metrics),
        "not_for_them": bool(on) or "joined" in inputs,
    }


def feature_map(inputs, share=True):
    """Test images in the plane: {"chart": of charts.scatter, "count", "of", "wrong"}; None without
    a map.

    The classes with the most errors, ten at most, have marks of their own. The legend has the image
    of each class that is closest to its median, where its name stands; of more than FEW classes
    those with marks have names. A point that a reader points at is shown with its picture and those
    that are nearest by the features, not by their places. share: whether pictures are shown.
    """
    if "map" not in inputs or not len(inputs["map"].array("rows.npy")):
        return None
    data, rows = inputs["data"], np.asarray(inputs["map"].array("rows.npy"))
    x, y = np.asarray(inputs["map"].array("places.npy"), np.float64).T
    labels, names = np.asarray(data.array("test_labels.npy"))[rows], data.metrics["classes"]
    named = np.asarray(facts.predictions(inputs).array("predictions.npy"))[rows]
    present = np.unique(labels)
    worst = sorted(present, key=lambda label: (-np.sum(named[labels == label] != label), label))[
        : charts.COLOURS
    ]
    colours = {label: number for number, label in enumerate(sorted(worst), 1)}
    series, marks = [], []
    for label in present:
        own = np.flatnonzero(labels == label)
        middle = np.median(x[own]), np.median(y[own])
        nearest = own[np.argmin((x[own] - middle[0]) ** 2 + (y[own] - middle[1]) ** 2)]
        listed = label in colours or len(present) <= FEW
        series.append(
            {
                "name": names[label],
                "key": f"class {label}",
                "colour": colours.get(label, "rest"),
                "listed": listed,
                "thumb": int(nearest) if share else None,
                "points": [_place(x[at], y[at], names[label], names[named[at]], at) for at in own],
            }
        )
        if listed:
            marks.append({"name": names[label], "x": float(middle[0]), "y": float(1 - middle[1])})
    side = charts.number_axis("", ends=(-0.03, 1.03))  # a margin for the points at the edges
    pictures = {"sheet": figures.sheet(data.array("test_images.npy")[rows])} if share else {}
    near = neighbours(inputs.get("joined", inputs["features"]).array("test.npy")[rows]).tolist()
    return {
        "chart": charts.scatter(
            "Map of the features",
            series,
            side,
            side,
            names=marks,
            square=True,
            nearest=near,
            **pictures,
        ),
        "count": len(rows),
        "of": data.metrics["test"],
        "wrong": int((labels != named).sum()),
    }


def neighbours(vectors):
    """The rows of the NEAREST other rows of vectors (N, D) float32 by Euclidean distance, nearest
    first: int64.

    (N, NEAREST), or one column fewer than there are rows.
    """
    with runtime.one_blas_thread():  # the same page with any number of threads
        products = vectors @ vectors.T
    squares = np.diag(products)
    distances = squares[None, :] - 2 * products
    np.fill_diagonal(distances, np.inf)
    return np.argsort(distances, axis=1, kind="stable")[:, : min(NEAREST, len(vectors) - 1)]


def _place(x, y, label, named, picture):
    """A point of the map, whose y is from the top; picture: its number on the sheet."""
    return {
        "x": float(x),
        "y": float(1 - y),
        "look": "ring" if label != named else "",
        "picture": int(picture),
        "text": f"true class {label}, classified as {named}",
    }
