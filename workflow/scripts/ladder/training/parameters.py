"""The parameters of a job as typed values, made once of the JSON that workflow/parameters.py and
workflow/stages.py fill.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

Parameters = TypeVar("Parameters")  # a dataclass


def read(kind: type[Parameters], params: Mapping[str, Any]) -> Parameters:
    """The fields of `kind`, each of the parameter of its name or, where there is none, as declared.

    Raises TypeError if a field without a default has no parameter.
    """
    return kind(**{name: params[name] for name in names(kind) if name in params})


def names(kind: type[Any]) -> list[str]:
    """Those of the parameters, which are keys of the configuration."""
    return [field.name for field in dataclasses.fields(kind)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepParameters:
    """A training step of which a page is made."""

    batch_size: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingParameters:
    """Stage `train`, but for its network and multipliers. None: the training has no such part.

    docs/configuration.md describes the keys of these names.
    """

    training: str
    variant: str
    batch_size: int
    epochs: int | None = None
    steps: int | None = None
    decoder_epochs: int | None = None
    optimizer: str
    learning_rate: float
    momentum: float = 0.0
    weight_decay: float
    gradient_clip: float
    gradient_scale: str = "mean"
    loss_scale: float | None = None
    schedule: str
    schedule_step_epochs: int = 0
    schedule_step_factor: float = 1.0
    warmup_steps: int
    augment_flip: bool
    augment_crop: int
    augment_rotate: float
    augment_colour: float
    freeze_encoder: bool = False
    patience: int | None = None
    seed: int
