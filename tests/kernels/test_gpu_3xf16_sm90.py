"""gpu_bf16_sm90's kernels with a float32 as the sum of two float16, as gpu_3xf16_sm90 launches
them.
"""

import functools

import numpy as np
import pytest

import zoo
from channel_blocks import (
    Upsampled,
    bordered,
    channel_blocks_of,
    forward,
    gradient_of,
    input_grad,
    numbers,
    pairs_of_steps,
    rows_of,
    tiles_of,
    weight_grad,
)
from emulator_executor import Executor
from kernel_checks import normal
from ladder.executors import create as executors
from ladder.rungs import gpu_bf16_sm90
from ladder.rungs.packed_tiles import EXPONENTS, HALVES
from ladder.verify import parity
from rounded_copies import check_products, check_training
from rung_checks import ORDERS
from tensor_checks import sums  # noqa: F401 (a fixture)

RUNG = "gpu_3xf16_sm90"
ONE_ARITHMETIC = True
LAST = 2.0**-22  # what a pair of halves loses of a number at most
LARGEST = 65504  # a half


def of_all_sizes(*shape, exponent):
    """Numbers whose halves have all their bits, have few, and are zero."""
    powers = np.random.default_rng(0).integers(-30 - exponent, 14 - exponent, shape, np.int32)
    return np.ldexp(normal(*shape) / 8, powers)


def near(found, wanted, exponent):
    """Within the last bit of a pair, or where a number is small of a subnormal half."""
    error = np.abs(found.astype(float) - wanted)
    return (error <= np.maximum(LAST * np.abs(wanted), 2.0 ** (-24 - exponent))).all()


@pytest.mark.parametrize("shape, padding", [((3, 9, 8, 40), 1), ((2, 3, 5, 104), 0)], ids=str)
def test_operands_are_pairs_of_halves(shape, padding):
    """Images, gradients and weights, with zeros behind the last channel of 64."""
    x = of_all_sizes(*shape, exponent=EXPONENTS["ACTIVATION"])
    wanted = rows_of(bordered(x, padding))
    found = channel_blocks_of(x, padding, ORDERS, HALVES)
    found = numbers(found.reshape(found.shape[0], -1, 64), HALVES)
    assert near(found, wanted, EXPONENTS["ACTIVATION"])
    dy = of_all_sizes(*shape, exponent=EXPONENTS["GRADIENT"])
    made = gradient_of(dy, padding, ORDERS, gpu_bf16_sm90.ChannelBlocks(HALVES))
    wanted, steps = rows_of(dy), pairs_of_steps(made["steps"], HALVES)
    assert near(steps[:, : wanted.shape[1]], wanted, EXPONENTS["GRADIENT"])
    assert (steps[:, wanted.shape[1] :] == 0).all()
    rounded = made["rounded"].reshape(made["rounded"].shape[0], -1, 64)
    assert near(
        numbers(rounded, HALVES, "GRADIENT"), rows_of(bordered(dy, padding)), EXPONENTS["GRADIENT"]
    )


def test_weights_are_pairs_of_halves():
    weight = normal(40, 1, 1, 72)
    packed, flipped = (
        numbers(copy, HALVES, "WEIGHT").transpose(1, 2, 3, 0, 4)
        for copy in tiles_of(weight, ORDERS, HALVES)
    )
    packed, flipped = (copy.reshape(copy.shape[2], -1) for copy in (packed, flipped))
    for found, wanted in ((packed, weight.reshape(40, 72)), (flipped, weight.reshape(40, 72).T)):
        filled = np.pad(
            wanted,
            [(0, size - there) for size, there in zip(found.shape, wanted.shape, strict=True)],
        )
        assert near(found, filled, EXPONENTS["WEIGHT"])


@pytest.mark.parametrize("value", [LARGEST + 1, np.inf, -np.inf, np.nan])
def test_what_exceeds_a_half_is_no_number(value):
    """Not infinite, which a ReLU behind it could make zero; the next smaller one is a number."""
    x = normal(1, 4, 4, 40)
    x.flat[5] = value / 2 ** EXPONENTS["ACTIVATION"]
    x.flat[9] = (LARGEST - 1) / 2 ** EXPONENTS["ACTIVATION"]
    found = numbers(channel_blocks_of(x, 0, number_format=HALVES).reshape(2, -1, 64), HALVES)
    assert np.isnan(found).sum() == 1 and np.isnan(found[0, 0, 5])


# (batch, height, width, channels, filters, kernel, padding), stride, tile
@pytest.mark.usefixtures("sums")
@pytest.mark.parametrize(
    "shape, stride, tile",
    [
        ((1, 5, 7, 72, 72, 3, 1), 1, gpu_bf16_sm90.SMALL),
        ((1, 6, 6, 40, 104, 1, 0), 1, gpu_bf16_sm90.SMALL),
        ((2, 9, 11, 40, 40, 3, 1), 2, gpu_bf16_sm90.SMALL),
        ((2, 8, 12, 64, 136, 3, 1), 1, gpu_bf16_sm90.MEDIUM),
        ((3, 7, 5, 72, 264, 2, 0), 1, gpu_bf16_sm90.LARGE),
    ],
    ids=str,
)
def test_products_of_pairs_of_halves(shape, stride, tile):
    check_products(
        shape,
        stride,
        lambda conv, relu: forward(conv, relu, tile, HALVES),
        (lambda conv: input_grad(conv, None, HALVES)) if stride == 1 else None,
        lambda conv: weight_grad(conv, HALVES),
        HALVES,
    )


@pytest.mark.usefixtures("sums")
@pytest.mark.parametrize("shape", [(2, 3, 5, 40, 72), (1, 8, 8, 104, 40)], ids=str)
def test_products_behind_an_upsampling(shape):
    Upsampled(shape, normal, HALVES).check_rounding()


@pytest.mark.parametrize("network", [zoo.DEEP, zoo.RISING], ids=["deep", "rising"])
def test_a_network_trains_as_on_the_cpu_in_the_same_bytes_in_every_order(network):
    check_training(RUNG, network, "float32")


def test_an_update_whose_gradients_exceed_a_half_is_repeated_with_smaller_powers():
    """As in a check before first use, whose gradients may be larger than a training's."""
    network = zoo.RISING
    train = functools.partial(
        parity.train, network, protocol=parity.protocols(network)["momentum"], batches=(3,)
    )
    reference = train("cpu", executors.create("cpu", 2))
    found = train(RUNG, Executor(), follow=reference, loss_scale=2.0**12)
    assert max(parity.deviations(network, found, reference, (3,)).values()) < parity.CUT
