"""What the report shows of the features: how they were made, of which parts, and a map of test images by them.

inputs are artifacts by role, as in report.py.
"""

import numpy as np

from ladder.pages import figures, report_sections, templates

NOT_FOR_PIXELS = {"features_pool", "features_max_pool", "features_two_polarity", "features_polarity_scale"}


def parts(inputs):
    """The run's features, and those joined to them: [{"steps", "dimensions", "weight", "layer"}], weight None of what is alone.

    steps: in words, in the order of the work.
    """
    if "features" not in inputs:
        return []
    if "joined" not in inputs:
        return [_part(inputs["features"], None)]
    spec = inputs["joined"].manifest["spec"]
    found = {artifact.version: artifact for artifact in inputs.values()}
    return [_part(found[spec["parents"][f"part{number}"]], weight)
            for number, weight in enumerate(spec["params"]["weights"], 1)]


def _part(features, weight):
    params = features.manifest["spec"]["params"]
    return {"steps": _steps(params, features.metrics), "dimensions": features.metrics["dimensions"],
            "layer": params["features_layer"], "weight": weight}


def _steps(params, metrics):
    steps = []
    if "features_two_polarity" in params:
        a = f"{params['features_two_polarity']:g}"
        z = "by channel minus its mean and over its deviation, z" if "features_polarity_scale" in params else "as it is, z"
        steps.append(f"{z}: both relu(z − {a}) and relu(−z − {a})")
    if "features_max_pool" in params:
        steps.append("the largest value of each {0} × {0} window".format(params["features_max_pool"]))
    if params.get("features_pool", "none") != "none":
        steps.append("the mean over each cell of a {0} × {0} grid".format(params["features_pool"]))
    if params.get("features_flip"):
        steps.append("the mean with the mirror image's")
    if params.get("features_standardize"):
        steps.append("each value to mean 0 and deviation 1 over the training images")
    if "features_pca" in params:
        steps.append(f"the first {params['features_pca']:,} principal components of {metrics['dimensions_before_pca']:,} "
                     f"values, which hold {templates.percent(metrics['variance_kept'])} of the variance")
    return steps


def pixels(inputs):
    """What was done to the raw pixels of the control: {"steps", "not_for_them": whether the run has options that need maps}."""
    if "features_pixels" not in inputs:
        return None
    made, own = (inputs[role].manifest["spec"]["params"] for role in ("features_pixels", "features"))
    on = {key for key in NOT_FOR_PIXELS & own.keys() if own[key] not in ("none", 1)}
    return {"steps": _steps(made, inputs["features_pixels"].metrics), "not_for_them": bool(on) or "joined" in inputs}


def feature_map(inputs):
    """Test images at their places: {"points", "labels", "legend", "count", "of", "wrong"}; None where there is no map.

    points: {"x", "y", "series", "text", "wrong"}, x and y in percent from the left and the top; labels: a class's name at the
    median of its points; legend: an image of each class, that of the point nearest there.
    """
    if "map" not in inputs or not len(inputs["map"].array("rows.npy")):
        return None
    data, rows = inputs["data"], np.asarray(inputs["map"].array("rows.npy"))
    # A margin, for the points at the edge.
    x, y = 3 + 94 * np.asarray(inputs["map"].array("places.npy"), np.float64).T
    labels, names = np.asarray(data.array("test_labels.npy"))[rows], data.metrics["classes"]
    named = np.asarray(report_sections.verdict(inputs).array("predictions.npy"))[rows]
    wrong = labels != named
    points = [{"x": round(x[at], 1), "y": round(y[at], 1), "series": int(labels[at]) + 1, "wrong": wrong[at],
               "text": names[labels[at]] + (f", named {names[named[at]]}" if wrong[at] else "")} for at in range(len(rows))]
    legend, marks = [], []
    for label in np.unique(labels):
        own = np.flatnonzero(labels == label)
        middle = np.median(x[own]), np.median(y[own])
        nearest = own[np.argmin((x[own] - middle[0]) ** 2 + (y[own] - middle[1]) ** 2)]
        marks.append({"name": names[label], "x": round(middle[0], 1), "y": round(middle[1], 1)})
        legend.append({"name": names[label], "series": int(label) + 1,
                       "image": figures.png_uri(data.array("test_images.npy")[rows[nearest]])})
    return {"points": points, "labels": marks, "legend": legend, "count": len(rows), "of": data.metrics["test"],
            "wrong": int(wrong.sum())}
