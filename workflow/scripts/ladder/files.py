"""Files that a user names: only plain ones are read, and only up to a size."""

import pathlib

from ladder.errors import UserError, one_line

MOST_BYTES = 2 * 10**9  # twenty times the weights of ResNet-50
MOST_SHOWN = 150  # characters of a path in a message


def read(path: str | pathlib.Path, most: int = MOST_BYTES) -> bytes:
    """The bytes of the file at `path`; raises UserError if it cannot be read, is a pipe or device,
    or has more than `most`.
    """
    path = pathlib.Path(path)
    try:
        # a pipe would be waited for, a device never ends
        if path.exists() and not path.is_file() and not path.is_dir():
            raise UserError(f"cannot read {shown(path)}: it is not a plain file")
        if (held := path.stat().st_size) > most:
            raise UserError(f"cannot read {shown(path)}: it has {held:,} bytes, {most:,} at most")
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {shown(path)}: {error.strerror}") from error
    except ValueError as error:  # a name with a zero byte or a lone surrogate
        raise UserError(f"cannot read {shown(path)}: no file can have this name") from error


def shown(path: object) -> str:
    """A path as one line of printable text, also if it is not valid UTF-8, with its middle cut out
    where it is long.
    """
    return one_line(path, MOST_SHOWN)
