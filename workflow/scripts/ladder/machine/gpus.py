"""Which GPU a stage computes on where there are several: one that no other stage of this user's has. Standard library only."""

import fcntl
import os
import pathlib
import tempfile

from ladder.machine import driver
from ladder.progress import log

VISIBLE = "CUDA_VISIBLE_DEVICES"
_held = []   # locks, until the process ends


def claim():
    """Leave this process one GPU, the first that is free, and hold it until it ends; before CUDA is asked for anything.

    Returns its name for CUDA, or None where there is no choice: no GPU or one, or all of several claimed already.
    """
    for name in _visible() if len(_visible()) > 1 else ():
        lock = open(pathlib.Path(tempfile.gettempdir(), f"ladder-gpu-{os.getuid()}-{name}.lock"), "w")   # noqa: SIM115 (held)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            continue
        _held.append(lock)
        os.environ |= {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", VISIBLE: name}
        log.info("on GPU %s", name)
        return name
    return None


def _visible():
    """The GPUs that this process may use, by the names they have for CUDA."""
    if VISIBLE in os.environ:
        return [name for name in os.environ[VISIBLE].split(",") if name]
    return [str(number) for number in range(driver.installed_gpus())]
