"""The sequential program: the plainest plan there is, one operation for each layer and direction, for the Numba executor."""

from ladder.rungs.patterns import LAYER_PATTERNS as PATTERNS

__all__ = ["PATTERNS"]
