"""gpu_tf32 with bfloat16 operands, where the plan asks for them: twice the products an instruction,
from half the bytes.

The kernels are gpu_tf32's, with 64 numbers in a row of shared memory in place of 32.
"""

from ladder.rungs import gpu_3xtf32, packed_lowering
from ladder.rungs.packed_tiles import BFLOAT16

RUNG = packed_lowering.rung(gpu_3xtf32.rung("bfloat16"), BFLOAT16)
