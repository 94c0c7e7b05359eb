"""The first rung on a GPU: one kernel per operation, one thread per output element, global memory
only.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import cast

import numpy as np

from ladder.arithmetic import randomness
from ladder.rungs.interface import Implementation
from ladder.rungs.launches import Argument, Launch, Launches, Step, StepAttributes
from ladder.rungs.patterns import LAYER_PATTERNS
from ladder.rungs.values import LaunchFunction, Values

BLOCK = 256
# Partial sums of the squared error, and of a sum over all pixels of a batch; changing their number
# changes the results' bytes.
LOSS_PARTS, CHANNEL_PARTS = 1024, 256
MAGNITUDE_PARTS = 4096  # of the largest magnitude of an array
SLIDING = "window", "stride", "padding"
# what a batch is gathered by
GATHERED = "images", "permutation", "counters", "scale", "offset"


def integers(*values: int) -> tuple[Argument, ...]:
    return tuple(np.int32(value) for value in values)


def floats(*values: float) -> tuple[Argument, ...]:
    return tuple(np.float32(value) for value in values)


def blocks(count: int, size: int = BLOCK) -> int:
    return -(-count // size)


def elements(values: Values, name: str) -> int:
    return math.prod(values.shape(name))


def convolution_sizes(step: Step, values: Values, x: str, weight: str) -> tuple[Argument, ...]:
    """batch, height, width, channels, filters, kernel, padding, stride."""
    return integers(
        *values.shape(x),
        *values.shape(weight)[:2],
        step.attributes["padding"],
        step.attributes["stride"],
    )


def draw_augmentation(step: Step, values: Values) -> Launches:
    augmentation, attributes = step.writes["augmentation"], step.attributes
    batch = values.shape(augmentation)[0]
    arguments = (
        step.reads["counters"],
        augmentation,
        *integers(batch, attributes["crop"], attributes["flip"]),
        np.uint64(attributes["seed"]),
        *integers(randomness.AUGMENTATION),
    )
    return _one("augmentation.cu", "draw_augmentation", batch, arguments)


def draw_jitter(step: Step, values: Values) -> Launches:
    jitter, attributes = step.writes["jitter"], step.attributes
    batch, columns = values.shape(jitter)
    arguments = (
        step.reads["counters"],
        jitter,
        *integers(batch, columns - 2),
        *floats(attributes["tangent"], attributes["colour"]),
        np.uint64(attributes["seed"]),
        *integers(randomness.JITTER),
    )
    return _one("jitter.cu", "draw_jitter", batch, arguments)


def conv2d_forward(step: Step, values: Values) -> Launches:
    x, weight, bias, y = step.operands("x", "weight", "bias", "y")
    filters = values.shape(y)[3]
    grid = blocks(elements(values, y) // filters, 32), blocks(filters, 8)
    arguments = x, weight, bias, y, *convolution_sizes(step, values, x, weight)
    return (Launch("gpu_basic/conv2d.cu", "conv2d_forward", grid, (8, 32), arguments),)


def conv2d_input_grad(step: Step, values: Values) -> Launches:
    dy, weight, dx = step.operands("dy", "weight", "dx")
    return _one(
        "conv2d.cu",
        "conv2d_input_grad",
        elements(values, dx),
        (dy, weight, dx, *convolution_sizes(step, values, dx, weight)),
    )


def conv2d_weight_grad(step: Step, values: Values) -> Launches:
    x, dy, dweight = step.operands("x", "dy", "dweight")
    return _one(
        "conv2d.cu",
        "conv2d_weight_grad",
        elements(values, dweight),
        (x, dy, dweight, *convolution_sizes(step, values, x, dweight)),
    )


def conv2d_bias_grad(step: Step, values: Values) -> Launches:
    dy, dbias = step.operands("dy", "dbias")
    (filters,) = values.shape(dbias)
    partials = values.workspace(f"{step.layer}.bias_partials", (CHANNEL_PARTS, filters))
    return (
        *_one(
            "conv2d_bias.cu",
            "conv2d_bias_partials",
            CHANNEL_PARTS * filters,
            (dy, partials, *integers(elements(values, dy) // filters, filters, CHANNEL_PARTS)),
        ),
        *_few(
            "conv2d_bias.cu",
            "conv2d_bias_grad",
            filters,
            (partials, dbias, *integers(filters, CHANNEL_PARTS)),
        ),
    )


def decompose_taps(step: Step, values: Values) -> Launches:
    phase_weights = step.writes["phase_weights"]
    channels, _, _, filters = values.shape(phase_weights)
    return _one(
        "phase_conv2d.cu",
        "decompose_taps",
        elements(values, phase_weights),
        (step.reads["weight"], phase_weights, *integers(filters, channels)),
    )


def phase_conv2d_forward(step: Step, values: Values) -> Launches:
    """Computed as the input gradient of the convolution that leads from y to x; the other
    directions likewise.
    """
    y = step.writes["y"]
    return (
        *_of_phases(
            values,
            "conv2d_input_grad",
            step,
            {"dy": step.reads["x"], "weight": step.reads["phase_weights"]},
            {"dx": y},
        ),
        *_one(
            "phase_conv2d.cu",
            "add_bias",
            elements(values, y),
            (step.reads["bias"], y, *integers(elements(values, y), values.shape(y)[3])),
        ),
    )


def phase_conv2d_input_grad(step: Step, values: Values) -> Launches:
    reads = {
        "x": step.reads["dy"],
        "weight": step.reads["phase_weights"],
        "bias": step.reads["zeros"],
    }
    return _of_phases(values, "conv2d_forward", step, reads, {"y": step.writes["dx"]})


def phase_conv2d_weight_grad(step: Step, values: Values) -> Launches:
    x, dy, dweight = step.operands("x", "dy", "dweight")
    channels, filters = values.shape(x)[3], values.shape(dy)[3]
    phase_weights = values.workspace(f"{step.layer}.dphase_weights", (channels, 4, 4, filters))
    sums = values.workspace(f"{step.layer}.sums_of_x", (channels,))  # of which nothing is made
    return (
        *_of_phases(
            values,
            "conv2d_weight_grad",
            step,
            {"x": dy, "dy": x},
            {"dweight": phase_weights, "dbias": sums},
        ),
        *conv2d_bias_grad(step, values),
        *_one(
            "phase_conv2d.cu",
            "add_tap_gradients",
            elements(values, dweight),
            (phase_weights, dweight, *integers(filters, channels)),
        ),
    )


def _of_phases(
    values: Values,
    operation: str,
    step: Step,
    reads: Mapping[str, str],
    writes: Mapping[str, str],
) -> Launches:
    """The rung's own launches of this operation, for the convolution that leads from y to x."""
    window: StepAttributes = {"stride": 2, "padding": 1, "kernel": 4, "relu": False}
    of_convolution = dataclasses.replace(
        step,
        operation=operation,
        reads=reads,
        writes=writes,
        attributes={**step.attributes, **window},
    )
    return values.launches[operation](of_convolution, values)


def dense_forward(step: Step, values: Values) -> Launches:
    x, weight, bias, y = step.operands("x", "weight", "bias", "y")
    sizes = _dense(values, x, y)
    grid = blocks(sizes[0], 32), blocks(sizes[2], 8)
    return (
        Launch(
            "gpu_basic/dense.cu",
            "dense_forward",
            grid,
            (8, 32),
            (x, weight, bias, y, *integers(*sizes)),
        ),
    )


def dense_input_grad(step: Step, values: Values) -> Launches:
    dy, weight, dx = step.operands("dy", "weight", "dx")
    return _one(
        "dense.cu",
        "dense_input_grad",
        elements(values, dx),
        (dy, weight, dx, *integers(*_dense(values, dx, dy))),
    )


def dense_weight_grad(step: Step, values: Values) -> Launches:
    x, dy, dweight = step.operands("x", "dy", "dweight")
    return _one(
        "dense.cu",
        "dense_weight_grad",
        elements(values, dweight),
        (x, dy, dweight, *integers(*_dense(values, x, dy))),
    )


def dense_bias_grad(step: Step, values: Values) -> Launches:
    dy, dbias = step.operands("dy", "dbias")
    (units,) = values.shape(dbias)
    return _few(
        "dense.cu", "dense_bias_grad", units, (dy, dbias, *integers(values.shape(dy)[0], units))
    )


def batchnorm_forward(step: Step, values: Values) -> Launches:
    x, weight, bias, y, mean, inverse, running_mean, running_var = step.operands(
        "x", "weight", "bias", "y", "mean", "inverse", "running_mean", "running_var"
    )
    channels, count = values.shape(x)[3], elements(values, x)
    sums, parts = integers(count // channels, channels, CHANNEL_PARTS), CHANNEL_PARTS * channels
    partials = values.workspace(f"{step.layer}.partials", (CHANNEL_PARTS, channels))
    settings = np.float64(step.attributes["decay"]), np.float64(step.attributes["epsilon"])
    return (
        *_one("batchnorm.cu", "batchnorm_mean_partials", parts, (x, partials, *sums)),
        *_few("batchnorm.cu", "batchnorm_mean", channels, (partials, mean, *sums)),
        *_one("batchnorm.cu", "batchnorm_variance_partials", parts, (x, mean, partials, *sums)),
        *_few(
            "batchnorm.cu",
            "batchnorm_statistics",
            channels,
            (partials, mean, inverse, running_mean, running_var, *sums, *settings),
        ),
        *_one(
            "batchnorm.cu",
            "batchnorm_normalize",
            count,
            (x, weight, bias, mean, inverse, y, *integers(count, channels)),
        ),
    )


def batchnorm_backward(step: Step, values: Values) -> Launches:
    x, weight, mean, inverse, dy, dx, dweight, dbias = step.operands(
        "x", "weight", "mean", "inverse", "dy", "dx", "dweight", "dbias"
    )
    channels, count = values.shape(x)[3], elements(values, x)
    pixels = count // channels
    partials = values.workspace(f"{step.layer}.gradient_partials", (2, CHANNEL_PARTS, channels))
    return (
        *_one(
            "batchnorm.cu",
            "batchnorm_gradient_partials",
            CHANNEL_PARTS * channels,
            (x, mean, inverse, dy, partials, *integers(pixels, channels, CHANNEL_PARTS)),
        ),
        *_few(
            "batchnorm.cu",
            "batchnorm_parameter_grads",
            channels,
            (partials, dweight, dbias, *integers(channels, CHANNEL_PARTS)),
        ),
        *_one(
            "batchnorm.cu",
            "batchnorm_input_grad",
            count,
            (x, weight, mean, inverse, dy, dweight, dbias, dx, *integers(count, pixels, channels)),
        ),
    )


def batchnorm_inference(step: Step, values: Values) -> Launches:
    arrays = step.operands("x", "weight", "bias", "running_mean", "running_var", "y")
    x, y = arrays[0], arrays[-1]
    return _one(
        "batchnorm.cu",
        "batchnorm_inference",
        elements(values, y),
        (
            *arrays,
            *integers(elements(values, y), values.shape(x)[3]),
            *floats(step.attributes["epsilon"]),
        ),
    )


def dropout_forward(step: Step, values: Values) -> Launches:
    y, attributes = step.writes["y"], step.attributes
    arguments = (
        step.reads["x"],
        step.reads["counters"],
        y,
        step.writes["mask"],
        *integers(elements(values, y)),
        np.uint32(int(attributes["rate"] * 2**32)),
        *floats(1 / (1 - attributes["rate"])),
        np.uint64(attributes["seed"]),
        *integers(randomness.LAYER + attributes["stream"]),
    )
    return _one("dropout.cu", "dropout_forward", elements(values, y), arguments)


def dropout_backward(step: Step, values: Values) -> Launches:
    dy, mask, dx = step.operands("dy", "mask", "dx")
    return _one(
        "dropout.cu",
        "dropout_backward",
        elements(values, dx),
        (dy, mask, dx, *integers(elements(values, dx)), *floats(1 / (1 - step.attributes["rate"]))),
    )


def winner_take_all_forward(step: Step, values: Values) -> Launches:
    x, y, mask = step.operands("x", "y", "mask")
    batch, height, width, channels = values.shape(x)
    largest = values.workspace(f"{step.layer}.largest", (batch, channels))
    lasting = values.workspace(f"{step.layer}.lasting", (batch, channels), "uint8")
    return (
        *_few(
            "winner_take_all.cu",
            "winners_of_maps",
            batch * channels,
            (
                x,
                mask,
                largest,
                *integers(batch, height * width, channels, step.attributes["winners"]),
            ),
        ),
        *_few(
            "winner_take_all.cu",
            "lasting_images",
            batch * channels,
            (largest, lasting, *integers(batch, channels, step.attributes["images"])),
        ),
        *_one(
            "winner_take_all.cu",
            "winner_take_all_forward",
            elements(values, y),
            (x, lasting, y, mask, *integers(elements(values, y), height * width, channels)),
        ),
    )


def sample_forward(step: Step, values: Values) -> Launches:
    reads, y, attributes = step.reads, step.writes["y"], step.attributes
    arguments = (
        reads["mean"],
        reads["log_variance"],
        reads["counters"],
        y,
        step.writes["noise"],
        *integers(elements(values, y)),
        np.uint64(attributes["seed"]),
        *integers(randomness.LAYER + attributes["stream"]),
    )
    return _one("sample.cu", "sample_forward", elements(values, y), arguments)


def sample_backward(step: Step, values: Values) -> Launches:
    mean, log_variance, noise, dy, counters, dmean, dlog_variance = step.operands(
        "mean", "log_variance", "noise", "dy", "counters", "dmean", "dlog_variance"
    )
    count = elements(values, dy)
    partials = values.workspace(f"{step.layer}.divergences", (LOSS_PARTS,))
    return (
        *_one(
            "sample.cu",
            "sample_backward",
            count,
            (
                mean,
                log_variance,
                noise,
                dy,
                dmean,
                dlog_variance,
                *integers(count),
                *floats(step.attributes["factor"]),
            ),
        ),
        *_one(
            "sample.cu",
            "divergence_partials",
            LOSS_PARTS,
            (mean, log_variance, partials, *integers(count, LOSS_PARTS)),
        ),
        Launch(
            "gpu_basic/sample.cu",
            "divergence_total",
            (1,),
            (1,),
            (
                partials,
                counters,
                step.writes["divergences"],
                *integers(values.shape(dy)[0], LOSS_PARTS),
            ),
        ),
    )


def lrn_forward(step: Step, values: Values) -> Launches:
    x, y, sums = step.operands("x", "y", "sums")
    return _one(
        "lrn.cu",
        "lrn_forward",
        elements(values, y),
        (x, y, sums, *_lrn(step, values), *floats(step.attributes["k"])),
    )


def lrn_backward(step: Step, values: Values) -> Launches:
    x, sums, dy, dx = step.operands("x", "sums", "dy", "dx")
    return _one(
        "lrn.cu", "lrn_backward", elements(values, dx), (x, sums, dy, dx, *_lrn(step, values))
    )


def position_norm_forward(step: Step, values: Values) -> Launches:
    x, y, norms = step.operands("x", "y", "norms")
    pixels, channels = elements(values, norms), values.shape(x)[3]
    return (
        *_one(
            "position_norm.cu",
            "position_norm_lengths",
            pixels,
            (x, norms, *integers(pixels, channels), *floats(step.attributes["epsilon"])),
        ),
        *_one(
            "position_norm.cu",
            "position_norm_divide",
            pixels * channels,
            (x, norms, y, *integers(pixels * channels, channels)),
        ),
    )


def position_norm_backward(step: Step, values: Values) -> Launches:
    y, norms, dy, dx = step.operands("y", "norms", "dy", "dx")
    pixels, channels = elements(values, norms), values.shape(y)[3]
    along = values.workspace(f"{step.layer}.along", values.shape(norms))
    return (
        *_one(
            "position_norm.cu",
            "position_norm_along",
            pixels,
            (y, dy, along, *integers(pixels, channels)),
        ),
        *_one(
            "position_norm.cu",
            "position_norm_backward",
            pixels * channels,
            (y, norms, dy, along, dx, *integers(pixels * channels, channels)),
        ),
    )


def attention_forward(step: Step, values: Values) -> Launches:
    x, y, weights = step.operands("x", "y", "weights")
    pixels, channels = values.shape(weights)[1], values.shape(y)[3]
    rows = elements(values, weights) // pixels
    scores = values.workspace(f"{step.layer}.products", values.shape(weights))
    return (
        *_one(
            "attention.cu",
            "attention_scores",
            rows * pixels,
            (x, scores, *integers(rows * pixels, pixels, channels), *floats(channels**-0.5)),
        ),
        *_few(
            "attention.cu", "attention_softmax", rows, (scores, weights, *integers(rows, pixels))
        ),
        *_one(
            "attention.cu",
            "attention_sums",
            rows * channels,
            (x, weights, y, *integers(rows * channels, pixels, channels)),
        ),
    )


def attention_backward(step: Step, values: Values) -> Launches:
    x, weights, dy, dx = step.operands("x", "weights", "dy", "dx")
    pixels, channels = values.shape(weights)[1], values.shape(dy)[3]
    rows = elements(values, weights) // pixels
    dweights, dscores = (
        values.workspace(f"{step.layer}.{name}", values.shape(weights))
        for name in ("products", "dscores")
    )
    return (
        *_one(
            "attention.cu",
            "attention_weight_grad",
            rows * pixels,
            (x, dy, dweights, *integers(rows * pixels, pixels, channels)),
        ),
        *_few(
            "attention.cu",
            "attention_score_grad",
            rows,
            (weights, dweights, dscores, *integers(rows, pixels), *floats(channels**-0.5)),
        ),
        *_one(
            "attention.cu",
            "attention_input_grad",
            3 * rows * channels,
            (x, weights, dy, dscores, dx, *integers(3 * rows * channels, pixels, channels)),
        ),
    )


def local_contrast_forward(step: Step, values: Values) -> Launches:
    x, image, y = step.operands("x", "image", "y")
    count, channels = elements(values, x), values.shape(x)[3]
    contrast = values.workspace(f"{step.layer}.contrast", values.shape(x)[:3])
    return (
        *_one(
            "local_contrast.cu",
            "local_contrast_windows",
            count // channels,
            (
                image,
                contrast,
                *integers(*values.shape(image), step.attributes["kernel"]),
                *floats(step.attributes["epsilon"]),
            ),
        ),
        *_one(
            "local_contrast.cu",
            "local_contrast_divide",
            count,
            (x, contrast, y, *integers(count, channels)),
        ),
    )


def soft_threshold_forward(step: Step, values: Values) -> Launches:
    x, y = step.operands("x", "y")
    return _one(
        "soft_threshold.cu",
        "soft_threshold_forward",
        elements(values, x),
        (
            x,
            y,
            *integers(elements(values, x), values.shape(x)[3]),
            *floats(step.attributes["threshold"]),
        ),
    )


def quantise(step: Step, values: Values) -> Launches:
    x, y, scale = step.operands("x", "y", "scale")
    count, most = elements(values, x), floats(step.attributes["most"])
    partials = values.workspace("largest_magnitudes", (MAGNITUDE_PARTS,))
    return (
        *_one(
            "quantise.cu",
            "largest_magnitudes",
            MAGNITUDE_PARTS,
            (x, partials, *integers(count, MAGNITUDE_PARTS)),
        ),
        Launch(
            "gpu_basic/quantise.cu",
            "quantisation_scale",
            (1,),
            (1,),
            (partials, scale, *integers(MAGNITUDE_PARTS), *most),
        ),
        *_one("quantise.cu", "quantise", count, (x, scale, y, *integers(count), *most)),
    )


def rescale(step: Step, values: Values) -> Launches:
    *arrays, y = step.operands("x", "first", "second", "bias", "y")
    return _one(
        "quantise.cu",
        "rescale",
        elements(values, y),
        (*arrays, y, *integers(elements(values, y), values.shape(y)[-1])),
    )


def mse(step: Step, values: Values) -> Launches:
    prediction, target, counters = step.operands("prediction", "target", "counters")
    count = elements(values, prediction)
    partials = values.workspace("loss.partials", (LOSS_PARTS,))
    return (
        *_one(
            "mse.cu",
            "mse_gradient",
            count,
            (
                prediction,
                target,
                step.writes["gradient"],
                *integers(count),
                *floats(2 / step.attributes["divisor"]),
            ),
        ),
        *_one(
            "mse.cu",
            "mse_partials",
            LOSS_PARTS,
            (prediction, target, partials, *integers(count, LOSS_PARTS)),
        ),
        Launch(
            "gpu_basic/mse.cu",
            "mse_total",
            (1,),
            (1,),
            (partials, counters, step.writes["losses"], *integers(count, LOSS_PARTS)),
        ),
    )


def cross_entropy(
    step: Step,
    values: Values,
    source: str = "gpu_basic/cross_entropy.cu",
    rows: int = 32,
    threads: tuple[int, int] = (32, 1),
) -> Launches:
    """rows: that a block takes; threads: of such a block, and of the one that adds up."""
    prediction, labels, permutation, counters, gradient, losses, hits = step.operands(
        "prediction", "labels", "permutation", "counters", "gradient", "losses", "hits"
    )
    batch, _, _, classes = values.shape(prediction)
    of_rows = values.workspace("loss.of_rows", (2, batch))
    arguments = prediction, labels, permutation, counters, gradient, of_rows
    return (
        Launch(
            source,
            "cross_entropy_rows",
            (blocks(batch, rows),),
            threads[:1],
            (*arguments, *integers(batch, classes)),
        ),
        Launch(
            source,
            "cross_entropy_totals",
            (1,),
            threads[1:],
            (of_rows, counters, losses, hits, *integers(batch)),
        ),
    )


def numbers(step: Step, *names: str) -> list[float]:
    """The attributes of these names that the step has."""
    attributes = cast(Mapping[str, float], step.attributes)
    return [attributes[name] for name in names if name in attributes]


def on_elements(file: str, arrays: tuple[str, ...], *attributes: str) -> LaunchFunction:
    """Launch function of a kernel named like its operation, with one thread per element of the last
    of the `arrays` (roles).

    The kernel's arguments are the arrays, the number of elements, and the `attributes` as floats.
    """

    def launches(step: Step, values: Values) -> Launches:
        buffers = step.operands(*arrays)
        count = elements(values, buffers[-1])
        arguments = *buffers, *integers(count), *floats(*numbers(step, *attributes))
        return _one(file, step.operation, count, arguments)

    return launches


def loading(file: str, *drawn: str) -> LaunchFunction:
    """Launch function of the step that gathers a batch, with a thread per element; drawn: roles of
    what was drawn for its images.
    """

    def launches(step: Step, values: Values) -> Launches:
        arrays = step.operands(*GATHERED, *drawn, "batch")
        images, batch = arrays[0], arrays[-1]
        entry = f"{step.operation}_{values.buffers[images].dtype}"
        sizes = integers(*values.shape(batch), *map(int, numbers(step, "flip")))
        return _one(file, entry, elements(values, batch), (*arrays, *sizes))

    return launches


load_batch = loading("load_batch.cu")


def on_images(
    file: str, arrays: tuple[str, ...], output: str, image: str, *attributes: str
) -> LaunchFunction:
    """Launch function of a kernel named like its operation, with one thread per element of
    `output`.

    The kernel's arguments are the `arrays` (roles), the four sizes of `image`, and the
    `attributes`.
    """

    def launches(step: Step, values: Values) -> Launches:
        output_buffer, image_buffer = step.operands(output, image)
        sizes = integers(*values.shape(image_buffer), *map(int, numbers(step, *attributes)))
        arguments = (*step.operands(*arrays), *sizes)
        return _one(file, step.operation, elements(values, output_buffer), arguments)

    return launches


def update(*averages: str) -> LaunchFunction:
    """Launch function of an optimizer's update; averages: roles of its running averages in the
    kernel's order.
    """

    def launches(step: Step, values: Values) -> Launches:
        parameter = step.writes["parameter"]
        count = elements(values, parameter)
        arguments = (
            parameter,
            *(step.writes[average] for average in averages),
            step.reads["gradient"],
            step.reads["learning_rates"],
            step.reads["counters"],
            *integers(count),
            *floats(*numbers(step, "weight_decay", "clip", "momentum")),
        )
        return _one("update.cu", step.operation, count, arguments)

    return launches


def advance(step: Step, values: Values) -> Launches:
    return (
        Launch(
            "gpu_basic/update.cu",
            "advance",
            (1,),
            (1,),
            (step.writes["counters"], *integers(step.attributes["batch"])),
        ),
    )


RUNG = Implementation(
    LAYER_PATTERNS,
    {
        **{
            function.__name__: function
            for function in (
                draw_augmentation,
                draw_jitter,
                conv2d_forward,
                conv2d_input_grad,
                conv2d_weight_grad,
                conv2d_bias_grad,
                decompose_taps,
                phase_conv2d_forward,
                phase_conv2d_input_grad,
                phase_conv2d_weight_grad,
                dense_forward,
                dense_input_grad,
                dense_weight_grad,
                dense_bias_grad,
                batchnorm_forward,
                batchnorm_backward,
                batchnorm_inference,
                dropout_forward,
                dropout_backward,
                winner_take_all_forward,
                sample_forward,
                sample_backward,
                lrn_forward,
                lrn_backward,
                position_norm_forward,
                position_norm_backward,
                attention_forward,
                attention_backward,
                local_contrast_forward,
                soft_threshold_forward,
                quantise,
                rescale,
                mse,
                cross_entropy,
                advance,
            )
        },
        "load_batch": load_batch,
        "load_augmented_batch": loading("augmentation.cu", "augmentation"),
        "load_jittered_batch": loading("jitter.cu", "augmentation", "jitter"),
        "relu_forward": on_elements("relu.cu", ("x", "y")),
        "relu_backward": on_elements("relu.cu", ("y", "dy", "dx")),
        "add_forward": on_elements("add.cu", ("a", "b", "y")),
        "scale": on_elements("scale.cu", ("x", "y"), "factor"),
        "winner_take_all_backward": on_elements("winner_take_all.cu", ("dy", "mask", "dx")),
        "l1_penalty_backward": on_elements("l1_penalty.cu", ("x", "dx"), "factor"),
        "maxpool2d_forward": on_images("maxpool2d.cu", ("x", "y", "index"), "y", "x", *SLIDING),
        "maxpool2d_backward": on_images(
            "maxpool2d.cu", ("dy", "index", "dx"), "dx", "dx", *SLIDING
        ),
        "avgpool2d_forward": on_images("avgpool2d.cu", ("x", "y"), "y", "x", *SLIDING),
        "avgpool2d_backward": on_images("avgpool2d.cu", ("dy", "dx"), "dx", "dx", *SLIDING),
        "global_avgpool_forward": on_images("global_avgpool.cu", ("x", "y"), "y", "x"),
        "global_avgpool_backward": on_images("global_avgpool.cu", ("dy", "dx"), "dx", "dx"),
        "upsample2d_forward": on_images("upsample2d.cu", ("x", "y"), "y", "x"),
        "upsample2d_backward": on_images("upsample2d.cu", ("dy", "dx"), "dx", "dx"),
        "pad_forward": on_images("pad.cu", ("x", "y"), "y", "x", "amount"),
        "pad_backward": on_images("pad.cu", ("dy", "dx"), "dx", "dx", "amount"),
        "flatten_forward": on_images("flatten.cu", ("x", "y"), "y", "x"),
        "flatten_backward": on_images("flatten.cu", ("dy", "dx"), "dx", "dx"),
        "sgd_update": update(),
        "momentum_update": update("velocity"),
        "rmsprop_update": update("square"),
        "adam_update": update("mean", "square"),
    },
)


def _dense(values: Values, x: str, y: str) -> tuple[int, int, int]:
    """batch, inputs, units."""
    return values.shape(x)[0], values.shape(x)[3], values.shape(y)[3]


def _lrn(step: Step, values: Values) -> tuple[Argument, ...]:
    """elements, channels, window size, alpha / size, beta: the scalar arguments of both
    directions.
    """
    x, attributes = step.reads["x"], step.attributes
    return (
        *integers(elements(values, x), values.shape(x)[3], attributes["size"]),
        *floats(attributes["alpha"] / attributes["size"], attributes["beta"]),
    )


def _one(file: str, entry: str, count: int, arguments: tuple[Argument, ...]) -> Launches:
    """One launch with one thread per element."""
    return (Launch(f"gpu_basic/{file}", entry, (blocks(count),), (BLOCK,), arguments),)


def _few(file: str, entry: str, count: int, arguments: tuple[Argument, ...]) -> Launches:
    """As _one, for few threads with much work each: small blocks spread them over the GPU."""
    return (Launch(f"gpu_basic/{file}", entry, (blocks(count, 32),), (32,), arguments),)
