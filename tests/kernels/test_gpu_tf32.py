"""gpu_opt_v1's convolution kernels on tensor cores with TF32 operands, as gpu_tf32 launches them."""

from ladder.rungs import gpu_tf32
from tensor_checks import RoundedOperands

ONE_ARITHMETIC = True   # in the tests of gpu_opt_v1 the kernels run in both


class TestConvolutions(RoundedOperands):
    rung, name = gpu_tf32, "tf32"
    others, instruction = ("exact", "am16", "bfloat16"), "m16n8k8.row.col.f32.tf32"
