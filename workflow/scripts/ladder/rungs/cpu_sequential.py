"""The sequential program: the plainest plan there is, one operation for each layer and direction, for the Numba executor."""

from .gpu_basic import PATTERNS

__all__ = ["PATTERNS"]
