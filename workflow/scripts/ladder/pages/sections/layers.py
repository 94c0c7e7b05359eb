"""The report's section on the network: its layers with their kernels and costs."""

from ladder.pages import facts, templates

KEYS = "layer", "kind", "output", "parameters", "macs"  # in the summary
COSTS = {"parameters": templates.count, "macs": templates.large}  # of a layer, with their formats


def numbers(metrics):
    """What the summary has of each layer, JSON-able; metrics: of an artifact with weights."""
    return [{key: layer[key] for key in KEYS} for layer in metrics["network"]]


def section(inputs, numbers):
    return layers(facts.final(inputs).metrics)


def layers(metrics):
    """The network's layers, in one part or, if there are many, one per stage: {"parts",
    "parameters", "macs", "count"}.

    metrics: of an artifact with weights; initial weights have no kernels.
    `rows` of a layer: number of layers, from this one on, that its kernel computes together (0
    inside such a group).
    """
    every = {layer["layer"]: layer for layer in metrics["network"]}
    parts = [
        _part(stage, [every[name] for name in names], metrics.get("kernels", []))
        for stage, names in templates.folded(every)
    ]
    templates.add_cells(parts, COSTS)
    return {
        "parts": parts,
        "count": len(every),
        **{cost: sum(layer[cost] for layer in every.values()) for cost in COSTS},
    }


def _part(stage, rows, kernels):
    left, shown = 0, []  # left: remaining layers of the current group
    for at, layer in enumerate(rows):
        kernel, count = next(
            (
                (row["kernel"], len(row["layer"].split(" + ")))
                for row in kernels
                if row["layer"].split(" + ")[0] == layer["layer"]
            ),
            ("", 0 if left else 1),
        )
        count = min(count, len(rows) - at)
        left = count - 1 if count else left - 1
        shown.append(
            {**layer, "kernel": kernel, "rows": count, "shape": templates.shape(layer["output"])}
        )
    return templates.part(stage, [layer["layer"] for layer in rows], shown, COSTS)
