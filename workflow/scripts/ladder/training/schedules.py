"""What of a learning-rate schedule does not fit into the number of a training's steps, in words."""

from collections.abc import Iterator, Mapping
from typing import Any

from ladder.network import optimizers
from ladder.training.planning.settings import Length


def misfits(params: Mapping[str, Any], images: int) -> list[str]:
    """One sentence for each fault of the schedule, which names the keys and says what happens
    instead.

    params: of stage `train`, or a configuration's settings; images: number of training images. Each
    part of a training has the schedule for itself.
    """
    lines: list[str] = []
    for key in _keys(params):
        length = Length.of(
            images, params["batch_size"], params[key], params[key] if key == "steps" else None
        )
        if length.steps:
            counted = f"{key} {params[key]}" + (
                "" if key == "steps" else f", {_steps(length.steps)}"
            )
            lines += _misfits(params, length, counted)
    return lines


def _keys(params: Mapping[str, Any]) -> list[str]:
    """The keys of the lengths of a training's parts: of the decoder alone, of all layers."""
    decoder = ["decoder_epochs"] if params["training"] != "gradient" else []
    whole = "epochs" if params.get("steps", "none") == "none" else "steps"
    return decoder + ([whole] if params["training"] != "patches" else [])


def _misfits(params: Mapping[str, Any], length: Length, counted: str) -> Iterator[str]:
    wanted, rise = params["warmup_steps"], optimizers.warmup(length, params["warmup_steps"])
    if rise != wanted:
        instead = (
            f"rises over the first {rise} steps instead"
            if rise > 1
            else "has its full value from the first step on"
        )
        yield f"warmup_steps {wanted} is more than the training has ({counted}); the learning rate {instead}"
    if (
        params["schedule"] == "step"
        and params["schedule_step_epochs"] * length.steps_per_epoch >= length.steps
    ):
        yield (
            f"schedule step with schedule_step_epochs {params['schedule_step_epochs']} changes nothing in this training "
            f"({counted}, {length.steps_per_epoch} in an epoch); the learning rate stays as it is after the warm-up"
        )


def _steps(count: int) -> str:
    return f"{count} step{'s' if count != 1 else ''}"
