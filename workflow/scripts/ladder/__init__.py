"""Kernel Ladder's library: see the architecture section of README.md."""

from ladder.machine import runtime

# Before anything imports NumPy, which reads the variable once. The sentence is for the log.
RELEASED = runtime.release_blas()
