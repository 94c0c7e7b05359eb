"""The sequential program, without fusion: one operation per layer and direction, for the Numba
executor.
"""

from ladder.rungs.patterns import LAYER_PATTERNS as PATTERNS

__all__ = ["PATTERNS"]
