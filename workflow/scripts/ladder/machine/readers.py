"""A command that nobody reads any more ends as after Ctrl-C, with all processes that it has
started.

Without this Snakemake waits for ever: where the pipe behind its messages has lost its reader, the
message about a failed job raises an exception in the thread that would have said that the job has
ended.
"""

import atexit
import contextlib
import os
import select
import signal
import stat
import sys
import threading
import time

import psutil

from ladder import caller

OUTPUTS = 1, 2
# they end after what they run; one that dies while it starts a process would leave it behind
SHELLS = {"bash", "sh", "dash"}
STEP = 0.1  # seconds between two looks for processes
PATIENCE = 10  # seconds in which the processes of a command end by themselves
# seconds in which Snakemake ends after them, which may have to cancel the jobs of a cluster
CLUSTER = 60


def watch():
    """Watch the pipes behind stdout and stderr from now on, in a thread.

    Files have no reader that could go away, and a terminal tells by a signal (SIGHUP) that it is
    gone: who is deaf to it, as after nohup or disown, goes on.
    """
    atexit.register(_flush)
    pipes = [descriptor for descriptor in OUTPUTS if _is_pipe(descriptor)]
    if pipes and not caller.fact("watched"):  # by a command that runs this one
        caller.tell(watched=True)
        threading.Thread(target=_wait, args=[pipes], daemon=True).start()


def _flush():
    """What nobody can read any more is lost; without this Python ends with status 120, although all
    work was done.
    """
    for descriptor, stream in zip(OUTPUTS, (sys.stdout, sys.stderr), strict=True):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)


def _is_pipe(descriptor):
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:  # closed
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def _wait(pipes):
    poll = select.poll()
    for descriptor in pipes:
        poll.register(descriptor, 0)  # for no event but that nobody reads
    lost = [descriptor for descriptor, _ in poll.poll()]
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in lost:
        os.dup2(nowhere, descriptor)
    # no daemon: the process stays until those that it has started are gone
    threading.Thread(target=_end).start()


def _end():
    """What Ctrl-C in a terminal does to all of a command's processes, and then without asking."""
    started, interrupted = time.monotonic(), set()
    os.kill(os.getpid(), signal.SIGINT)
    while (
        running := psutil.Process().children(recursive=True)
    ) or threading.main_thread().is_alive():
        seconds = time.monotonic() - started
        for process in running:
            if seconds > PATIENCE:
                _send(process, signal.SIGKILL)
            elif process not in interrupted and _name(process) not in SHELLS:
                _send(process, signal.SIGINT)
                interrupted.add(process)
        if seconds > PATIENCE + CLUSTER:
            os._exit(128 + signal.SIGPIPE)
        time.sleep(STEP)


def _send(process, number):
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(number)


def _name(process):
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.name()
