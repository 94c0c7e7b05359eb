"""The state of the program's own files: git's commit, and whether the files are those of it."""

import functools
import pathlib
import subprocess

SECONDS = 10  # that git may take


@functools.cache
def state(root):
    """{"commit": hex digits, "clean": whether all tracked files are as committed} of the repository
    `root`.

    None outside a repository of its own, or without git. As they are when a process asks for the
    first time.
    """

    def git(*arguments):
        return subprocess.run(
            ["git", "-C", str(root), *arguments],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=True,
        ).stdout.strip()

    try:
        folder, commit = git("rev-parse", "--show-toplevel", "HEAD").splitlines()
        if pathlib.Path(folder) != pathlib.Path(root).resolve():
            return None
        return {"commit": commit, "clean": not git("status", "--porcelain", "--untracked-files=no")}
    except (OSError, subprocess.SubprocessError):
        return None
