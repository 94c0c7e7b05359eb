"""gpu_bf16_sm90's kernels on channel blocks against rounded operands; tensor cores add by either
model of the emulator.
"""

import itertools
import re

import numpy as np
import pytest

import disassembly
import emulator_executor
import needs
import zoo
from channel_blocks import (
    CHANNEL_BLOCKS,
    PHASE_BLOCKS,
    Upsampled,
    bordered,
    channel_blocks_of,
    forward,
    given_back,
    gradient_of,
    input_grad,
    launched,
    numbers,
    operands,
    rows_of,
    tiles_of,
    weight_grad,
)
from compiled import compiled, without_spills
from cuda_emulator import KernelFault
from emulated import KERNELS, load
from kernel_checks import check_channel_sums, integers, normal, poisoned
from ladder.arithmetic.multipliers import PRECISIONS, to_bfloat16
from ladder.executors.cuda import nvrtc
from ladder.network import layers as kinds
from ladder.network import networks
from ladder.network.layers import conv2d, upsample2d
from ladder.plan import plan
from ladder.rungs import gpu_bf16_sm90 as rung
from ladder.rungs import gpu_opt_v1, packed_tiles
from ladder.rungs import packed as launches
from ladder.rungs.gpu_basic import blocks
from ladder.rungs.launches import Gradient
from ladder.rungs.packed_tiles import BFLOAT16
from rounded_copies import (
    check_features,
    check_products,
    check_training,
    copied,
    rounded_weight,
)
from rung_checks import (
    ORDERS,
    Convolution,
    in_one_order,
    run_input_grad,
    run_step,
    training_plan,
)
from tensor_checks import sums  # noqa: F401 (a fixture)

RUNG = "gpu_bf16_sm90"
ONE_ARITHMETIC = True
# Convolutions with a stride, of 1x1, behind a normalization and before one: who reads and writes
# channel blocks alternates.
NORMALIZED = networks.resolve(
    "normalized",
    (8, 12, 3),
    (
        conv2d("a", 40, bias=False),
        kinds.batchnorm("a_bn"),
        kinds.relu("a_relu"),
        conv2d("b", 72, kernel=1, padding=0),
        kinds.relu("b_relu"),
        kinds.maxpool2d("b_pool"),
        conv2d("c", 48, stride=2, bias=False),
        kinds.batchnorm("c_bn"),
        conv2d("d", 64, kernel=1, padding=0),
        kinds.relu("d_relu"),
        upsample2d("d_up"),
        upsample2d("d_again"),
        conv2d("e", 3),
    ),
    "b_pool",
    "mse",
)
# (batch, height, width, channels, filters, kernel, padding), stride: one channel block and more,
# filled and not; rows of y that divide a step's pixels and others; ends of images, of tiles, of
# steps and of splits within a block; more steps than stages, of one tap and of several
SMALL_TILES = [
    ((1, 4, 4, 200, 40, 1, 0), 1),
    ((1, 5, 7, 72, 72, 3, 1), 1),
    ((3, 8, 8, 64, 64, 3, 1), 1),
    ((2, 9, 6, 40, 48, 2, 1), 1),
    ((2, 9, 11, 40, 40, 3, 1), 2),
    ((1, 3, 70, 40, 40, 3, 0), 1),
    ((2, 9, 6, 40, 48, 4, 2), 1),
    ((1, 1, 1, 40, 40, 1, 0), 1),
]
LARGE_TILES = [
    ((2, 8, 12, 64, 136, 3, 1), 1, rung.MEDIUM),
    ((3, 7, 5, 72, 264, 2, 0), 1, rung.LARGE),
]


@pytest.mark.parametrize(
    "shape, padding", [((1, 1, 1, 16), 0), ((2, 3, 5, 24), 2), ((3, 9, 8, 80), 1)], ids=str
)
def test_channel_blocks_are_rounded_to_nearest_with_a_border_of_zeros(shape, padding):
    x = normal(*shape)
    x.flat[:2] = np.inf, np.nan
    channel_blocks = channel_blocks_of(x, padding, ORDERS)
    wanted = rows_of(bordered(to_bfloat16(x), padding))
    assert np.array_equal(numbers(channel_blocks.reshape(wanted.shape)), wanted, equal_nan=True)


@pytest.mark.parametrize(
    "shape, padding", [((3, 9, 8, 67), 2), ((2, 8, 8, 40), 0), ((9, 3, 5, 130), 2)], ids=str
)
def test_gradients_are_arranged_for_both_kernels_and_summed(shape, padding):
    dy = normal(*shape)
    made = gradient_of(dy, padding, ORDERS)
    steps, rows = numbers(made["steps"]), rows_of(to_bfloat16(dy))
    assert (
        np.array_equal(steps[:, : rows.shape[1]], rows) and (steps[:, rows.shape[1] :] == 0).all()
    )
    if padding:
        wanted = rows_of(bordered(to_bfloat16(dy), padding))
        assert np.array_equal(numbers(made["rounded"].reshape(wanted.shape)), wanted)
    check_channel_sums(made["bias_partials"], dy, dy[..., 0].size)


@pytest.mark.parametrize(
    "shape",
    [(40, 3, 3, 72), (264, 1, 1, 40), (136, 2, 2, 64), (48, 2, 2, 264), (65, 1, 1, 40)],
    ids=str,
)
def test_tiles_hold_filters_and_flipped_ones_channels(shape):
    weight = normal(*shape)
    filters, kernel, _, channels = shape
    tiles, flipped = map(numbers, tiles_of(weight, ORDERS))
    rounded = np.pad(to_bfloat16(weight), ((0, 0), (0, 0), (0, 0), (0, -channels % 64)))
    by_tap = rounded.reshape(filters, kernel, kernel, -1, 64).transpose(3, 1, 2, 0, 4)
    assert (
        np.array_equal(tiles[:, :, :, :filters], by_tap) and (tiles[:, :, :, filters:] == 0).all()
    )
    turned = np.pad(
        to_bfloat16(weight)[:, ::-1, ::-1], ((0, -filters % 64), (0, 0), (0, 0), (0, 0))
    )
    by_tap = turned.reshape(-1, 64, kernel, kernel, channels).transpose(0, 2, 3, 4, 1)
    assert (
        np.array_equal(flipped[:, :, :, :channels], by_tap)
        and (flipped[:, :, :, channels:] == 0).all()
    )


@pytest.mark.parametrize("flips", [True, False])
def test_the_update_leaves_channel_blocks_of_the_new_weight(flips):
    weight, gradient = normal(40, 2, 2, 72), normal(40, 2, 2, 72, seed=1)
    copies = {
        f"w.{role}": poisoned(shape, np.uint16)
        for role, shape in CHANNEL_BLOCKS.weight(weight.shape).items()
        if flips or role != "flipped"
    }
    made = weight.copy()
    run_step(
        launches.update,
        {"g": gradient, "learning_rates": np.full(1, 0.25), "counters": np.zeros(3, np.int64)},
        {"w": made, **copies},
        operation="sgd_update",
        weight_decay=0.0,
        clip=0.0,
        gradients={"w": Gradient("g")},
        copies={"w": {name[2:]: name for name in copies}},
    )
    assert np.array_equal(made, (weight - 0.25 * gradient).astype(np.float32))
    assert [copy.tobytes() for copy in copies.values()] == [
        copy.tobytes() for copy in tiles_of(made)[: len(copies)]
    ]


def check(shape, stride, tile=None):
    check_products(
        shape,
        stride,
        lambda conv, relu: forward(conv, relu, tile),
        input_grad if stride == 1 else None,
        weight_grad,
    )


@pytest.mark.usefixtures("sums")
@pytest.mark.parametrize("shape, stride", SMALL_TILES, ids=str)
def test_products_of_channel_blocks(shape, stride):
    check(shape, stride, rung.SMALL)


@pytest.mark.parametrize("shape, stride, tile", LARGE_TILES, ids=str)
def test_products_of_channel_blocks_in_large_tiles(shape, stride, tile):
    check(shape, stride, tile)


# In steps of 64 pixels: whole rows of y and not; none, some and all rows of an image further
@pytest.mark.parametrize("splits", [1, 2])  # of five steps the last split has fewer
@pytest.mark.parametrize(
    "shape, stride",
    [
        ((6, 8, 8, 64, 72, 3, 1), 1),
        ((9, 9, 11, 40, 136, 3, 1), 2),
        ((300, 2, 2, 40, 40, 2, 0), 1),
        ((3, 10, 10, 40, 40, 3, 1), 1),
        ((2, 10, 16, 40, 40, 3, 1), 1),
    ],
    ids=str,
)
def test_weight_gradients_over_many_steps(shape, stride, splits, monkeypatch):
    """More than there are stages, of less than a row, of several rows and of several images."""
    monkeypatch.setattr(packed_tiles, "SPLITS", splits)
    assert (
        splits > 1 or Convolution(shape, integers, stride).dy[..., 0].size > rung.STEP * rung.STAGES
    )
    check_products(shape, stride, weight_grad=weight_grad)


def test_any_tile_gives_the_same_bytes():
    conv = Convolution((2, 8, 12, 72, 136, 3, 1), normal)
    found = {forward(conv, True, tile).tobytes() for tile in rung.TILES}
    assert len(found) == 1


# Results in the form that the reader wants: of a convolution in channel blocks, or of one in copies
# as gpu_bf16 has them. (batch, height, width, channels, filters, kernel, padding), stride, padding
# of the reader, tile: filled channel blocks and not, whole images in a tile and parts of some
READ = [
    ((1, 4, 4, 40, 64, 1, 0), 1, 0, rung.SMALL),
    ((3, 6, 10, 40, 72, 3, 1), 1, 2, rung.SMALL),
    ((2, 9, 13, 40, 136, 3, 1), 2, 1, rung.MEDIUM),
    ((2, 8, 12, 72, 264, 2, 1), 1, 1, rung.LARGE),
]
POOLED = [
    ((1, 4, 4, 40, 64, 1, 0), 1, 0, rung.SMALL),
    ((3, 6, 10, 40, 72, 3, 1), 1, 2, rung.SMALL),
    ((2, 12, 16, 40, 192, 3, 1), 2, 1, rung.MEDIUM),
    ((1, 16, 16, 72, 264, 3, 1), 1, 1, rung.LARGE),
]
FORMS = "in channel blocks", "in order"


def image_for(form, x, padding):
    """The copy that a launch of its own makes of a float32 image."""
    return channel_blocks_of(x, padding) if form == "in channel blocks" else copied(x, padding)


def gradients_for(form, dy, padding):
    """{role: copy} of a gradient, by launches of their own."""
    if form == "in channel blocks":
        return {
            role: copy for role, copy in gradient_of(dy, padding).items() if role != "bias_partials"
        }
    return {"rounded": image_for(form, dy, padding)}


def with_a_nan(conv):
    conv.x[-1, -1, -1, 0] = np.nan
    return conv


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shape, stride, padding, tile", READ, ids=str)
def test_a_copy_that_the_convolution_writes_is_that_of_its_result(
    shape, stride, padding, tile, form
):
    conv = with_a_nan(Convolution(shape, normal, stride))
    for relu in (True, False):
        with in_one_order():
            y = forward(conv, relu, tile)
        wanted = image_for(form, y, padding)
        copy = poisoned(wanted.shape, np.uint16)
        run_step(
            launched(rung.forward, BFLOAT16, tile),
            operands(conv),
            {"copy": copy},
            stride=stride,
            relu=relu,
            padding=padding,
        )
        assert np.isnan(y).any() and copy.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("values", [normal, integers])  # integers: windows with equal values
@pytest.mark.parametrize("shape, stride, padding, tile", POOLED, ids=str)
def test_pooling_in_place_leaves_the_bytes_of_pooling_afterwards(
    shape, stride, padding, tile, values, form
):
    conv = with_a_nan(Convolution(shape, values, stride))
    batch, height, width, filters = conv.output
    pooled = poisoned((batch, height // 2, width // 2, filters))
    index, found = (poisoned(pooled.shape, np.uint8) for _ in range(2))
    with in_one_order():
        run_step(
            gpu_opt_v1.RUNG.launches["maxpool2d_forward"],
            {"x": forward(conv, True, tile)},
            {"y": pooled, "index": index},
            operation="maxpool2d_forward",
            window=2,
            stride=2,
            padding=0,
        )
    wanted = image_for(form, pooled, padding)
    copy = poisoned(wanted.shape, np.uint16)
    run_step(
        launched(rung.forward, BFLOAT16, tile),
        operands(conv),
        {"copy": copy, "index": found},
        stride=stride,
        relu=True,
        padding=padding,
    )
    assert found.tobytes() == index.tobytes() and copy.tobytes() == wanted.tobytes()


# As READ; dy is that of a convolution with stride 1. Behind the last image a step of the weight
# gradient has zeros, or nothing.
GIVEN_BACK = [
    ((1, 4, 4, 40, 40, 1, 0), 0, rung.SMALL),
    ((3, 6, 10, 72, 40, 3, 1), 2, rung.SMALL),
    ((2, 7, 12, 136, 40, 2, 1), 1, rung.MEDIUM),
    ((1, 8, 8, 264, 40, 3, 1), 0, rung.LARGE),
]


def led_back(dx, values, relu, index):
    """float32: the gradient of what made `values`, from that of the values."""
    if index is None:
        return np.where(values > 0, dx, np.float32(0)) if relu else dx
    batch, height, width, channels = dx.shape
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
    return wanted


@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shape, padding, tile", GIVEN_BACK, ids=str)
def test_gradients_are_led_back_to_the_bytes_of_launches_of_their_own(
    shape, padding, tile, form, pooled
):
    index = np.random.default_rng(5).integers(0, 4, shape[:4]).astype(np.uint8) if pooled else None
    for kind, relu in ((normal, True), (integers, True), (integers, False)):
        conv = Convolution(shape, kind)
        values = np.maximum(conv.x, 0)
        with in_one_order():
            wanted = led_back(input_grad(conv, tile), values, relu, index)
        copies = gradients_for(form, wanted, padding)
        found = {role: poisoned(copy.shape, np.uint16) for role, copy in copies.items()}
        batch, height, width, channels = conv.x.shape
        partials = poisoned((blocks(batch * height * width, tile.m) * tile.m // 64, channels))
        run_step(
            launched(rung.input_grad, BFLOAT16, tile),
            {
                **given_back(conv),
                "kept": channel_blocks_of(values, conv.padding),
                **({"index": index} if pooled else {}),
            },
            {**found, "bias_partials": partials},
            relu=relu,
            kept_padding=conv.padding,
            padding=padding,
        )
        assert {role: copy.tobytes() for role, copy in found.items()} == {
            role: copy.tobytes() for role, copy in copies.items()
        }
        check_channel_sums(partials, wanted, 64 * (kind is normal))


# ---- behind an upsampling

# (batch, height, width of the small image, channels, filters), tile: phases that end within a tile
# and a step, images within a tile; filters that fill it and not
PHASES = [
    ((1, 4, 4, 64, 40), rung.SMALL),
    ((2, 3, 5, 40, 72), rung.SMALL),
    ((9, 8, 8, 40, 136), rung.MEDIUM),
    ((3, 5, 4, 72, 264), rung.LARGE),
]


@pytest.mark.parametrize("splits", [1, 128])
@pytest.mark.parametrize("shape, tile", PHASES, ids=str)
def test_all_directions_behind_an_upsampling_are_exact_on_integers(
    shape, tile, splits, monkeypatch
):
    monkeypatch.setattr(packed_tiles, "SPLITS", splits)
    conv = Upsampled(shape, integers)
    conv.check_weight_grad_on_integers()
    if splits == 1:
        conv.check_on_integers(tile)


@pytest.mark.usefixtures("sums")
@pytest.mark.parametrize("shape, tile", PHASES[:2], ids=str)
def test_sums_of_taps_behind_an_upsampling_are_rounded_once(shape, tile):
    Upsampled(shape, normal).check_rounding(tile)


@pytest.mark.parametrize(
    "shape",
    [(1, 2, 2, 40, 72), (1, 2, 2, 72, 40), (1, 2, 2, 40, 192), (1, 2, 2, 136, 264)],
    ids=str,
)
def test_tiles_hold_the_filters_of_phases_and_the_flipped_ones_phase_weights(shape):
    conv = Upsampled(shape, normal)
    tiles, flipped = map(numbers, conv.copies(ORDERS))
    rows = tiles.shape[3] // 4
    wanted, turned = np.zeros((2, 2, 4, rows, 64 * len(tiles)), np.float32), np.zeros_like(flipped)
    for p, q, a, b in np.ndindex(2, 2, 2, 2):
        wanted[a, b, 2 * p + q, : conv.filters, : conv.channels] = conv.phase_weights[
            :, 3 - p - 2 * a, 3 - q - 2 * b
        ].T
    assert np.array_equal(tiles, wanted.reshape(2, 2, 4 * rows, -1, 64).transpose(3, 0, 1, 2, 4))
    filled = np.pad(conv.phase_weights, ((0, 0), (0, 0), (0, 0), (0, -conv.filters % 64)))
    turned[:, :, :, : conv.channels] = filled.reshape(*filled.shape[:3], -1, 64).transpose(
        3, 1, 2, 0, 4
    )
    assert np.array_equal(flipped, turned)


@pytest.mark.parametrize(
    "shape", [(1, 4, 4, 40, 67), (9, 3, 5, 40, 40), (4, 4, 4, 40, 130)], ids=str
)
def test_gradients_behind_an_upsampling_are_arranged_phase_after_phase(shape):
    conv = Upsampled(shape, normal)
    made, pixels = conv.gradient(ORDERS), len(conv.x) * conv.height * conv.width
    assert made["rounded"].tobytes() == gradient_of(conv.dy, 1)["rounded"].tobytes()
    for phase in range(4):
        steps, rows = (
            numbers(made["steps"][:, phase]),
            rows_of(to_bfloat16(conv.dy[:, phase // 2 :: 2, phase % 2 :: 2])),
        )
        assert np.array_equal(steps[:, :pixels], rows) and (steps[:, pixels:] == 0).all()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shape, tile", PHASES, ids=str)
def test_a_copy_written_behind_an_upsampling_is_that_of_its_result(shape, tile, form):
    conv = Upsampled(shape, normal)
    conv.x[-1, -1, -1, 0] = np.nan
    with in_one_order():
        y = conv.forward(tile, relu=True)
    wanted = image_for(form, y, 2)
    found = conv.forward(tile, {"copy": poisoned(wanted.shape, np.uint16)}, relu=True, padding=2)
    assert np.isnan(y).any() and found.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shape", [shape for shape, _ in PHASES], ids=str)
def test_gradients_are_led_back_behind_an_upsampling(shape, form):
    conv = Upsampled(shape, normal)
    values = np.maximum(conv.x, 0)
    with in_one_order():
        wanted = np.where(values > 0, conv.input_grad(), np.float32(0))
    copies = gradients_for(form, wanted, 1)
    found = {role: poisoned(copy.shape, np.uint16) for role, copy in copies.items()}
    partials = poisoned((PHASE_BLOCKS.bias_partials(conv.x.shape, conv.filters, 3), conv.channels))
    run_step(
        rung.phase_input_grad,
        {**conv.given_back(), "kept": channel_blocks_of(values, 1)},
        {**found, "bias_partials": partials},
        relu=True,
        kept_padding=1,
        padding=1,
    )
    assert {role: copy.tobytes() for role, copy in found.items()} == {
        role: copy.tobytes() for role, copy in copies.items()
    }
    check_channel_sums(partials, wanted, 64)


@pytest.mark.parametrize("written_by", ["this rung's", "gpu_bf16's"])
@pytest.mark.parametrize("image", [(3, 6, 10), (4, 8, 8)], ids=str)  # 45 and 64 pixels of a phase
def test_the_convolution_before_writes_a_gradient_phase_after_phase(image, written_by):
    """As a launch of its own arranges it; `values` are what the gradient's convolution read."""
    conv = Convolution((*image, 72, 40, 3, 1), normal)
    values, own = np.maximum(conv.x, 0), written_by == "this rung's"
    reads = (
        given_back(conv)
        if own
        else {"dy": copied(conv.dy, 1), "flipped": rounded_weight(conv.weight)[1]}
    )
    function, tile = (
        (rung.input_grad, rung.SMALL) if own else (launches.input_grad, packed_tiles.SQUARE)
    )
    dx = run_input_grad(launched(function, BFLOAT16, tile), reads, conv)
    wanted = gradient_of(np.where(values > 0, dx, np.float32(0)), 1, packing=PHASE_BLOCKS)
    wanted.pop("bias_partials")
    found = {role: poisoned(copy.shape, np.uint16) for role, copy in wanted.items()}
    partials = poisoned((blocks(conv.x[..., 0].size, 64), 72))
    kept = channel_blocks_of(values, 1) if own else copied(values, 1)
    run_step(
        launched(function, BFLOAT16, tile),
        {**reads, "kept": kept},
        {**found, "bias_partials": partials},
        stride=1,
        relu=True,
        kept_padding=1,
        padding=1,
    )
    assert {role: copy.tobytes() for role, copy in found.items()} == {
        role: copy.tobytes() for role, copy in wanted.items()
    }


@pytest.mark.parametrize(
    "tile", [packed_tiles.SQUARE, packed_tiles.LARGE, packed_tiles.RECTANGLES[3]], ids=str
)
def test_gpu_bf16s_kernels_write_the_channel_blocks_that_this_rungs_read(tile):
    """Copies, pooled ones and gradients; 72 of 128 stored channels, 180 pixels of 192 in steps."""
    conv = Convolution((3, 6, 10, 64, 72, 3, 1), normal)
    reads = {"x": copied(conv.x, 1), "weight": rounded_weight(conv.weight)[0], "bias": conv.bias}
    y = poisoned(conv.output)
    run_step(launched(launches.forward, BFLOAT16, tile), reads, {"y": y}, stride=1, relu=True)
    copy = poisoned(channel_blocks_of(y, 1).shape, np.uint16)
    run_step(
        launched(launches.forward, BFLOAT16, tile),
        reads,
        {"copy": copy},
        stride=1,
        relu=True,
        padding=1,
    )
    assert copy.tobytes() == channel_blocks_of(y, 1).tobytes()
    pooled, index = poisoned((3, 3, 5, 72)), poisoned((3, 3, 5, 72), np.uint8)
    run_step(
        gpu_opt_v1.RUNG.launches["maxpool2d_forward"],
        {"x": y},
        {"y": pooled, "index": index},
        ("forward",),
        "maxpool2d_forward",
        window=2,
        stride=2,
        padding=0,
    )
    copy = poisoned(channel_blocks_of(pooled, 2).shape, np.uint16)
    run_step(
        launched(launches.forward, BFLOAT16, tile),
        reads,
        {"copy": copy, "index": index},
        stride=1,
        relu=True,
        padding=2,
    )
    assert copy.tobytes() == channel_blocks_of(pooled, 2).tobytes()
    # The same products, taken for those of an input gradient: of dy with 64 channels, and of x with
    # 72.
    shape = packed_tiles.Sums(3, 6, 10, 64, 72, 3, 1)
    run_step(
        launched(launches.input_grad, BFLOAT16, tile),
        {"dy": reads["x"], "flipped": reads["weight"], "zeros": np.zeros(72, np.float32)},
        {"dx": y},
        stride=1,
    )
    wanted = np.where(conv.dy > 0, y, np.float32(0))
    found = {
        role: poisoned(copy.shape, np.uint16)
        for role, copy in gradients_for("in channel blocks", wanted, 2).items()
    }
    partials = poisoned((packed_tiles.rows_of_partials(shape, tile), 72))
    run_step(
        launched(launches.input_grad, BFLOAT16, tile),
        {"dy": reads["x"], "flipped": reads["weight"], "kept": copied(conv.dy, 0)},
        {**found, "bias_partials": partials},
        stride=1,
        relu=True,
        kept_padding=0,
        padding=2,
    )
    for role, made in gradients_for("in channel blocks", wanted, 2).items():
        assert found[role].tobytes() == made.tobytes(), role


@pytest.mark.parametrize(
    "network, frozen",
    [(zoo.WIDE, ()), (zoo.DEEP, ()), (zoo.DEEP, ("a",)), (zoo.RISING, ()), (NORMALIZED, ())],
    ids=["wide", "deep", "deep, not a", "rising", "normalized"],
)
def test_channel_blocks_train_as_on_the_cpu_in_the_same_bytes_in_every_order(network, frozen):
    check_training(RUNG, network, "bfloat16", frozen)


@pytest.mark.parametrize(
    "network, until",
    [(zoo.DEEP, "b_pool"), (zoo.DEEP, "c_relu"), (NORMALIZED, "b_pool")],
    ids=["pooling", "relu", "behind a normalization"],
)
def test_what_no_convolution_reads_is_whole(network, until):
    check_features(RUNG, network, until)


def entries(made):
    """(layer, file, kernel, whether it writes channel blocks) of the launches that convolve, round
    or arrange.
    """
    return [
        (step.layer, launch.source, launch.entry, "IN_CHANNEL_BLOCKS=1" in launch.defines)
        for step in made.steps
        for launch in step.launches
        if launch.source.startswith(("packed", "gpu_bf16")) and step.layer
    ]


def test_what_only_a_convolution_reads_is_written_for_it_alone():
    made = training_plan(RUNG, zoo.DEEP, batch=2)
    assert [one for one in entries(made) if "weight_grad" not in one[1]] == [
        ("a", "packed/conv2d_copy.cu", "conv2d_copy", True),
        ("b", "gpu_bf16_sm90/conv2d_pool.cu", "conv2d_pool", True),
        ("c", "gpu_bf16_sm90/conv2d_copy.cu", "conv2d_copy", False),
        ("c_up", "packed/conv2d.cu", "conv2d", False),
        ("c_up", "packed/conv2d_gradient.cu", "conv2d_gradient", True),
        ("c", "gpu_bf16_sm90/conv2d_gradient_pool.cu", "conv2d_gradient_pool", True),
        ("b", "gpu_bf16_sm90/conv2d_gradient.cu", "conv2d_gradient", False),
    ]


@pytest.mark.parametrize("width, entry", [(32, "conv2d_pool"), (34, "conv2d")])
def test_rows_of_windows_that_no_tile_holds_are_pooled_afterwards(width, entry):
    network = networks.resolve(
        "broad",
        (4, width, 3),
        (
            conv2d("a", 40),
            kinds.relu("a_relu"),
            conv2d("b", 40),
            kinds.relu("b_relu"),
            kinds.maxpool2d("b_pool"),
            conv2d("c", 40),
            kinds.relu("c_relu"),
            upsample2d("c_up"),
            conv2d("d", 3),
        ),
        "b_pool",
        "mse",
    )
    made = training_plan(RUNG, network, batch=2)
    assert next(one for one in entries(made) if one[0] == "b")[1:3] == (
        f"gpu_bf16_sm90/{entry}.cu",
        entry,
    )
    assert ("maxpool2d_forward" in {step.operation for step in made.steps}) == (entry == "conv2d")


PLAN = training_plan(RUNG, networks.build("autoencoder"))


def test_the_autoencoders_launches_are_products_and_the_update():
    """No operand is rounded by a launch of its own: what loads the batch and what computes the loss
    do so.
    """
    assert all("conv2d" in file or "weight_grad" in file for _, file, *_ in entries(PLAN))
    assert [
        launch.entry
        for launch in PLAN.launches
        if "conv2d" not in launch.entry and "weight_grad" not in launch.entry
    ] == ["load_columns_uint8", "mse_rounded", "mse_total", "sgd_update", "advance"]
    assert len(PLAN.launches) == 19


def test_the_autoencoders_wide_convolutions_have_channel_blocks():
    operations = {
        (step.layer, step.operation)
        for step in PLAN.steps
        if step.operation.startswith("arranged_conv2d_")
    }
    assert operations == {
        (layer, f"arranged_conv2d_{direction}")
        for layer in ("enc2", "dec1")
        for direction in ("forward", "input_grad", "weight_grad")
    }


@pytest.mark.parametrize(
    "image, kernel, stride",
    [((400, 7, 5), 3, 1), ((300, 9, 9), 2, 2), ((130, 10, 10), 3, 1)],
    ids=str,
)
def test_rows_of_shared_memory_suffice_for_the_windows_of_every_block(image, kernel, stride):
    """And the most are needed, up to a multiple of 8: by those of all blocks, one after the
    other.
    """
    batch, height, width = image
    places = np.array(
        [
            (number * height + row) * width + column
            for number in range(batch)
            for row in range(0, height - kernel + 1, stride)
            for column in range(0, width - kernel + 1, stride)
        ]
    )
    needed = max(
        places[first : first + 64].max() + (kernel - 1) * (width + 1) + 1 - places[first] // 8 * 8
        for first in range(0, len(places), 64)
    )
    assert rung.span(64, rung.Windows(image, kernel, stride)) == -(-needed // 8) * 8
    needed = max(
        places[first : first + 64].max()
        + row * width
        + kernel
        - (places[first] + row * width) // 8 * 8
        for first in range(0, len(places), 64)
        for row in range(kernel)
    )
    assert rung.span_of_taps(rung.Windows(image, kernel, stride)) == -(-needed // 8) * 8


@pytest.mark.parametrize(
    "side, operation", [(16, "arranged_conv2d_forward"), (1000, "rounded_conv2d_forward")]
)
def test_what_a_block_has_no_memory_for_is_gpu_bf16s(side, operation):
    """An image whose windows span more rows than fit, as wide ones do with a large stride."""
    network = networks.resolve(
        "strided",
        (side, side, 40),
        (
            conv2d("a", 128, kernel=4, stride=4, padding=0),
            upsample2d("a_up"),
            upsample2d("again"),
            conv2d("b", 40),
        ),
        "a",
        "mse",
    )
    made = plan.inference_plan(
        network, RUNG, 1, plan.Dataset(1, "uint8"), multipliers=PRECISIONS["bfloat16"]
    )
    assert operation in {step.operation for step in made.steps if step.layer == "a"}


OWN = sorted(
    {(launch.source, launch.defines) for launch in PLAN.launches if launch.source.startswith(RUNG)}
)
EVERY = sorted(
    {
        *OWN,
        *(("gpu_bf16_sm90/conv2d.cu", tile.defines) for tile in rung.TILES),
        *(
            ("gpu_bf16_sm90/conv2d_pool.cu", (*tile.defines, "WINDOWS=1", "IN_CHANNEL_BLOCKS=1"))
            for tile in rung.TILES
        ),
        *(
            (f"gpu_bf16_sm90/conv2d_{result}.cu", (*tile.defines, "IN_CHANNEL_BLOCKS=1"))
            for result, tile in itertools.product(("copy", "gradient", "gradient_pool"), rung.TILES)
        ),
        *(
            (f"gpu_bf16_sm90/{result}.cu", (*tile.defines, "PHASES=1"))
            for result, tile in itertools.product(("conv2d", "conv2d_copy"), rung.TILES)
        ),
        *(
            (
                "gpu_bf16_sm90/conv2d_gradient.cu",
                (*tile.defines, "IN_CHANNEL_BLOCKS=1", "STEPS_BY_PHASE=1"),
            )
            for tile in rung.TILES
        ),
        *(
            (
                "gpu_bf16_sm90/weight_grad.cu",
                (f"TILE_N={tile}", "KERNEL=2", f"WHOLE_ROWS={whole}", "PHASES=1"),
            )
            for tile, whole in itertools.product((64, 128), (0, 1))
        ),
        ("gpu_bf16_sm90/arrange.cu", ()),
        ("gpu_bf16_sm90/arrange.cu", ("STEPS_BY_PHASE=1",)),
        *(
            (
                "gpu_bf16_sm90/weight_grad.cu",
                (f"TILE_N={tile}", f"KERNEL={kernel}", f"WHOLE_ROWS={whole}"),
            )
            for tile, kernel, whole in itertools.product((64, 128), (1, 2, 3), (0, 1))
        ),
        *(
            ("gpu_bf16_sm90/weight_grad.cu", ("TILE_N=64", "KERNEL=4", f"WHOLE_ROWS={whole}"))
            for whole in (0, 1)
        ),
    }
)
PRODUCTS = [one for one in EVERY if "arrange" not in one[0]]


@needs.NVRTC
@pytest.mark.parametrize("source, defines", EVERY, ids=str)
def test_hopper_runs_the_kernels_without_spills(source, defines):
    made = without_spills(source, defines, "sm_90")
    if "arrange" not in source:
        columns = re.search(r"TILE_N=(\d+)", " ".join(defines))[1]
        assert made.ptx.count(f"wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.bf16.bf16") == 8
        assert made.ptx.count("ldmatrix.sync.aligned.m8n8.x4") == 8
        assert "fence.proxy.async.shared::cta" in made.ptx
        check_moved_registers(made.ptx, next(iter(made.kernels.values())))


def check_moved_registers(ptx, resources):
    """Assert that the warpgroups that multiply take no more registers than the block has: who takes
    more waits for ever.
    """
    moved = {
        way: int(count)
        for way, count in re.findall(r"setmaxnreg\.(dec|inc)\.sync\.aligned\.u32 (\d+)", ptx)
    }
    warpgroups = resources.most_threads // 128
    assert (
        not moved
        or moved["dec"] + (warpgroups - 1) * moved["inc"] <= warpgroups * resources.registers
    )


@needs.NVRTC
def test_a_gpu_other_than_hopper_is_refused_by_the_compiler():
    with pytest.raises(Exception, match="sm_90a alone"):
        nvrtc.compile_file(KERNELS / "gpu_bf16_sm90/conv2d.cu", "sm_89")


@needs.DISASSEMBLER
@pytest.mark.parametrize("source, defines", PRODUCTS, ids=str)
def test_products_are_begun_and_go_on_while_the_next_operands_are_loaded(source, defines):
    """A product that the compiler waits for at once, which it does where it sees a danger, has a
    wait for all of its own.
    """
    text = disassembly.text(compiled(source, defines, "sm_90").cubin)
    waits = re.findall(r"WARPGROUP\.DEPBAR\.LE gsb0, 0x(\d)", text)
    assert waits == ["1", "1", "0"]
    assert len(re.findall(r"\bHGMMA\.", text)) == 8
    assert len(re.findall(r"\bUBLKCP", text)) == (
        3 if "KERNEL" in str(defines) and "TILE_N=128" in defines else 2
    )
    assert ("USETMAXREG" in text) == (
        "weight_grad" not in source
        and "TILE_M=128" in defines
        or bool({"KERNEL=3", "KERNEL=4"} & set(defines))
    )


def counted(layer, operation):
    """What a block of a launch of the autoencoder's step asks for: {place: counts}, in whole."""
    launch = next(
        step for step in PLAN.steps if (step.layer, step.operation) == (layer, operation)
    ).launches[0]
    arrays = {name: emulator_executor.zeros(PLAN.buffers[name]) for name in launch.buffers}
    arguments = [
        arrays.get(argument, argument) if isinstance(argument, str) else argument
        for argument in launch.arguments
    ]
    return emulator_executor.function(launch).count(
        launch.grid, launch.block, arguments, launch.shared_bytes, [0], 64, 10
    )


def test_pixels_come_once_for_all_taps_and_fragments_are_read_without_bank_conflicts():
    """Of the first 128 of 64 images of 16x16x256, eight rows of one image, and 128 filters of
    3x3.
    """
    found = counted("enc2", "arranged_conv2d_forward")
    rows = 9 * 18 + 18  # the last pixel of y has its window's last row two below
    assert found["bulk_copies"] == {"requests": 4 * (1 + 9), "bytes": 4 * 128 * (rows + 9 * 128)}
    assert found["operands"] == {"requests": 2 * 4 * 9 * 4, "bytes": 2 * 4 * 9 * 4 * 128 * 32}
    # held: the sums, of which each thread loads four at once
    loads, held = found["shared_loads"], 128 * 128 * 4 // 128
    assert (
        loads["least"] == loads["wavefronts"] == pytest.approx(8 * 4 * 9 * 4 * 4 + held, rel=3e-3)
    )
    assert found["shared_stores"]["least"] == found["shared_stores"]["wavefronts"] > 0


def test_a_step_of_the_weight_gradient_comes_once_for_a_row_of_taps():
    """64 images of 16x16 in 11 splits of 24 steps: 4 rows of 16 pixels, under one row of taps."""
    found = counted("enc2", "arranged_conv2d_weight_grad")
    assert found["bulk_copies"]["requests"] == 24 * 3
    assert found["operands"] == {"requests": 3 * 24 * 4, "bytes": 3 * 24 * 4 * 128 * 32}
    assert found["shared_loads"]["least"] == found["shared_loads"]["wavefronts"]


MISUSES = {
    "no fence before products": ("loop.cuh", "        wgmma_fence();\n", "", "missing wgmma fence"),
    "one set of fragments": (
        "hopper.cuh",
        "        warp.load(odd);\n        warp.add(sum, odd);",
        "        warp.load(even);\n        warp.add(sum, even);",
        "missing wgmma wait",
    ),
    "sums written too early": ("hopper.cuh", "    wgmma_wait<0>();\n", "", "missing wgmma wait"),
    "filters released too early": ("loop.cuh", "wgmma_wait<1>()", "wgmma_wait<2>()", None),
    "pixels not waited for": ("loop.cuh", "        if (tap == 0) pixels.wait();\n", "", None),
    "filters not waited for": ("loop.cuh", "        filters.wait();\n", "", "missing barrier wait"),
    "phases that do not change": ("hopper.cuh", "        parity ^= last;\n", "", None),
    "stages overwritten while they are read": (
        "hopper.cuh",
        "        barrier_wait(empty + stage, parity ^ 1);\n",
        "",
        None,
    ),
    "too few rows copied": ("loop.cuh", "last_row - first_row + 1,", "last_row - first_row,", None),
    "results in stages that are read": ("loop.cuh", "sync_first<THREADS>();", "", "race"),
    "a barrier for all threads": (
        "loop.cuh",
        "sync_first<THREADS>();",
        "__syncthreads();",
        "divergent barrier",
    ),
    "a barrier for the one that copies": (
        "loop.cuh",
        "sync_first<THREADS>();",
        "sync_first<THREADS + 128>();",
        "divergent warpgroup operation",
    ),
}


def watched(folder, file, old, new, window=3):
    """Run one block of the convolution's kernel, `old` of a file replaced by `new`, with all checks
    of the emulator.

    window: rows and columns of a filter.
    """
    folder.mkdir()
    for path in (KERNELS / RUNG).iterdir():
        # the headers beside it
        (folder / path.name).write_text(path.read_text().replace(f"{RUNG}/", ""))
    text = (folder / file).read_text()
    assert text.count(old) == 1
    (folder / file).write_text(text.replace(old, new))
    defines = tuple(f"-D{define}" for define in rung.SMALL.defines)
    kernel = load(folder / "conv2d_copy.cu", defines).get_function("conv2d_copy")
    side, taps = 7 + window, window**2
    x, weight, bias, copy = (
        np.zeros(shape, dtype)
        for shape, dtype in (
            ((3, side**2, 64), np.uint16),
            ((3, taps, 64, 64), np.uint16),
            (64, np.float32),
            ((1, 8, 8, 64), np.uint16),
        )
    )
    # as conv2d_copy's parameters from height on
    sizes = side, side, 3, 64, 64, window, 1, 64, side**2, 104, 64, 0, 0
    kernel.watched(
        (1,),
        (rung.SMALL.threads,),
        (x, weight, bias, copy, *map(np.int32, sizes)),
        rung.SMALL.shared_bytes(104),
    )


FENCE = "async_proxy_fence();\n            pixels.release"


@pytest.mark.parametrize("window", [1, 3])
def test_the_kernel_as_it_is_has_no_fault(tmp_path, window):
    watched(tmp_path / RUNG, "loop.cuh", FENCE, FENCE, window)


@pytest.mark.parametrize("window", [1, 3])
def test_the_next_pixels_but_one_may_overtake_loads_that_are_not_fenced(tmp_path, window):
    """Of one tap; and of nine, whose products have ended by then but for the last one's."""
    with pytest.raises(KernelFault) as fault:
        watched(tmp_path / RUNG, "loop.cuh", FENCE, "pixels.release", window)
    assert fault.value.kind == "missing fence"


@pytest.mark.parametrize("name", MISUSES)
def test_misuse_of_the_copies_and_products_is_noticed(name, tmp_path):
    """None: whichever fault comes first."""
    *change, kind = MISUSES[name]
    with pytest.raises(KernelFault) as fault:
        watched(tmp_path / RUNG, *change)
    assert kind in (None, fault.value.kind)
