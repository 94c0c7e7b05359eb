"""The cpu rung: one function per operation, NumPy, BLAS and compiled loops, over blocks of images that fit the cache.

Every operation splits the batch evenly over the threads, and each thread walks its images in blocks with BLAS on one
thread: the work between two matrix products (im2col, bias, ReLU, pooling) then runs in parallel too, and on data that is
still in the cache. Where there are more weights than pixels the threads share out filters instead. Sums over images are added
up per thread and then in the order of the threads, so the bytes depend on the number of threads and on nothing else.

Arrays are NHWC; convolution weights (filters, kernel, kernel, channels). The operations are in numpy_convolution.py,
numpy_winograd.py, numpy_approximate.py, numpy_pooling.py, numpy_layers.py and numpy_training.py.
"""

import itertools
import math
import queue
import threading
import time
import weakref

import numpy as np
import threadpoolctl

from ladder.executors.cpu import approximate as numpy_approximate
from ladder.executors.cpu import convolution as numpy_convolution
from ladder.executors.cpu import layers as numpy_layers
from ladder.executors.cpu import pooling as numpy_pooling
from ladder.executors.cpu import updates as numpy_training
from ladder.executors.cpu import winograd as numpy_winograd
from ladder.machine import runtime

OPERATIONS = {function.__name__: function
              for module in (numpy_convolution, numpy_winograd, numpy_approximate, numpy_pooling, numpy_layers,
                             numpy_training)
              for function in module.OPERATIONS}
SMALL = 2 ** 18   # numbers that one thread works through before it could wake another
LINE = 64         # bytes; where arrays begin, so that no two threads write to the same line of the cache


class Executor:
    """Runs plans on the CPU (see executors.py).

    seconds: time spent by kind of work since the start, e.g. {'convolution forward': 1.2}; where threads share an
    operation it is their mean.
    """

    measures_every_step = True

    def __init__(self, threads):
        self.threads = threads
        self.seconds = {}
        self._blas = threadpoolctl.ThreadpoolController()
        self._workers = [_Worker() for _ in range(threads)]
        self._common = _Worker()
        self._helpers = [_Helper() for _ in range(threads - 1)]   # the thread that calls does its share too
        weakref.finalize(self, _stop, self._helpers)
        self._bound = None, None, ()

    def place(self, arrays):
        """C-contiguous, as the compiled loops take them."""
        return {name: np.ascontiguousarray(array) for name, array in arrays.items()}

    def allocate(self, plan, placed):
        for name, array in placed.items():
            if name in plan.buffers and plan.buffers[name].shape != array.shape:
                raise ValueError(f"buffer {name} is {plan.buffers[name].shape}, not {array.shape}")
        return {name: placed[name] if name in placed else _zeros(buffer.shape, buffer.dtype)
                for name, buffer in plan.buffers.items()}

    def fill(self, array, values):
        array[...] = values

    def fetch(self, array):
        return array

    def run(self, plan, arrays):
        if self._bound[0] is not plan or self._bound[1] is not arrays:
            self._bound = plan, arrays, _bind(plan, arrays)
        with self._blas.limit(limits=1, user_api="blas"):
            for operation, operands in self._bound[2]:
                operation(self, **operands)
        self._collect_seconds()

    def parallel(self, count, work, cost=SMALL):
        """Call work(worker, start, stop) on every thread with its even share of range(count); returns the results in order.

        cost: how many numbers are moved; where there are few one thread does it alone.
        """
        threads = self.threads if cost >= SMALL else 1
        bounds = [count * i // threads for i in range(threads + 1)]
        shares = [(worker, start, stop) for worker, start, stop in zip(self._workers, bounds, bounds[1:], strict=False)
                  if start < stop]
        for worker, _, _ in shares:
            worker.start_clock()
        busy = list(zip(self._helpers, shares[1:], strict=False))
        for helper, share in busy:
            helper.tasks.put((work, share))
        try:
            with np.errstate(all="ignore"):   # training stops at a loss that is not finite, and says so
                results = [work(*share) for share in shares[:1]]
        finally:
            others = [helper.results.get() for helper, _ in busy]
        for result, error in others:
            if error is not None:
                raise error
            results.append(result)
        return results

    def workspace(self, name, shape, dtype):
        """As a worker's, for all threads."""
        return self._common.workspace(name, shape, dtype)

    def device(self):
        """What runs the steps, in words."""
        return f"cpu: {runtime.machine()['processor']}, {self.threads} thread{'s' if self.threads != 1 else ''}"

    def workspace_bytes(self):
        """Bytes of the threads' own buffers, apart from the plan's."""
        return sum(array.nbytes for worker in (*self._workers, self._common) for array in worker.arrays.values())

    def device_bytes(self):
        return None

    def synchronize(self):
        pass

    def _collect_seconds(self):
        for worker in self._workers:
            for label, seconds in worker.seconds.items():
                self.seconds[label] = self.seconds.get(label, 0.0) + seconds / self.threads
            worker.seconds.clear()


def _bind(plan, arrays):
    """(operation, operands) of each step of a plan over these arrays; updates that follow each other are one."""
    bound = []
    for name, steps in itertools.groupby(plan.steps, key=lambda step: step.operation):
        operands = [{**{role: arrays[buffer] for role, buffer in (*step.reads.items(), *step.writes.items())},
                     **step.attributes} for step in steps]
        if name in numpy_training.RULES:
            bound.append((numpy_training.update, {"rule": numpy_training.RULES[name], "parameters": operands}))
        else:
            bound += [(OPERATIONS[name], own) for own in operands]
    return bound


def _zeros(shape, dtype):
    """Zeros that begin at a line of the cache."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    memory = np.zeros(size + LINE, np.uint8)
    begin = -memory.ctypes.data % LINE
    return memory[begin:begin + size].view(dtype).reshape(shape)


class _Helper(threading.Thread):
    """A thread that does tasks, a call's work and share, in order."""

    def __init__(self):
        super().__init__(daemon=True)
        self.tasks, self.results = queue.SimpleQueue(), queue.SimpleQueue()
        self.start()

    def run(self):
        np.seterr(all="ignore")
        while (task := self.tasks.get()) is not None:
            work, share = task
            try:
                self.results.put((work(*share), None))
            except BaseException as error:   # raised again by the thread that waits
                self.results.put((None, error))
            del task, work, share


def _stop(helpers):
    for helper in helpers:
        helper.tasks.put(None)


class _Worker:
    """One thread's workspace, allocated on first use, and its clock."""

    def __init__(self):
        self.arrays, self.seconds, self._last = {}, {}, 0.0

    def workspace(self, name, shape, dtype):
        """An array of this shape that keeps its memory from call to call; its content is whatever was there."""
        size = math.prod(shape)
        flat = self.arrays.get((name, dtype))
        if flat is None or flat.size < size:
            flat = self.arrays[name, dtype] = _zeros((size,), dtype)
        return flat[:size].reshape(shape)

    def start_clock(self):
        self._last = time.perf_counter()

    def lap(self, label):
        """Book the time since the last lap under `label`."""
        now = time.perf_counter()
        self.seconds[label] = self.seconds.get(label, 0.0) + now - self._last
        self._last = now
