"""Optimizers and learning-rate schedules.

With g the gradient, clipped element by element if clip > 0, plus weight_decay * w (the gradient of
an L2 penalty):
    sgd        w -= lr g
    momentum   v = mu v + g;                                 w -= lr v
    rmsprop    s = 0.99 s + 0.01 g^2;                        w -= lr g / (sqrt(s) + 1e-8)
    adam       m = 0.9 m + 0.1 g, s = 0.999 s + 0.001 g^2;   w -= lr m' / (sqrt(s') + 1e-8), m', s'
               bias-corrected (Kingma and Ba, 2015)
"""

import dataclasses
import math
from typing import Any, TypedDict

import numpy as np

# Optimizer -> its running averages, each of the parameter's shape.
AVERAGES = {
    "sgd": (),
    "momentum": ("velocity",),
    "rmsprop": ("square",),
    "adam": ("mean", "square"),
}


@dataclasses.dataclass(frozen=True)
class Optimizer:
    """name: a key of AVERAGES; clip: largest magnitude of an element of the gradient, 0 for no
    clipping.
    """

    name: str
    momentum: float = 0.9
    weight_decay: float = 0.0
    clip: float = 0.0


def attributes(optimizer: Optimizer) -> dict[str, Any]:
    """The attributes of the optimizer's update operation."""
    common = {"weight_decay": optimizer.weight_decay, "clip": optimizer.clip}
    return {**common, "momentum": optimizer.momentum} if optimizer.name == "momentum" else common


def state_shapes(optimizer, parameters):
    """Name -> shape of the running averages for `parameters` (name -> shape)."""
    return {
        f"{name}.{average}": shape
        for name, shape in parameters.items()
        for average in AVERAGES[optimizer.name]
    }


class Schedule(TypedDict, total=False):
    """Keyword arguments of learning_rates."""

    schedule: str
    step_epochs: int
    step_factor: float
    warmup_steps: int


def learning_rates(
    base, length, schedule="constant", step_epochs=1, step_factor=1.0, warmup_steps=0
):
    """The learning rate schedule: the rate of each step of a run, float64 (length.steps,); length:
    plan.Length.

    'constant'; 'step' multiplies by step_factor after every step_epochs epochs; 'cosine' decays
    from base to 0 along half a cosine (Loshchilov and Hutter, 2017, without restarts). Raises
    KeyError for any other name. Step i of the first W, given by warmup(), has i / W of that rate:
    Adam's first steps move every weight by the full rate in a common direction, after which about
    half of the autoencoder's latent maps stay zero.
    """
    steps = np.arange(length.steps)
    factors = {
        "constant": lambda: np.ones(length.steps),
        "step": lambda: float(step_factor) ** (steps // (length.steps_per_epoch * step_epochs)),
        "cosine": lambda: 0.5 * (1 + np.cos(math.pi * steps / length.steps)),
    }
    rise = warmup(length, warmup_steps)
    return base * (np.minimum(1, (steps + 1) / rise) if rise else 1) * factors[schedule]()


def warmup(length: Any, warmup_steps: int) -> int:
    """Number of steps over which the rate rises: warmup_steps, or a tenth of all steps where the
    run is shorter than that.
    """
    return warmup_steps if warmup_steps <= length.steps else length.steps // 10
