"""Locks of open files, which end with the process. Standard library only."""

import fcntl
import os
import pathlib

from ladder.errors import UserError


def take(descriptor: int, path: str | os.PathLike[str], wait: bool = True) -> bool:
    """Lock an open file, that of `path`, until it is closed; False if another process holds the
    lock and `wait` is false.

    Raises UserError where the file system has no locks, such as NFS without lockd or Lustre without
    `flock`.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError as error:
        raise UserError(
            f"{pathlib.Path(path).absolute().parent} is on a file system without locks ({error.strerror}), which "
            "keep two commands from writing one file; use a place on a local disk, or mount this one with locks"
        ) from error
    return True
