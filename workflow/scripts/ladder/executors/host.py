"""What the executors on a CPU have in common: the buffers of a plan are arrays in main memory."""

import math

import numpy as np

# bytes of a cache line; arrays are aligned to it, so that no two threads write to the same one
LINE = 64


class HostExecutor:
    """The interface of create.py but for `run`, `device` and `workspace_bytes`."""

    measures_every_step = True
    together = 1

    def __init__(self, threads):
        self.threads, self.seconds, self.passes = threads, {}, {}

    def upload(self, arrays):
        """C-contiguous arrays, which the compiled loops require."""
        return {name: np.ascontiguousarray(array) for name, array in arrays.items()}

    def allocate(self, plan, uploaded):
        for name, array in uploaded.items():
            if name in plan.buffers and plan.buffers[name].shape != array.shape:
                raise ValueError(f"buffer {name} is {plan.buffers[name].shape}, not {array.shape}")
        return {
            name: uploaded[name] if name in uploaded else zeros(buffer.shape, buffer.dtype)
            for name, buffer in plan.buffers.items()
        }

    def fill(self, array, values):
        array[...] = values

    def download(self, array):
        return array

    def prepare(self, plan, arrays):
        self.run(plan, arrays)

    def run_many(self, plan, arrays, count):
        for _ in range(count):
            self.run(plan, arrays)

    def launching(self):
        return ""

    def device_bytes(self):
        return None

    def synchronize(self):
        pass


def zeros(shape, dtype):
    """Zeros, aligned to a cache line."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    memory = np.zeros(size + LINE, np.uint8)
    begin = -memory.ctypes.data % LINE
    return memory[begin : begin + size].view(dtype).reshape(shape)
