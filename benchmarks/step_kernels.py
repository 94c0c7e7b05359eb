"""Which kernels a training step has, as a digest: a measurement is of today's kernels if it has the
digest of today's.
"""

import functools
import hashlib
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "workflow/scripts"), str(HERE.parent / "emulator/src")]

import cuda_emulator  # noqa: E402
from ladder.executors.cuda import nvrtc  # noqa: E402
from ladder.store.programs import tokens  # noqa: E402

import numpy as np  # noqa: E402  # isort: skip (after ladder)


def digest(plan):
    """16 hex digits of all launches of a plan's steps, whatever the number of steps."""
    return hashed([described(launch, plan)[:-1] for step in plan.steps for launch in step.launches])


def described(launch, plan):
    """What the work of a launch depends on: its kernel's text, its shape, and last its arguments'
    shapes.
    """

    def shown(argument):
        if isinstance(argument, str):
            return str(plan.buffers[argument].shape)
        return str(argument if isinstance(argument, np.generic) else len(argument.words))

    return [
        text(launch.source),
        launch.entry,
        launch.defines,
        launch.grid,
        launch.block,
        launch.shared_bytes,
        [shown(argument) for argument in launch.arguments],
    ]


def hashed(value):
    return hashlib.sha256(json.dumps(value, default=str).encode()).hexdigest()[:16]


@functools.cache
def text(source):
    """The tokens of a file and its headers: neither comments nor how lines are broken count."""
    files = sorted(cuda_emulator.with_headers(nvrtc.KERNELS / source, (nvrtc.KERNELS,)))
    return "\0".join(tokens(path.read_text("utf-8")) for path in files)
