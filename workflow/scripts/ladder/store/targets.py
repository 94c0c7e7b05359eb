"""Targets of a run: bounds on numbers of its summary.json, reached or not. Standard library
only.
"""

import math
from typing import Any

BOUNDS = ("at_least", "at_most")
# The numbers of summary.json, or the groups of numbers: a target names one of a group after a dot,
# as in seconds.train. Of a list, which has a number for each epoch, the last one counts.
METRICS = (
    "test_accuracy",
    "test_loss",
    "control_accuracy",
    "raw_pixel_accuracy",
    "loss",
    "accuracy",
    "divergence",
    "loss_change",
    "reconstruction_loss",
    "validation_curve",
    "reference",
    "layer_movement",
    "per_class",
    "svm",
    "evaluations",
    "seconds",
    "images_per_second",
    "peak_memory_bytes",
    "epochs",
    "steps",
)


def judged(targets: list[dict[str, Any]], numbers: dict[str, Any]) -> list[dict[str, Any]]:
    """The targets, each with "reached", the number, None if the run has none, and "met"; numbers:
    summary.json.
    """
    return [
        {
            **target,
            "reached": (reached := number(numbers, target["metric"])),
            "met": is_met(target, reached),
        }
        for target in targets
    ]


def number(numbers: dict[str, Any], metric: str) -> float | None:
    """The number that a metric names, of a list the last; None without one."""
    value: Any = numbers
    for name in metric.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    value = value[-1] if isinstance(value, list) and value else value
    return (
        value
        if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
        else None
    )


def is_met(target: dict[str, Any], reached: float | None) -> bool:
    if reached is None:
        return False
    return bool(
        reached >= target["at_least"] if "at_least" in target else reached <= target["at_most"]
    )
