"""The parts of a training, each with its settings."""

import dataclasses

from ladder.arithmetic.multipliers import EXACT, ByDirection
from ladder.network.networks import Network
from ladder.network.optimizers import Optimizer, Schedule
from ladder.plan.settings import Augmentation, TrainingSettings
from ladder.training.parameters import TrainingParameters

Parts = list[tuple[str, TrainingSettings]]


def parts(network: Network, given: TrainingParameters, multipliers: ByDirection = EXACT) -> Parts:
    """(name, TrainingSettings) of each part of the training: only the decoder of a fitted encoder,
    then all layers.

    multipliers: of the training, which change no length.
    """
    schedule: Schedule = {"schedule": given.schedule, "warmup_steps": given.warmup_steps}
    if given.schedule == "step":
        schedule |= {
            "step_epochs": given.schedule_step_epochs,
            "step_factor": given.schedule_step_factor,
        }
    whole = TrainingSettings(
        network=network,
        rung=given.variant,
        batch_size=given.batch_size,
        optimizer=Optimizer(
            given.optimizer, given.momentum, given.weight_decay, given.gradient_clip
        ),
        learning_rate=given.learning_rate,
        schedule=schedule,
        epochs=given.epochs,
        steps=given.steps,
        gradient_scale=given.gradient_scale,
        augmentation=Augmentation(
            given.augment_flip, given.augment_crop, given.augment_rotate, given.augment_colour
        ),
        seed=given.seed,
        multipliers=multipliers,
        loss_scale=given.loss_scale,
        frozen=network.encoder if given.freeze_encoder else (),
    )
    if given.training == "gradient":
        return [("", whole)]
    decoder = dataclasses.replace(
        whole, epochs=given.decoder_epochs, steps=None, frozen=network.encoder
    )
    return [("_decoder", decoder)] + (
        [("", whole)] if given.training == "patches_then_gradient" else []
    )
