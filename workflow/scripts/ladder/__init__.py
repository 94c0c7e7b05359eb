"""Kernel Ladder's library; docs/architecture.md describes its packages."""

from ladder.machine import runtime

__version__ = "0.1.0"  # of the program; no part of an artifact's version

# Before anything imports NumPy, which reads the variable once. The returned sentence goes to the
# log.
RELEASED = runtime.release_blas()
