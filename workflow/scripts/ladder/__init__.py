"""Kernel Ladder's library; docs/architecture.md describes its packages."""

from ladder.machine import runtime

# Before anything imports NumPy, which reads the variable once. The returned sentence goes to the log.
RELEASED = runtime.release_blas()
