"""gpu_bf16 with float16 operands, on every GPU with tensor cores: a T4 and an RTX 20, which have no
bfloat16, too.

float16 has 10 bits of mantissa, but only 5 of exponent: gradients are multiplied by a loss scale,
which the update divides out. Tiles are those that fit the 64 KB of shared memory of a block on
sm_75, in two stages in place of three.
"""

import functools

from ladder.rungs import gpu_3xtf32, packed_launches, packing
from ladder.rungs.gpu_bf16 import GRADIENTS_IN_PARTS, UPDATES_TOGETHER
from ladder.rungs.packed_lowering import Lowering
from ladder.rungs.packed_tiles import FLOAT16

__all__ = ["GRADIENTS_IN_PARTS", "LAUNCHES", "PATTERNS", "UPDATES_TOGETHER"]

PATTERNS = Lowering(functools.partial(packing.packing_of, number=FLOAT16)).patterns
LAUNCHES = {**gpu_3xtf32.launches("float16"), **packed_launches.of_format(FLOAT16)}
