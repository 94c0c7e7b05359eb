"""What of a learning rate schedule does not fit into the number of a training's steps, in words."""

from collections.abc import Iterator

from ladder.network import optimizers
from ladder.plan.settings import Length
from ladder.training.parameters import TrainingParameters
from ladder.training.phases import Parts


def misfits(given: TrainingParameters, parts: Parts, images: int) -> list[str]:
    """One sentence for each fault of the schedule, which names the keys and says what happens
    instead.

    parts: phases.parts, of which each has the schedule for itself; images: number of training
    images.
    """
    lines: list[str] = []
    for name, part in parts:
        length, key = part.length(images), f"{name}_epochs".removeprefix("_")
        counted = (
            f"{key} {part.epochs}, {_steps(length.steps)}"
            if part.steps is None
            else f"steps {part.steps}"
        )
        lines += _misfits(given, length, counted) if length.steps else []
    return lines


def _misfits(given: TrainingParameters, length: Length, counted: str) -> Iterator[str]:
    wanted, rise = given.warmup_steps, optimizers.warmup(length, given.warmup_steps)
    if rise != wanted:
        instead = (
            f"rises over the first {rise} steps instead"
            if rise > 1
            else "has its full value from the first step on"
        )
        yield f"warmup_steps {wanted} is more than the training has ({counted}); the learning rate {instead}"
    if (
        given.schedule == "step"
        and given.schedule_step_epochs * length.steps_per_epoch >= length.steps
    ):
        yield (
            f"schedule step with schedule_step_epochs {given.schedule_step_epochs} changes nothing in this training "
            f"({counted}, {length.steps_per_epoch} in an epoch); the learning rate stays as it is after the warm-up"
        )


def _steps(count: int) -> str:
    return f"{count} step{'s' if count != 1 else ''}"
