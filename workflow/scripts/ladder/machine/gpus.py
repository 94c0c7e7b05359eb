"""One GPU for each stage of this user where there are several, by lock files. Standard library
only.
"""

import errno
import os
import pathlib
import stat
import tempfile
import urllib.parse

from ladder.errors import UserError
from ladder.machine import driver, locks
from ladder.progress import log

VISIBLE, ORDER = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"
LONGEST_NAME = 200  # of a lock file, in characters
_held: list[int] = []  # descriptors of lock files, open until the process ends


def claim() -> str | None:
    """Restrict this process to the first free GPU and hold it until the process ends; call before
    CUDA is initialised.

    Returns its CUDA name, or None if there is no choice: no GPU, only one, or all of them claimed
    by other processes; with a warning also where no lock can be made.
    """
    names = _visible()
    try:
        name = next(filter(_lock, names), None) if len(names) > 1 else None
    except OSError as error:
        log.warning(
            "GPUs are not shared out among commands: %s is no folder for their locks (%s); move it away",
            _folder(),
            error.strerror,
        )
        return None
    except UserError as error:
        log.warning("GPUs are not shared out among commands: %s", error)
        return None
    if name is not None:
        if VISIBLE not in os.environ:
            # as NVML counts; numbers that the user wrote keep the user's order
            os.environ[ORDER] = "PCI_BUS_ID"
        os.environ[VISIBLE] = name
        log.info("on GPU %s", name)
    return name


def _visible() -> list[str]:
    """The CUDA names of the GPUs that this process may use."""
    if VISIBLE in os.environ:
        return [name for name in os.environ[VISIBLE].split(",") if name]
    return [str(number) for number in range(driver.installed_gpus())]


def _lock(name: str) -> bool:
    """Whether this process holds the GPU's lock from now on. Raises OSError where there is no place
    for locks.
    """
    # an older name of a MIG device has slashes
    path = _folder() / f"{urllib.parse.quote(name, safe='')[:LONGEST_NAME]}.lock"
    path.parent.mkdir(mode=0o700, exist_ok=True)
    place = path.parent.lstat()
    if (
        not stat.S_ISDIR(place.st_mode)
        or place.st_uid != os.getuid()
        or place.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    ):
        raise PermissionError(errno.EPERM, "it is somebody else's, a link, or writable for others")
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    if not locks.take(lock, path, wait=False):
        os.close(lock)
        return False
    _held.append(lock)
    return True


def _folder() -> pathlib.Path:
    """Of locks: on this machine, as a home folder may be one of several machines."""
    return pathlib.Path(tempfile.gettempdir(), f"kernel-ladder-{os.getuid()}")
