"""Work in a process of its own: what goes wrong there, a hang and a broken GPU included, costs this
process alone.

    python worker.py FILE_DESCRIPTOR MODULE

is the other side: it calls functions of one module, one after another, as the parent asks, which
sends (name of a function, arguments) and receives ("done", result) or ("failed", reason in one
line). Results are sent as JSON, so that the parent needs none of the module's libraries. An
exception ends the process: after a CUDA error nothing else in it can be trusted. Standard library
only, because any Python may run it.
"""

import importlib
import json
import multiprocessing.connection
import os
import pathlib
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
from typing import Any

ENDING_SECONDS = 10  # in which a process that was killed is gone
# exceptions whose message needs no type before it, and those derived from them
FOR_USERS = {"UserError", "Unavailable"}


class Failed(Exception):
    """A call that gave no result; the message is the reason in one line. timed_out: it was ended at
    its time limit.
    """

    def __init__(self, reason: str, timed_out: bool = False) -> None:
        super().__init__(reason)
        self.timed_out = timed_out


class Worker:
    """A process in which functions of a module are called.

    python: its interpreter; folder: where it finds the module; log: a file that gets what it
    prints.
    """

    def __init__(self, python: str, module: str, folder: pathlib.Path, log: pathlib.Path) -> None:
        self._where = f"; {pathlib.Path(log).name} has what it printed"
        here, there = socket.socketpair()
        self._pipe = multiprocessing.connection.Connection(here.detach())
        path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
        try:
            with there, open(log, "ab") as output:
                self._process = subprocess.Popen(
                    [python, __file__, str(there.fileno()), module],
                    pass_fds=[there.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                    env=os.environ | {"PYTHONPATH": path},
                )
        except OSError as error:
            raise Failed(f"{python} cannot be started: {error.strerror}") from None

    def call(self, name: str, *arguments: Any, limit: float) -> Any:
        """The result of a function after at most `limit` seconds; raises Failed. After that the
        process is gone.
        """
        try:
            self._pipe.send_bytes(json.dumps([name, arguments]).encode())
            if not self._pipe.poll(limit):
                raise Failed(f"was ended after {limit:.0f} s", timed_out=True)
            outcome, value = json.loads(self._pipe.recv_bytes())
        except Failed:
            self.stop()
            raise
        except (EOFError, OSError):
            raise Failed(self._death()) from None
        if outcome == "failed":
            self.stop()
            raise Failed(value)
        return value

    def stop(self) -> None:
        """End the process and those that it has started. One that waits for a hung GPU cannot end:
        it is left behind.
        """
        self._pipe.close()
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(ENDING_SECONDS)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            pass

    def _death(self) -> str:
        """How the process ended by itself."""
        try:
            status: int | None = self._process.wait(ENDING_SECONDS)
        except subprocess.TimeoutExpired:
            status = None
        self.stop()
        if status is not None and status < 0:
            return f"the process was ended by {signal.Signals(-status).name}"
        return f"the process ended with status {status}{self._where}"


def main(descriptor: str, module: str) -> None:
    pipe = multiprocessing.connection.Connection(int(descriptor))
    threading.Thread(target=_end_with_the_parent, args=[int(descriptor)], daemon=True).start()
    while True:
        try:
            name, arguments = json.loads(pipe.recv_bytes())
        except EOFError:  # the parent has closed its end
            return
        try:
            value = getattr(importlib.import_module(module), name)(*arguments)
            answer = json.dumps(["done", value], default=float)
        except BaseException as error:  # SystemExit too: the parent must hear of everything
            traceback.print_exc()
            pipe.send_bytes(json.dumps(["failed", one_line(error)]).encode())
            sys.stderr.flush()
            os._exit(1)  # without CUDA's own end, which may hang after an error
        pipe.send_bytes(answer.encode())


def _end_with_the_parent(descriptor: int) -> None:
    """End this process, whatever it computes, when the other end of the socket is closed; the
    parent may have been killed.
    """
    poll = select.poll()
    poll.register(descriptor, 0)  # for no event but that
    poll.poll()
    os._exit(0)


def one_line(error: BaseException) -> str:
    """An exception as one line: its message alone where it is meant for the user, else its type and
    at most 200 characters.
    """
    text, most = " ".join(str(error).split()), 600
    if FOR_USERS.isdisjoint(kind.__name__ for kind in type(error).__mro__):
        text, most = f"{type(error).__name__}: {text}" if text else type(error).__name__, 200
    return text if len(text) <= most else f"{text[: most - 1]}…"


if __name__ == "__main__":
    del sys.path[0]  # this folder, whose modules are no libraries
    main(*sys.argv[1:])
