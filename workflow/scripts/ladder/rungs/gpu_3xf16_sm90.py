"""float32 as the sum of two float16, by gpu_bf16_sm90's kernels, for Hopper alone: three products
of these are as exact as three of TF32, at twice their rate.

A half ends at 65504 and has its last bits from 2^-14 on, so that numbers are multiplied by a power
of two for each kind of tensor (packed_tiles.EXPONENTS), by which the sums are divided. What exceeds
a half all the same becomes a NaN, which training and inference notice: they repeat with smaller
powers (plan.exponents). Convolutions that are not in channel blocks are gpu_3xtf32_packed's.
"""

import dataclasses

from ladder.rungs import gpu_3xtf32, gpu_bf16_sm90, packed_lowering
from ladder.rungs.packed_tiles import FLOAT32, HALVES, SCALES

_BELOW = packed_lowering.rung(
    gpu_3xtf32.RUNG,
    dataclasses.replace(FLOAT32, defines=(*FLOAT32.defines, *SCALES)),
    rounds=False,
)
RUNG = gpu_bf16_sm90.rung(_BELOW, FLOAT32, HALVES)
