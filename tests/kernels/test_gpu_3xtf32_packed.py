"""gpu_tf32's kernels on copies with all bits of float32, whose products are made of three of TF32.

The layout is gpu_tf32's (test_gpu_tf32.py); here are the products of parts, in both of the places
that make them.
"""

import numpy as np
import pytest

import needs
import zoo
from kernel_checks import normal
from ladder.network import networks
from ladder.rungs.packed_tiles import FLOAT32, LARGE, RECTANGLES, SQUARE, WINDOWS
from rounded_copies import (
    check_copies,
    check_products,
    check_training,
    check_weight_gradients_behind_pooling,
    check_wide_build,
    forward,
    input_grad,
    weight_grad,
    wide_builds,
)
from rung_checks import Convolution, training_plan
from tensor_checks import sums  # noqa: F401 (a fixture)

RUNG = "gpu_3xtf32_packed"
ONE_ARITHMETIC = True  # as test_gpu_tf32.py
NARROW, FEW = RECTANGLES[3], WINDOWS[1]


def test_copies_have_all_bits_with_zeros_behind():
    check_copies(FLOAT32)
    check_weight_gradients_behind_pooling(FLOAT32, SQUARE)


# shape, stride, tile: warps that share out k and warps that do not, step by step and with a halo
@pytest.mark.usefixtures("sums")
@pytest.mark.parametrize(
    "shape, stride, tile",
    [
        ((2, 9, 11, 36, 40, 3, 1), 2, SQUARE),
        ((2, 8, 12, 64, 136, 3, 1), 1, LARGE),
        ((1, 7, 7, 96, 72, 3, 1), 1, NARROW),
    ],
    ids=str,
)
def test_products_of_packed_numbers(shape, stride, tile):
    check_products(
        shape,
        stride,
        forward=lambda conv, relu: forward(conv, relu, tile, FLOAT32),
        number_format=FLOAT32,
    )


def test_input_gradients_of_packed_numbers():
    check_products(
        (1, 9, 8, 40, 64, 3, 1),
        input_grad=lambda conv: input_grad(conv, NARROW, FLOAT32),
        number_format=FLOAT32,
    )


@pytest.mark.usefixtures("sums")
@pytest.mark.parametrize(
    "shape, stride, tile",
    [((3, 8, 16, 128, 20, 3, 1), 1, FEW), ((7, 9, 11, 40, 40, 3, 1), 2, SQUARE)],
    ids=str,
)
def test_weight_gradients_of_packed_numbers(shape, stride, tile, monkeypatch):
    monkeypatch.setattr("ladder.rungs.packed_tiles.SPLITS", 1)
    check_products(
        shape,
        stride,
        weight_grad=lambda conv: weight_grad(conv, tile, FLOAT32),
        number_format=FLOAT32,
    )


@pytest.mark.usefixtures("sums")
@pytest.mark.parametrize("tile", [LARGE, NARROW], ids=str)
def test_a_number_is_the_sum_of_its_two_parts(tile):
    """Of 11 bits each, the last of the small part being the number's last one: times 1 nothing is
    lost.
    """
    random = np.random.default_rng(0)
    conv = Convolution((1, 8, 8, 64, 64, 3, 1), normal)
    big, small = (
        random.integers(2**10, 2**11, conv.x.shape) * 2**13,
        random.integers(-(2**10), 2**10, conv.x.shape) * 2 + 1,
    )
    conv.x = (random.choice([-1, 1], conv.x.shape) * (big + small)).astype(np.float32)
    conv.weight[...], conv.bias[...] = 0, 0
    conv.weight[:, 1, 1] = np.eye(64)
    assert np.array_equal(forward(conv, False, tile, FLOAT32), conv.x)


@pytest.mark.parametrize("network", [zoo.WIDE, zoo.RISING], ids=["wide", "rising"])
def test_a_network_of_copies_trains_as_on_the_cpu_in_the_same_bytes_in_every_order(network):
    check_training(RUNG, network, "float32")


PLAN = training_plan(RUNG, networks.build("autoencoder"))


@needs.NVRTC
@pytest.mark.parametrize("source, defines", wide_builds(PLAN, FLOAT32), ids=str)
def test_a_gpu_can_run_the_kernels_on_copies_in_float32(source, defines):
    check_wide_build(source, defines)
