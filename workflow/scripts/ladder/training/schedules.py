"""What of a learning-rate schedule does not fit into the number of a training's steps, in words."""

from collections.abc import Iterator

from ladder.network import optimizers
from ladder.plan.settings import Length
from ladder.training.parameters import TrainingParameters


def misfits(given: TrainingParameters, images: int) -> list[str]:
    """One sentence for each fault of the schedule, which names the keys and says what happens
    instead.

    images: number of training images. Each part of a training has the schedule for itself.
    """
    lines: list[str] = []
    for key, epochs, steps in _parts(given):
        length = Length.from_epochs(images, given.batch_size, epochs, steps)
        if length.steps:
            counted = (
                f"{key} {epochs}, {_steps(length.steps)}" if steps is None else f"{key} {steps}"
            )
            lines += _misfits(given, length, counted)
    return lines


def _parts(given: TrainingParameters) -> Iterator[tuple[str, int | None, int | None]]:
    """(key of its length, epochs, steps) of each part: of the decoder alone, of all layers."""
    if given.decoder_epochs is not None:
        yield "decoder_epochs", given.decoder_epochs, None
    if given.training != "patches":
        yield "epochs" if given.steps is None else "steps", given.epochs, given.steps


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
