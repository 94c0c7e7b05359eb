"""The steps around those of the layers: a batch is loaded, its loss computed, and the parameters
are updated.
"""

import math
from collections.abc import Collection

from ladder.network import optimizers
from ladder.network.layers import Attributes
from ladder.network.networks import INPUT
from ladder.network.optimizers import Optimizer
from ladder.plan.builder import Builder
from ladder.plan.settings import Augmentation, Dataset, Length


def load_batch(
    build: Builder, dataset: Dataset, flip: bool = False, augmentation: Augmentation | None = None
) -> None:
    image = build.network.input_shape
    build.buffer(INPUT, (build.batch, *image), build.dtype, "activation")
    counters = build.counters()
    reads = {
        "images": build.buffer("images", (dataset.rows, *image), dataset.dtype, "dataset"),
        "permutation": _permutation(build, dataset),
        "counters": counters,
        "scale": build.buffer("scale", image[2:], "float32", "control"),
        "offset": build.buffer("offset", image[2:], "float32", "control"),
    }
    if not augmentation:
        build.append("load_batch", "", reads, {"batch": INPUT}, flip=flip)
        return
    reads["augmentation"] = build.workspace("augmentation", (build.batch, 3), "int32")
    build.append(
        "draw_augmentation",
        "",
        {"counters": counters},
        {"augmentation": reads["augmentation"]},
        crop=augmentation.crop,
        flip=augmentation.flip,
        seed=build.seed,
    )
    if not augmentation.jitters:
        build.append("load_augmented_batch", "", reads, {"batch": INPUT})
        return
    jitter = build.workspace("jitter", (build.batch, 2 + image[2]))
    build.append(
        "draw_jitter",
        "",
        {"counters": counters},
        {"jitter": jitter},
        tangent=math.tan(math.radians(augmentation.rotate) / 2),
        colour=augmentation.colour,
        seed=build.seed,
    )
    build.append("load_jittered_batch", "", {**reads, "jitter": jitter}, {"batch": INPUT})


def loss(build: Builder, dataset: Dataset, gradient_scale: str, length: Length) -> None:
    """The loss, and with it the gradient of the network's output, as its only reader in the
    backward pass wants it.
    """
    build.pass_ = "backward"
    losses = build.buffer("losses", (length.steps_per_epoch,), "float64", "control")
    packed = build.packed_gradients.get(build.output)
    gradient = packed.writes if packed else {"gradient": build.gradient_part(build.output)}
    writes = {**gradient, "losses": losses}
    packing = {"padding": packed.padding} if packed else {}
    if build.network.classifies:
        build.divisor = build.batch
        reads = {
            "prediction": build.output,
            "labels": build.buffer("labels", (dataset.rows,), "uint8", "dataset"),
            "permutation": _permutation(build, dataset),
            "counters": build.counters(),
        }
        build.append("cross_entropy", "", reads, {**writes, "hits": build.by_step("hits")})
        return
    if build.shape(build.output) != build.shape(INPUT):
        raise ValueError(
            f"network {build.network.name} puts out {build.shape(build.output)} for {build.shape(INPUT)}: "
            "it cannot be trained to rebuild its images"
        )
    elements = math.prod(build.network.input_shape)
    build.divisor = {"mean": build.batch * elements, "batch": build.batch}[gradient_scale]
    build.append(
        "mse",
        "",
        {"prediction": build.output, "target": INPUT, "counters": build.counters()},
        writes,
        flop=4 * elements * build.batch,
        divisor=build.divisor,
        **packing,
    )


def update(build: Builder, names: Collection[str], optimizer: Optimizer, length: Length) -> None:
    """Update these parameters: in one step, which divides by the loss scale, if the rung has
    `updates_together`, else in one step each.
    """
    build.pass_ = "update"
    gradients = {name: build.gradient_for_update(name) for name in names}
    averages = {
        name: {
            average: build.buffer(
                f"{name}.{average}", build.network.parameters[name], build.dtype, "optimizer"
            )
            for average in optimizers.AVERAGES[optimizer.name]
        }
        for name in names
    }
    schedule = {
        "counters": build.counters(),
        "learning_rates": build.buffer("learning_rates", (length.steps,), "float64", "control"),
    }
    operation, attributes = f"{optimizer.name}_update", optimizers.attributes(optimizer)
    if not build.implementation.updates_together:
        for name, gradient in gradients.items():
            build.append(
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
    more: Attributes = {"copies": build.copied} if build.copied else {}
    if build.loss_scale != 1:
        more = {**more, "gradient_factor": 1 / build.loss_scale}
    build.append(
        operation,
        "",
        {**reads, **schedule},
        {**writes, **build.copies_of(names)},
        gradients=gradients,
        **more,
        **attributes,
    )


def advance(build: Builder) -> None:
    """Move the counters on by one step."""
    build.append("advance", "", {}, {"counters": build.counters()}, batch=build.batch)


def _permutation(build: Builder, dataset: Dataset) -> str:
    return build.buffer("permutation", (dataset.rows,), "int64", "control")
