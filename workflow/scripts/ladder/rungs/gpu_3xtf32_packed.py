"""gpu_3xtf32 on gpu_tf32's packed copies with all bits of float32, whose parts, for three products,
are made in registers.

Convolutions that read no copies, and dense layers, are gpu_3xtf32's.
"""

import functools

from ladder.rungs import gpu_3xtf32, packed_launches, packing
from ladder.rungs.gpu_tf32 import GRADIENTS_IN_PARTS, UPDATES_TOGETHER
from ladder.rungs.packed_lowering import Lowering
from ladder.rungs.packed_tiles import FLOAT32

__all__ = ["GRADIENTS_IN_PARTS", "LAUNCHES", "PATTERNS", "UPDATES_TOGETHER"]

PATTERNS = Lowering(functools.partial(packing.packing_of, number=FLOAT32), rounds=False).patterns
# On one stream, unlike the other formats: weight gradients of three products, beside the input
# gradients that the next layer waits for, keep these from the multiprocessors. docs/prediction.md
# has the times of a step with one stream and with two.
LAUNCHES = {
    **gpu_3xtf32.LAUNCHES,
    **{
        operation: packed_launches.on_stream(0, function)
        for operation, function in packed_launches.of_format(FLOAT32).items()
    },
}
