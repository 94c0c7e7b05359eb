"""Processes that measure on behalf of gpu.py: what goes wrong in one of them, a hang included, costs this one alone."""

import json
import multiprocessing.connection
import os
import pathlib
import signal
import socket
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
ENDING_SECONDS = 10   # in which a process that was killed is gone


class Failed(Exception):
    """A call that gave no result; the message is the reason in one line. timed_out: it was ended at its time limit."""

    def __init__(self, reason, timed_out=False):
        super().__init__(reason)
        self.timed_out = timed_out


class Worker:
    """A process in which functions of a module are called; python: its interpreter; log: a file that gets what it prints."""

    def __init__(self, python, module, log):
        here, there = socket.socketpair()
        self._pipe = multiprocessing.connection.Connection(here.detach())
        try:
            with there, open(log, "ab") as output:
                self._process = subprocess.Popen(
                    [python, str(HERE / "worker.py"), str(there.fileno()), module], pass_fds=[there.fileno()],
                    stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
                    env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, (str(HERE), os.environ.get("PYTHONPATH"))))})
        except OSError as error:
            raise Failed(f"{python} cannot be started: {error.strerror}") from None

    def call(self, name, *arguments, limit):
        """The result of a function after at most `limit` seconds; raises Failed. After that the process is gone."""
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

    def stop(self):
        """End the process and those that it has started. One that waits for a hung GPU cannot end: it is left behind."""
        self._pipe.close()
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(ENDING_SECONDS)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            pass

    def _death(self):
        """How the process ended by itself."""
        try:
            status = self._process.wait(ENDING_SECONDS)
        except subprocess.TimeoutExpired:
            status = None
        self.stop()
        if status is not None and status < 0:
            return f"the process was ended by {signal.Signals(-status).name}"
        return f"the process ended with status {status}; log.txt has what it printed"
