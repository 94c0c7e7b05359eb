"""gpu_opt_v1's convolution kernels on tensor cores with bfloat16 operands, as gpu_bf16 launches them, against rounded operands.

Tensor cores add by either model of cuda_emulator/tensor_cores.cpp.
"""

import pytest

from ladder.arithmetic.multipliers import to_bfloat16
from ladder.executors.cuda import nvrtc
from ladder.rungs import gpu_bf16, gpu_gemm
from tensor_checks import (
    CONVOLUTIONS,
    FILES,
    LARGE,
    check_compiled,
    check_rounded,
    compiled_launches,
    in_large_tiles,
    same_launches,
    sums,  # noqa: F401 (a fixture)
)

RUNG = "gpu_bf16"
ONE_ARITHMETIC = True   # in the tests of gpu_opt_v1 the kernels run in both


@pytest.mark.usefixtures("sums")
@pytest.mark.parametrize("shape, stride", CONVOLUTIONS, ids=str)
def test_products_are_those_of_rounded_operands(shape, stride):
    check_rounded(gpu_bf16.LAUNCHES, shape, stride, "bfloat16", to_bfloat16)


@pytest.mark.parametrize("shape, stride", LARGE, ids=str)
def test_products_in_large_tiles(shape, stride):
    launches = {operation: in_large_tiles(operation) for operation in gpu_bf16.LAUNCHES if operation.startswith("conv2d_")}
    check_rounded(launches, shape, stride, "bfloat16", to_bfloat16)


@pytest.mark.parametrize("name", ["exact", "am16", "tf32"])
def test_other_products_are_launched_as_gpu_gemm_does(name):
    assert same_launches(gpu_bf16, gpu_gemm, (2, 6, 6, 16, 16, 3, 1), name)
    assert not same_launches(gpu_bf16, gpu_gemm, (2, 6, 6, 16, 16, 3, 1), "bfloat16")


COMPILED = compiled_launches(RUNG, gpu_bf16.LAUNCHES, "bfloat16")


@pytest.mark.skipif(not nvrtc.installed(), reason="NVRTC is not installed (envs/kernels.txt)")
@pytest.mark.parametrize("source, defines, architecture", COMPILED, ids=str)
def test_every_gpu_from_sm_80_on_can_run_it_as_the_rung_claims(source, defines, architecture):
    check_compiled(source, defines, architecture, "m16n8k16.row.col.f32.bf16", products=1, by_matrices=True)


def test_every_file_is_launched():
    assert {source for source, _, _ in COMPILED} == set(FILES)
