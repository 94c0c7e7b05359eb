"""gpu_opt_v1's convolution kernels as gpu_gemm launches them, against their definitions in float64,
at any kernel size, stride and padding.
"""

import functools
import itertools

import pytest

import backends
import needs
import operation_cases
from compiled import without_spills
from emulated import KERNELS, load
from ladder.executors.cuda import nvrtc
from ladder.network import networks
from ladder.rungs import gpu_gemm
from rung_checks import convolution_launches, kernel_folder, launches_of, training_plan

RUNG = "gpu_gemm"
ONE_ARITHMETIC = True  # in the tests of gpu_opt_v1 the kernels run in both
NETWORK = networks.build("autoencoder")

LARGE = [
    ((2, 11, 9, 20, 132, 3, 1), 1),
    ((1, 13, 12, 132, 4, 2, 0), 1),
    ((1, 17, 18, 4, 8, 3, 1), 2),
]


@pytest.mark.parametrize("shape, stride", LARGE, ids=str)
def test_conv2d_in_large_tiles(shape, stride):
    launches = {
        operation: functools.partial(
            gpu_gemm.RUNG.launches[operation], tile_for=lambda *_: gpu_gemm.LARGE
        )
        for operation in ("conv2d_forward", "conv2d_input_grad", "conv2d_weight_grad")
    }
    backends.check_convolution(backends.Rung(RUNG, launches=launches), shape, stride)


def test_the_largest_layers_use_the_large_tile():
    made = {
        (step.layer, launch.entry)
        for step in training_plan(RUNG, NETWORK).steps
        for launch in step.launches
        if "TILE_M=128" in launch.defines
    }
    for layer in ("enc2", "dec2"):
        assert {
            (layer, f"conv2d_{direction}") for direction in ("forward", "input_grad", "weight_grad")
        } <= made


def test_no_convolution_of_the_autoencoder_falls_back():
    for step in training_plan(RUNG, NETWORK).steps:
        if step.operation.startswith("conv2d"):
            assert all(launch.source in FILES for launch in step.launches), step.operation


FILES = sorted(
    f"{path.parent.name}/{path.name}"
    for path in (KERNELS / kernel_folder(RUNG)).glob("conv2d_*.cu")
)
LAUNCHES = sorted(
    {
        *(
            launch
            for launch in launches_of(training_plan(RUNG, NETWORK), RUNG)
            if launch[0] in FILES
        ),
        *itertools.chain(
            *(convolution_launches(gpu_gemm, *case) for case in operation_cases.CONVOLUTIONS)
        ),
    }
)


@needs.NVRTC
@pytest.mark.parametrize("source, defines", LAUNCHES, ids=str)
def test_a_gpu_can_run_it_as_the_rung_claims(source, defines):
    made = without_spills(source, defines, nvrtc.ARCHITECTURES[-1], 32768)
    for name, resources in made.kernels.items():
        loads, stores = nvrtc.wide_accesses(made.ptx, name)
        assert stores > 0
        if "WIDE=1" in defines or name == "conv2d_add_splits":
            assert loads > 0
        assert name == "conv2d_add_splits" or resources.static_shared_bytes > 0
    assert "ld.shared.v4.f32" in made.ptx


def test_every_file_is_launched():
    assert {source for source, _ in LAUNCHES} == set(FILES)
    assert {source for source, defines in LAUNCHES if "TILE_M=128" in defines} == set(FILES)
    assert all(load(KERNELS / file).names for file in FILES)
