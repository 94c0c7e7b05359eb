"""Which files may hold a picture, by what the file system says of them. Standard library: planning
a run asks it too.
"""

import os
import stat

MOST_BYTES = 100_000_000  # of a picture's file


def refusal(status: os.stat_result) -> str:
    """Why a file is not read, in words; '' if it is."""
    if not stat.S_ISREG(status.st_mode):  # a pipe would block forever
        return "not a plain file"
    return too_large(status.st_size) if status.st_size else "the file is empty"


def too_large(count: int) -> str:
    """Why so many bytes are not read, in words; '' if they are."""
    return (
        f"{count / 1e6:.1f} MB large; {MOST_BYTES / 1e6:.1f} MB at most"
        if count > MOST_BYTES
        else ""
    )
