"""Faults of a worker of benchmarks/gpu_check.py: $FAULTS is a JSON object {"prepare gpu_basic":
"die", "svm": "hang", ...}.
"""

import json
import os
import pathlib
import signal
import time


def faulty(functions):
    """The functions (by name), each with the fault that $FAULTS names for it and one of its
    arguments.

    die: the process is killed; hang: it waits for a minute; beyond: a parity that fails; another
    text is raised, as CuPy raises a CUDA error. A name that begins with "once" does so in one call
    only.
    """
    return {name: _wrapped(name, function) for name, function in functions.items()}


def _wrapped(name, function):
    def call(*arguments):
        faults = json.loads(os.environ.get("FAULTS", "{}"))
        names = [
            name,
            *(f"{name} {argument}" for argument in arguments if isinstance(argument, str)),
        ]
        for one in names:
            if faults.get(one) == "beyond":
                return function(*arguments) | {"passed": False}
            if one in faults:
                fail(faults[one])
            if f"once {one}" in faults and _is_first(one):
                fail(faults[f"once {one}"])
        return function(*arguments)

    return call


def _is_first(name):
    path = pathlib.Path(os.environ["FAKE_FOLDER"], name.replace(" ", "-"))
    if path.exists():
        return False
    path.touch()
    return True


def fail(kind):
    if kind == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "hang":
        time.sleep(60)
    raise RuntimeError(kind)
