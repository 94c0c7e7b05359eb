"""gpu_tf32 with bfloat16 operands, where the plan asks for them: twice the products an instruction,
from half the bytes.

The kernels are gpu_tf32's, with 64 numbers in a row of shared memory in place of 32.
"""

from ladder.rungs import gpu_3xtf32, packed_launches
from ladder.rungs.gpu_tf32 import GRADIENTS_IN_PARTS, UPDATES_TOGETHER
from ladder.rungs.packed_lowering import Lowering
from ladder.rungs.packed_tiles import BFLOAT16
from ladder.rungs.packing import packing_of

__all__ = ["GRADIENTS_IN_PARTS", "LAUNCHES", "PATTERNS", "UPDATES_TOGETHER"]

PATTERNS = Lowering(packing_of).patterns
LAUNCHES = {**gpu_3xtf32.launches("bfloat16"), **packed_launches.of_format(BFLOAT16)}
