"""gpu_opt_v1's convolution kernels on tensor cores, as gpu_tensor launches them, against their definitions in float64.

Tensor cores add by either model of cuda_emulator/tensor_cores.cpp.
"""

import dataclasses
import itertools
import re

import numpy as np
import pytest

import cuda_emulator
from compiled import compiled
from cuda_emulator import KERNELS
from kernel_checks import normal, poisoned
from ladder.arithmetic.multipliers import MULTIPLIERS, kernel_defines, to_tf32
from ladder.executors.cuda import nvrtc
from ladder.network import networks
from ladder.rungs import gpu_gemm, gpu_tensor
from rung_checks import (
    Convolution,
    check_forward,
    check_input_grad,
    check_weight_grad,
    convolution_launches,
    kernel_folder,
    launches_of,
    run_step,
    training_plan,
)

RUNG = "gpu_tensor"
ONE_ARITHMETIC = True   # in the tests of gpu_opt_v1 the kernels run in both
NETWORK = networks.build("autoencoder")
# Of three products of 8 terms, each term may be cut at the last bit of the largest one, twice what rounding it would cost, and
# the sum again; two roundings are those of the operands' small parts.
ROUNDINGS = 3 * 2 * 10 // 8 + 2

# (batch, height, width, channels, filters, kernel, padding), stride
CONVOLUTIONS = [
    ((1, 1, 1, 1, 9, 1, 0), 1),
    ((2, 7, 9, 3, 10, 3, 1), 2),
    ((2, 8, 7, 4, 20, 3, 1), 2),
    ((1, 11, 10, 5, 33, 7, 3), 2),
    ((1, 9, 12, 12, 40, 1, 0), 2),
    ((1, 11, 8, 16, 70, 2, 0), 3),
    ((2, 6, 5, 12, 9, 5, 2), 1),
    ((1, 9, 8, 64, 64, 1, 0), 1),
]
LARGE = [((2, 11, 9, 20, 132, 3, 1), 1), ((1, 13, 12, 132, 12, 2, 0), 1)]


@pytest.fixture(params=cuda_emulator.TENSOR_SUMS)
def sums(request, monkeypatch):
    monkeypatch.setattr(cuda_emulator, "tensor_sums", request.param)


def large(*_):
    return gpu_tensor.LARGE


def in_large_tiles(launches):
    return lambda step, build: launches(step, build, large)


@pytest.mark.usefixtures("sums")
@pytest.mark.parametrize("shape, stride", CONVOLUTIONS, ids=str)
def test_conv2d_of_any_stride(shape, stride):
    check_forward(gpu_tensor.conv2d_forward, shape, stride, ROUNDINGS)
    check_input_grad(gpu_tensor.conv2d_input_grad, shape, stride, ROUNDINGS)
    check_weight_grad(gpu_tensor.conv2d_weight_grad, shape, stride, ROUNDINGS)


@pytest.mark.parametrize("shape, stride", LARGE, ids=str)
def test_conv2d_in_large_tiles(shape, stride):
    check_forward(in_large_tiles(gpu_tensor.conv2d_forward), shape, stride, ROUNDINGS)
    check_input_grad(in_large_tiles(gpu_tensor.conv2d_input_grad), shape, stride, ROUNDINGS)
    check_weight_grad(in_large_tiles(gpu_tensor.conv2d_weight_grad), shape, stride, ROUNDINGS)


@pytest.mark.usefixtures("sums")
def test_three_products_are_a_thousand_times_as_accurate_as_one():
    conv = Convolution((2, 6, 6, 16, 16, 3, 1), normal)
    exact = conv.forward(conv.x, conv.weight, conv.bias)
    errors = {name: np.abs(forward(conv, name) - exact).max() / np.abs(exact).max() for name in ("exact", "tf32")}
    assert errors["exact"] < 1e-6 and 1e-4 < errors["tf32"] < 1e-3


@pytest.mark.usefixtures("sums")
def test_the_multiplier_tf32_is_the_product_of_rounded_operands():
    """But for the rounding of sums, which is 2^-11 of the operands' and less: another way of rounding them would show."""
    conv, rounded = (Convolution((2, 6, 6, 16, 16, 3, 1), normal) for _ in range(2))
    rounded.x, rounded.weight, rounded.dy = (to_tf32(value) for value in (conv.x, conv.weight, conv.dy))
    y = forward(conv, "tf32")
    assert np.abs(y - rounded.forward(rounded.x, rounded.weight, conv.bias)).max() < 1e-5 * np.abs(y).max()

    dx = poisoned(conv.x.shape)
    run_step(multiplied(gpu_tensor.conv2d_input_grad, "tf32"), {"dy": conv.dy, "weight": conv.weight}, {"dx": dx}, padding=1,
             stride=1)
    assert np.abs(dx - rounded.input_grad(rounded.dy, rounded.weight)).max() < 1e-5 * np.abs(dx).max()

    dweight, dbias = poisoned(conv.weight.shape), poisoned(conv.bias.shape)
    run_step(multiplied(gpu_tensor.conv2d_weight_grad, "tf32"), {"x": conv.x, "dy": conv.dy},
             {"dweight": dweight, "dbias": dbias}, padding=1, stride=1)
    assert np.abs(dweight - rounded.weight_grad(rounded.x, rounded.dy)).max() < 1e-5 * np.abs(dweight).max()
    assert np.abs(dbias - conv.dy.astype(float).sum(axis=(0, 1, 2))).max() < 1e-5 * np.abs(dbias).max()   # a sum, no product


def multiplied(launches, name):
    """The launches with the definitions that a plan adds for a multiplier."""
    defines = kernel_defines(MULTIPLIERS[name])

    def launch(step, build):
        step = dataclasses.replace(step, attributes={**step.attributes, "multiplier": MULTIPLIERS[name]})
        return tuple(dataclasses.replace(one, defines=(*one.defines, *defines)) for one in launches(step, build))

    return launch


def forward(conv, name):
    y = poisoned(conv.output)
    run_step(multiplied(gpu_tensor.conv2d_forward, name), {"x": conv.x, "weight": conv.weight, "bias": conv.bias}, {"y": y},
             padding=conv.padding, stride=conv.stride, relu=False)
    return y


@pytest.mark.parametrize("shape, name", [((2, 6, 6, 16, 16, 3, 1), "am16"), ((2, 6, 6, 8, 3, 3, 1), "exact")])
def test_other_multipliers_and_narrow_layers_are_launched_as_gpu_gemm_does(shape, name):
    conv = Convolution(shape, normal)
    arrays = {"x": conv.x, "weight": conv.weight, "bias": conv.bias}, {"y": poisoned(conv.output)}
    made, wanted = (run_step(multiplied(rung.conv2d_forward, name), *arrays, ("forward",), padding=1, stride=1, relu=False)
                    for rung in (gpu_tensor, gpu_gemm))
    assert [launch.defines for launch in made] == [launch.defines for launch in wanted]


def test_the_largest_layers_use_the_large_tile():
    made = {(step.layer, launch.entry) for step in training_plan(RUNG, NETWORK).steps for launch in step.launches
            if {"TILE_M=128", "WARP_M=32"} <= set(launch.defines)}
    for layer in ("enc2", "dec2"):
        assert {(layer, f"conv2d_{direction}") for direction in ("forward", "input_grad", "weight_grad")} <= made


FILES = sorted(f"{path.parent.name}/{path.name}" for path in (KERNELS / kernel_folder(RUNG)).glob("conv2d_*.cu"))
LAUNCHES = sorted(launch for launch in {
    *launches_of(training_plan(RUNG, NETWORK), RUNG), *itertools.chain(*(convolution_launches(gpu_tensor, *case)
                                                                         for case in CONVOLUTIONS))}
    if any(define.startswith("WARP_M") for define in launch[1]))


@pytest.mark.skipif(not nvrtc.installed(), reason="NVRTC is not installed (envs/kernels.txt)")
@pytest.mark.parametrize("multiplier", gpu_tensor.ON_TENSOR_CORES)
@pytest.mark.parametrize("architecture", [one for one in nvrtc.ARCHITECTURES if one != "sm_75"])
@pytest.mark.parametrize("source, defines", LAUNCHES, ids=str)
def test_every_gpu_from_sm_80_on_can_run_it_as_the_rung_claims(source, defines, architecture, multiplier):
    made = compiled(source, (*defines, f"MULTIPLIER={multiplier}"), architecture)
    sizes = dict(re.findall(r"(\w+)=(\d+)", " ".join(defines)))
    fragments = int(sizes["WARP_M"]) // 16 * (int(sizes["WARP_N"]) // 8)
    for name, resources in made.kernels.items():
        assert resources.spill_bytes == resources.stack_bytes == 0, name
        assert resources.registers * resources.most_threads <= 32768, f"{name}: two blocks of 256 threads must fit"
    assert made.ptx.count("mma.sync.aligned.m16n8k8.row.col.f32.tf32") == fragments * (3 if multiplier == "exact" else 1)


def test_every_file_is_launched():
    assert {source for source, _ in LAUNCHES} == set(FILES)
