"""Plans: the steps that process one batch, over buffers that are allocated once.

A step is data: an operation, the buffers it reads and writes, its attributes and its FLOPs. A plan
is independent of the device that runs it; an executor is independent of the network. This module
makes plans; `frame`, `builder` and `settings` have their parts.
"""

import dataclasses
from collections.abc import Collection

from ladder.arithmetic.multipliers import EXACT, PRECISIONS, ByDirection
from ladder.errors import UserError
from ladder.network.layers import KINDS, Layer
from ladder.network.networks import Network
from ladder.network.optimizers import Optimizer
from ladder.plan import exponents, frame, limits
from ladder.plan.builder import Builder
from ladder.plan.data import Plan
from ladder.plan.settings import Augmentation, Dataset, Length, TrainingSettings
from ladder.rungs.catalog import RUNGS
from ladder.rungs.launches import Shape

__all__ = [
    "Augmentation",
    "Dataset",
    "Length",
    "TrainingSettings",
    "inference_plan",
    "learning",
    "made_for",
    "one_step",
    "trained_layers",
    "training_plan",
]


def made_for(rung: str) -> ByDirection:
    """The ByDirection of the precision that a rung is made for: what measurements and checks of the
    rung let it multiply.
    """
    return PRECISIONS[RUNGS[rung].precision]


def training_plan(
    settings: TrainingSettings,
    dataset: Dataset,
    length: Length,
    dtype: str = "float32",
    fuse_update: bool = True,
) -> Plan:
    """One training step: load a batch of settings.batch_size, forward, loss, backward, update.

    Layers that the output does not depend on, which only features read, are left out.

    fuse_update: let a rung with `gradients_in_parts` leave its gradients so, for the update to add;
    otherwise every gradient has a buffer of its own. Raises ValueError if the rung has no operation
    for a layer or a frozen layer reads a trained one, UserError if the network cannot be trained or
    the batch is too large for the rung.
    """
    network, trained = settings.network, trained_layers(settings.network)
    for layer in trained:
        if not KINDS[layer.kind].has_gradient:
            raise UserError(
                f"network {network.name} cannot be trained by gradient: layer {layer.name} ({layer.kind}) has "
                "none; set training to patches"
            )

    def plan_of(batch: int) -> Plan:
        builder = Builder(
            dataclasses.replace(settings, batch_size=batch), trained, dtype, training=True
        )
        build, rung = builder.build, builder.implementation
        build.in_parts = (
            fuse_update and not settings.multipliers.quantises and rung.gradients_in_parts
        )
        build.with_loss = True
        frame.load_batch(build, dataset, augmentation=settings.augmentation)
        builder.lower()
        frame.loss(build, dataset, settings.gradient_scale, length)
        scale = settings.scale * (exponents.of_loss(build.divisor) if rung.in_halves else 1)
        if scale != 1:
            build.gradients.scale(scale)
        builder.go_back()
        frame.update(
            build,
            learning(network, settings.frozen),
            settings.optimizer,
            length,
            rung.updates_together,
        )
        frame.advance(build)
        return exponents.fitted(builder.plan(), settings.repeats)

    return limits.within_indices(plan_of, settings.batch_size, settings.rung)


def one_step(network: Network, rung: str, batch: int, optimizer: str) -> Plan:
    """The plan of a training step of `batch` images, which are all; optimizer: its name."""
    settings = TrainingSettings(
        network=network, rung=rung, batch_size=batch, optimizer=Optimizer(optimizer)
    )
    return training_plan(settings, Dataset(batch, "uint8"), Length(1, 1))


def trained_layers(network: Network) -> tuple[Layer, ...]:
    """The layers that the output depends on, in execution order."""
    return network.needed_for(network.layers[-1].name)


def learning(network: Network, frozen: Collection[str] = ()) -> dict[str, Shape]:
    """Parameter name -> shape for all layers that are not frozen."""
    return {
        name: shape
        for layer in network.layers
        if layer.name not in frozen
        for name, shape in layer.parameters.items()
    }


def inference_plan(
    network: Network,
    rung: str,
    batch: int,
    dataset: Dataset,
    until: str | None = None,
    flip: bool = False,
    multipliers: ByDirection = EXACT,
    repeats: int = 0,
) -> Plan:
    """Load a batch (mirrored left to right with `flip`) and run forward to the layer `until`, by
    default the last; repeats: of exponents.fitted.

    Raises UserError if the batch is too large for the rung.
    """

    def plan_of(batch: int) -> Plan:
        settings = TrainingSettings(
            network=network, rung=rung, batch_size=batch, multipliers=multipliers
        )
        builder = Builder(
            settings,
            network.needed_for(until or network.layers[-1].name),
            "float32",
            training=False,
        )
        frame.load_batch(builder.build, dataset, flip)
        builder.lower()
        frame.advance(builder.build)
        return exponents.fitted(builder.plan(), repeats)

    return limits.within_indices(plan_of, batch, rung)
