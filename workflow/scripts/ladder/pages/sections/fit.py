"""The report's section on layers that were fitted to patches."""

from ladder.pages import facts, templates

FILTERS = {"kmeans": "k\u2011means", "random": "random patches"}  # a hyphen without a line break
WHITENINGS = {"zca": "ZCA", "pca": "PCA", "rotation": "PCA, unscaled", "none": "none"}


def section(inputs, numbers):
    """How each layer was fitted: {"layers", "decoder", "joint", "divided"}; None without a fit.

    decoder, joint: epochs in words of the training of the decoder alone and of all layers, '' for
    none; divided: whether patches were divided by their contrast.
    """
    if "patches" not in inputs:
        return None
    rows = [
        {
            **row,
            "whitening": WHITENINGS[row["whitening"]],
            "filters": FILTERS.get(row["atoms"], "none"),
            "variance": "" if row["explained"] == 1 else templates.percent(row["explained"]),
            "iterations": len(row["objective"]),
        }
        for row in inputs["patches"].metrics["layers"]
    ]
    parts = inputs["train"].metrics["parts"] if "train" in inputs else []
    return {
        "layers": rows,
        "decoder": _lengths(parts[:1]),
        "joint": _lengths(parts[1:]),
        "divided": any(layer.kind == "local_contrast" for layer in facts.network(inputs).layers),
    }


def _lengths(parts):
    return ", ".join(
        f"{part['epochs']} epoch{'s' if part['epochs'] != 1 else ''}" for part in parts
    )
