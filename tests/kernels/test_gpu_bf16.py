"""gpu_bf16's kernels on copies in bfloat16 against rounded operands, and gpu_opt_v1's convolution
kernels as it launches them.

Tensor cores add by either model of cuda_emulator/tensor_cores.cpp.
"""

import dataclasses
import itertools
import math
import re

import numpy as np
import pytest

import needs
import zoo
from compiled import bodies, without_spills
from cuda_emulator import KernelFault
from emulated import KERNELS, load
from kernel_checks import check_channel_sums, gamma, integers, normal, poisoned
from ladder.arithmetic.multipliers import to_bfloat16
from ladder.executors.cuda import nvrtc
from ladder.network import networks
from ladder.network.optimizers import AVERAGES
from ladder.rungs import gpu_bf16, gpu_opt_v1, packed_tiles
from ladder.rungs import packed as launches
from ladder.rungs.launches import Gradient
from ladder.rungs.packed_tiles import (
    BFLOAT16,
    FEW_COLUMNS,
    FEW_ROWS,
    LARGE,
    RECTANGLES,
    SQUARE,
    TF32,
    WINDOWS,
)
from ladder.rungs.packing import FEWEST, PIXELS_OF_LOSS, Columns, Packing, rows_of_packing
from rounded_copies import (
    check_columns,
    check_features,
    check_loss,
    check_products,
    check_products_of_columns,
    check_training,
    check_weight_gradients_behind_pooling,
    copied,
    copies_of,
    forward,
    gathered,
    input_grad,
    numbers,
    padded,
    rounded_gradient,
    rounded_input,
    rounded_weight,
    weight_grad,
    with_border,
)
from rung_checks import ORDERS, Convolution, in_one_order, passed, run_step, training_plan
from tensor_checks import RoundedOperands, counted, sums  # noqa: F401 (sums is a fixture)

RUNG = "gpu_bf16"
ONE_ARITHMETIC = True  # in the tests of gpu_opt_v1 the kernels run in both

# (batch, height, width, channels, filters, kernel, padding), stride: whole steps of k and not,
# fewer than are under way, rows of y that divide a step's pixels and others, ends of images, of
# tiles and of splits within a step
COPIED = [
    ((1, 4, 4, 64, 40, 1, 0), 1),
    ((1, 5, 7, 40, 72, 3, 1), 1),
    ((3, 8, 8, 64, 64, 3, 1), 1),
    ((2, 9, 6, 40, 48, 2, 1), 1),
    ((2, 9, 11, 40, 40, 3, 1), 2),
    ((1, 3, 70, 40, 40, 3, 0), 1),
]
FEW_FILTERS = [
    ((2, 6, 7, 40, 3, 3, 1), 1),
    ((1, 8, 8, 64, 10, 1, 0), 1),
    ((2, 9, 8, 40, 16, 3, 1), 2),
    ((3, 16, 11, 40, 20, 3, 1), 1),
    ((2, 5, 7, 40, 1, 3, 1), 1),
]
# few channels
FIRST = [
    ((2, 9, 11, 3, 40, 3, 1), 1),
    ((1, 13, 14, 1, 136, 7, 3), 2),
    ((1, 6, 8, 12, 64, 2, 2), 1),
    ((1, 5, 4, 3, 3, 2, 0), 1),
]  # as many filters
FILL_LARGE = [
    ((2, 8, 12, 64, 136, 3, 1), 1),
    ((1, 16, 16, 136, 40, 1, 0), 1),
    ((3, 7, 5, 40, 136, 2, 0), 1),
]


class TestConvolutions(RoundedOperands):
    rung, name = gpu_bf16, "bfloat16"
    others, instruction = ("exact", "am16", "tf32"), "m16n8k16.row.col.f32.bf16"
    by_matrices, network = True, networks.build("lenet_5", (28, 28, 1))


@pytest.mark.parametrize(
    "shape, padding", [((1, 1, 1, 16), 0), ((2, 3, 5, 24), 2), ((3, 9, 8, 80), 1)], ids=str
)
def test_copies_are_rounded_to_nearest_with_a_border_of_zeros(shape, padding):
    x = normal(*shape)
    x.flat[:2] = np.inf, np.nan
    wanted = padded(to_bfloat16(x), padding)
    assert np.array_equal(numbers(rounded_input(x, padding, orders=ORDERS)), wanted, equal_nan=True)
    copy, partials = rounded_gradient(x[..., 8:].copy(), padding, orders=ORDERS)
    assert np.array_equal(numbers(copy), wanted[..., 8:])
    check_channel_sums(partials, x[..., 8:], x[..., 0].size)


@pytest.mark.parametrize("channels", [1, 3, 20, 67])
def test_channels_of_a_gradient_are_filled_with_zeros(channels):
    dy = normal(3, 9, 8, channels)
    copy, partials = rounded_gradient(dy, 2, orders=ORDERS)
    assert np.array_equal(numbers(copy), padded(to_bfloat16(dy), 2))
    check_channel_sums(partials, dy, dy[..., 0].size)


@pytest.mark.parametrize(
    "shape",
    [(8, 1, 1, 8), (40, 3, 3, 24), (3, 2, 2, 40), (40, 3, 3, 3), (33, 1, 1, 20), (3, 1, 1, 17)],
    ids=str,
)
def test_copies_of_weights_are_rounded_and_flipped(shape):
    weight = normal(*shape)
    copy, flipped = rounded_weight(weight, orders=ORDERS)
    for same in (copy, *rounded_weight(weight, flip=False, orders=ORDERS)):
        assert np.array_equal(numbers(same), padded(to_bfloat16(weight), 0))
    wanted = to_bfloat16(weight)[:, ::-1, ::-1].transpose(3, 1, 2, 0)
    assert np.array_equal(numbers(flipped), padded(wanted, 0))


SIZES = {
    "few.bias": (7,),
    "first.weight": (40, 3, 3, 3),
    "both.weight": (20, 3, 3, 40),
    "one.weight": (33, 1, 1, 48),
    "dense.weight": (5, 1, 1, 300),
}


@pytest.mark.parametrize("rule", AVERAGES)
def test_the_update_is_gpu_opt_v1s_and_leaves_copies_of_the_new_weights(rule):
    gradients = {f"{name}.gradient": normal(*shape) for name, shape in SIZES.items()}
    places = {name: Gradient(f"{name}.gradient") for name in SIZES}
    reads = {
        **gradients,
        "learning_rates": np.full(4, 0.25),
        "counters": np.array([3, 0, 0], np.int64),
    }
    given = {
        "weight_decay": 0.125,
        "clip": 0.5,
        **({"momentum": 0.5} if rule == "momentum" else {}),
        "gradients": places,
    }

    def updated(function, copied, **more):
        writes = {
            role: np.abs(normal(*shape))
            for name, shape in SIZES.items()
            for role in (name, *(f"{name}.{average}" for average in AVERAGES[rule]))
        }
        run_step(function, reads, {**writes, **copied}, operation=f"{rule}_update", **given, **more)
        return writes

    both, of_both = copies_of("both.weight", SIZES["both.weight"])
    one, of_one = copies_of("one.weight", SIZES["one.weight"], flip=False)
    first, of_first = copies_of("first.weight", SIZES["first.weight"], flip=False)
    wanted = updated(gpu_opt_v1.update, {})
    found = updated(
        launches.update, {**both, **one, **first}, copies={**of_both, **of_one, **of_first}
    )
    for role, value in wanted.items():
        assert found[role].tobytes() == value.tobytes(), role
    assert_copied(found, {"both.weight": both, "one.weight": one, "first.weight": first})


def assert_copied(weights, copies_by_name, packing=None):
    """copies_by_name: {name: {buffer: array}}."""
    for name, copies in copies_by_name.items():
        again = rounded_weight(weights[name], flip=len(copies) == 2, packing=packing)
        assert [copy.tobytes() for copy in copies.values()] == [copy.tobytes() for copy in again], (
            name
        )


def test_columns_are_rounded_windows():
    check_columns(BFLOAT16)


@pytest.mark.usefixtures("sums")
def test_products_of_columns():
    check_products_of_columns(BFLOAT16)


@pytest.mark.usefixtures("sums")
@pytest.mark.parametrize("splits, tile", [(1, SQUARE), (128, SQUARE), (1, LARGE)], ids=str)
def test_weight_gradients_behind_a_pooling(splits, tile, monkeypatch):
    monkeypatch.setattr(packed_tiles, "SPLITS", splits)
    check_weight_gradients_behind_pooling(BFLOAT16, tile)


def test_no_weight_gradient_of_columns_has_the_tile_of_few_filters():
    """Behind a pooling that tile has no kernel."""
    for number, filters, length in itertools.product(
        (BFLOAT16, TF32), range(FEWEST, 1025), (9, 27, 49, 64)
    ):
        image = 64, 32, 32, number.chunk * -(-min(length, number.step) // number.chunk)
        assert packed_tiles.weight_tile(
            packed_tiles.Sums.from_input(image, filters, 1, 1, number)
        ) in (
            SQUARE,
            LARGE,
        )


def test_the_loss_leaves_its_gradient_rounded():
    check_loss(BFLOAT16)


def test_the_loss_is_added_in_float64():
    """Of a block of 256 pixels, and of all."""
    prediction = np.random.default_rng(0).integers(-1000, 1000, (2, 20, 24, 1)).astype(np.float32)
    first = (prediction.flat[:256] ** 2).sum(dtype=int)
    assert first > 2**24 and np.float32(first) != first
    losses, rows = poisoned(1, np.float64), rows_of_packing(prediction.shape, 0, PIXELS_OF_LOSS)
    run_step(
        launches.loss,
        {
            "prediction": prediction,
            "target": np.zeros_like(prediction),
            "counters": np.zeros(3, np.int64),
        },
        {
            "rounded": poisoned((2, 20, 24, 8), np.uint16),
            "bias_partials": poisoned((rows, 1)),
            "losses": losses,
        },
        divisor=1,
        padding=0,
    )
    assert losses[0] == (prediction.astype(float) ** 2).mean()


@pytest.mark.parametrize(
    "shape, packing",
    [
        ((2, 9, 11, 3, 40, 3, 1), Packing()),
        ((3, 8, 8, 64, 20, 2, 1), Packing()),
        ((2, 9, 11, 1, 8, 3, 1), Packing()),
        ((2, 9, 11, 3, 40, 3, 1), Columns(window=(3, 1))),
    ],
    ids=str,
)
def test_the_update_adds_the_parts_of_a_gradient_to_the_bytes_of_its_own_launch(shape, packing):
    conv, in_columns = Convolution(shape, normal), isinstance(packing, Columns)
    dy, partials = rounded_gradient(conv.dy, 1)
    # more rows than threads add
    partials = np.concatenate(21 * [partials + normal(*partials.shape)])
    x = gathered(conv.x, 3, 1, 1) if in_columns else rounded_input(conv.x, conv.padding)
    reads = {"x": x, "dy": dy, "bias_partials": partials}
    slide = {"stride": 1, "padding": 1, "kernel": 1 if in_columns else conv.kernel}
    whole = {"dweight": poisoned(conv.weight.shape), "dbias": poisoned(conv.bias.shape)}
    run_step(launches.weight_grad, reads, whole, **slide)
    error = np.abs(whole["dbias"] - partials.sum(axis=0, dtype=float))
    assert (error <= gamma(len(partials)) * np.abs(partials).sum(axis=0, dtype=float)).all()
    split, weights = packed_tiles.weight_split(
        reads["x"].shape, shape[4], slide["kernel"], 1, BFLOAT16
    )[2]
    assert split > 1
    parts = poisoned((split, weights))
    run_step(launches.weight_grad, reads, {"parts": parts}, **slide)
    found = []
    for gradients in (
        {"w": ("dweight", whole["dweight"], False), "b": ("dbias", whole["dbias"], False)},
        {"w": ("parts", parts, True), "b": ("bias_partials", partials, True)},
    ):
        copies, of_w = copies_of("w", conv.weight.shape, flip=shape[3] > 8, packing=packing)
        writes = {"w": conv.weight.copy(), "b": conv.bias.copy(), **copies}
        given = {buffer: array for buffer, array, _ in gradients.values()}
        run_step(
            launches.update,
            {**given, "learning_rates": np.full(1, 0.25), "counters": np.zeros(3, np.int64)},
            writes,
            operation="sgd_update",
            weight_decay=0.0,
            clip=0.0,
            copies=of_w,
            gradients={
                name: Gradient(buffer, in_parts)
                for name, (buffer, _, in_parts) in gradients.items()
            },
        )
        assert_copied(writes, {"w": copies}, packing)
        found.append({name: array.tobytes() for name, array in writes.items()})
    assert found[0] == found[1]


def check(shape, stride, tile=None):
    gives_back = stride == 1 and shape[6] < shape[5]
    check_products(
        shape,
        stride,
        lambda conv, relu: forward(conv, relu, tile),
        (lambda conv: input_grad(conv, tile)) if gives_back else None,
        lambda conv: weight_grad(conv, tile),
    )


@pytest.mark.usefixtures("sums")
@pytest.mark.parametrize("shape, stride", COPIED, ids=str)
def test_products_of_copies(shape, stride):
    check(shape, stride, SQUARE)


MANY_STEPS = [
    ((6, 8, 8, 64, 64, 3, 1), 1),
    ((7, 9, 11, 40, 40, 3, 1), 2),
    ((2, 3, 70, 40, 40, 2, 1), 1),
    ((260, 3, 3, 40, 40, 3, 0), 1),
    ((35, 5, 4, 40, 40, 3, 1), 2),
    ((3, 10, 10, 48, 40, 3, 1), 1),
    ((193, 1, 1, 40, 40, 1, 0), 1),
]


@pytest.mark.parametrize("shape, stride", MANY_STEPS, ids=str)
def test_weight_gradients_over_many_steps(shape, stride, monkeypatch):
    """More than there are stages, of less than a row, of several rows and of several images; the
    last one of a pixel.
    """
    monkeypatch.setattr(packed_tiles, "SPLITS", 1)
    assert Convolution(shape, integers, stride).dy[..., 0].size > BFLOAT16.step * BFLOAT16.stages
    check_products(shape, stride, weight_grad=weight_grad)


@pytest.mark.parametrize("shape, stride", FEW_FILTERS, ids=str)
def test_products_of_copies_with_few_filters(shape, stride):
    check(shape, stride)


@pytest.mark.parametrize("shape, stride", FIRST, ids=str)
def test_products_of_copies_with_few_channels(shape, stride):
    check(shape, stride)


@pytest.mark.parametrize("shape, stride", FILL_LARGE, ids=str)
def test_products_of_copies_in_large_tiles(shape, stride):
    check(shape, stride, LARGE)


# shape, tile of RECTANGLES: every rectangle and window; images of whole rectangles and not,
# narrower ones; fewer channel blocks than two, and more; filters that end within a tile; of all but
# one also the input gradient, the others' channels being too few
SHORT, FEW, TALL, NARROW, WIDEST = RECTANGLES
IN_RECTANGLES = [
    ((1, 8, 8, 64, 64, 3, 1), NARROW),
    ((2, 7, 7, 128, 72, 3, 1), NARROW),
    ((1, 14, 15, 192, 8, 2, 1), NARROW),
    ((1, 6, 7, 64, 40, 5, 2), NARROW),
    ((1, 9, 28, 64, 128, 3, 0), TALL),
    ((1, 8, 18, 128, 72, 3, 1), WIDEST),
    ((2, 17, 15, 64, 3, 3, 1), FEW),
    ((2, 9, 17, 128, 12, 3, 1), SHORT),
    ((1, 18, 33, 128, 10, 2, 0), FEW),
    ((1, 17, 16, 64, 16, 5, 2), FEW),
]


@pytest.mark.usefixtures("sums")
@pytest.mark.parametrize("shape, tile", IN_RECTANGLES, ids=str)
def test_products_of_copies_in_rectangles(shape, tile):
    check_products(shape, forward=lambda conv, relu: forward(conv, relu, tile))


@pytest.mark.parametrize(
    "shape", [(1, 9, 8, 40, 64, 3, 1), (2, 7, 8, 8, 128, 3, 0), (1, 6, 5, 72, 192, 2, 1)], ids=str
)
def test_input_gradients_in_rectangles(shape):
    check_products(shape, input_grad=lambda conv: input_grad(conv, NARROW))


@pytest.mark.parametrize(
    "shape, tiles",
    [
        ((2, 9, 8, 128, 72, 3, 1), (LARGE, TALL, WIDEST)),
        ((2, 9, 8, 128, 72, 3, 1), (SQUARE, NARROW)),  # whose warps share out k
        ((1, 6, 7, 192, 3, 2, 1), (FEW_COLUMNS, LARGE, SHORT, FEW)),
        ((1, 9, 7, 128, 8, 5, 2), (FEW_COLUMNS, FEW)),
    ],
    ids=str,
)
def test_the_tile_changes_no_byte(shape, tiles):
    conv = Convolution(shape, normal)
    found = [forward(conv, True, tile) for tile in tiles]
    assert len({one.tobytes() for one in found}) == 1


def test_a_rectangle_beyond_the_edges_of_its_image_takes_nothing_from_the_next_one():
    conv = Convolution((2, 7, 7, 64, 16, 3, 1), normal)
    y = forward(conv, False, NARROW)
    conv.x[1] = np.nan
    assert np.array_equal(forward(conv, False, NARROW)[0], y[0])


# shape, tile of WINDOWS, most splits: every tile; images of whole squares and not, smaller ones; an
# even and an odd number of squares, in all splits and in the last one; fewer steps than stages, and
# more; channels of two blocks; filters that end within a tile, fewer than a chunk of dy, and more
# than a block has
FEW_2, FEW_3, MANY_2, MANY_3 = WINDOWS
IN_SQUARES = [
    ((2, 8, 8, 64, 64, 3, 1), MANY_3, 1),
    ((1, 8, 8, 128, 64, 3, 0), MANY_3, 1),
    ((7, 8, 9, 64, 40, 3, 1), MANY_3, 3),
    ((2, 3, 2, 64, 72, 3, 2), MANY_3, 1),
    ((2, 24, 8, 64, 3, 3, 1), FEW_3, 2),
    ((5, 7, 10, 128, 20, 3, 0), FEW_3, 1),
    ((1, 8, 17, 64, 40, 2, 1), MANY_2, 2),
    ((2, 7, 15, 64, 10, 2, 1), FEW_2, 1),
]


@pytest.mark.usefixtures("sums")
@pytest.mark.parametrize("shape, tile, splits", IN_SQUARES, ids=str)
def test_weight_gradients_in_squares(shape, tile, splits, monkeypatch):
    monkeypatch.setattr(packed_tiles, "MEMORY_BYTES", 1e9)  # as many splits as there may be
    monkeypatch.setattr(packed_tiles, "SPLITS", splits)
    check_products(shape, weight_grad=lambda conv: weight_grad(conv, tile))


def test_a_square_beyond_the_edges_of_its_image_takes_nothing_from_the_next_one():
    conv = Convolution((3, 7, 7, 64, 16, 3, 1), integers)
    conv.dy[0] = 0
    found = weight_grad(conv, MANY_3)[0]
    conv.x[0] = 1
    assert np.array_equal(weight_grad(conv, MANY_3)[0], found)


# (batch, height, width, channels, filters, kernel, padding), stride, of convolutions whose reader
# takes a copy with a border of the last number
READ = [
    ((1, 4, 4, 40, 64, 1, 0), 1, 0),
    ((3, 6, 10, 40, 72, 3, 1), 1, 2),
    ((2, 9, 12, 40, 40, 2, 0), 1, 1),
    ((2, 9, 13, 40, 136, 3, 1), 2, 1),
]
POOLED = [
    ((1, 4, 4, 40, 64, 1, 0), 1, 0),
    ((3, 6, 10, 40, 72, 3, 1), 1, 2),
    ((2, 12, 16, 40, 136, 3, 1), 2, 1),
]
# 64 channels, in rectangles of which some end beyond the image, not all in its first rows
READ_IN_RECTANGLES = [((2, 10, 10, 64, 72, 3, 1), 1, 2), ((1, 12, 18, 64, 136, 2, 0), 1, 1)]
TILES_OF_COPIES = tuple(tile for tile in packed_tiles.PIXEL_TILES if tile.n % 64 == 0)
RECTANGLES_OF_COPIES = NARROW, TALL, WIDEST
BY_TILE = [
    *((case, tile) for case in READ for tile in (SQUARE, LARGE)),
    *((case, tile) for case in READ_IN_RECTANGLES for tile in RECTANGLES_OF_COPIES),
]
POOLED_BY_TILE = [
    *((case, tile) for case in POOLED for tile in (SQUARE, LARGE)),
    *((READ_IN_RECTANGLES[0], tile) for tile in RECTANGLES_OF_COPIES),
]


def operands(conv):
    return {
        "x": rounded_input(conv.x, conv.padding),
        "weight": rounded_weight(conv.weight)[0],
        "bias": conv.bias,
    }


def with_a_nan(conv):
    conv.x[-1, -1, -1, 0] = np.nan
    return conv


@pytest.mark.parametrize("case, tile", BY_TILE, ids=str)
def test_a_copy_that_the_convolution_writes_is_that_of_its_result(case, tile):
    shape, stride, padding = case
    conv = with_a_nan(Convolution(shape, normal, stride))
    for relu in (True, False):
        copy = with_border(conv.dy, padding)
        run_step(
            lambda step, values: launches.forward(step, values, tile),
            operands(conv),
            {"copy": copy},
            stride=stride,
            relu=relu,
            padding=padding,
        )
        with in_one_order():
            y = forward(conv, relu, tile)
        assert np.isnan(y).any() and copy.tobytes() == copied(y, padding).tobytes()


@pytest.mark.parametrize("case, tile", POOLED_BY_TILE, ids=str)
@pytest.mark.parametrize("values", [normal, integers])  # integers: windows with equal values
def test_pooling_in_place_leaves_the_bytes_of_pooling_afterwards(case, tile, values):
    shape, stride, padding = case
    conv = with_a_nan(Convolution(shape, values, stride))
    batch, height, width, filters = conv.output
    pooled = poisoned((batch, height // 2, width // 2, filters))
    index, found = (poisoned(pooled.shape, np.uint8) for _ in range(2))
    for relu in (True, False):
        copy = with_border(pooled, padding)
        run_step(
            lambda step, values: launches.forward(step, values, tile),
            operands(conv),
            {"copy": copy, "index": found},
            stride=stride,
            relu=relu,
            padding=padding,
        )
        with in_one_order():
            run_step(
                gpu_opt_v1.RUNG.launches["maxpool2d_forward"],
                {"x": forward(conv, relu, tile)},
                {"y": pooled, "index": index},
                operation="maxpool2d_forward",
                window=2,
                stride=2,
                padding=0,
            )
        assert (
            found.tobytes() == index.tobytes()
            and copy.tobytes() == copied(pooled, padding).tobytes()
        )


# As READ, with the border of the copy of the gradient; dy is that of a convolution with stride 1.
GIVEN_BACK = [
    ((1, 4, 4, 40, 40, 1, 0), 0),
    ((3, 6, 10, 72, 40, 3, 1), 2),
    ((2, 8, 12, 136, 40, 2, 1), 1),
]
GIVEN_BACK_BY_TILE = [
    *((case, tile) for case in GIVEN_BACK for tile in (SQUARE, LARGE)),
    *((((2, 6, 18, 72, 64, 3, 1), 2), tile) for tile in RECTANGLES_OF_COPIES),
]


def led_back(conv, relu, padding, tile, kind):
    """(copy, partials, float32 gradient of the value, which separate launches give) of the value
    that a convolution read.

    kind: of the layer between: '' or 'maxpool2d', where conv.x is what it put out.
    """
    values = np.maximum(conv.x, 0)
    kept, (batch, height, width, channels) = rounded_input(values, conv.padding), conv.x.shape
    with in_one_order():
        dx = input_grad(conv, tile)
    if kind == "maxpool2d":
        index = np.random.default_rng(5).integers(0, 4, conv.x.shape).astype(np.uint8)
        wanted = poisoned((batch, 2 * height, 2 * width, channels))
        run_step(
            gpu_opt_v1.maxpool2d_backward,
            {"dy": dx, "index": index, "y": values},
            {"dx": wanted},
            ("forward",),
            window=2,
            stride=2,
            padding=0,
            relu=relu,
        )
    else:
        wanted = np.where(values > 0, dx, np.float32(0)) if relu else dx
    shape = packed_tiles.Sums(batch, height, width, conv.dy.shape[3], channels, conv.kernel, 1)
    partials = poisoned((packed_tiles.rows_of_partials(shape, tile), channels))
    copy = with_border(wanted, padding)
    run_step(
        lambda step, values: launches.input_grad(step, values, tile),
        {
            "dy": rounded_gradient(conv.dy, conv.kernel - 1 - conv.padding)[0],
            "flipped": rounded_weight(conv.weight)[1],
            "kept": kept,
            **({"index": index} if kind == "maxpool2d" else {}),
        },
        {"rounded": copy, "bias_partials": partials},
        stride=1,
        relu=relu,
        kept_padding=conv.padding,
        padding=padding,
    )
    return copy, partials, wanted


@pytest.mark.parametrize("kind", ["", "maxpool2d"])
@pytest.mark.parametrize("case, tile", GIVEN_BACK_BY_TILE, ids=str)
def test_gradients_are_led_back_to_the_bytes_of_launches_of_their_own(case, tile, kind):
    shape, padding = case
    for values, relu in ((normal, True), (integers, True), (integers, False)):
        copy, found, wanted = led_back(Convolution(shape, values), relu, padding, tile, kind)
        assert copy.tobytes() == copied(wanted, padding).tobytes()
        check_channel_sums(found, wanted, 64 * (values is normal))


@pytest.mark.parametrize(
    "network, frozen",
    [(zoo.WIDE, ()), (zoo.WIDE, ("a",)), (zoo.DEEP, ()), (zoo.RISING, ()), (zoo.ASIDE, ())],
    ids=["wide", "wide, not a", "deep", "rising", "aside"],
)
def test_a_network_of_copies_trains_as_on_the_cpu_in_the_same_bytes_in_every_order(network, frozen):
    check_training(RUNG, network, "bfloat16", frozen)


@pytest.mark.parametrize(
    "network, until", [(zoo.WIDE, "a_pool"), (zoo.DEEP, "b_pool")], ids=["wide", "deep"]
)
def test_a_pooling_that_no_convolution_reads_is_whole(network, until):
    check_features(RUNG, network, until)


PLAN = training_plan(RUNG, networks.build("autoencoder"))
OWN = {
    (launch.source, launch.defines)
    for launch in PLAN.launches
    if launch.source.startswith("packed/")
}
BOTH = False, True
TILES = {
    "packed/conv2d.cu": packed_tiles.PIXEL_TILES,
    "packed/weight_grad.cu": (LARGE, SQUARE, FEW_ROWS),
    "packed/weight_grad_pooled.cu": (LARGE, SQUARE),
}
WITHOUT_TILE = {
    f"packed/{name}.cu" for name in ("round", "gather", "loss", "weight_update", "add_parts")
}
FLAGS = {
    "packed/conv2d.cu": {"WHOLE": BOTH},
    "packed/weight_grad.cu": {"WHOLE": BOTH, "WHOLE_ROWS": BOTH},
    "packed/weight_grad_pooled.cu": {"WHOLE": BOTH, "WHOLE_ROWS": BOTH},
    "packed/conv2d_copy.cu": {"WHOLE": BOTH},
    "packed/conv2d_pool.cu": {"WINDOWS": (True,), "WHOLE": BOTH},
    "packed/conv2d_gradient.cu": {"WHOLE": BOTH},
    "packed/conv2d_gradient_pool.cu": {"WHOLE": BOTH},
}


def every(source, tiles, flags):
    return {
        (source, tile.defines(**dict(zip(flags, values, strict=True)))): tile
        for tile in tiles
        for values in itertools.product(*flags.values())
    }


EVERY = {}
for _source, _flags in FLAGS.items():
    EVERY |= every(_source, TILES.get(_source, TILES_OF_COPIES), _flags)
for _tile, _kernel in itertools.product(RECTANGLES, packed_tiles.HALO_KERNELS):
    if (
        packed_tiles.halo_bytes(_tile, packed_tiles.Sums(64, 16, 16, BFLOAT16.step, 64, _kernel, 1))
        <= BFLOAT16.most_shared
    ):
        _halo = {"WHOLE": (True,), "KERNEL": (_kernel,), "TILE_COLUMNS": (_tile.columns,)}
        EVERY |= every("packed/conv2d_halo.cu", (_tile,), _halo)
        for _source in FLAGS if _kernel == 3 and _tile in RECTANGLES_OF_COPIES else ():
            if _source.startswith("packed/conv2d_"):
                EVERY |= every(_source, (_tile,), {**FLAGS[_source], **_halo})
# Behind an upsampling: phases apart are windows of 2x2, in columns of 3x3.
APART, IN_COLUMNS = launches.PHASES_APART, launches.PHASES_IN_COLUMNS
for _phases, _kernel, _pixel_tiles, _rectangles in (
    (APART, 2, packed_tiles.PIXEL_TILES, RECTANGLES),
    (IN_COLUMNS, 3, (FEW_COLUMNS, SQUARE), (SHORT, FEW)),
):
    _flags = {"PHASES": (_phases,)}
    EVERY |= every("packed/conv2d.cu", _pixel_tiles, {**_flags, "WHOLE": BOTH})
    for _tile in _rectangles:
        _halo = {**_flags, "WHOLE": (True,), "KERNEL": (_kernel,), "TILE_COLUMNS": (_tile.columns,)}
        EVERY |= every("packed/conv2d_halo.cu", (_tile,), _halo)
        if _phases == APART and _tile in RECTANGLES_OF_COPIES:
            EVERY |= every("packed/conv2d_copy.cu", (_tile,), _halo)
EVERY |= every("packed/conv2d_copy.cu", TILES_OF_COPIES, {"PHASES": (APART,), "WHOLE": BOTH})
EVERY |= every(
    "packed/conv2d_pool.cu",
    (LARGE,),
    {"WINDOWS": (True,), "WHOLE": (False,), "MMA_STEPS": (1, 2, 3)},
)
for _tile in WINDOWS:
    EVERY |= every(
        "packed/weight_grad_halo.cu", (_tile,), {"KERNEL": (_tile.kernel,), "WHOLE": BOTH}
    )
# Of the instructions of a loop, at least, that multiply. In the tiles of few lines there is less to
# multiply than to load.
SHARES = {
    LARGE: 0.50,
    SQUARE: 0.27,
    FEW_COLUMNS: 0.16,
    FEW_ROWS: 0.12,
    WIDEST: 0.58,
    TALL: 0.47,
    NARROW: 0.38,
    FEW: 0.38,
    SHORT: 0.25,
    MANY_3: 0.55,
    FEW_3: 0.27,
}
# A part of that, where steps are not whole, half as much is multiplied, or a thread spreads dy over
# windows.
LESS = {"WHOLE=0": 0.75, "MMA_STEPS=2": 0.75, "packed/weight_grad_pooled.cu": 0.45}


@needs.NVRTC
@pytest.mark.parametrize("source, defines", sorted(OWN | EVERY.keys()), ids=str)
def test_a_gpu_can_run_the_kernels_on_copies(source, defines):
    made = without_spills(source, defines, nvrtc.ARCHITECTURES[-1])
    if source in WITHOUT_TILE:
        return
    tile = EVERY[source, defines]
    down, across = tile.warp_m // 16, tile.warp_n // 8
    products, fragments = (
        made.ptx.count(name)
        for name in ("mma.sync.aligned.m16n8k16.row.col.f32.bf16", "ldmatrix.sync.aligned.m8n8.x4")
    )
    copies = made.ptx.count("cp.async.cg.shared.global")
    # two stages, each in the code, and copies once before the loop
    if isinstance(tile, packed_tiles.Window):
        side, reach = packed_tiles.SIDE, packed_tiles.SIDE + tile.kernel - 1
        assert products == 2 * side * tile.kernel**2 * down * across
        assert fragments == 2 * (side * down + reach * tile.kernel)
        passes = (
            -(-reach // (tile.threads // 8 // reach)),
            -(-side // (tile.threads // (tile.m // 8) // side)),
        )
        assert copies == 3 * BFLOAT16.squares * sum(passes)
        return
    halo = any(define.startswith("KERNEL=") for define in defines)
    # each
    stages = (
        packed_tiles.stages_of(int(defines[-2].removeprefix("KERNEL=")), BFLOAT16)
        if halo
        else BFLOAT16.stages
    )
    depths = re.search(r"MMA_STEPS=(\d)", " ".join(defines))
    steps = stages * (int(depths[1]) if depths else BFLOAT16.step // 16)
    if tile.m == tile.n == 64:  # a warp has the whole tile, for a quarter of every step
        down, across, steps = 2 * down, 2 * across, steps // 4
    assert products == down * across * steps
    assert fragments == (down + across // 2) * steps
    if not halo:  # stages - 1 before the loop
        lines = dataclasses.replace(tile, m=0) if "pooled" in source else tile  # dy is no copy
        copied = (
            packed_tiles.shared_bytes(lines, BFLOAT16, rows_of_k="weight_grad" in source)
            // stages
            // 16
            // tile.threads
        )
        assert copies == copied * (2 * stages - 1)


@needs.DISASSEMBLER
@pytest.mark.parametrize(
    "source, defines",
    sorted(
        {one for one in OWN if one[0] not in WITHOUT_TILE}
        | {one for one in EVERY if "halo" in one[0] and "KERNEL=3" in one[1]}
    ),
    ids=str,
)
def test_products_are_a_good_share_of_the_loop(source, defines):
    found = max(
        bodies(source, defines, nvrtc.ARCHITECTURES[-1]).values(), key=lambda one: one.products
    )
    least = SHARES[EVERY[source, defines]] * math.prod(
        LESS[word] for word in (source, *defines) if word in LESS
    )
    assert found.products >= least * found.instructions, found


@pytest.mark.parametrize("layer", ["enc2", "dec1", "dec1_up", "dec2_up"])
def test_fragments_are_read_without_bank_conflicts(layer):
    _, found = counted(PLAN, layer, "conv2d_forward")
    assert found["shared_loads"]["least"] == found["shared_loads"]["wavefronts"] > 0
    assert found["shared_stores"]["least"] == found["shared_stores"]["wavefronts"] > 0


@pytest.mark.parametrize("layer", ["enc2", "dec1"])
def test_a_weight_gradient_reads_every_row_once(layer):
    """A warp: rows of dy, two fragments, and of x for each column of the window; without bank
    conflicts.
    """
    launch, found = counted(PLAN, layer, "rounded_conv2d_weight_grad")
    steps = int(launch.arguments[-1]) // BFLOAT16.squares
    requests = found["warps"] * steps * (8 * 2 + 10 * 3)
    assert found["shared_loads"] == {
        "requests": requests,
        "wavefronts": 4 * requests,
        "least": 4 * requests,
    }
    assert (
        found["shared_stores"]["least"]
        == found["shared_stores"]["wavefronts"]
        == steps * 2 * (100 + 64)
    )


STAGED, HALO, SQUARED = "tensor_cores.cuh", "halo_loop.cuh", "weight_grad_halo.cu"
MISUSES = {
    "no commit": (STAGED, "        cp_async_commit();\n", "", "missing cp.async wait"),
    "a wait that leaves the step under way": (
        STAGED,
        "0 : STAGES - 2>",
        "0 : STAGES - 1>",
        "missing cp.async wait",
    ),
    "no barrier after the wait": (STAGED, "            __syncthreads();\n", "", "race"),
    "too few stages": (
        STAGED,
        "(stage + STAGES - 1) % STAGES);",
        "(stage + STAGES - 1) % (STAGES - 1));",
        "missing cp.async wait",
    ),
    "no commit of a halo": (
        HALO,
        "                cp_async_commit();\n",
        "",
        "missing cp.async wait",
    ),
    "a wait that leaves the tap under way": (
        HALO,
        "cp_async_wait<STAGES - 2>",
        "cp_async_wait<STAGES - 1>",
        "missing cp.async wait",
    ),
    "no barrier after the wait for a tap": (HALO, "                __syncthreads();\n", "", "race"),
    "too few stages of weights": (
        HALO,
        "(stage + STAGES - 1) % STAGES;",
        "(stage + STAGES - 1) % (STAGES - 1);",
        "missing cp.async wait",
    ),
    "stages of squares that overlap": (
        SQUARED,
        "in_stages<STAGES, STAGE_BYTES>",
        "in_stages<STAGES, DY>",
        "missing cp.async wait",
    ),
    "one stage of squares": (
        SQUARED,
        "in_stages<STAGES, STAGE_BYTES>",
        "in_stages<STAGES, 0>",
        "missing cp.async wait",
    ),
    "more stages of squares than there is room for": (
        SQUARED,
        "in_stages<STAGES, STAGE_BYTES>",
        "in_stages<3, STAGE_BYTES>",
        "bad cp.async",
    ),
    "one channel block's place": (
        HALO,
        "next = WINDOW + Halo::BYTES;",
        "next = WINDOW;",
        "missing cp.async wait",
    ),
}


@pytest.mark.parametrize("name", MISUSES)
def test_misuse_of_the_copies_is_noticed(name, tmp_path, monkeypatch):
    monkeypatch.setattr(packed_tiles, "SPLITS", 1)
    file, old, new, kind = MISUSES[name]
    for path in (*(KERNELS / "common").iterdir(), *(KERNELS / "packed").iterdir()):
        # the headers beside it
        text = path.read_text().replace('"packed/', '"').replace('"common/', '"')
        if path.name == file:
            assert text.count(old) == 1
            text = text.replace(old, new)
        (tmp_path / path.name).write_text(text)
    launch, arrays = launched_on_zeros(file)
    kernel = load(
        tmp_path / launch.source.rpartition("/")[2],
        tuple(f"-D{define}" for define in launch.defines),
    )
    arguments = [passed(argument, arrays) for argument in launch.arguments]
    with pytest.raises(KernelFault) as fault:
        kernel.get_function(launch.entry).watched(
            launch.grid, launch.block, arguments, launch.shared_bytes
        )
    assert fault.value.kind == kind


def launched_on_zeros(file):
    """(launch, arrays) of a kernel with that file."""
    conv = Convolution(
        (8 if file == SQUARED else 1, 8, 8, 256 if file != SQUARED else 64, 64, 3, 1),
        lambda *size, seed=0: np.zeros(size, np.float32),
    )
    if file == SQUARED:
        dy, partials = rounded_gradient(conv.dy, 1)
        reads = {"x": rounded_input(conv.x, 1), "dy": dy, "bias_partials": partials}
        writes = {"parts": poisoned((1, conv.weight.size))}
        (launch,) = run_step(launches.weight_grad, reads, writes, (), stride=1, padding=1, kernel=3)
    else:
        reads, writes = operands(conv), {"y": poisoned(conv.output)}
        (launch,) = run_step(
            lambda step, values: launches.forward(step, values, NARROW if file == HALO else SQUARE),
            reads,
            writes,
            (),
            stride=1,
            relu=False,
        )
    return launch, {**reads, **writes}
