"""Runs a GPU rung's plans in the emulator, in any order of threads and blocks.

Every buffer lies between guards of its own, which are NaN as floats and negative as integers: a
launch that writes there is named, and what one reads there shows in the results.
"""

import concurrent.futures
import itertools
import os

import numpy as np

import cuda_emulator
import emulated
from ladder.rungs.launches import Table

ALIGNMENT = 256  # of an allocation on a GPU
GUARD = 16 << 10  # bytes before and behind every buffer
# The words of a guard, before the buffer's number is laid over them: a NaN read beyond one buffer
# differs from the one at its place beyond another.
WORDS = np.random.default_rng(0).integers(0xFFC00000, 1 << 32, GUARD // 4, np.uint32)
_numbers = itertools.count(1)


class Executor:
    """An executor (interface: see ladder/executors/create.py) that measures no times."""

    together = 1

    def __init__(self, order="forward"):
        self.order = order
        self.seconds, self.passes = {}, {}

    def upload(self, arrays):
        return {name: _guarded(np.asarray(array)) for name, array in arrays.items()}

    def allocate(self, plan, uploaded):
        """New buffers hold NaN, or for integers 0x55 in every byte: reads of unwritten data
        show.
        """
        modules = {
            _module(launch) for step in (*plan.prologue, *plan.steps) for launch in step.launches
        }
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(lambda module: module.plain, modules))  # compiles
        return {
            name: uploaded[name] if name in uploaded else _guarded(_poisoned(buffer))
            for name, buffer in plan.buffers.items()
        }

    def run(self, plan, arrays):
        self.run_many(plan, arrays, 1)

    def run_many(self, plan, arrays, count):
        """Raises cuda_emulator.KernelFault for the first launch that writes to a guard of one of
        its buffers.
        """
        for step in (*plan.prologue, *count * plan.steps):
            for launch in step.launches:
                self.launch(launch, arrays)
                for name in sorted(launch.buffers):
                    _check_guards(
                        f"{step.operation} of layer {step.layer}", launch.entry, name, arrays[name]
                    )
        for name in plan.buffers:
            _check_guards("a step that does not use the buffer", plan.rung, name, arrays[name])

    def launch(self, launch, arrays):
        arguments = [_argument(argument, arrays) for argument in launch.arguments]
        function(launch)(launch.grid, launch.block, arguments, launch.shared_bytes, self.order)

    def fill(self, array, values):
        array[...] = values

    def download(self, array):
        return array

    def synchronize(self):
        pass


def function(launch):
    """The emulated kernel of a launch."""
    return _module(launch).get_function(launch.entry)


def zeros(buffer):
    """An array for a buffer of a plan, aligned as on a GPU, all zero: memory that nothing touches
    costs nothing.
    """
    memory = np.zeros(buffer.bytes + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + buffer.bytes].view(buffer.dtype).reshape(buffer.shape)


def _argument(argument, arrays):
    if isinstance(argument, Table):
        return argument.array(lambda name: arrays[name].ctypes.data)
    return arrays[argument] if isinstance(argument, str) else argument


def _module(launch):
    return emulated.load(
        emulated.KERNELS / launch.source, tuple(f"-D{define}" for define in launch.defines)
    )


def _guarded(values):
    """A copy of the array between guards; its `base` is the memory of all three, whose first word
    tells the buffer's number.
    """
    memory = np.empty(ALIGNMENT + GUARD + values.nbytes + GUARD, np.uint8)
    memory = memory[-memory.ctypes.data % ALIGNMENT :]
    end, guard = GUARD + values.nbytes, (WORDS ^ np.uint32(next(_numbers))).view(np.uint8)
    memory[:GUARD] = memory[end : end + GUARD] = guard
    array = memory[GUARD:end].view(values.dtype).reshape(values.shape)
    array[...] = values
    return array


def _check_guards(step, kernel, name, array):
    start = array.ctypes.data - array.base.ctypes.data - GUARD
    memory = array.base[start:]
    guard, end = (
        (WORDS ^ memory[:4].view(np.uint32) ^ WORDS[0]).view(np.uint8),
        GUARD + array.nbytes,
    )
    for side, found in (("before", memory[:GUARD]), ("behind", memory[end : end + GUARD])):
        touched = np.count_nonzero(found != guard)
        if touched:
            raise cuda_emulator.KernelFault(
                kernel, "out of bounds", f"{step} wrote {touched} bytes {side} buffer {name}"
            )


def _poisoned(buffer):
    if buffer.kind == "control" or buffer.kind == "optimizer":  # start at zero in every run
        return np.zeros(buffer.shape, buffer.dtype)
    array = np.empty(buffer.shape, buffer.dtype)
    array.view(np.uint8)[...] = 0x55
    return np.full(buffer.shape, np.nan, buffer.dtype) if array.dtype.kind == "f" else array
