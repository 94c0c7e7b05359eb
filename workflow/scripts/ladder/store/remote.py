"""Files of another machine by ssh: what a command writes there as tar, read as a stream. Nothing of
it is trusted.
"""

import contextlib
import os
import select
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterable, Iterator
from typing import IO, cast

from ladder.errors import UserError
from ladder.progress import duration
from ladder.store import tars

SILENCE = 120  # seconds for the next record of a tar, 10 kB; a password can be typed in them
ENDING = 10  # seconds for ssh to end after all has come
READS_AT_END = 10  # tarfile reads on to the end of a member, wherever its header says that it is
Member = tuple[tarfile.TarInfo, IO[bytes] | None]


@contextlib.contextmanager
def members(
    host: str, command: str, most: int, names: Iterable[str] = ()
) -> Iterator[Iterator[Member]]:
    """Context manager: an iterator over the members of the tar that a command on another machine
    writes.

    A member is (tarfile.TarInfo, file): the file, None unless it is a plain one, is to be read
    before the next member. most: bytes of the whole tar; names: lines that the command reads. What
    goes wrong there is raised as UserError after all members that came before: ssh or the command
    fails, nothing comes for SILENCE seconds, more comes than `most`, or it is no tar.
    """
    # a pipe that nobody reads would stop ssh
    with tempfile.TemporaryFile() as errors, tempfile.TemporaryFile() as asked:
        asked.write("".join(f"{name}\n" for name in names).encode())
        asked.seek(0)
        try:
            process = subprocess.Popen(
                ["ssh", "--", host, command],
                bufsize=0,
                stdin=asked,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        except OSError as error:
            raise UserError(f"from: ssh cannot be started here: {error.strerror}") from None
        output = cast(IO[bytes], process.stdout)  # it is a pipe
        fault, status = "", 0
        try:
            yield _members(_Stream(output, most))
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = process.wait(ENDING)
        except (*tars.FAULTS, _Fault) as error:
            fault = str(error) or type(error).__name__
        finally:
            process.kill()
            output.close()
            process.wait()
        if fault or status:
            errors.seek(0)
            said = errors.read().decode("utf-8", "replace").strip().splitlines()
            raise UserError(f"from: {host}: {said[-1] if said else fault or 'ssh failed'}")


def _members(stream: "_Stream") -> Iterator[Member]:
    file = cast(IO[bytes], stream)  # of which tarfile reads alone
    with tarfile.open(fileobj=file, mode="r|", tarinfo=tars.Header) as archive:
        for member in archive:
            # tarfile would look for its end, beyond that of the stream too
            if not 0 <= member.size <= stream.left:
                raise _Fault(
                    f"{member.name[:80]!a} has {member.size} bytes, more than were asked for"
                )
            yield member, None if tars.kind(member) else archive.extractfile(member)
    while stream.read(tarfile.RECORDSIZE):  # what fills up the last record
        pass


class _Fault(Exception):
    """What another machine sends is not what it was asked for."""


class _Stream:
    """What a process writes, for tarfile; raises _Fault where it does not come, or more than `most`
    bytes.

    left: how many bytes may still come.
    """

    def __init__(self, file: IO[bytes], most: int) -> None:
        self._descriptor, self.left, self._reads_at_end = file.fileno(), most, 0

    def read(self, count: int) -> bytes:
        data, end = b"", time.monotonic() + SILENCE
        while len(data) < count:
            if not select.select([self._descriptor], [], [], max(0.0, end - time.monotonic()))[0]:
                raise _Fault(f"nothing came for {duration(SILENCE)}")
            piece = os.read(self._descriptor, count - len(data))
            if not piece:
                break
            data += piece
        self.left -= len(data)
        self._reads_at_end += not data
        if self.left < 0:
            raise _Fault("more came than was asked for")
        if self._reads_at_end > READS_AT_END:
            raise _Fault("it ended early")
        return data
