"""The steps around those of the layers: a batch is loaded, its loss computed, and the parameters
are updated.
"""

import math
from collections.abc import Collection

from ladder.network import optimizers
from ladder.network.layers import Attributes
from ladder.network.networks import INPUT
from ladder.network.optimizers import Optimizer
from ladder.plan.settings import Augmentation, Dataset, Length
from ladder.rungs.interface import PlanBuilder
from ladder.rungs.launches import StepAttributes


def load_batch(
    build: PlanBuilder,
    dataset: Dataset,
    flip: bool = False,
    augmentation: Augmentation | None = None,
) -> None:
    image = build.network.input_shape
    build.values.buffer(INPUT, (build.values.batch, *image), build.values.dtype, "activation")
    counters = build.values.counters()
    reads = {
        "images": build.values.buffer("images", (dataset.rows, *image), dataset.dtype, "dataset"),
        "permutation": _permutation(build, dataset),
        "counters": counters,
        "scale": build.values.buffer("scale", image[2:], "float32", "control"),
        "offset": build.values.buffer("offset", image[2:], "float32", "control"),
    }
    if not augmentation:
        build.steps.append("load_batch", "", reads, {"batch": INPUT}, flip=flip)
        return
    reads["augmentation"] = build.values.workspace("augmentation", (build.values.batch, 3), "int32")
    build.steps.append(
        "draw_augmentation",
        "",
        {"counters": counters},
        {"augmentation": reads["augmentation"]},
        crop=augmentation.crop,
        flip=augmentation.flip,
        seed=build.seed,
    )
    if not augmentation.jitters:
        build.steps.append("load_augmented_batch", "", reads, {"batch": INPUT})
        return
    jitter = build.values.workspace("jitter", (build.values.batch, 2 + image[2]))
    build.steps.append(
        "draw_jitter",
        "",
        {"counters": counters},
        {"jitter": jitter},
        tangent=math.tan(math.radians(augmentation.rotate) / 2),
        colour=augmentation.colour,
        seed=build.seed,
    )
    build.steps.append("load_jittered_batch", "", {**reads, "jitter": jitter}, {"batch": INPUT})


def loss(build: PlanBuilder, dataset: Dataset, gradient_scale: str, length: Length) -> None:
    """The loss, and with it the gradient of the network's output, as its only reader in the
    backward pass wants it.
    """
    build.steps.pass_ = "backward"
    losses = build.values.buffer("losses", (length.steps_per_epoch,), "float64", "control")
    packed = build.gradients.packed.get(build.values.output)
    gradient = packed.writes if packed else {"gradient": build.gradients.part(build.values.output)}
    writes = {**gradient, "losses": losses}
    packing: Attributes = {"padding": packed.padding} if packed else {}
    if build.network.classifies:
        build.divisor = build.values.batch
        reads = {
            "prediction": build.values.output,
            "labels": build.values.buffer("labels", (dataset.rows,), "uint8", "dataset"),
            "permutation": _permutation(build, dataset),
            "counters": build.values.counters(),
        }
        build.steps.append(
            "cross_entropy", "", reads, {**writes, "hits": build.values.by_step("hits")}
        )
        return
    if build.values.shape(build.values.output) != build.values.shape(INPUT):
        raise ValueError(
            f"network {build.network.name} puts out {build.values.shape(build.values.output)} for {build.values.shape(INPUT)}: "
            "it cannot be trained to rebuild its images"
        )
    elements = math.prod(build.network.input_shape)
    build.divisor = {"mean": build.values.batch * elements, "batch": build.values.batch}[
        gradient_scale
    ]
    build.steps.append(
        "mse",
        "",
        {"prediction": build.values.output, "target": INPUT, "counters": build.values.counters()},
        writes,
        flop=4 * elements * build.values.batch,
        divisor=build.divisor,
        **packing,
    )


def update(
    build: PlanBuilder,
    names: Collection[str],
    optimizer: Optimizer,
    length: Length,
    together: bool,
) -> None:
    """Update these parameters: together in one step, which divides by the loss scale, or in one
    step each.
    """
    build.steps.pass_ = "update"
    gradients = {name: build.gradients.for_update(name, together) for name in names}
    averages = {
        name: {
            average: build.values.buffer(
                f"{name}.{average}", build.network.parameters[name], build.values.dtype, "optimizer"
            )
            for average in optimizers.AVERAGES[optimizer.name]
        }
        for name in names
    }
    schedule = {
        "counters": build.values.counters(),
        "learning_rates": build.values.buffer(
            "learning_rates", (length.steps,), "float64", "control"
        ),
    }
    operation, attributes = f"{optimizer.name}_update", optimizers.attributes(optimizer)
    if not together:
        for name, gradient in gradients.items():
            build.steps.append(
                operation,
                name.rpartition(".")[0],
                {"gradient": gradient.buffer, **schedule},
                {"parameter": name, **averages[name]},
                **attributes,
            )
        return
    reads = {f"{name}.gradient": gradient.buffer for name, gradient in gradients.items()}
    writes: dict[str, str] = {}
    for name in names:
        writes |= {
            name: name,
            **{f"{name}.{average}": buffer for average, buffer in averages[name].items()},
        }
    more: StepAttributes = {"gradients": gradients}
    if build.values.copied:
        more["copies"] = build.values.copied
    if build.gradients.loss_scale != 1:
        more["gradient_factor"] = 1 / build.gradients.loss_scale
    build.steps.append(
        operation,
        "",
        {**reads, **schedule},
        {**writes, **build.values.copies_of(names)},
        **more,
        **attributes,
    )


def advance(build: PlanBuilder) -> None:
    """Move the counters on by one step."""
    build.steps.append(
        "advance", "", {}, {"counters": build.values.counters()}, batch=build.values.batch
    )


def _permutation(build: PlanBuilder, dataset: Dataset) -> str:
    return build.values.buffer("permutation", (dataset.rows,), "int64", "control")
