"""A stand-in for CuPy and a GPU, as far as ladder/executors/cuda/executor.py uses them: launches
run in the emulator.

Work queued on a stream runs as late as possible: when it, or an event after it, is waited for.
Streams in `eager` (by number, in creation order) run everything at once instead. A missing wait
between streams then shows in the results, in one of the two ways, and a needless one in the order
in which the work is done.

Events tell the time that the work would take on a GPU, whenever it runs here: the streams run side
by side, work begins when it was queued and what is before it on its stream is done, and only
launches and copies take time.

A stream that captures records its work as nodes of a graph, each behind the nodes that its stream
had and those of the events that it waited for. What CUDA refuses within a capture is refused here,
and ends it: allocations, copies from and to the host, waiting on the host, waiting for work
outside, a branch that is not joined. A replayed graph runs the last of the nodes that it may: a
missing edge shows in the results.
"""

import copy
import ctypes
import json
import pathlib
import sys
import types

import numpy as np

import emulated
from ladder.executors.cuda import executor as cuda_executor
from ladder.executors.cuda import nvrtc
from ladder.machine import driver
from ladder.rungs import catalog


def install(monkeypatch, cache, **options):
    """Give this machine a Gpu, which is returned; compiled kernels go to the folder `cache`."""
    gpu = Gpu(**options)
    monkeypatch.setitem(sys.modules, "cupy", gpu)
    monkeypatch.setitem(sys.modules, "cupyx", types.SimpleNamespace(empty_pinned=gpu.empty_pinned))
    monkeypatch.setattr(catalog, "no_gpu", lambda: None)
    monkeypatch.setattr(driver, "gpu", lambda: driver.Gpu("Fake", "sm_80", gpu.total, 100 << 10))
    monkeypatch.setattr(driver, "cuda_version", lambda: (12, 4))
    monkeypatch.setattr(nvrtc, "version", lambda: (12, 9))
    monkeypatch.setattr(nvrtc, "compile_file", _compile_file)
    monkeypatch.setattr(cuda_executor, "_cache", lambda: cache)
    cuda_executor._cupy.cache_clear()
    return gpu


def _compile_file(path, architecture, defines=()):
    """Loaded by _Module in place of machine code."""
    made = json.dumps({"source": str(path), "defines": list(defines)})
    return nvrtc.Compiled(architecture, made.encode(), "", {})


class CUDARuntimeError(RuntimeError):
    pass


class CUDADriverError(RuntimeError):
    pass


class Gpu:
    """The module `cupy` of one made-up GPU with `memory` bytes."""

    __version__ = "0.0"

    def __init__(self, memory=1 << 30, eager=()):
        self.total, self.used, self.eager = memory, 0, eager
        # the _Capture that is under way; number of nodes of each graph launched
        self.capture, self.replayed = None, []
        # open NVTX ranges; (ranges open, kernel) of each launch or record of one
        self.ranges, self.ranged = [], []
        self.streams, self.launched, self.largest_shared = [], [], {}
        # kernels' names, and "copy" for each copy of images, in order
        self.queued, self.done = [], []
        self.ndarray = ndarray
        self.RawModule = lambda path: _Module(self, path)
        self.cuda = types.SimpleNamespace(
            Memory=lambda size: _Memory(self, size),
            MemoryPointer=_Pointer,
            Event=_Event,
            Stream=lambda non_blocking: _Stream(self),
            get_elapsed_time=lambda begin, end: end.time - begin.time,
            nvtx=types.SimpleNamespace(RangePush=self.ranges.append, RangePop=self.ranges.pop),
            driver=types.SimpleNamespace(CUDADriverError=CUDADriverError),
            runtime=types.SimpleNamespace(
                CUDARuntimeError=CUDARuntimeError,
                runtimeGetVersion=lambda: 12090,
                memcpyAsync=self._memcpy,
                memcpyHostToDevice=1,
                memcpyDeviceToDevice=3,
                memGetInfo=lambda: (self.total - self.used, self.total),
            ),
        )
        # of a copy (a launch takes 1); the host's clock, which advances where it waits
        self.copy_ms, self.now = 1.0, 0.0

    def not_in_a_capture(self, call):
        if self.capture:
            self.capture.refuse(f"cudaErrorStreamCaptureUnsupported: {call} within a capture")

    def empty_pinned(self, shape, dtype):
        return np.full(shape, 77, dtype)

    def _memcpy(self, target, source, count, kind, stream):
        assert kind in (1, 3)

        def work():
            self.done.append("copy")
            ctypes.memmove(target, source, count)

        self.queued.append("copy")
        self.streams[stream].add(work, self.copy_ms)


class _Capture:
    """nodes: [(work, milliseconds, numbers of the nodes before it)]; last: {stream: numbers of the
    nodes that end it}.
    """

    def __init__(self, origin):
        self.origin, self.nodes, self.last, self.fault = origin, [], {origin: ()}, None

    def add(self, stream, work, milliseconds):
        self.nodes.append((work, milliseconds, self.last[stream]))
        self.last[stream] = (len(self.nodes) - 1,)

    def refuse(self, fault):
        """End in failure, as CUDA does: the call fails, and so does end_capture."""
        self.fault = fault
        raise CUDARuntimeError(fault)

    def finished(self):
        """The numbers of all nodes before the end of the first stream."""
        found, todo = set(), list(self.last[self.origin])
        while todo:
            number = todo.pop()
            if number not in found:  # there are many ways to a node behind two streams
                found.add(number)
                todo += self.nodes[number][2]
        return found


class _Graph:
    def __init__(self, gpu, nodes):
        self.gpu, self.nodes = gpu, nodes

    def launch(self, stream):
        self.gpu.replayed.append(len(self.nodes))
        stream.add(self.run, sum(milliseconds for _, milliseconds, _ in self.nodes))

    def run(self):
        left = dict(enumerate(self.nodes))
        while left:
            number = max(
                number for number, (_, _, after) in left.items() if not left.keys() & set(after)
            )
            left.pop(number)[0]()


class _Memory:
    def __init__(self, gpu, size):
        gpu.not_in_a_capture("cudaMalloc")
        if size > gpu.total - gpu.used:
            raise CUDARuntimeError("cudaErrorMemoryAllocation: out of memory")
        self.gpu, self.size = gpu, size
        self.bytes = np.full(size + 256, 0xA5, np.uint8)
        self.start = -self.bytes.ctypes.data % 256
        gpu.used += size

    def __del__(self):
        if hasattr(self, "gpu"):
            self.gpu.used -= self.size


class _Pointer:
    def __init__(self, memory, offset):
        self.memory, self.offset = memory, offset

    def __add__(self, offset):
        return _Pointer(self.memory, self.offset + offset)

    @property
    def ptr(self):
        return self.memory.bytes.ctypes.data + self.memory.start + self.offset

    def view(self, count):
        assert self.offset + count <= self.memory.size
        start = self.memory.start + self.offset
        return self.memory.bytes[start : start + count]

    def memset_async(self, value, count, stream):
        def work():
            self.view(count)[...] = value

        stream.add(work)


class ndarray:
    """A cupy.ndarray; `values`: its memory's content."""

    def __init__(self, shape, dtype, memptr):
        self.shape, self.dtype, self.data = tuple(shape), np.dtype(dtype), memptr
        self.nbytes = int(np.prod(self.shape)) * self.dtype.itemsize
        self.values = memptr.view(self.nbytes).view(self.dtype).reshape(self.shape)

    def set(self, values, stream):
        stream.not_capturing("a copy from the host")
        assert values.dtype == self.dtype and values.shape == self.shape

        def work():
            self.values[...] = values

        stream.add(work)

    def get(self, stream, out):
        stream.not_capturing("a copy to the host")

        def work():
            out[...] = self.values

        stream.add(work)


class _Stream:
    def __init__(self, gpu):
        self.gpu, self.queue, self.ptr = gpu, [], len(gpu.streams)
        self.now = 0.0  # milliseconds: when all that has run is done
        gpu.streams.append(self)

    def capturing(self):
        return self.gpu.capture is not None and self in self.gpu.capture.last

    def not_capturing(self, call):
        if self.capturing():
            self.gpu.not_in_a_capture(call)

    def begin_capture(self):
        if self.gpu.capture:
            raise CUDARuntimeError("cudaErrorIllegalState: already capturing")
        self.gpu.capture = _Capture(self)

    def end_capture(self):
        capture, self.gpu.capture = self.gpu.capture, None
        if capture.fault:
            raise CUDARuntimeError(
                "cudaErrorStreamCaptureInvalidated: operation failed due to a previous error"
            )
        if len(capture.finished()) < len(capture.nodes):
            raise CUDARuntimeError(
                "cudaErrorStreamCaptureUnjoined: a stream that joined the capture is not joined again"
            )
        return _Graph(self.gpu, capture.nodes)

    def add(self, work, milliseconds=0.0):
        if self.capturing():
            self.gpu.capture.add(self, work, milliseconds)
            return
        self.queue.append((work, self.gpu.now, milliseconds))
        if self.ptr in self.gpu.eager:
            self.run_until(lambda: not self.queue)

    def synchronize(self):
        self.not_capturing("cudaStreamSynchronize")
        self.run_until(lambda: not self.queue)
        self.gpu.now = max(self.gpu.now, self.now)

    def run_until(self, done):
        while not done():
            work, queued, milliseconds = self.queue.pop(0)
            self.now = max(self.now, queued) + milliseconds
            work()

    def record(self, event):
        event.capture = self.gpu.capture if self.capturing() else None
        if event.capture:
            event.after = event.capture.last[self]
            return event
        event.stream, event.passed = self, (passed := [])

        def work():
            passed.append(self.now)
            event.time = self.now

        self.add(work)
        return event

    def wait_event(self, event):
        capture = self.gpu.capture
        if event.capture and event.capture is capture:
            capture.last[self] = tuple(sorted({*capture.last.get(self, ()), *event.after}))
        elif self.capturing() or event.capture:
            fault = "cudaErrorStreamCaptureIsolation: an event of work outside the capture, or of an earlier one"
            capture.refuse(fault) if capture else _fail(fault)
        else:
            wait = event.waiting()

            def work():
                self.now = max(self.now, wait())

            self.add(work)


def _fail(fault):
    raise CUDARuntimeError(fault)


class _Event:
    def __init__(self, disable_timing=False):
        self.stream, self.passed, self.time, self.capture, self.after = None, [0.0], None, None, ()

    def waiting(self):
        """A function that waits for the event's last record so far, which a later one does not
        change, and returns its time.
        """
        stream, passed = self.stream, self.passed

        def wait():
            if not passed:
                stream.run_until(lambda: passed)
            return passed[0]

        return wait

    def synchronize(self):
        if self.capture:
            self.capture.refuse(
                "cudaErrorCapturedEvent: cudaEventSynchronize of an event within a capture"
            )
        time = self.waiting()()
        if self.stream:  # one that was never recorded is done
            self.stream.gpu.now = max(self.stream.gpu.now, time)


class _Module:
    def __init__(self, gpu, path):
        made = json.loads(pathlib.Path(path).read_text())
        self.gpu, self.emulated = (
            gpu,
            emulated.load(made["source"], tuple(f"-D{define}" for define in made["defines"])),
        )

    def get_function(self, name):
        return _Kernel(self.gpu, self.emulated.get_function(name))


class _Kernel:
    def __init__(self, gpu, function):
        self.gpu, self.function, self.shared = gpu, function, 48 << 10

    @property
    def max_dynamic_shared_size_bytes(self):
        return self.shared

    @max_dynamic_shared_size_bytes.setter
    def max_dynamic_shared_size_bytes(self, count):
        self.shared = self.gpu.largest_shared[self.function.name] = count

    def kernel(self, grid, block, arguments, shared_bytes, stream):
        assert shared_bytes <= self.max_dynamic_shared_size_bytes
        # By value, as they are now: numbers, and arrays' addresses.
        values = [
            argument.values if isinstance(argument, ndarray) else copy.copy(argument)
            for argument in arguments
        ]

        def work():
            self.gpu.done.append(self.function.name)
            self.function(grid, block, values, shared_bytes)

        self.gpu.ranged.append((tuple(self.gpu.ranges), self.function.name))
        self.gpu.launched.append((self.function.name, stream.ptr))
        self.gpu.queued.append(self.function.name)
        stream.add(work, 1.0)
