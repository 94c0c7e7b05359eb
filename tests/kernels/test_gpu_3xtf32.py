"""gpu_opt_v1's convolution kernels on tensor cores, as gpu_3xtf32 launches them, against their
definitions in float64.

Tensor cores add by either model of cuda_emulator/tensor_cores.cpp.
"""

import numpy as np
import pytest

import backends
import needs
from kernel_checks import normal
from ladder.rungs import gpu_3xtf32, gpu_gemm
from rung_checks import Convolution, convolution_launches, training_plan
from tensor_checks import (
    FILES,
    LARGE,
    NETWORK,
    check_compiled,
    compiled_launches,
    forward,
    in_large_tiles,
    same_launches,
    sums,  # noqa: F401 (a fixture)
)

RUNG = "gpu_3xtf32"
ONE_ARITHMETIC = True  # in the tests of gpu_opt_v1 the kernels run in both
LAUNCHES = gpu_3xtf32.RUNG.launches


@pytest.mark.parametrize("shape, stride", LARGE, ids=str)
def test_conv2d_in_large_tiles(shape, stride):
    launches = {operation: in_large_tiles(operation) for operation in gpu_3xtf32.TILES}
    backends.check_convolution(backends.Rung(RUNG, launches=launches), shape, stride)


@pytest.mark.usefixtures("sums")
def test_three_products_are_a_hundred_times_as_accurate_as_one():
    conv = Convolution((2, 6, 6, 16, 16, 3, 1), normal)
    exact = conv.forward(conv.x, conv.weight, conv.bias)
    errors = {
        name: np.abs(forward(launches, conv, name) - exact).max() / np.abs(exact).max()
        for name, launches in (("exact", LAUNCHES), ("tf32", gpu_3xtf32.rung("tf32").launches))
    }
    assert errors["exact"] < 2e-6 and 1e-4 < errors["tf32"] < 1e-3


@pytest.mark.usefixtures("sums")
def test_a_number_is_the_sum_of_its_two_parts():
    """Of 11 bits each, the last of the small part being the number's last one: times 1 nothing is
    lost.
    """
    random = np.random.default_rng(0)
    conv = Convolution((1, 4, 4, 16, 16, 1, 0), normal)
    big, small = (
        random.integers(2**10, 2**11, conv.x.shape) * 2**13,
        random.integers(-(2**10), 2**10, conv.x.shape) * 2 + 1,
    )
    conv.x = (random.choice([-1, 1], conv.x.shape) * (big + small)).astype(np.float32)
    conv.weight[...], conv.bias[...] = np.eye(16).reshape(conv.weight.shape), 0
    assert np.array_equal(forward(LAUNCHES, conv, "exact"), conv.x)


@pytest.mark.parametrize("name", ["am16", "tf32"])
def test_other_products_are_launched_as_gpu_gemm_does(name):
    assert same_launches(gpu_3xtf32, gpu_gemm, (2, 6, 6, 16, 16, 3, 1), name)
    for filters in (16, 3):
        assert not same_launches(gpu_3xtf32, gpu_gemm, (2, 6, 6, 16, filters, 3, 1), "exact")


def test_weight_gradients_too_narrow_for_a_warp_are_launched_as_gpu_gemm_does():
    def launched(rung, filters):
        return {
            launch
            for launch in convolution_launches(rung, (2, 6, 6, 8, filters, 3, 1))
            if "weight_grad" in launch[0]
        }

    assert launched(gpu_3xtf32, 8) == launched(gpu_gemm, 8)
    assert launched(gpu_3xtf32, 9) != launched(gpu_gemm, 9)


def test_the_largest_layers_use_the_large_tile():
    made = {
        (step.layer, launch.entry)
        for step in training_plan(RUNG, NETWORK).steps
        for launch in step.launches
        if set(gpu_3xtf32.LARGE.defines()) <= set(launch.defines)
    }
    for layer in ("enc2", "dec2"):
        assert {
            (layer, f"conv2d_{direction}") for direction in ("forward", "input_grad", "weight_grad")
        } <= made


COMPILED = compiled_launches(RUNG, LAUNCHES, "exact")


@needs.NVRTC
@pytest.mark.parametrize("source, defines", COMPILED, ids=str)
def test_a_gpu_can_run_it_as_the_rung_claims(source, defines):
    check_compiled(source, defines, "m16n8k8.row.col.f32.tf32", products=3)


def test_every_file_is_launched():
    assert {source for source, _ in COMPILED} == set(FILES)
