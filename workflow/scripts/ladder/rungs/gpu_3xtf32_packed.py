"""gpu_3xtf32 on gpu_tf32's packed copies with all bits of float32, whose parts, for three products,
are made in registers.

Convolutions that read no copies, and dense layers, are gpu_3xtf32's.
"""

from ladder.rungs import gpu_3xtf32, packed, packed_lowering
from ladder.rungs.packed_tiles import FLOAT32

# On one stream, unlike the other formats: weight gradients of three products, beside the input
# gradients that the next layer waits for, keep these from the multiprocessors. docs/prediction.md
# has the times of a step with one stream and with two.
RUNG = packed_lowering.rung(gpu_3xtf32.RUNG, FLOAT32, rounds=False).with_launches(
    {
        operation: packed.on_stream(0, function)
        for operation, function in packed.of_format(FLOAT32).items()
    }
)
