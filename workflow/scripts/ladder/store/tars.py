"""Archives in the tar format that somebody else wrote, read member by member. Standard library
only.
"""

import tarfile
from typing import Self

# bytes of a header that extends another one; tarfile's time grows with the square of its length
MOST_EXTENDED = 10_000
# What tarfile raises over an archive that is damaged or meant to be.
FAULTS = tarfile.TarError, EOFError, ValueError, OverflowError, RecursionError
KINDS = {
    tarfile.DIRTYPE: "a folder",
    tarfile.SYMTYPE: "a symbolic link",
    tarfile.LNKTYPE: "a hard link",
    tarfile.FIFOTYPE: "a FIFO",
    tarfile.CHRTYPE: "a device",
    tarfile.BLKTYPE: "a device",
}


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


def kind(member: tarfile.TarInfo) -> str:
    """What a member is in words, '' for a plain file."""
    if member.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and not member.issparse():
        return ""
    return KINDS.get(member.type, "no plain file")
