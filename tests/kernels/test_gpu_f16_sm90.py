"""gpu_bf16_sm90's kernels with float16 operands, as gpu_f16_sm90 launches them."""

import numpy as np
import pytest

import needs
import zoo
from channel_blocks import (
    Upsampled,
    bordered,
    channel_blocks_of,
    forward,
    gradient_of,
    input_grad,
    launched,
    numbers,
    operands,
    rows_of,
    tiles_of,
    weight_grad,
)
from compiled import without_spills
from kernel_checks import integers, normal, poisoned
from ladder.arithmetic.multipliers import to_float16
from ladder.network import networks
from ladder.rungs import gpu_bf16_sm90
from ladder.rungs.packed_tiles import FLOAT16
from rounded_copies import check_products, check_training
from rung_checks import ORDERS, Convolution, in_one_order, run_step, training_plan
from tensor_checks import sums  # noqa: F401 (a fixture)

RUNG = "gpu_f16_sm90"
ONE_ARITHMETIC = True
SHAPE = 3, 9, 8, 80


def test_operands_are_arranged_as_halves_subnormal_and_infinite_ones_too():
    """Images, gradients and weights; a cut, or bfloat16, would be another number."""
    x = np.ldexp(normal(*SHAPE), np.random.default_rng(0).integers(-28, 18, SHAPE, np.int32))
    x.flat[:3] = np.inf, np.nan, 65519
    rounded = to_float16(x)
    assert np.isinf(rounded).sum() > 1 and ((rounded == 0) & (x != 0)).any()
    with np.errstate(invalid="ignore"):
        found, wanted = channel_blocks_of(x, 1, ORDERS, FLOAT16), rows_of(bordered(rounded, 1))
        found = numbers(found.reshape(wanted.shape), FLOAT16)
        assert np.array_equal(found, wanted, equal_nan=True)
    dy = normal(9, 3, 5, 80)
    steps = gradient_of(dy, 2, ORDERS, gpu_bf16_sm90.ChannelBlocks(FLOAT16))["steps"]
    steps, wanted = numbers(steps, FLOAT16), rows_of(to_float16(dy))
    filled = np.pad(wanted, ((0, 0), (0, steps.shape[1] - wanted.shape[1]), (0, 0)))
    assert np.array_equal(steps, filled)
    weight = normal(40, 1, 1, 64)
    packed, flipped = tiles_of(weight, ORDERS, FLOAT16)
    assert np.array_equal(
        numbers(packed, FLOAT16)[0, 0, 0, :40], to_float16(weight).reshape(40, 64)
    )
    assert np.array_equal(
        numbers(flipped, FLOAT16)[0, 0, 0, :64, :40], to_float16(weight).reshape(40, 64).T
    )


# (batch, height, width, channels, filters, kernel, padding), stride, tile
@pytest.mark.usefixtures("sums")
@pytest.mark.parametrize(
    "shape, stride, tile",
    [
        ((1, 5, 7, 72, 72, 3, 1), 1, gpu_bf16_sm90.SMALL),
        ((2, 9, 11, 40, 40, 3, 1), 2, gpu_bf16_sm90.SMALL),
        ((2, 8, 12, 64, 136, 3, 1), 1, gpu_bf16_sm90.MEDIUM),
        ((3, 7, 5, 72, 264, 2, 0), 1, gpu_bf16_sm90.LARGE),
    ],
    ids=str,
)
def test_products_of_halves_in_channel_blocks(shape, stride, tile):
    check_products(
        shape,
        stride,
        lambda conv, relu: forward(conv, relu, tile, FLOAT16),
        (lambda conv: input_grad(conv, None, FLOAT16)) if stride == 1 else None,
        lambda conv: weight_grad(conv, FLOAT16),
        FLOAT16,
    )


def test_a_copy_that_a_convolution_writes_is_its_result_with_a_border_of_zeros():
    conv = Convolution((3, 6, 10, 40, 72, 3, 1), normal)
    with in_one_order():
        y = forward(conv, True, gpu_bf16_sm90.SMALL, FLOAT16)
    wanted = channel_blocks_of(y, 2, number_format=FLOAT16)
    copy = poisoned(wanted.shape, np.uint16)
    run_step(
        launched(gpu_bf16_sm90.forward, FLOAT16, gpu_bf16_sm90.SMALL),
        operands(conv, FLOAT16),
        {"copy": copy},
        stride=1,
        relu=True,
        padding=2,
    )
    assert copy.tobytes() == wanted.tobytes()


def test_gradients_below_the_normal_halves_keep_their_bits_down_to_the_last():
    """Subnormal halves are multiplied, not taken for zeros."""
    conv = Convolution((1, 4, 4, 40, 40, 1, 0), integers)
    conv.dy *= np.float32(2.0**-24)
    with in_one_order():
        found, wanted = input_grad(conv, None, FLOAT16), conv.input_grad(conv.dy, conv.weight)
    assert np.array_equal(found, wanted) and np.abs(wanted).max() > 0


@pytest.mark.usefixtures("sums")
@pytest.mark.parametrize("shape", [(2, 3, 5, 40, 72)], ids=str)
def test_products_of_halves_behind_an_upsampling(shape):
    Upsampled(shape, normal, FLOAT16).check_rounding()


@pytest.mark.parametrize("network", [zoo.RISING, zoo.DEEP], ids=["rising", "deep"])
def test_a_network_of_halves_trains_as_on_the_cpu_in_the_same_bytes_in_every_order(network):
    check_training(RUNG, network, "float16")


PLAN = training_plan(RUNG, networks.build("autoencoder"))


def test_launches_tiles_and_streams_are_those_of_gpu_bf16_sm90():
    """Of the convolutions in channel blocks; the format alone is another."""
    other = training_plan("gpu_bf16_sm90", networks.build("autoencoder"))
    found, wanted = (
        [
            (launch.source, launch.grid, launch.block, launch.shared_bytes, launch.stream)
            for launch in made.launches
            if launch.source.startswith("gpu_bf16_sm90/")
        ]
        for made in (PLAN, other)
    )
    assert found == wanted and len(found) == 9
    assert len(PLAN.launches) == len(other.launches)


OWN = sorted(
    {
        (launch.source, launch.defines)
        for launch in PLAN.launches
        if launch.source.startswith("gpu_bf16_sm90/")
    }
)


@needs.NVRTC
@pytest.mark.parametrize("source, defines", OWN, ids=str)
def test_hopper_multiplies_halves_without_spills(source, defines):
    made = without_spills(source, defines, "sm_90")
    assert made.ptx.count("k16.f32.f16.f16 {") == 8 and "bf16" not in made.ptx
