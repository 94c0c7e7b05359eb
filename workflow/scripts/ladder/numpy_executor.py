"""The cpu rung: one function per operation, NumPy and BLAS, over blocks of images that fit the cache.

Every operation splits the batch evenly over the threads, and each thread walks its images in blocks with BLAS on one
thread: the work between two matrix products (im2col, bias, ReLU, pooling) then runs in parallel too, and on data that is
still in the cache. Sums over images are added up per thread and then in the order of the threads, so the bytes depend on
the number of threads and on nothing else.

Arrays are NHWC; convolution weights (filters, kernel, kernel, channels). The operations are in numpy_convolution.py,
numpy_pooling.py, numpy_layers.py and numpy_training.py.
"""

import concurrent.futures
import time

import numpy as np
import threadpoolctl

from . import numpy_convolution, numpy_layers, numpy_pooling, numpy_training, runtime

OPERATIONS = {function.__name__: function for module in (numpy_convolution, numpy_pooling, numpy_layers, numpy_training)
              for function in module.OPERATIONS}


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
        self._pool = concurrent.futures.ThreadPoolExecutor(threads)
        self._workers = [_Worker() for _ in range(threads)]

    def place(self, arrays):
        return arrays

    def allocate(self, plan, placed):
        for name, array in placed.items():
            if name in plan.buffers and plan.buffers[name].shape != array.shape:
                raise ValueError(f"buffer {name} is {plan.buffers[name].shape}, not {array.shape}")
        return {name: placed[name] if name in placed else np.zeros(buffer.shape, buffer.dtype)
                for name, buffer in plan.buffers.items()}

    def fill(self, array, values):
        array[...] = values

    def fetch(self, array):
        return array

    def run(self, plan, arrays):
        with self._blas.limit(limits=1, user_api="blas"):
            for step in plan.steps:
                operands = {role: arrays[name] for role, name in (*step.reads.items(), *step.writes.items())}
                OPERATIONS[step.operation](self, **operands, **step.attributes)
        self._collect_seconds()

    def parallel(self, count, work):
        """Call work(worker, start, stop) on every thread with its even share of range(count); returns the results in order."""
        bounds = [count * i // self.threads for i in range(self.threads + 1)]
        return self._call(work, [(worker, start, stop) for worker, start, stop
                                 in zip(self._workers, bounds, bounds[1:], strict=False) if start < stop])

    def alone(self, count, work):
        """As `parallel`, with one thread."""
        return self._call(work, [(self._workers[0], 0, count)])

    def device(self):
        """What runs the steps, in words."""
        return f"cpu: {runtime.machine()['processor']}, {self.threads} threads"

    def workspace_bytes(self):
        """Bytes of the threads' own buffers, apart from the plan's."""
        return sum(array.nbytes for worker in self._workers for array in worker.arrays.values())

    def device_bytes(self):
        return None

    def synchronize(self):
        pass

    def _call(self, work, shares):
        for worker, _, _ in shares:
            worker.start_clock()

        def run(share):
            with np.errstate(all="ignore"):   # training stops at a loss that is not finite, and says so
                return work(*share)

        return list(self._pool.map(run, shares))

    def _collect_seconds(self):
        for worker in self._workers:
            for label, seconds in worker.seconds.items():
                self.seconds[label] = self.seconds.get(label, 0.0) + seconds / self.threads
            worker.seconds.clear()


class _Worker:
    """One thread's workspace, allocated on first use, and its clock."""

    def __init__(self):
        self.arrays, self.seconds, self._last = {}, {}, 0.0

    def workspace(self, name, shape, dtype):
        """An array of this shape that keeps its memory from call to call; its content is whatever was there."""
        size = int(np.prod(shape))
        flat = self.arrays.get((name, dtype))
        if flat is None or flat.size < size:
            flat = self.arrays[name, dtype] = np.empty(size, dtype)
        return flat[:size].reshape(shape)

    def start_clock(self):
        self._last = time.perf_counter()

    def lap(self, label):
        """Book the time since the last lap under `label`."""
        now = time.perf_counter()
        self.seconds[label] = self.seconds.get(label, 0.0) + now - self._last
        self._last = now
