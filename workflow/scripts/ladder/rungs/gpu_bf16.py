"""gpu_tf32 with bfloat16 operands, where the plan asks for them: twice the products an instruction, from half the bytes.

The operands of a convolution are rounded once, to packed copies in memory, parts of which are copied to shared memory in stages
while others are multiplied; behind an upsampling they are the smaller image and phase weights. Where the taps of a window share
many pixels, a block keeps these in shared memory for all taps. The launch that updates a weight packs it, and an
image or a gradient that nothing else reads is packed by the convolution that makes it, pooled and masked. Convolutions whose
channels do not fit (`packing_of`), and dense layers, round operands when they load them, as gpu_tf32 does. Weights, other
activations and gradients, and sums stay float32.
"""

from ladder.rungs import gpu_3xtf32, packed_launches
from ladder.rungs.gpu_3xtf32 import UPDATES_TOGETHER
from ladder.rungs.packed_lowering import Lowering
from ladder.rungs.packed_tiles import BFLOAT16
from ladder.rungs.packing import packing_of

__all__ = ["GRADIENTS_IN_PARTS", "LAUNCHES", "PATTERNS", "UPDATES_TOGETHER"]

GRADIENTS_IN_PARTS = True   # see plan.training_plan
PATTERNS = Lowering(packing_of).patterns
LAUNCHES = {**gpu_3xtf32.launches("bfloat16"), **packed_launches.of_format(BFLOAT16)}
