"""Kernel Ladder's library; docs/architecture.md describes its packages."""

import gc

from ladder.machine import runtime

# Objects between two searches for cycles: after 700, the default, all that is being imported would
# be looked through again and again, a tenth of a start.
gc.set_threshold(50_000)
__version__ = "0.1.0"  # of the program; no part of an artifact's version

# Before anything imports NumPy, which reads the variable once. The returned sentence goes to the
# log.
RELEASED = runtime.release_blas()
