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
    values, image = build.values, build.network.input_shape
    values.buffer(INPUT, (values.batch, *image), values.dtype, "activation")
    counters = values.counters()
    reads = {
        "images": values.buffer("images", (dataset.rows, *image), dataset.dtype, "dataset"),
        "permutation": _permutation(build, dataset),
        "counters": counters,
        "scale": values.buffer("scale", image[2:], "float32", "control"),
        "offset": values.buffer("offset", image[2:], "float32", "control"),
    }
    if not augmentation:
        build.steps.append("load_batch", "", reads, {"batch": INPUT}, flip=flip)
        return
    reads["augmentation"] = values.workspace("augmentation", (values.batch, 3), "int32")
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
    jitter = values.workspace("jitter", (values.batch, 2 + image[2]))
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
    """Append the loss and the gradient of the output, which is packed if its only reader in the
    backward pass reads it packed.
    """
    values, build.steps.pass_ = build.values, "backward"
    losses = values.buffer("losses", (length.steps_per_epoch,), "float64", "control")
    packed = build.gradients.packed.get(values.output)
    gradient = packed.writes if packed else {"gradient": build.gradients.part(values.output)}
    writes = {**gradient, "losses": losses}
    packing: Attributes = {"padding": packed.padding} if packed else {}
    if build.network.classifies:
        build.divisor = values.batch
        reads = {
            "prediction": values.output,
            "labels": values.buffer("labels", (dataset.rows,), "uint8", "dataset"),
            "permutation": _permutation(build, dataset),
            "counters": values.counters(),
        }
        build.steps.append("cross_entropy", "", reads, {**writes, "hits": values.by_step("hits")})
        return
    if values.shape(values.output) != values.shape(INPUT):
        raise ValueError(
            f"network {build.network.name} puts out {values.shape(values.output)} for {values.shape(INPUT)}: "
            "it cannot be trained to rebuild its images"
        )
    elements = math.prod(build.network.input_shape)
    build.divisor = {"mean": values.batch * elements, "batch": values.batch}[gradient_scale]
    build.steps.append(
        "mse",
        "",
        {"prediction": values.output, "target": INPUT, "counters": values.counters()},
        writes,
        flop=4 * elements * values.batch,
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
    """Append the updates of these parameters: one step for all, which also divides by the loss
    scale, or a step for each.
    """
    values, build.steps.pass_ = build.values, "update"
    gradients = {name: build.gradients.for_update(name, together) for name in names}
    averages = {
        name: {
            average: values.buffer(
                f"{name}.{average}", build.network.parameters[name], values.dtype, "optimizer"
            )
            for average in optimizers.AVERAGES[optimizer.name]
        }
        for name in names
    }
    schedule = {
        "counters": values.counters(),
        "learning_rates": values.buffer("learning_rates", (length.steps,), "float64", "control"),
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
    if values.copied:
        more["copies"] = values.copied
    if build.gradients.loss_scale != 1:
        more["gradient_factor"] = 1 / build.gradients.loss_scale
    build.steps.append(
        operation,
        "",
        {**reads, **schedule},
        {**writes, **values.copies_of(names)},
        **more,
        **attributes,
    )


def advance(build: PlanBuilder) -> None:
    """Append the step that moves the counters on."""
    build.steps.append(
        "advance", "", {}, {"counters": build.values.counters()}, batch=build.values.batch
    )


def _permutation(build: PlanBuilder, dataset: Dataset) -> str:
    return build.values.buffer("permutation", (dataset.rows,), "int64", "control")
