"""gpu_opt_v1's convolution kernels on tensor cores with bfloat16 operands, as gpu_bf16 launches them, against rounded operands.

Tensor cores add by either model of cuda_emulator/tensor_cores.cpp.
"""

from ladder.arithmetic.multipliers import to_bfloat16
from ladder.rungs import gpu_bf16
from tensor_checks import RoundedOperands, sums  # noqa: F401 (sums is a fixture)

RUNG = "gpu_bf16"
ONE_ARITHMETIC = True   # in the tests of gpu_opt_v1 the kernels run in both


class TestConvolutions(RoundedOperands):
    rung, name, rounded = gpu_bf16, "bfloat16", staticmethod(to_bfloat16)
    others, instruction = ("exact", "am16", "tf32"), "m16n8k16.row.col.f32.bf16"
    by_matrices = True
