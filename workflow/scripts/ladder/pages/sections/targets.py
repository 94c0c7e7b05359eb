"""The report's section on the targets of the run."""

from ladder.pages import templates
from ladder.store.targets import BOUNDS

# First part of a metric -> its numbers in words; accuracies are percentages, others have four
# digits.
WORDS = {
    "seconds": templates.duration,
    "peak_memory_bytes": templates.size,
    "per_class": templates.percent,
    "layer_movement": templates.small_percent,
}


def section(inputs, numbers):
    """Rows of the table of targets (store/targets.py): [{"metric", "bound", "reached",
    "verdict"}].
    """
    rows = []
    for target in numbers["targets"]:
        metric, (bound, value) = (
            target["metric"],
            next((bound, target[bound]) for bound in BOUNDS if bound in target),
        )
        words = (
            templates.percent
            if "accuracy" in metric
            else WORDS.get(metric.partition(".")[0], "{:.4g}".format)
        )
        reached = target["reached"]
        rows.append(
            {
                "metric": metric,
                "bound": f"{bound.replace('_', ' ')} {words(value)}",
                "reached": "not measured" if reached is None else words(reached),
                "verdict": "met" if target["met"] else "not met",
            }
        )
    return rows
