"""One GPU for each stage of this user where there are several, by lock files. Standard library only."""

import fcntl
import os
import pathlib
import tempfile

from ladder.machine import driver
from ladder.progress import log

VISIBLE, ORDER = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"
_held = []   # lock files, open until the process ends


def claim():
    """Restrict this process to the first free GPU and hold it until the process ends; call before CUDA is initialised.

    Returns its CUDA name, or None if there is no choice: no GPU, only one, or all of them claimed by other processes.
    """
    for name in _visible() if len(_visible()) > 1 else ():
        lock = open(pathlib.Path(tempfile.gettempdir(), f"ladder-gpu-{os.getuid()}-{name}.lock"), "w")   # noqa: SIM115 (held)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            continue
        _held.append(lock)
        if VISIBLE not in os.environ:
            os.environ[ORDER] = "PCI_BUS_ID"   # as NVML counts; numbers that the user wrote keep the user's order
        os.environ[VISIBLE] = name
        log.info("on GPU %s", name)
        return name
    return None


def _visible():
    """The CUDA names of the GPUs that this process may use."""
    if VISIBLE in os.environ:
        return [name for name in os.environ[VISIBLE].split(",") if name]
    return [str(number) for number in range(driver.installed_gpus())]
