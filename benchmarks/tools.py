"""NVIDIA's tools beside the driver: where they are, and a run of one. Standard library only."""

import os
import pathlib
import shutil
import signal
import subprocess

PLACES = ("/usr/local/cuda/bin", "/usr/local/cuda/compute-sanitizer", "/opt/nvidia/nsight-compute/*",
          "/opt/nvidia/nsight-systems/*/bin")


def find(name):
    """The path of compute-sanitizer, ncu or nsys; None where it is not installed."""
    found = shutil.which(name)
    if found:
        return found
    candidates = [path for place in PLACES for path in sorted(pathlib.Path("/").glob(f"{place.lstrip('/')}/{name}"))]
    return next((str(path) for path in reversed(candidates) if path.is_file()), None)


def run(command, seconds, cwd=None):
    """(status, output lines) of a command that is ended after `seconds`, with what it has started; status None then."""
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace", cwd=cwd, start_new_session=True) as process:
        try:
            output, status = process.communicate(timeout=seconds)[0], process.returncode
        except subprocess.TimeoutExpired:
            _kill(process)
            output, status = process.communicate()[0], None
        except BaseException:   # Ctrl-C
            _kill(process)
            raise
    return status, output.splitlines()


def _kill(process):
    os.killpg(process.pid, signal.SIGKILL)
