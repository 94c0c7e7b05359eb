"""The cpu rung: one function per operation, NumPy, BLAS and compiled loops, over blocks of images that fit the cache.

Every operation is cut into pieces, blocks of images that fit the cache or, with more weights than pixels, of filters, and the
pieces are shared evenly among the threads, each with BLAS on one thread: the work between two matrix products (im2col, bias,
ReLU, pooling) then runs in parallel too, and on data that is still in the cache. The cut depends on an operation's shapes only,
and sums over images are formed piece by piece and then added in order, so the results' bytes do not depend on the number of
threads.

Arrays are NHWC; convolution weights (filters, kernel, kernel, channels). The operations are in convolution.py, winograd.py,
approximate.py, pooling.py, layers.py and updates.py.
"""

import contextlib
import itertools
import math
import queue
import threading
import time
import weakref

import numpy as np
import threadpoolctl

from ladder.executors.cpu import approximate, convolution, layers, pooling, updates, winograd
from ladder.machine import runtime

OPERATIONS = {function.__name__: function
              for module in (convolution, winograd, approximate, pooling, layers, updates)
              for function in module.OPERATIONS}
SMALL = 2 ** 18   # with less work (numbers moved), one thread finishes before it could wake another
LINE = 64         # bytes of a cache line; arrays are aligned to it, so that no two threads write to the same one


class Executor:
    """Runs plans on the CPU (interface: see create.py).

    seconds: time spent per category since the start, e.g. {'convolution forward': 1.2}; the mean over the threads of an
    operation.
    """

    measures_every_step = True
    together = 1

    def __init__(self, threads):
        self.threads = threads
        self.seconds = {}
        self._blas = threadpoolctl.ThreadpoolController()
        self._workers = [_Worker() for _ in range(threads)]
        self._common = _Worker()
        self._helpers = [_Helper() for _ in range(threads - 1)]   # the calling thread does its share too
        weakref.finalize(self, _stop, self._helpers)
        self._bound = None, None, ()

    def place(self, arrays):
        """C-contiguous arrays, which the compiled loops require."""
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
        # Training itself reports a loss that is not finite.
        with self._blas_on_one_thread(), np.errstate(all="ignore"):
            for operation, operands in self._bound[2]:
                operation(self, **operands)
        self._collect_seconds()

    def run_many(self, plan, arrays, count):
        for _ in range(count):
            self.run(plan, arrays)

    def _blas_on_one_thread(self):
        """A context with BLAS on one thread; asking first is ten times cheaper than setting it."""
        if all(library.num_threads == 1 for library in self._blas.lib_controllers if library.user_api == "blas"):
            return contextlib.nullcontext()
        return self._blas.limit(limits=1, user_api="blas")

    def parallel(self, count, work, cost, piece=1):
        """Call work(worker, start, stop) on every thread for a share of range(count).

        The shares are equal, in whole pieces of `piece` items: what is computed from a piece does not depend on the number of
        threads. cost: numbers moved; a thread gets a share of SMALL / 2 or more.
        """
        pieces = -(-count // piece)
        threads = min(self.threads, pieces, 2 * cost // SMALL)
        if threads <= 1:
            self._workers[0].start_clock()
            return work(self._workers[0], 0, count)
        bounds = [min(count, piece * (pieces * i // threads)) for i in range(threads + 1)]
        shares = list(zip(self._workers, bounds, bounds[1:], strict=False))
        for worker, _, _ in shares:
            worker.start_clock()
        busy = list(zip(self._helpers, shares[1:], strict=False))
        for helper, share in busy:
            helper.tasks.put((work, share))
        try:
            work(*shares[0])
        finally:
            errors = [helper.errors.get() for helper, _ in busy]
        for error in errors:
            if error is not None:
                raise error

    def workspace(self, name, shape, dtype):
        """As _Worker.workspace, one array for all threads."""
        return self._common.workspace(name, shape, dtype)

    def device(self):
        """Description of the processor, for records."""
        return f"cpu: {runtime.machine()['processor']}, {self.threads} thread{'s' if self.threads != 1 else ''}"

    def launching(self):
        return ""

    def workspace_bytes(self):
        """Bytes of the threads' workspaces, beyond the plan's buffers."""
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
    """[(operation, operands)] of a plan's steps over these arrays; consecutive updates are merged into one."""
    bound = []
    for name, steps in itertools.groupby(plan.steps, key=lambda step: step.operation):
        operands = [{**{role: arrays[buffer] for role, buffer in (*step.reads.items(), *step.writes.items())},
                     **step.attributes} for step in steps]
        if name in updates.RULES:
            bound.append((updates.update, {"rule": updates.RULES[name], "parameters": operands}))
        else:
            bound += [(OPERATIONS[name], own) for own in operands]
    return bound


def _zeros(shape, dtype):
    """Zeros, aligned to a cache line."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    memory = np.zeros(size + LINE, np.uint8)
    begin = -memory.ctypes.data % LINE
    return memory[begin:begin + size].view(dtype).reshape(shape)


class _Helper(threading.Thread):
    """A thread that runs tasks (work, share) in order."""

    def __init__(self):
        super().__init__(daemon=True)
        self.tasks, self.errors = queue.SimpleQueue(), queue.SimpleQueue()
        self.start()

    def run(self):
        np.seterr(all="ignore")
        while (task := self.tasks.get()) is not None:
            work, share = task
            try:
                work(*share)
                self.errors.put(None)
            except BaseException as error:   # raised again in the waiting thread
                self.errors.put(error)
            del task, work, share


def _stop(helpers):
    for helper in helpers:
        helper.tasks.put(None)


class _Worker:
    """One thread's workspace, allocated on first use, and its clock."""

    def __init__(self):
        self.arrays, self.seconds, self._last = {}, {}, 0.0

    def workspace(self, name, shape, dtype):
        """An uninitialized array of this shape, whose memory is reused from call to call."""
        size = math.prod(shape)
        flat = self.arrays.get((name, dtype))
        if flat is None or flat.size < size:
            flat = self.arrays[name, dtype] = _zeros((size,), dtype)
        return flat[:size].reshape(shape)

    def start_clock(self):
        self._last = time.perf_counter()

    def lap(self, label):
        """Add the time since the last lap to category `label`."""
        now = time.perf_counter()
        self.seconds[label] = self.seconds.get(label, 0.0) + now - self._last
        self._last = now
