"""gpu_tf32's kernels with float16 operands, as gpu_f16 launches them: on sm_75, which copies and
multiplies in its own way, and from sm_80 on.
"""

import numpy as np
import pytest

import cuda_emulator
import needs
import rung_plans
import zoo
from compiled import without_spills
from kernel_checks import normal
from ladder.arithmetic.multipliers import to_float16
from ladder.network import networks
from ladder.rungs import gpu_f16
from ladder.rungs.packed_tiles import FEW_COLUMNS, FLOAT16, LARGE, RECTANGLES, SQUARE, WINDOWS
from rounded_copies import (
    check_products,
    check_training,
    forward,
    numbers,
    padded,
    rounded_gradient,
    rounded_input,
    rounded_weight,
    weight_grad,
)
from rung_checks import ORDERS, training_plan
from tensor_checks import RoundedOperands, sums  # noqa: F401 (a fixture)

RUNG = "gpu_f16"
ONE_ARITHMETIC = True  # in the tests of gpu_opt_v1 the kernels run in both
MOST_SHARED = 64 << 10  # bytes of a block on sm_75
_, FEW, TALL, NARROW, _ = RECTANGLES
_, FEW_3, MANY_2, MANY_3 = WINDOWS


@pytest.fixture(params=["sm_80", "sm_75"])
def gpu(request, monkeypatch):
    """From which on the emulated kernels are what a GPU runs."""
    if request.param == "sm_75":
        load = cuda_emulator.load
        monkeypatch.setattr(
            cuda_emulator,
            "load",
            lambda source, defines=(), *more: load(
                source, (*defines, "-D__CUDA_ARCH__=750"), *more
            ),
        )


class TestConvolutions(RoundedOperands):
    rung, name = gpu_f16, "float16"
    others, instruction = ("exact", "am16", "tf32", "bfloat16"), "m16n8k16.row.col.f32.f16"
    by_matrices, network = True, networks.build("lenet_5", (28, 28, 1))


def test_copies_are_rounded_to_halves_subnormal_and_infinite_ones_too():
    x = np.ldexp(
        normal(3, 9, 8, 80), np.random.default_rng(0).integers(-28, 18, (3, 9, 8, 80), np.int32)
    )
    x.flat[:3] = np.inf, np.nan, 65519
    assert np.isinf(to_float16(x)).sum() > 1 and ((to_float16(x) == 0) & (x != 0)).any()
    with np.errstate(invalid="ignore"):
        assert np.array_equal(
            numbers(rounded_input(x, 1, FLOAT16, ORDERS), FLOAT16),
            padded(to_float16(x), 1),
            equal_nan=True,
        )
    gradient = normal(2, 5, 7, 24)
    assert np.array_equal(
        numbers(rounded_gradient(gradient, 2, FLOAT16, ORDERS)[0], FLOAT16),
        padded(to_float16(gradient), 2),
    )
    weight = normal(40, 3, 3, 24)
    copy, flipped = rounded_weight(weight, number_format=FLOAT16, orders=ORDERS)
    assert np.array_equal(numbers(copy, FLOAT16), to_float16(weight))
    assert np.array_equal(
        numbers(flipped, FLOAT16), to_float16(weight)[:, ::-1, ::-1].transpose(3, 1, 2, 0)
    )


# shape, stride, tile: fewer steps than stages and more, whole and not; the halo of one block of
# channels and of several
@pytest.mark.usefixtures("sums", "gpu")
@pytest.mark.parametrize(
    "shape, stride, tile",
    [
        ((1, 4, 4, 64, 40, 1, 0), 1, SQUARE),
        ((2, 9, 11, 40, 40, 3, 1), 2, SQUARE),
        ((2, 6, 7, 40, 3, 3, 1), 1, FEW_COLUMNS),
        ((2, 8, 12, 64, 136, 3, 1), 1, LARGE),
        ((1, 7, 7, 192, 72, 3, 1), 1, NARROW),
        ((1, 9, 18, 64, 72, 3, 0), 1, TALL),
        ((1, 14, 15, 128, 8, 2, 1), 1, FEW),
        ((1, 6, 7, 64, 40, 5, 2), 1, NARROW),
    ],
    ids=str,
)
def test_products_of_packed_halves(shape, stride, tile):
    check_products(
        shape,
        stride,
        forward=lambda conv, relu: forward(conv, relu, tile, FLOAT16),
        number_format=FLOAT16,
    )


# shape, stride, tile: as many squares as a step has, and an odd number in several steps
@pytest.mark.usefixtures("sums", "gpu")
@pytest.mark.parametrize(
    "shape, stride, tile",
    [
        ((2, 8, 8, 64, 64, 3, 1), 1, MANY_3),
        ((7, 8, 9, 64, 40, 3, 1), 1, MANY_3),
        ((5, 7, 10, 128, 20, 3, 0), 1, FEW_3),
        ((3, 7, 15, 64, 10, 2, 1), 1, MANY_2),
        ((7, 9, 11, 40, 40, 3, 1), 2, SQUARE),
        ((2, 8, 12, 64, 136, 3, 1), 1, LARGE),
    ],
    ids=str,
)
def test_weight_gradients_of_packed_halves(shape, stride, tile, monkeypatch):
    monkeypatch.setattr("ladder.rungs.packed_tiles.SPLITS", 1)
    check_products(
        shape,
        stride,
        weight_grad=lambda conv: weight_grad(conv, tile, FLOAT16),
        number_format=FLOAT16,
    )


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(
    "network", [zoo.WIDE, zoo.DEEP, zoo.RISING, zoo.ASIDE], ids=["wide", "deep", "rising", "aside"]
)
def test_a_network_of_copies_trains_as_on_the_cpu_in_the_same_bytes_in_every_order(network):
    check_training(RUNG, network, "float16")


OWN = sorted(
    {
        (launch.source, launch.defines)
        for launch in training_plan(RUNG, networks.build("autoencoder")).launches
        if launch.source.startswith("packed/")
    }
)


@needs.NVRTC
@pytest.mark.parametrize("source, defines", OWN, ids=str)
def test_turing_multiplies_half_as_much_at_once_and_copies_by_itself(source, defines):
    old, new = (
        without_spills(source, defines, architecture) for architecture in ("sm_75", "sm_90")
    )
    products = new.ptx.count("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    assert (
        old.ptx.count("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32")
        == 2 * products
        == 2 * new.ptx.count("mma.sync")
    )
    assert "cp.async" not in old.ptx and ("cp.async" in new.ptx) == (products > 0)


def test_every_block_has_room_on_sm_75():
    assert (
        max(launch.shared_bytes for made in rung_plans.plans(RUNG) for launch in made.launches)
        <= MOST_SHARED
    )
