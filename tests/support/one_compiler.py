"""Numba compiles in one process at a time: the others then find in its cache what they would have
compiled too.
"""

import fcntl
import os
import threading

from ladder.sources import ROOT


def install():
    """Lock what Numba compiles, or looks for in its cache, against all other processes that call
    this, from now on.
    """
    from numba.core import event

    class Lock(event.Listener):
        def __init__(self):
            # below which the cache lies
            self._folder = os.open(ROOT / "workflow/scripts/ladder", os.O_RDONLY)
            self._inside, self._guard = 0, threading.Lock()

        def on_start(self, event):
            with self._guard:
                if not self._inside:
                    fcntl.flock(self._folder, fcntl.LOCK_EX)
                self._inside += 1

        def on_end(self, event):
            with self._guard:
                self._inside -= 1
                if not self._inside:
                    fcntl.flock(self._folder, fcntl.LOCK_UN)

    event.register("numba:compiler_lock", Lock())
