"""Other programs, such as NVIDIA's tools beside the driver: where they are, and a run of one.
Standard library only.
"""

import os
import pathlib
import shutil
import signal
import subprocess

PLACES = "/usr/local/cuda/bin", "/usr/local/cuda/compute-sanitizer", "/opt/nvidia/nsight-compute/*"
# folders in DIR/cache
CACHES = {"XDG_CACHE_HOME": "", "TORCHINDUCTOR_CACHE_DIR": "torch", "TRITON_CACHE_DIR": "triton"}


def use_cache(out):
    """Keep in out/cache what is compiled from now on, by this process and those that it starts."""
    os.environ |= {name: str(out.resolve() / "cache" / part) for name, part in CACHES.items()}


def find(name):
    """The path of compute-sanitizer or ncu; None where it is not installed."""
    path = shutil.which(name)
    if path:
        return path
    candidates = [
        path
        for place in PLACES
        for path in sorted(pathlib.Path("/").glob(f"{place.lstrip('/')}/{name}"))
    ]
    return next((str(path) for path in reversed(candidates) if path.is_file()), None)


def run(command, seconds, **options):
    """(status, output lines) of a command that is ended after `seconds`, with what it has started;
    status None then.

    options: of subprocess.Popen.
    """
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
        **options,
    )
    try:
        output = process.communicate(timeout=seconds)[0]
    except BaseException as error:  # Ctrl-C too
        os.killpg(process.pid, signal.SIGKILL)
        if not isinstance(error, subprocess.TimeoutExpired):
            raise
        return None, _last_lines(process)
    return process.returncode, output.splitlines()


def _last_lines(process):
    """What a killed process printed; nothing of one that waits for a hung GPU and cannot end."""
    try:
        return process.communicate(timeout=10)[0].splitlines()
    except subprocess.TimeoutExpired:
        return []
