"""The parts of a training by the parameters of its stage, each with its settings."""

import dataclasses

from ladder.arithmetic import multipliers
from ladder.network.optimizers import Optimizer
from ladder.training.planning.settings import Augmentation, Settings


def of(network, params, multiplier):
    """(name, Settings) of each part of the training: only the decoder of a fitted encoder, then all
    layers.
    """
    whole = settings(network, params, multiplier)
    if params["training"] == "gradient":
        return [("", whole)]
    decoder = dataclasses.replace(
        whole, epochs=params["decoder_epochs"], steps=None, frozen=network.encoder
    )
    return [("_decoder", decoder)] + (
        [("", whole)] if params["training"] == "patches_then_gradient" else []
    )


def settings(network, params, multiplier):
    schedule = {"schedule": params["schedule"], "warmup_steps": params["warmup_steps"]}
    if params["schedule"] == "step":
        schedule |= {
            "step_epochs": params["schedule_step_epochs"],
            "step_factor": params["schedule_step_factor"],
        }
    return Settings(
        network=network,
        optimizer=Optimizer(
            params["optimizer"],
            params.get("momentum", 0.0),
            params["weight_decay"],
            params["gradient_clip"],
        ),
        schedule=schedule,
        augmentation=Augmentation(
            **{name: params[f"augment_{name}"] for name in ("flip", "crop", "rotate", "colour")}
        ),
        multipliers=multipliers.from_params(params, multiplier),
        frozen=network.encoder if params.get("freeze_encoder") else (),
        **{key: params[key] for key in ("variant", "batch_size", "learning_rate", "seed")},
        **{
            key: params[key]
            for key in ("epochs", "steps", "gradient_scale", "loss_scale")
            if key in params
        },
    )
