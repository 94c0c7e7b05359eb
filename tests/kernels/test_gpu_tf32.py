"""gpu_tf32's kernels on copies in TF32, and gpu_opt_v1's convolution kernels with TF32 operands as
it launches them.

What the kernels on copies share with those of 16 bits is in test_gpu_bf16.py; here is what 32 bits
change: rows of 32 numbers, fragments that are read number by number where they are transposed, one
square of pixels in a step, and chunks of four.
"""

import pytest

import needs
import zoo
from ladder.network import networks
from ladder.rungs import gpu_tf32
from ladder.rungs.packed_tiles import (
    FEW_COLUMNS,
    FEW_ROWS,
    LARGE,
    RECTANGLES,
    SQUARE,
    TF32,
    WINDOWS,
)
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
from rung_checks import training_plan
from tensor_checks import RoundedOperands, counted, sums  # noqa: F401 (a fixture)

RUNG = "gpu_tf32"
ONE_ARITHMETIC = True  # in the tests of gpu_opt_v1 the kernels run in both
SHORT, FEW, TALL, NARROW, WIDEST = RECTANGLES
FEW_2, FEW_3, MANY_2, MANY_3 = WINDOWS


class TestConvolutions(RoundedOperands):
    rung, name = gpu_tf32, "tf32"
    others, instruction = ("exact", "am16", "bfloat16"), "m16n8k8.row.col.f32.tf32"
    network = networks.build("lenet_5", (28, 28, 1))


def test_copies_are_rounded_to_tf32_with_zeros_behind():
    check_copies(TF32)


@pytest.mark.parametrize("tile", [SQUARE, LARGE], ids=str)
def test_weight_gradients_behind_pooling(tile):
    check_weight_gradients_behind_pooling(TF32, tile)


# shape, stride, tile: fewer steps than stages and more, whole and not; the halo of one block of
# channels and of several
@pytest.mark.usefixtures("sums")
@pytest.mark.parametrize(
    "shape, stride, tile",
    [
        ((1, 4, 4, 32, 40, 1, 0), 1, SQUARE),
        ((2, 9, 11, 36, 40, 3, 1), 2, SQUARE),
        ((2, 6, 7, 40, 3, 3, 1), 1, FEW_COLUMNS),
        ((2, 8, 12, 64, 136, 3, 1), 1, LARGE),
        ((1, 7, 7, 96, 72, 3, 1), 1, NARROW),
        ((1, 9, 18, 32, 72, 3, 0), 1, TALL),
        ((1, 14, 15, 64, 12, 2, 1), 1, FEW),
        ((1, 6, 7, 64, 40, 5, 2), 1, NARROW),
        ((1, 8, 18, 64, 72, 3, 1), 1, WIDEST),
        ((2, 9, 17, 64, 12, 3, 1), 1, SHORT),
    ],
    ids=str,
)
def test_products_of_packed_numbers(shape, stride, tile):
    check_products(
        shape,
        stride,
        forward=lambda conv, relu: forward(conv, relu, tile, TF32),
        number_format=TF32,
    )


@pytest.mark.parametrize(
    "shape, tile", [((1, 9, 8, 40, 64, 3, 1), NARROW), ((2, 5, 6, 44, 36, 3, 0), SQUARE)], ids=str
)
def test_input_gradients_of_packed_numbers(shape, tile):
    check_products(shape, input_grad=lambda conv: input_grad(conv, tile, TF32), number_format=TF32)


# shape, stride, tile: one square and several, of whole steps and not; filters that end within the
# first slice and the second; and pixels step by step, in every tile
@pytest.mark.usefixtures("sums")
@pytest.mark.parametrize(
    "shape, stride, tile",
    [
        ((1, 8, 8, 64, 64, 3, 1), 1, MANY_3),
        ((7, 8, 9, 64, 40, 3, 1), 1, MANY_3),
        ((3, 8, 16, 128, 20, 3, 1), 1, MANY_3),
        ((5, 7, 10, 128, 20, 3, 0), 1, FEW_3),
        ((3, 7, 15, 64, 10, 2, 1), 1, MANY_2),
        ((2, 7, 15, 64, 10, 2, 1), 1, FEW_2),
        ((7, 9, 11, 40, 40, 3, 1), 2, SQUARE),
        ((2, 8, 12, 64, 136, 3, 1), 1, LARGE),
        ((2, 9, 8, 36, 15, 3, 1), 1, FEW_ROWS),
    ],
    ids=str,
)
def test_weight_gradients_of_packed_numbers(shape, stride, tile, monkeypatch):
    monkeypatch.setattr("ladder.rungs.packed_tiles.SPLITS", 1)
    check_products(
        shape, stride, weight_grad=lambda conv: weight_grad(conv, tile, TF32), number_format=TF32
    )


@pytest.mark.parametrize(
    "network", [zoo.WIDE, zoo.DEEP, zoo.RISING, zoo.ASIDE], ids=["wide", "deep", "rising", "aside"]
)
def test_a_network_of_copies_trains_as_on_the_cpu_in_the_same_bytes_in_every_order(network):
    check_training(RUNG, network, "tf32")


PLAN = training_plan(RUNG, networks.build("autoencoder"))


@needs.NVRTC
@pytest.mark.parametrize("source, defines", wide_builds(PLAN, TF32), ids=str)
def test_a_gpu_can_run_the_kernels_on_copies_in_tf32(source, defines):
    check_wide_build(source, defines)


@pytest.mark.parametrize(
    "layer, operation", [("enc2", "forward"), ("dec1", "weight_grad"), ("dec1_up", "weight_grad")]
)
def test_shared_memory_is_read_and_written_without_bank_conflicts(layer, operation):
    _, found = counted(PLAN, layer, operation)
    for accesses in ("shared_loads", "shared_stores"):
        assert found[accesses]["least"] == found[accesses]["wavefronts"] > 0, accesses
