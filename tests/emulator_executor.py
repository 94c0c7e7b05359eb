"""Runs a GPU rung's plans in the emulator, one exact allocation per buffer, in any order of threads and blocks."""

import cuda_emulator
import numpy as np


class Executor:
    """As executors.py says, without times."""

    def __init__(self, order="forward"):
        self.order = order
        self.seconds = {}

    def place(self, arrays):
        return {name: np.array(array) for name, array in arrays.items()}

    def allocate(self, plan, placed):
        """New buffers hold NaN, or for integers 0x55 in every byte: a kernel must write what later ones read."""
        return {name: placed[name] if name in placed else _poisoned(buffer) for name, buffer in plan.buffers.items()}

    def run(self, plan, arrays):
        for step in plan.steps:
            for launch in step.launches:
                module = cuda_emulator.load(cuda_emulator.KERNELS / launch.source, launch.defines)
                arguments = [arrays[name] if isinstance(name, str) else name for name in launch.arguments]
                module.get_function(launch.entry)(launch.grid, launch.block, arguments, launch.shared_bytes, self.order)

    def fill(self, array, values):
        array[...] = values

    def fetch(self, array):
        return array


def _poisoned(buffer):
    if buffer.kind == "control" or buffer.kind == "optimizer":   # start at zero in every run
        return np.zeros(buffer.shape, buffer.dtype)
    array = np.empty(buffer.shape, buffer.dtype)
    array.view(np.uint8)[...] = 0x55
    return np.full(buffer.shape, np.nan, buffer.dtype) if array.dtype.kind == "f" else array
