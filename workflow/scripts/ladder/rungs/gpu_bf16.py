"""gpu_tf32 with bfloat16 operands, where the plan asks for them: half the shared memory, and twice the products an instruction.

Weights, activations, gradients and sums stay float32.
"""

from ladder.rungs import gpu_3xtf32
from ladder.rungs.gpu_3xtf32 import PATTERNS, UPDATES_TOGETHER

__all__ = ["LAUNCHES", "PATTERNS", "UPDATES_TOGETHER"]

LAUNCHES = gpu_3xtf32.launches("bfloat16")
