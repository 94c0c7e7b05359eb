"""Readers that go away: what a command still has to say then does not change how it ends."""

import os
import subprocess
import sys

from ladder.sources import ROOT

CODE = """
import sys
from ladder.machine import readers
readers.watch()
sys.stdout.reconfigure(line_buffering=False)
print("started", flush=True)
sys.stdin.readline()
print("lost")
sys.stderr.write("also lost")
"""


def test_a_command_whose_terminal_is_gone_ends_with_its_own_status():
    terminal, there = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", CODE],
        stdin=subprocess.PIPE,
        stdout=there,
        stderr=there,
        # not PYTHONUNBUFFERED
        env={"PYTHONPATH": str(ROOT / "workflow/scripts")},
    )
    os.close(there)
    assert os.read(terminal, 100).startswith(b"started")
    os.close(terminal)
    process.communicate(b"\n")
    assert process.returncode == 0
