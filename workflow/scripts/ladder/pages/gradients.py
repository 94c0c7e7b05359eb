"""The page of the comparison of a backward pass with finite differences (training/gradients.py)."""

from ladder.pages import templates
from ladder.training import gradients

# others have their own names
PRECISIONS = {"float64": "double precision", "float32": "single precision", "tf32": "TF32"}


def page(summary):
    """The page of `summary`, as gradients.check returns it, as one HTML text."""
    return templates.render("gradients.html", context(summary))


def context(summary):
    """All variables of the template."""
    tensors = {row["tensor"]: row for row in summary["tensors"]}
    return {
        "summary": summary,
        "title": templates.network_title(summary["network"]),
        "verdict": verdict(summary),
        "precision": PRECISIONS.get(summary["precision"], summary["precision"]),
        "tolerance": f"{summary['tolerance']:.0e}",
        "largest": _digits(max((row["deviation"] for row in summary["tensors"]), default=0)),
        "layers": [_layer(row, tensors) for row in summary["layers"]],
        "tensors": [
            {
                **row,
                "deviation": _digits(row["deviation"]),
                "norm": f"{row['norm']:.3g}",
                **{key: f"{row[key]:.7g}" for key in ("difference", "product")},
            }
            for row in summary["tensors"]
        ],
    }


def verdict(summary):
    """One sentence: whether the backward pass is right, and if not, where to look."""
    count = sum(row["passed"] is not None for row in summary["layers"])
    if summary["passed"]:
        return f"The backward pass of all {count} trained layers agrees with finite differences."
    wrong, where = (
        [row["tensor"] for row in summary["tensors"] if not row["passed"]],
        gradients.suspects(summary),
    )
    return (
        f"The backward pass is wrong: the gradient of {templates.listed(wrong[-3:])}"
        f"{f' and {len(wrong) - 3} more tensors' if len(wrong) > 3 else ''} deviates from finite differences. The fault is "
        f"in the layer {' or '.join(where)}."
    )


def _layer(row, tensors):
    """A layer's deviation is the largest of the tensors that show it."""
    shown = [tensors[name] for name in row["own"] + row["through"] if name in tensors]
    largest = max((row["deviation"] for row in shown), default=None)
    return {
        **row,
        "deviation": "" if largest is None else _digits(largest),
        "seen": shown[0]["layer"] if shown else "",
    }


def _digits(value):
    return f"{value:.1e}"
