"""What is made once for all processes of a run of the tests."""

import fcntl
import os


def folder(tmp_path_factory, name, make):
    """A folder that the first process to ask for it fills by make(folder), while the others wait;
    only to be read or copied.
    """
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent  # that of all workers of the run
    path, whole = base / name, base / f"{name}.whole"
    with open(base / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not whole.exists():
            path.mkdir()
            make(path)
            whole.touch()
    return path
