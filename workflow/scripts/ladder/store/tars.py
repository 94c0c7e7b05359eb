"""Archives in the tar format that somebody else wrote, read member by member. Standard library
only.
"""

import tarfile
from typing import Self

# bytes of a header that extends another one; tarfile's time grows with the square of its length
MOST_EXTENDED = 10_000
# What tarfile raises over an archive that is damaged or meant to be.
FAULTS = tarfile.TarError, EOFError, ValueError, OverflowError, RecursionError


class Header(tarfile.TarInfo):
    """A header of an archive that is not read if it extends another one at an absurd length."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        header = super().frombuf(buf, encoding, errors)
        if header.size > MOST_EXTENDED and not (header.isdir() or header.isreg()):
            raise tarfile.ReadError(
                f"its header {header.name[:80]!a} has more than {MOST_EXTENDED:,} bytes"
            )
        return header
