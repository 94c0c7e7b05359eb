"""gpu_bf16 with float16 operands, on every GPU with tensor cores: also on a T4 and an RTX 20, which
have no bfloat16.

float16 has 10 bits of mantissa, but only 5 of exponent: gradients are multiplied by a loss scale,
which the update divides out. Tiles are those that fit the 64 KB of shared memory of a block on
sm_75, in two stages in place of three.
"""

from ladder.rungs import gpu_3xtf32, packed_lowering
from ladder.rungs.packed_tiles import FLOAT16

RUNG = packed_lowering.rung(gpu_3xtf32.rung("float16"), FLOAT16)
