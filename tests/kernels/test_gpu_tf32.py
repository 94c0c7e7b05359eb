"""gpu_opt_v1's convolution kernels on tensor cores with one TF32 product, as gpu_tf32 launches them, against rounded operands.

Tensor cores add by either model of cuda_emulator/tensor_cores.cpp.
"""

import numpy as np
import pytest

from kernel_checks import normal
from ladder.arithmetic.multipliers import to_tf32
from ladder.executors.cuda import nvrtc
from ladder.rungs import gpu_gemm, gpu_tf32
from rung_checks import Convolution
from tensor_checks import (
    ARCHITECTURES,
    CONVOLUTIONS,
    FILES,
    check_compiled,
    compiled_launches,
    directions,
    same_launches,
    sums,  # noqa: F401 (a fixture)
)

RUNG = "gpu_tf32"
ONE_ARITHMETIC = True   # in the tests of gpu_opt_v1 the kernels run in both
ORDER = 1e-5   # of the largest value: what the order and the rounding of sums change, 2^-11 of what the operands' rounding does


@pytest.mark.usefixtures("sums")
@pytest.mark.parametrize("shape, stride", CONVOLUTIONS, ids=str)
def test_products_are_those_of_operands_rounded_to_tf32(shape, stride):
    conv, rounded = (Convolution(shape, normal, stride) for _ in range(2))
    rounded.x, rounded.weight, rounded.dy = (to_tf32(value) for value in (conv.x, conv.weight, conv.dy))
    wanted = (rounded.forward(rounded.x, rounded.weight, conv.bias), rounded.input_grad(rounded.dy, rounded.weight),
              rounded.weight_grad(rounded.x, rounded.dy), conv.dy.astype(float).sum(axis=(0, 1, 2)))   # a sum, no product
    for found, value in zip(directions(gpu_tf32.LAUNCHES, conv, "tf32"), wanted, strict=True):
        assert np.abs(found - value).max() <= ORDER * np.abs(value).max()


@pytest.mark.parametrize("name", ["exact", "am16", "bfloat16"])
def test_other_products_are_not_those_of_tf32(name):
    assert same_launches(gpu_tf32, gpu_gemm, (2, 6, 6, 16, 16, 3, 1), name)
    assert not same_launches(gpu_tf32, gpu_gemm, (2, 6, 6, 16, 16, 3, 1), "tf32")


COMPILED = compiled_launches(RUNG, gpu_tf32)


@pytest.mark.skipif(not nvrtc.installed(), reason="NVRTC is not installed (envs/kernels.txt)")
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("source, defines", COMPILED, ids=str)
def test_every_gpu_from_sm_80_on_can_run_it_as_the_rung_claims(source, defines, architecture):
    check_compiled(source, defines, architecture, "m16n8k8.row.col.f32.tf32", products=1)


def test_every_file_is_launched():
    assert {source for source, _ in COMPILED} == set(FILES)
