"""gpu_3xtf32 with one product of TF32 operands in place of three, where the plan asks for TF32."""

from ladder.rungs import gpu_3xtf32
from ladder.rungs.gpu_3xtf32 import PATTERNS, UPDATES_TOGETHER

__all__ = ["LAUNCHES", "PATTERNS", "UPDATES_TOGETHER"]

LAUNCHES = gpu_3xtf32.launches("tf32")
