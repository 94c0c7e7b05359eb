"""Names of files that a process needs only while it runs, which tell others when nobody needs them
any more.
"""

import os
import pathlib
import platform


def owner() -> str:
    """The end of such a name: this machine and this process."""
    return f"{platform.node()}.{os.getpid()}"


def is_left(path: pathlib.Path) -> bool:
    """True if the name ends in the owner(), or in that and .tmp, of a process of this machine that
    has ended.
    """
    name, _, process = path.name.removesuffix(".tmp").rpartition(".")
    return name.endswith(f".{platform.node()}") and process.isdecimal() and not _runs(int(process))


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except PermissionError:  # it is somebody else's
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return True
