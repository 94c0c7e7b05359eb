"""How long this process compiles: what Numba and NVRTC compile, and CUDA graphs that are recorded.

A stage lets everything be compiled before it looks at the clock, and keeps the seconds apart from
those of its work.
"""

import contextlib
import functools
import threading
import time

from ladder import progress
from ladder.progress import log

PATIENCE = 2  # seconds of compiling after which a person is told why nothing else happens
STEP = 0.5  # seconds between two looks at it
WORTH_A_LINE = 1  # seconds


class _Clock:
    """Seconds during which at least one thread compiles."""

    def __init__(self) -> None:
        self._lock, self._running, self._began, self._before = threading.Lock(), 0, 0.0, 0.0

    def begin(self) -> None:
        with self._lock:
            if not self._running:
                self._began = time.monotonic()
            self._running += 1

    def end(self) -> None:
        with self._lock:
            self._running -= 1
            if not self._running:
                self._before += time.monotonic() - self._began

    def seconds(self) -> float:
        with self._lock:
            return self._before + (time.monotonic() - self._began if self._running else 0.0)


_clock = _Clock()
seconds = _clock.seconds


@contextlib.contextmanager
def counted():
    """Count the time of the work inside as compiling."""
    _clock.begin()
    try:
        yield
    finally:
        _clock.end()


@functools.cache
def count_numba():
    """Count what Numba compiles from now on; what it finds in its cache is not compiled."""
    from numba.core import event  # here, because a stage without compiled loops does without Numba

    class Listener(event.Listener):
        def on_start(self, event):
            _clock.begin()

        def on_end(self, event):
            _clock.end()

    event.register("numba:compile", Listener())


@contextlib.contextmanager
def shown():
    """Show for how long the work inside has compiled, once that takes PATIENCE; log it in the end:
    'compiled in 8 s'.
    """
    before, done = seconds(), threading.Event()
    watcher = threading.Thread(target=_show, args=[before, done], daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
    if (spent := seconds() - before) >= WORTH_A_LINE:
        log.info("compiled in %s", progress.duration(spent))


def _show(before, done):
    while seconds() - before < PATIENCE:
        if done.wait(STEP):
            return
    log.info("compiling for this machine; the next run finds it in the cache")
    with progress.bar(label="compiling", bar_format="{desc}") as bar:
        while not done.wait(STEP):
            bar.set_description_str(f"compiling, {progress.duration(seconds() - before)}")
