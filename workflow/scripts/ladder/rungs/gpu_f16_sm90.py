"""gpu_bf16_sm90's kernels with float16 operands and gpu_f16's loss scale."""

from ladder.rungs import gpu_bf16_sm90, gpu_f16
from ladder.rungs.packed_tiles import FLOAT16

RUNG = gpu_bf16_sm90.rung(gpu_f16.RUNG, FLOAT16)
