"""The report's section on time and memory: by stage and by operation."""

from ladder.executors.create import COPIES, WAITING
from ladder.pages import facts, roles, templates

# Kind of layer, except convolutions -> the category its time is reported under if it has an
# operation of its own.
LAYER_WORK = {
    "relu": "ReLU",
    "maxpool2d": "pooling",
    "upsample2d": "upsampling",
    "dense": "dense layers",
}
# the latter for a network without shortcuts
SHORTCUTS, SHAPES = "shortcuts and shapes", "padding and shapes"


def section(inputs, numbers):
    """sampled: whether the operations of some steps alone were timed; executor: bytes that it takes
    for itself.
    """
    artifact = facts.final(inputs)
    memory = artifact.metrics.get("memory", {})
    executor = memory.get("workspace of the executor", 0)
    return {
        "threads": artifact.manifest["threads"],
        "stages": templates.bars(
            {roles.title(role): value for role, value in numbers["seconds"].items()},
            templates.duration,
        ),
        "operations": operations(artifact),
        "sampled": bool(artifact.metrics.get("seconds_from_samples")),
        "memory": templates.bars(memory, templates.size),
        "buffers": sum(memory.values()) - executor,
        "executor": executor,
    }


def operations(artifact):
    """Bars of the seconds of each operation of the training or the fit; None if there was
    neither.
    """
    if "seconds_by_operation" not in artifact.metrics:
        return None
    kinds, values = _kinds(artifact.metrics), spent(artifact.metrics)
    total = sum(values.values())
    rows = templates.bars(
        dict(sorted(values.items(), key=lambda item: -item[1])), templates.duration
    )
    for row in rows:
        row["note"] = templates.percent(values[row["name"]] / total)
    fused = [name for kind, name in LAYER_WORK.items() if kind in kinds and name not in values]
    return {"rows": rows, "total": total, "fused": fused, "copies": copies(artifact.metrics)}


def spent(metrics):
    """Operation -> seconds of the training or the fit, without the copies of images, which run
    beside the operations.
    """
    return {name: value for name, value in named(metrics).items() if value > 0 and name != COPIES}


def named(metrics):
    """Operation -> seconds, by the words of pages; empty without them."""
    words = {} if "add" in _kinds(metrics) else {SHORTCUTS: SHAPES}
    return {
        words.get(name, name): value
        for name, value in metrics.get("seconds_by_operation", {}).items()
    }


def _kinds(metrics):
    return {layer["kind"] for layer in metrics.get("network", ())}


def copies(metrics):
    """{"took", "waited", "hidden"}: texts on the copies of streamed images; None if none was
    measured.

    took: the time of the copies; waited: the part of it in which nothing else ran; hidden: the
    share of the rest.
    """
    took, waited = (metrics["seconds_by_operation"].get(name, 0.0) for name in (COPIES, WAITING))
    if not took:
        return None
    return {
        "took": templates.duration(took),
        "waited": templates.duration(waited),
        "hidden": templates.percent(1 - min(1, waited / took)),
    }
