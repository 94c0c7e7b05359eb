"""One logger for the terminal and the log file, progress bars that do not overwrite it, and units
for people.
"""

import contextlib
import logging
import pathlib
import sys
import time

from ladder import caller

log = logging.getLogger("ladder")


class _BesideBars(logging.Handler):
    """Writes log lines above a running progress bar instead of through it."""

    def emit(self, record: logging.LogRecord) -> None:
        import tqdm  # here, because every command imports this module

        # a terminal that was closed, or a reader that went away, ends no work
        with contextlib.suppress(OSError):
            tqdm.tqdm.write(self.format(record), file=sys.stderr)


def start_logging(file: pathlib.Path | None = None) -> None:
    """Send log lines to stderr and, with their time, to `file` (a path, truncated) where one is
    given.
    """
    logging.raiseExceptions = False  # a log that a full disk refuses is no reason for a traceback
    log.setLevel(logging.INFO)
    log.handlers.clear()
    log.propagate = False
    terminal = _BesideBars()
    if caller.fact("quiet"):  # errors too are told by the command
        terminal.addFilter(lambda record: record.levelno == logging.WARNING)
    log.addHandler(terminal)
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.open("w").close()
        # so that others can append to it too
        handler = logging.FileHandler(file, mode="a", encoding="utf-8")
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
        log.addHandler(handler)


def bar(iterable=None, label="", unit="it", **options):
    """A tqdm progress bar on stderr, shown only where stderr is a terminal; none where there is no
    tqdm.
    """
    try:
        import tqdm
    except ImportError:  # benchmarks/gpu_check.py trains with what is there
        return _NoBar()
    return tqdm.tqdm(
        iterable,
        desc=label,
        unit=unit,
        leave=False,
        disable=not sys.stderr.isatty(),
        dynamic_ncols=True,
        **options,
    )


class _NoBar(contextlib.nullcontext[None]):
    def __enter__(self):
        return self

    def update(self, count):
        pass


def duration(seconds: float) -> str:
    """Seconds in units for people: '0.4 s', '38 s', '4 min 10 s', '1 h 5 min'."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    seconds = round(seconds)
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60} s"
    return f"{seconds // 3600} h {seconds % 3600 // 60} min"


def utc(seconds: float | None = None) -> str:
    """Seconds since the epoch, by default now, as '2026-01-31T23:59:59Z'."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def size(count: float) -> str:
    """Bytes in units for people: '912 B', '3.0 MB', '1.6 GB' (powers of ten, as disks are sold)."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"
