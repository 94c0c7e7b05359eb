"""Packed copies as the launches of gpu_tf32 and the rungs on its kernels make them, for tests of
what reads and writes them.

They are made in one order of threads, if the test is not of them.
"""

import functools
import itertools

import numpy as np

import cuda_emulator
import emulator_executor
import references
from compiled import without_spills
from kernel_checks import check_channel_sums, integers, normal, poisoned
from ladder.arithmetic.multipliers import PRECISIONS, to_bfloat16, to_float16, to_tf32
from ladder.executors import create as executors
from ladder.executors.cuda import nvrtc
from ladder.plan import plan
from ladder.rungs import packed as launches
from ladder.rungs.packed_tiles import (
    BFLOAT16,
    FLOAT16,
    FLOAT32,
    HALVES,
    LARGE,
    SQUARE,
    TF32,
    Window,
    weight_tiles,
)
from ladder.rungs.packing import PIXELS_OF_LOSS, Columns, Packing, PhaseWeights, rows_of_packing
from ladder.verify import parity
from rung_checks import (
    ONE_ORDER,
    ORDERS,
    SMALL,
    Convolution,
    in_one_order,
    run_forward,
    run_input_grad,
    run_step,
    run_weight_grad,
)

ROUNDS = {
    BFLOAT16: to_bfloat16,
    FLOAT16: to_float16,
    TF32: to_tf32,
    FLOAT32: np.asarray,
    HALVES: np.asarray,
}


def numbers(copy, number_format=BFLOAT16):
    """float32 of the words of a copy."""
    if copy.dtype == np.uint32:
        return copy.view(np.float32)
    return (
        copy.view(np.float16).astype(np.float32)
        if number_format is FLOAT16
        else (copy.astype(np.uint32) << 16).view(np.float32)
    )


def padded(image, padding, number_format=BFLOAT16):
    """With borders of zeros, and channels of zeros up to the end of a chunk."""
    return np.pad(
        image,
        (
            (0, 0),
            (padding, padding),
            (padding, padding),
            (0, -image.shape[3] % number_format.chunk),
        ),
    )


def rounded_input(x, padding, number_format=BFLOAT16, orders=ONE_ORDER):
    copy = poisoned(padded(x, padding, number_format).shape, number_format.dtype)
    run_step(
        launched("conv2d_round_input", number_format),
        {"x": x},
        {"rounded": copy},
        orders,
        padding=padding,
    )
    return copy


def rounded_gradient(dy, padding, number_format=BFLOAT16, orders=ONE_ORDER):
    """(copy, partials)."""
    copy = poisoned(padded(dy, padding, number_format).shape, number_format.dtype)
    partials = poisoned((rows_of_packing(dy.shape, padding), dy.shape[3]))
    run_step(
        launched("conv2d_round_gradient", number_format),
        {"dy": dy},
        {"rounded": copy, "bias_partials": partials},
        orders,
        padding=padding,
    )
    return copy, partials


def columns_of(x, kernel, stride, padding, number_format=BFLOAT16):
    """The windows of an image side by side (im2col), with zeros up to the end of a chunk."""
    image = np.pad(x, ((0, 0), (padding, padding), (padding, padding), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(image, (kernel, kernel), axis=(1, 2))[
        :, ::stride, ::stride
    ]
    return padded(
        windows.transpose(0, 1, 2, 4, 5, 3).reshape(*windows.shape[:3], -1), 0, number_format
    )


def gathered(x, kernel, stride, padding, number_format=BFLOAT16, orders=ONE_ORDER):
    columns = poisoned(
        columns_of(x, kernel, stride, padding, number_format).shape, number_format.dtype
    )
    run_step(
        launched("gather_columns", number_format),
        {"x": x},
        {"columns": columns},
        orders,
        window=(kernel, stride),
        padding=padding,
    )
    return columns


def rounded_weight(weight, flip=True, number_format=BFLOAT16, orders=ONE_ORDER, packing=None):
    """[copy, flipped]."""
    copies, attribute = copies_of("w", weight.shape, flip, number_format, packing)
    run_step(
        launched("copy_weights", number_format), {"w": weight}, copies, orders, copies=attribute
    )
    return list(copies.values())


def launched(operation, number_format):
    return launches.of_format(number_format)[operation]


def copies_of(name, shape, flip=True, number_format=BFLOAT16, packing=None):
    """({buffer: array}, a plan's {name: {role: buffer}}) of the copies of a weight; packing: other
    than Packing.
    """
    shapes = {
        role: size
        for role, size in (packing or Packing(number_format)).weight(shape).items()
        if flip or role != "flipped"
    }
    return (
        {f"{name}.{role}": poisoned(size, number_format.dtype) for role, size in shapes.items()},
        {name: {role: f"{name}.{role}" for role in shapes}},
    )


def check_copies(number_format):
    """Copies of 4 bytes are the numbers, rounded, of all sizes, with zeros behind; partial sums are
    of what was not rounded.
    """
    rounds = ROUNDS[number_format]
    x = np.ldexp(
        normal(3, 9, 8, 22), np.random.default_rng(0).integers(-140, 120, (3, 9, 8, 22), np.int32)
    )
    x.flat[:4] = np.inf, np.nan, -np.inf, 1e-45
    assert np.array_equal(
        numbers(rounded_input(x, 1, number_format, ORDERS)),
        padded(rounds(x), 1, number_format),
        equal_nan=True,
    )
    gradient = normal(2, 5, 7, 38)
    copy, partials = rounded_gradient(gradient, 2, number_format, ORDERS)
    assert np.array_equal(numbers(copy), padded(rounds(gradient), 2, number_format))
    check_channel_sums(partials, gradient, gradient[..., 0].size)
    weight = normal(42, 3, 3, 27)
    copy, flipped = rounded_weight(weight, number_format=number_format, orders=ORDERS)
    assert np.array_equal(numbers(copy), padded(rounds(weight), 0, number_format))
    assert np.array_equal(
        numbers(flipped),
        padded(rounds(weight)[:, ::-1, ::-1].transpose(3, 1, 2, 0), 0, number_format),
    )
    check_columns(number_format)
    check_products_of_columns(number_format)
    check_loss(number_format)


COLUMNS = [
    ((2, 9, 11, 3), 3, 1, 1),
    ((3, 8, 5, 1), 5, 2, 2),
    ((1, 4, 6, 5), 2, 1, 0),
    ((70, 3, 2, 2), 1, 1, 0),
]


def check_columns(number_format):
    """Columns are the windows, rounded, of an image in float32 and of a batch that is loaded, whose
    bytes are load_batch's.
    """
    rounds = ROUNDS[number_format]
    for shape, *window in COLUMNS:
        x = normal(*shape)
        x.flat[:2] = np.inf, np.nan
        wanted = rounds(columns_of(x, *window, number_format))
        assert np.array_equal(
            numbers(gathered(x, *window, number_format, ORDERS), number_format),
            wanted,
            equal_nan=True,
        )
        for dtype, flip in ((np.uint8, True), (np.float32, False)):
            images = (
                np.random.default_rng(0).integers(1, 256, (shape[0] + 3, *shape[1:])).astype(dtype)
            )
            permutation = np.random.default_rng(1).permutation(len(images))
            scale, offset = (np.abs(normal(shape[3], seed=seed)) for seed in (2, 3))
            batch, columns = poisoned(shape), poisoned(wanted.shape, number_format.dtype)
            reads = {
                "images": images,
                "permutation": permutation,
                "counters": np.array([9, 3, 0], np.int64),
                "scale": scale,
                "offset": offset,
            }
            kernel, stride, padding = window
            run_step(
                launched("load_batch", number_format),
                reads,
                {"batch": batch, "columns": columns},
                ORDERS,
                flip=flip,
                window=(kernel, stride),
                padding=padding,
            )
            assert (
                batch.tobytes()
                == references.load_batch(images, permutation[3:], scale, offset, flip).tobytes()
            )
            assert np.array_equal(
                numbers(columns, number_format), rounds(columns_of(batch, *window, number_format))
            )


def check_loss(number_format):
    """The gradient, times the loss scale, is rounded to a copy; its sums and the loss are those of
    what was not rounded.
    """
    for shape, padding, factor in (
        ((3, 9, 8, 3), 1, 1.0),
        ((2, 5, 7, 20), 2, 8.0),
        ((1, 2, 2, 1), 0, 1.0),
        ((2, 4, 3, 16), 1, 1.0),
    ):
        prediction, target, divisor = normal(*shape), normal(*shape, seed=1), 24
        copy, partials = (
            poisoned(padded(target, padding, number_format).shape, number_format.dtype),
            poisoned((rows_of_packing(shape, padding, PIXELS_OF_LOSS), shape[3])),
        )
        losses, counters = poisoned(5, np.float64), np.array([7, 0, 2], np.int64)
        run_step(
            launched("mse", number_format),
            {"prediction": prediction, "target": target, "counters": counters},
            {"rounded": copy, "bias_partials": partials, "losses": losses},
            ORDERS,
            divisor=divisor,
            padding=padding,
            factor=factor,
        )
        gradient = np.float32(factor) * (np.float32(2 / divisor) * (prediction - target))
        assert np.array_equal(
            numbers(copy, number_format),
            padded(ROUNDS[number_format](gradient), padding, number_format),
        )
        check_channel_sums(partials, gradient, 16)
        np.testing.assert_allclose(
            losses[2], references.mse(prediction, target, divisor)[1], rtol=1e-6
        )


def forward_of_columns(conv, relu, number_format):
    """y of a Convolution whose images are columns."""
    packing = columns_packing(conv, number_format)
    weight, *_ = rounded_weight(conv.weight, number_format=number_format, packing=packing)
    x = gathered(conv.x, conv.kernel, conv.stride, conv.padding, number_format)
    return run_forward(
        launched("rounded_conv2d_forward", number_format),
        {"x": x, "weight": weight, "bias": conv.bias},
        conv,
        stride=1,
        relu=relu,
    )


def weight_grad_of_columns(conv, number_format):
    """(dweight, dbias)."""
    dy, partials = rounded_gradient(conv.dy, 0, number_format)
    x = gathered(conv.x, conv.kernel, conv.stride, conv.padding, number_format)
    return run_weight_grad(
        launched("rounded_conv2d_weight_grad", number_format),
        {"x": x, "dy": dy, "bias_partials": partials},
        conv,
        stride=1,
        padding=0,
        kernel=1,
    )


# (batch, height, width, channels, filters, kernel, padding): windows of which rows fill steps and
# others, that end within a step and a split; filters within a tile and beyond
BEHIND_POOLING = [
    (2, 8, 12, 3, 40, 3, 1),
    (5, 6, 10, 1, 136, 5, 2),
    (1, 16, 32, 3, 72, 3, 1),
    (9, 8, 8, 3, 264, 2, 0),
]


def check_weight_gradients_behind_pooling(number_format, tile=None):
    """They are those of the gradient that a pooling leads back to its places, whose sum is the bias
    gradient.
    """
    for batch, height, width, channels, filters, kernel, padding in BEHIND_POOLING:
        # of y as given, and even
        height, width = height + kernel - 1 - 2 * padding, width + kernel - 1 - 2 * padding
        shape = batch, height, width, channels, filters, kernel, padding
        for values, equal in ((integers, np.testing.assert_array_equal), (normal, close)):
            conv = Convolution(shape, values)
            pooled = values(batch, conv.output[1] // 2, conv.output[2] // 2, filters, seed=4)
            index = np.random.default_rng(5).integers(0, 4, pooled.shape).astype(np.uint8)
            dy, places = np.zeros(conv.output, np.float32), np.arange(4).reshape(2, 2)
            for row, column in np.ndindex(2, 2):
                dy[:, row::2, column::2] = np.where(
                    index == places[row, column], ROUNDS[number_format](pooled), 0
                )
            copy, partials = rounded_gradient(pooled, 0, number_format)
            dweight, dbias = poisoned(conv.weight.shape), poisoned(conv.bias.shape)
            run_step(
                functools.partial(launches.weight_grad, tile=tile, number_format=number_format),
                {
                    "x": gathered(conv.x, kernel, 1, padding, number_format),
                    "dy": copy,
                    "index": index,
                    "bias_partials": partials,
                },
                {"dweight": dweight, "dbias": dbias},
                stride=1,
                padding=0,
                kernel=1,
            )
            equal(dweight, conv.weight_grad(ROUNDS[number_format](conv.x), dy))
            equal(dbias, pooled.sum(axis=(0, 1, 2), dtype=float))


def columns_packing(conv, number_format):
    return Columns(number_format, (conv.kernel, conv.stride))


def check_products_of_columns(number_format):
    """As check_products, of convolutions whose images are columns."""
    for ((batch, height, width, channels), kernel, stride, padding), filters in itertools.product(
        COLUMNS, (40, 136)
    ):
        check_products(
            (batch, height, width, channels, filters, kernel, padding),
            stride,
            lambda conv, relu: forward_of_columns(conv, relu, number_format),
            None,
            lambda conv: weight_grad_of_columns(conv, number_format),
            number_format,
        )


def with_border(copy_of, padding):
    """An unwritten copy of an image, of which `copy_of` is an array of that shape."""
    batch, height, width, channels = copy_of.shape
    return poisoned((batch, height + 2 * padding, width + 2 * padding, channels), np.uint16)


def copied(x, padding):
    """What a launch of its own makes of the float32 image."""
    copy = with_border(x, padding)
    run_step(launches.round_input, {"x": x}, {"rounded": copy}, ("forward",), padding=padding)
    return copy


def close(found, wanted):
    # another rounding would be a hundred times as far
    assert np.abs(found - wanted).max() <= 1e-5 * np.abs(wanted).max()


def check_products(
    shape, stride=1, forward=None, input_grad=None, weight_grad=None, number_format=BFLOAT16
):
    """Exact on small integers, in every order; otherwise the products of rounded operands, but for
    the order and the rounding of sums. Integers are left out where tensor cores truncate their
    sums: no sum of theirs has digits to cut.

    Functions of a Convolution, those that there are: y with and without ReLU; dx; dweight and
    dbias.
    """

    def check(values, equal):
        conv, exact = (Convolution(shape, values, stride) for _ in range(2))
        exact.x, exact.weight, exact.dy = (
            ROUNDS[number_format](value) for value in (conv.x, conv.weight, conv.dy)
        )
        if forward:
            y = exact.forward(exact.x, exact.weight, conv.bias)
            equal(forward(conv, values is normal), np.maximum(y, 0) if values is normal else y)
        if input_grad:
            equal(input_grad(conv), exact.input_grad(exact.dy, exact.weight))
        if weight_grad:
            dweight, dbias = weight_grad(conv)
            equal(dweight, exact.weight_grad(exact.x, exact.dy))
            # a sum, no product: not rounded
            equal(dbias, conv.dy.astype(float).sum(axis=(0, 1, 2)))

    if cuda_emulator.tensor_sums == "rounded":
        check(integers, np.testing.assert_array_equal)
    with in_one_order():
        check(normal, close)


def forward(conv, relu, tile=None, number_format=BFLOAT16):
    """y of a Convolution; tile: replaces the one that the shape asks for, here and in the
    gradients.
    """
    return run_forward(
        functools.partial(launches.forward, tile=tile, number_format=number_format),
        {
            "x": rounded_input(conv.x, conv.padding, number_format),
            "weight": rounded_weight(conv.weight, number_format=number_format)[0],
            "bias": conv.bias,
        },
        conv,
        stride=conv.stride,
        relu=relu,
    )


def input_grad(conv, tile=None, number_format=BFLOAT16):
    return run_input_grad(
        functools.partial(launches.input_grad, tile=tile, number_format=number_format),
        {
            "dy": rounded_gradient(conv.dy, conv.kernel - 1 - conv.padding, number_format)[0],
            "flipped": rounded_weight(conv.weight, number_format=number_format)[1],
        },
        conv,
    )


def weight_grad(conv, tile=None, number_format=BFLOAT16):
    """(dweight, dbias)."""
    padding = max(0, conv.kernel - 1 - conv.padding) if conv.stride == 1 else 0
    dy, partials = rounded_gradient(conv.dy, padding, number_format)
    return run_weight_grad(
        functools.partial(launches.weight_grad, tile=tile, number_format=number_format),
        {
            "x": rounded_input(conv.x, conv.padding, number_format),
            "dy": dy,
            "bias_partials": partials,
        },
        conv,
        stride=conv.stride,
        padding=padding,
        kernel=conv.kernel,
    )


class Upsampled:
    """A convolution behind an upsampling, in phases; shape: batch, height and width of the small
    image, channels, filters.

    A subclass launches it: forward(tile, relu=False), input_grad() and weight_grad() return y, dx,
    and dweight and dbias. packed_as: a kind of Packing.
    """

    packed_as = PhaseWeights

    def __init__(self, shape, values, number_format=BFLOAT16):
        batch, self.height, self.width, self.channels, self.filters = shape
        self.number_format, self.packing = number_format, self.packed_as(number_format)
        self.output = batch, 2 * self.height, 2 * self.width, self.filters
        self.x = values(batch, self.height, self.width, self.channels)
        self.weight = values(self.filters, 3, 3, self.channels, seed=1)
        self.bias = values(self.filters, seed=2)
        self.dy = values(*self.output, seed=3)
        self.phase_weights = ROUNDS[number_format](references.decompose_taps(self.weight))

    def copies(self, orders=ONE_ORDER):
        """[copy, flipped] of the weight."""
        return rounded_weight(self.weight, True, self.number_format, orders, self.packing)

    def check_on_integers(self, tile):
        """y and dx are exact."""
        upsampled, found = references.upsample2d(self.x), self.forward(tile)
        assert np.array_equal(found, references.conv2d(upsampled, self.weight, self.bias, 1))
        dx = references.conv2d_input_grad(self.dy, self.weight, 1, *self.output[1:3])
        assert np.array_equal(self.input_grad(), references.upsample2d_backward(dx))

    def check_weight_grad_on_integers(self):
        dweight, dbias = self.weight_grad()
        upsampled = references.upsample2d(self.x)
        assert np.array_equal(dweight, references.conv2d_weight_grad(upsampled, self.dy, 1, 3))
        assert np.array_equal(dbias, self.dy.sum(axis=(0, 1, 2)))

    def check_rounding(self, tile=None):
        """The operands and the sums of taps are rounded once."""
        taps, rounded = self.phase_weights, ROUNDS[self.number_format]
        x, dy = rounded(self.x), rounded(self.dy)
        y = references.conv2d_input_grad(x, taps, 1, *self.output[1:3], 2) + self.bias
        with in_one_order():
            close(self.forward(tile, relu=True), np.maximum(y, 0))
            close(self.input_grad(), references.conv2d(dy, taps, 0, 1, 2))
            dweight, dbias = self.weight_grad()
        close(dweight, references.add_tap_gradients(references.conv2d_weight_grad(dy, x, 1, 4, 2)))
        close(dbias, self.dy.astype(float).sum(axis=(0, 1, 2)))


def wide_builds(made, number_format):
    """(source, defines) of a plan's kernels on copies of 4 bytes, and of tiles whose sums and
    fragments take most registers.
    """
    return sorted(
        {
            (launch.source, launch.defines)
            for launch in made.launches
            if launch.source.startswith("packed/")
        }
        | {
            (
                "packed/weight_grad_halo.cu",
                (*tile.defines(KERNEL=tile.kernel, WHOLE=whole), *number_format.defines),
            )
            for tile in weight_tiles(number_format)
            if isinstance(tile, Window)
            for whole in (False, True)
        }
        | {
            (
                f"packed/weight_grad{kind}.cu",
                (*tile.defines(WHOLE=whole, WHOLE_ROWS=False), *number_format.defines),
            )
            for tile in weight_tiles(number_format)
            if not isinstance(tile, Window)
            for whole in (False, True)
            for kind in ("", "_pooled")
            if not kind or tile.m % number_format.step == 0
        }
        | {
            (f"packed/conv2d{entry}.cu", (*tile.defines(WHOLE=False), *number_format.defines))
            for entry in ("", "_copy", "_gradient", "_gradient_pool")
            for tile in (LARGE, SQUARE)
        }
    )


def check_wide_build(source, defines):
    """A GPU of the newest architecture runs it without spills, and it has what copies of 4 bytes
    are fed to tensor cores by.
    """
    made = without_spills(source, defines, nvrtc.ARCHITECTURES[-1])
    assert ("mma.sync" in made.ptx) == ("cp.async" in made.ptx) == ("WARP_M" in str(defines))
    assert made.ptx.count("mma.sync") == made.ptx.count("mma.sync.aligned.m16n8k8.row.col.f32.tf32")
    # transposes 16 bits
    assert ("ldmatrix" in made.ptx) == ("WARP_M" in str(defines) and "weight_grad" not in source)


def check_training(rung, network, precision, frozen=()):
    """Parity's updates are those of the cpu rung but for the order of sums, and the same bytes in
    every order of threads.
    """
    protocol, settings = (
        parity.protocols(network)["momentum"],
        {"multipliers": PRECISIONS[precision], "frozen": frozen},
    )
    reference = parity.train(network, "cpu", executors.create("cpu", 2), protocol, **settings)
    found = [
        parity.train(
            network, rung, emulator_executor.Executor(order), protocol, follow=reference, **settings
        )
        for order in ORDERS
    ]
    learning = {
        name: value for name, value in reference.items() if name.split(".")[0] not in frozen
    }
    deviations = parity.deviations(network, found[0], learning)
    assert max(deviations.values()) <= SMALL[precision], deviations
    for other, (name, value) in itertools.product(found[1:], found[0].items()):
        assert np.asarray(other[name]).tobytes() == np.asarray(value).tobytes(), name


def check_features(rung, network, until):
    """The output of layer `until`, extracted as features are, is that of the cpu rung."""
    dataset, found = plan.Dataset(4, "uint8"), {}
    for name, executor in (
        ("cpu", executors.create("cpu", 2)),
        (rung, emulator_executor.Executor()),
    ):
        made = plan.inference_plan(
            network, name, 4, dataset, until=until, multipliers=PRECISIONS["bfloat16"]
        )
        arrays = executor.allocate(
            made, executor.upload({**parity.random_images(network, 4), **parity.initial(network)})
        )
        executor.run(made, arrays)
        found[name] = executor.download(arrays[made.output])
    assert np.abs(found["cpu"]).max() > 0
    assert (
        np.abs(found[rung] - found["cpu"]).max() <= SMALL["bfloat16"] * np.abs(found["cpu"]).max()
    )
