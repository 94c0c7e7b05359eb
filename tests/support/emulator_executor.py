"""Runs a GPU rung's plans in the emulator, one exact allocation per buffer, in any order of threads and blocks."""

import concurrent.futures
import os

import numpy as np

import cuda_emulator


class Executor:
    """An executor (interface: see ladder/executors/create.py) that measures no times."""

    def __init__(self, order="forward"):
        self.order = order
        self.seconds = {}

    def place(self, arrays):
        return {name: np.array(array) for name, array in arrays.items()}

    def allocate(self, plan, placed):
        """New buffers hold NaN, or for integers 0x55 in every byte: reads of unwritten data show."""
        modules = {_module(launch) for step in plan.steps for launch in step.launches}
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(lambda module: module.plain, modules))   # compiles
        return {name: placed[name] if name in placed else _poisoned(buffer) for name, buffer in plan.buffers.items()}

    def run(self, plan, arrays):
        for step in plan.steps:
            for launch in step.launches:
                self.launch(launch, arrays)

    def launch(self, launch, arrays):
        arguments = [arrays[name] if isinstance(name, str) else name for name in launch.arguments]
        function(launch)(launch.grid, launch.block, arguments, launch.shared_bytes, self.order)

    def fill(self, array, values):
        array[...] = values

    def fetch(self, array):
        return array


def function(launch):
    """The emulated kernel of a launch."""
    return _module(launch).get_function(launch.entry)


def _module(launch):
    return cuda_emulator.load(cuda_emulator.KERNELS / launch.source, tuple(f"-D{define}" for define in launch.defines))


def _poisoned(buffer):
    if buffer.kind == "control" or buffer.kind == "optimizer":   # start at zero in every run
        return np.zeros(buffer.shape, buffer.dtype)
    array = np.empty(buffer.shape, buffer.dtype)
    array.view(np.uint8)[...] = 0x55
    return np.full(buffer.shape, np.nan, buffer.dtype) if array.dtype.kind == "f" else array
