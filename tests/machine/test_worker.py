"""A process that computes for another one ends with it."""

import signal
import subprocess
import sys

import psutil

from ladder.sources import SCRIPTS

PARENT = """
import sys
from ladder.machine.worker import Worker

worker = Worker(sys.executable, "time", ".", "printed.txt")
worker.call("sleep", 0, limit=60)
print(worker._process.pid, flush=True)
worker.call("sleep", 600, limit=600)
"""


def test_a_process_at_work_ends_when_its_parent_is_killed(tmp_path):
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT],
        cwd=tmp_path,
        env={"PYTHONPATH": str(SCRIPTS)},
        stdout=subprocess.PIPE,
    )
    child = psutil.Process(int(parent.stdout.readline()))
    parent.send_signal(signal.SIGKILL)
    parent.communicate()
    assert psutil.wait_procs([child], 20)[1] == []
