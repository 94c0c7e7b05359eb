"""Timing on a GPU: events around work on the executor's stream, sampled clock rates, and the GPU's
measured ceilings.
"""

import itertools
import pathlib
import statistics
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "workflow/scripts"))

import numpy as np  # noqa: E402

import ladder  # noqa: E402, F401 (before NumPy: see ladder/__init__.py)
import roofline  # noqa: E402
from ladder.executors.cuda import executor as cuda_executor  # noqa: E402
from ladder.executors.cuda.launching import RECORDED  # noqa: E402
from ladder.machine import driver  # noqa: E402
from ladder.network import optimizers, weights  # noqa: E402
from ladder.plan import plan  # noqa: E402
from ladder.verify import parity  # noqa: E402
from spread import percentiles  # noqa: E402

LAP = RECORDED  # steps
FLUSH_BYTES = 256 << 20  # more than any level-2 cache
COPY_BYTES, COPIES = 512 << 20, 20
ROUNDS, BLOCKS, LOOPS = 4096, 132 * 32, 10  # of the multiply-add kernel: 1.13 TFLOP per launch


def bind(executor, network, rung, batch, rows, steps, optimizer="adam", seed=0, **settings):
    """(plan, arrays) of `steps` training steps on random images: at least `rows`, and enough for a
    new batch in every step.

    settings: further fields of plan.TrainingSettings.
    """
    rows = max(rows, batch * steps)
    length = plan.Length(steps, steps)
    settings = plan.TrainingSettings(
        network=network,
        rung=rung,
        batch_size=batch,
        optimizer=optimizers.Optimizer(optimizer),
        **settings,
    )
    lowered = plan.training_plan(settings, plan.Dataset(rows, "uint8"), length)
    return lowered, executor.allocate(
        lowered,
        executor.upload(
            {
                **parity.random_images(network, rows),
                "permutation": np.random.default_rng(seed).permutation(rows),
                "counters": np.zeros(3, np.int64),
                "learning_rates": optimizers.learning_rates(1e-3, length),
                **weights.initialize(network, seed),
                **weights.initial_state(network),
            }
        ),
    )


class Clock:
    """Times pieces of work on the executor's stream."""

    def __init__(self, executor):
        self._executor, self._marks, self.mhz = executor, [], []

    def time(self, work):
        """Queue work() on the stream between two events."""
        new = self._executor.cupy.cuda.Event
        begin = self._executor.stream.record(new())
        work()
        self._marks.append((begin, self._executor.stream.record(new())))
        if len(self._marks) % 20 == 1 and (mhz := driver.sm_clock()):
            self.mhz.append(mhz)

    def microseconds(self):
        """Durations in order; waits for the last."""
        self._executor.synchronize()
        return [
            1000 * self._executor.cupy.cuda.get_elapsed_time(begin, end)
            for begin, end in self._marks
        ]


def laps(executor, plan, arrays, count):
    """(microseconds of a step in each lap, MHz of the multiprocessors meanwhile or 0) of about
    `count` runs of a plan.

    A lap is of LAP runs, recorded and replayed as in a training, or of all where there are fewer;
    it begins where the one before ended: what the GPU waits for in between counts too.
    """
    size, marks = min(LAP, count), [executor.stream.record(executor.cupy.cuda.Event())]
    for _ in range(count // size):
        executor.run_many(plan, arrays, size)
        marks.append(executor.stream.record(executor.cupy.cuda.Event()))
    mhz = driver.sm_clock() or 0  # before the GPU is idle
    executor.synchronize()
    return [
        1000 * executor.cupy.cuda.get_elapsed_time(begin, end) / size
        for begin, end in itertools.pairwise(marks)
    ], mhz


def spread(microseconds, mhz):
    """Median, 10th and 90th percentile, and the median clock rate (0 if unknown)."""
    return {**percentiles(microseconds), "mhz": statistics.median(mhz) if mhz else 0}


def block(executor, count):
    """New, uninitialized GPU memory of `count` bytes."""
    cuda = executor.cupy.cuda
    return cuda.MemoryPointer(cuda.Memory(count), 0)


def flusher(executor):
    """A function that flushes the level-2 cache."""
    memory = block(executor, FLUSH_BYTES)
    return lambda: memory.memset_async(0, FLUSH_BYTES, executor.stream)


def ceilings(executor):
    """Measured roofline.Ceilings of this GPU: memory copies and float32 multiply-adds."""
    return roofline.Ceilings(driver.gpu().name, multiply_adds(executor), copied_bytes(executor))


def copied_bytes(executor):
    """Bytes per second read and written by a copy within GPU memory."""
    source, target, clock = (
        block(executor, COPY_BYTES),
        block(executor, COPY_BYTES),
        Clock(executor),
    )
    runtime = executor.cupy.cuda.runtime
    source.memset_async(1, COPY_BYTES, executor.stream)
    for _ in range(COPIES):
        clock.time(
            lambda: runtime.memcpyAsync(
                target.ptr,
                source.ptr,
                COPY_BYTES,
                runtime.memcpyDeviceToDevice,
                executor.stream.ptr,
            )
        )
    return 2 * COPY_BYTES / statistics.median(clock.microseconds()) * 1e6


def multiply_adds(executor):
    """float32 operations per second, with operands in registers."""
    path = cuda_executor.cubin(HERE / "ceilings.cu", driver.gpu().architecture, ())
    function = executor.cupy.RawModule(path=str(path)).get_function("multiply_add").kernel
    threads = 256 * BLOCKS
    out = executor.cupy.ndarray((threads,), np.float32, memptr=block(executor, 4 * threads))
    clock, arguments = Clock(executor), (out, np.float32(0.999), np.float32(0.5), np.int32(ROUNDS))
    for _ in range(LOOPS):
        clock.time(lambda: function((BLOCKS,), (256,), arguments, 0, executor.stream))
    seconds = statistics.median(clock.microseconds()) / 1e6
    if not np.isfinite(executor.download(out)).all():
        raise RuntimeError("the result of the multiply-add kernel is not finite")
    return 2 * 16 * 8 * ROUNDS * threads / seconds
