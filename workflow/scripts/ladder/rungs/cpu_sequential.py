"""The sequential program, without fusion: one operation per layer and direction, for the Numba
executor.
"""

from ladder.rungs.interface import Implementation
from ladder.rungs.patterns import LAYER_PATTERNS

RUNG = Implementation(LAYER_PATTERNS)
