"""The cpu rung: one function per operation, NumPy, BLAS and compiled loops, over blocks of images
that fit the cache.

Every operation is cut into pieces, blocks of images that fit the cache or, with more weights than
pixels, of filters, and each thread takes the next pieces as soon as it is free, with BLAS on one
thread: the work between two matrix products (im2col, bias, ReLU, pooling) then runs in parallel
too, and on data that is still in the cache. The cut depends on an operation's shapes only, and sums
over images are formed piece by piece and then added in order, so the results' bytes do not depend
on the number of threads.

Operations that are over before Python has handed them to a thread, as all of a small network are,
become tasks instead, which the threads work through without Python (small.py, tasks.py, team.py).

Arrays are NHWC; convolution weights (filters, kernel, kernel, channels). The operations are in the
modules that OPERATIONS lists.
"""

import contextlib
import math
import queue
import threading
import time
import weakref

import numpy as np

from ladder.executors.cpu import (
    approximate,
    attention,
    convolution,
    layers,
    pooling,
    small,
    updates,
    upsampled,
    winners,
    winograd,
)
from ladder.executors.cpu.team import Team
from ladder.executors.host import HostExecutor, zeros
from ladder.machine import runtime

OPERATIONS = {
    function.__name__: function
    for module in (
        convolution,
        winograd,
        upsampled,
        approximate,
        pooling,
        layers,
        winners,
        attention,
        updates,
    )
    for function in module.OPERATIONS
}
SHARES = 4  # for each thread, so that none waits long for another that other programs hold up
SMALL = 2**18  # with less work (numbers moved), one thread finishes before it could wake another


class Executor(HostExecutor):
    """Runs plans on the CPU (interface: see create.py).

    seconds: time spent per category since the start, e.g. {'convolution forward': 1.2}; the mean
    over the threads of an operation, of a task the time until the last thread has finished it.
    passes: time spent per pass of a Step until the last thread has finished. It takes a look at the
    clock after each operation, less than a microsecond.
    """

    def __init__(self, threads):
        super().__init__(threads)
        self._blas = runtime.thread_pools()
        self._workers = [_Worker() for _ in range(threads)]
        self._common = _Worker()
        # the calling thread does shares too
        self._helpers = [_Helper(worker) for worker in self._workers[1:]]
        weakref.finalize(self, _stop, self._helpers)
        self._teams = {}  # dtype -> the threads that work through tables of it
        self._bound = None, None, ()

    def run(self, plan, arrays):
        if self._bound[0] is not plan or self._bound[1] is not arrays:
            steps = ((step.operation, operands_of(step, arrays), step.pass_) for step in plan.steps)
            self._bound = plan, arrays, bind(steps, plan.buffers[plan.output].dtype, self.threads)
        # Training itself reports a loss that is not finite.
        with self._blas_on_one_thread(), np.errstate(all="ignore"):
            last = time.perf_counter()
            for operation, operands, pass_ in self._bound[2]:
                operation(self, **operands)
                now = time.perf_counter()
                if pass_ is not None:
                    self.passes[pass_] = self.passes.get(pass_, 0.0) + now - last
                last = now
        self._collect_seconds()

    def work_through(self, table):
        """Perform the tasks of a small.Table, without Python in between."""
        if table.dtype not in self._teams:
            self._teams[table.dtype] = Team(self.threads, table.dtype.type(0))
        nanoseconds = np.zeros(len(table.labels), np.int64)
        self._teams[table.dtype].run(table.steps, nanoseconds)
        for (label, pass_), count in zip(table.labels, nanoseconds.tolist(), strict=True):
            self.seconds[label] = self.seconds.get(label, 0.0) + count / 1e9
            self.passes[pass_] = self.passes.get(pass_, 0.0) + count / 1e9

    def _blas_on_one_thread(self):
        """A context with BLAS on one thread; asking first is ten times cheaper than setting it."""
        if all(
            library.num_threads == 1
            for library in self._blas.lib_controllers
            if library.user_api == "blas"
        ):
            return contextlib.nullcontext()
        return self._blas.limit(limits=1, user_api="blas")

    def parallel(self, count, work, cost, piece=1):
        """Call work(worker, start, stop) for shares of range(count), of which each thread takes the
        next one as soon as it has finished its last.

        The shares are equal, in whole pieces of `piece` items: what is computed from a piece does
        not depend on the number of threads. cost: numbers moved; SMALL / 2 or more for a thread.
        """
        pieces = -(-count // piece)
        threads = min(self.threads, pieces, 2 * cost // SMALL)
        if threads <= 1:
            self._workers[0].start_clock()
            return work(self._workers[0], 0, count)
        number = min(pieces, SHARES * threads)
        bounds = [min(count, piece * (pieces * i // number)) for i in range(number + 1)]
        # threads may take from a list's iterator at the same time
        shares, finished = iter(list(zip(bounds, bounds[1:], strict=False))), queue.SimpleQueue()
        for helper in self._helpers[: threads - 1]:
            helper.tasks.put((work, shares, finished))
        taken = 0
        try:
            self._workers[0].start_clock()
            for share in shares:
                taken += 1
                work(self._workers[0], *share)
        finally:
            number -= taken + sum(1 for _ in shares)  # none is left, unless this one failed
            errors = [finished.get() for _ in range(number)]
        for error in errors:
            if error is not None:
                raise error

    def share(self, label, cost, function, *arrays):
        """Call function on every thread with its share of the first axis of all arrays."""

        def work(worker, start, stop):
            function(*(array[start:stop] for array in arrays))
            worker.lap(label)

        self.parallel(len(arrays[0]), work, cost)

    def each(self, label, cost, function, *arrays):
        """Call function for each image, with its entry of the first axis of all arrays; the threads
        share the images.
        """

        def work(*shares):
            for entries in zip(*shares, strict=True):
                function(*entries)

        self.share(label, cost, work, *arrays)

    def workspace(self, name, shape, dtype):
        """As _Worker.workspace, one array for all threads."""
        return self._common.workspace(name, shape, dtype)

    def device(self):
        """Description of the processor, for records."""
        return f"cpu: {runtime.machine()['processor']}, {self.threads} thread{'s' if self.threads != 1 else ''}"

    def workspace_bytes(self):
        """Bytes of the threads' workspaces, beyond the plan's buffers."""
        tables = [
            operands["table"].scratch for _, operands, _ in self._bound[2] if "table" in operands
        ]
        arrays = [
            array for worker in (*self._workers, self._common) for array in worker.arrays.values()
        ]
        return sum(array.nbytes for array in (*tables, *arrays))

    def _collect_seconds(self):
        for worker in self._workers:
            for label, seconds in worker.seconds.items():
                self.seconds[label] = self.seconds.get(label, 0.0) + seconds / self.threads
            worker.seconds.clear()


def bind(steps, dtype, threads):
    """Calls [(function, operands, pass)] of (operation, operands, pass).

    The tasks of consecutive operations are one table, whose pass is None: it measures those of its
    tasks.
    """
    bound, table = [], small.Table(threads, dtype)
    for name, operands, pass_ in steps:
        if table.add(name, operands, pass_):
            if not bound or bound[-1][1].get("table") is not table:
                bound.append((Executor.work_through, {"table": table}, None))
        else:
            bound.append((OPERATIONS[name], operands, pass_))
            table = small.Table(threads, dtype)
    return bound


def operands_of(step, arrays):
    buffers = {**step.reads, **step.writes}
    return {**{role: arrays[buffer] for role, buffer in buffers.items()}, **step.attributes}


class _Helper(threading.Thread):
    """A thread that runs tasks (work, shares, finished) in order: it takes shares while there are
    any, and puts None or an exception into `finished` for each.
    """

    def __init__(self, worker):
        super().__init__(daemon=True)
        self.tasks, self.worker = queue.SimpleQueue(), worker
        self.start()

    def run(self):
        np.seterr(all="ignore")
        while (task := self.tasks.get()) is not None:
            work, shares, finished = task
            self.worker.start_clock()
            for share in shares:
                try:
                    work(self.worker, *share)
                    finished.put(None)
                except BaseException as error:  # raised again in the waiting thread
                    finished.put(error)
            del task, work, shares, finished


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
            flat = self.arrays[name, dtype] = zeros((size,), dtype)
        return flat[:size].reshape(shape)

    def start_clock(self):
        self._last = time.perf_counter()

    def lap(self, label):
        """Add the time since the last lap to category `label`."""
        now = time.perf_counter()
        self.seconds[label] = self.seconds.get(label, 0.0) + now - self._last
        self._last = now
