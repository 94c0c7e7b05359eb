"""Runs plans on an NVIDIA GPU through CuPy.

Kernels are compiled by nvrtc.py to machine code for this GPU and cached in the user's cache folder under a hash of sources and
options; CuPy loads them and compiles nothing.

A plan's buffers lie in one block of GPU memory, allocated once. Launches are queued on their streams in plan order; a launch
that conflicts with an earlier one on another stream (one of them writes a buffer that both use) waits for it.

The images are either on the GPU, or streamed: gathered on the host batch by batch into pinned memory and copied on a separate
stream during the computation of the previous batch, double-buffered. The kernels, and so the results' bytes, are the same. Of a
copy only the time that a step waits for it is lost; `seconds` has both, as COPIES and WAITING.
"""

import dataclasses
import functools
import hashlib
import math
import os
import pathlib

import numpy as np

from ladder.errors import UserError
from ladder.executors.create import COPIES, WAITING
from ladder.executors.cuda import nvrtc
from ladder.machine import driver
from ladder.progress import size
from ladder.rungs import variants
from ladder.store import disk

ALIGNMENT = 256        # bytes, of every buffer
PLAIN_SHARED = 48 << 10   # bytes of dynamic shared memory that a launch may use without raising the kernel's limit
SHARE_FOR_IMAGES = 0.5    # fraction of the free memory: data_residency auto streams images that take more
WARM_UP, SAMPLE_EVERY = 3, 50   # steps


class Executor:
    """Runs plans on the first GPU of this process (interface: see create.py).

    data_residency: 'device', 'host' (streamed) or 'auto': on the device if the images take at most half of its free memory.
    Raises UserError if this machine cannot run a GPU rung, and from `allocate` if the memory does not suffice or a kernel does
    not compile.
    """

    def __init__(self, threads, data_residency="auto"):
        self._cupy = _cupy()
        self._residency = data_residency
        self._streams = [self._cupy.cuda.Stream(non_blocking=True)]   # by Launch.stream
        self._free_at_start = self._free()
        self._kernels = {}
        self._feed = None
        self._clock = _Clock(self._cupy)
        self.measures_every_step = False

    def place(self, arrays):
        placed, kept = {}, dict(arrays)
        if "images" in kept and self._streams_images(kept["images"]):
            placed["images"] = self._feed = _Feed(self._cupy, kept.pop("images"), kept)
        else:
            self._feed = None
        kept = {name: np.asarray(array) for name, array in kept.items()}
        placed |= self._arrays({name: (array.shape, array.dtype) for name, array in kept.items()}, "the images and weights")
        for name, array in kept.items():
            self.fill(placed[name], array)
        return placed

    def allocate(self, plan, placed):
        new = {name: buffer for name, buffer in plan.buffers.items() if name not in placed}
        needed, free = sum(aligned(buffer.bytes) for buffer in new.values()), self._free()
        if needed > free:
            raise UserError(f"batch_size {plan.batch} needs {size(needed)} of GPU memory and {size(free)} are free; "
                            f"{_what_fits(plan, new.values(), free)}")
        for name in placed.keys() & plan.buffers.keys():
            if plan.buffers[name].shape != placed[name].shape:
                raise ValueError(f"buffer {name} is {plan.buffers[name].shape}, not {placed[name].shape}")
        arrays = Bound(placed)
        arrays |= self._arrays({name: (buffer.shape, buffer.dtype) for name, buffer in new.items()}, "the plan")
        arrays.launches = self._bind(plan, arrays)
        return arrays

    def run(self, plan, arrays):
        feed = arrays.get("images")
        feed = feed if isinstance(feed, _Feed) else None
        measured = self.measures_every_step or self._clock.samples()
        slot, copied = feed.take(plan.batch, self._streams[0], measured) if feed else (0, [])
        if measured:
            self._run_measured(plan, arrays, slot, copied)
        else:
            self._run(arrays, slot)
        self._clock.count(plan.batch)
        if feed:
            feed.release(self._streams[0], plan.batch)

    def fill(self, array, values):
        values = np.ascontiguousarray(np.broadcast_to(np.asarray(values, array.dtype), array.shape))
        array.set(values, stream=self._streams[0])
        self._streams[0].synchronize()
        if self._feed:
            self._feed.follow(array, values)

    def fetch(self, array):
        values = np.empty(array.shape, array.dtype)
        array.get(stream=self._streams[0], out=values)
        self._streams[0].synchronize()
        return values

    @property
    def seconds(self):
        """Measured with events on one step in SAMPLE_EVERY, its launches one after another, extrapolated to all images."""
        return self._clock.seconds()

    @seconds.setter
    def seconds(self, spent):
        self._clock = _Clock(self._cupy, spent)

    def device(self):
        toolkit = self._cupy.cuda.runtime.runtimeGetVersion()
        return (f"{driver.gpu().name}, driver {driver.version() or 'unknown'} (CUDA {_dotted(driver.cuda_version())}), "
                f"CuPy {self._cupy.__version__} for CUDA {toolkit // 1000}.{toolkit % 1000 // 10}, "
                f"NVRTC {_dotted(nvrtc.version())}")

    def workspace_bytes(self):
        """Bytes of GPU memory beyond the plan's buffers: the buffers of streamed images."""
        return self._feed.bytes if self._feed else 0

    def device_bytes(self):
        """GPU memory that all processes have taken since this executor was made, according to the driver."""
        return self._free_at_start - self._free()

    @property
    def cupy(self):
        return self._cupy

    @property
    def stream(self):
        """The main stream, which every run starts and ends on."""
        return self._streams[0]

    def synchronize(self):
        """Wait until everything is done."""
        self._streams[0].synchronize()

    # Memory.

    def _free(self):
        return self._cupy.cuda.runtime.memGetInfo()[0]

    def _streams_images(self, images):
        return self._residency == "host" or (self._residency == "auto" and images.nbytes > SHARE_FOR_IMAGES * self._free())

    def _arrays(self, wanted, what):
        """Zeroed arrays in one new block of GPU memory; wanted: name -> (shape, dtype)."""
        cupy, offsets, end = self._cupy, {}, 0
        for name, (shape, dtype) in wanted.items():
            offsets[name] = end
            end += aligned(math.prod(shape) * np.dtype(dtype).itemsize)
        try:
            memory = cupy.cuda.MemoryPointer(cupy.cuda.Memory(max(end, ALIGNMENT)), 0)
        except cupy.cuda.runtime.CUDARuntimeError as error:
            hint = "set data_residency to host" if "images" in wanted else "choose a smaller batch_size"
            raise UserError(f"{what} need {size(end)} of GPU memory and {size(self._free())} are free; {hint}") from error
        memory.memset_async(0, end, self._streams[0])
        return {name: cupy.ndarray(shape, dtype, memptr=memory + offsets[name]) for name, (shape, dtype) in wanted.items()}

    # Launching.

    def _bind(self, plan, arrays):
        """A _BoundLaunch for each of the plan's launches."""
        launches = [launch for step in plan.steps for launch in step.launches]
        waits = waits_between_streams(plan)
        awaited = {number for one in waits for number in one}
        events = {number: self._cupy.cuda.Event(disable_timing=True) for number in awaited}
        feed = arrays.get("images")
        if isinstance(feed, _Feed):
            feed.reserve(plan.batch, arrays.get("permutation"), arrays.get("counters"))
        bound = []
        for number, launch in enumerate(launches):
            self._stream(launch.stream)
            bound.append(_BoundLaunch(
                kernel=self._kernel(launch), grid=launch.grid, block=launch.block, arguments=_arguments(launch, arrays),
                shared_bytes=launch.shared_bytes, stream=launch.stream,
                waits=tuple(events[other] for other in waits[number]), event=events.get(number)))
        return bound

    def _stream(self, number):
        while number >= len(self._streams):
            self._streams.append(self._cupy.cuda.Stream(non_blocking=True))
        return self._streams[number]

    def _run(self, arrays, slot):
        main, others = self._streams[0], sorted({launch.stream for launch in arrays.launches} - {0})
        if others:
            started = main.record(self._cupy.cuda.Event(disable_timing=True))
            for number in others:
                self._streams[number].wait_event(started)
        for launch in arrays.launches:
            stream = self._streams[launch.stream]
            for event in launch.waits:
                stream.wait_event(event)
            launch.kernel(launch.grid, launch.block, launch.arguments[slot], launch.shared_bytes, stream)
            if launch.event:
                stream.record(launch.event)
        for number in others:
            main.wait_event(self._streams[number].record(self._cupy.cuda.Event(disable_timing=True)))

    def _run_measured(self, plan, arrays, slot, copied):
        """Run on one stream with an event before and after each step; copied: intervals of the batch's copy (_Feed.take)."""
        main, left = self._streams[0], iter(arrays.launches)
        marks = [main.record(self._cupy.cuda.Event())]
        for step in plan.steps:
            for _ in step.launches:
                launch = next(left)
                launch.kernel(launch.grid, launch.block, launch.arguments[slot], launch.shared_bytes, main)
            marks.append(main.record(self._cupy.cuda.Event()))
        steps = zip((step.work for step in plan.steps), marks, marks[1:], strict=False)
        self._clock.keep([*copied, *steps], plan.batch)

    def _kernel(self, launch):
        """The loaded kernel of a launch, its dynamic shared memory limit raised if needed."""
        source, name = nvrtc.KERNELS / launch.source, (launch.source, launch.defines, launch.entry)
        if name not in self._kernels:
            path = cubin(source, driver.gpu().architecture, launch.defines)
            try:
                self._kernels[name] = [self._cupy.RawModule(path=str(path)).get_function(launch.entry), PLAIN_SHARED]
            except self._cupy.cuda.driver.CUDADriverError as error:
                raise UserError(f"the driver does not take {source} as NVRTC {_dotted(nvrtc.version())} compiles it: {error}; "
                                "update the driver") from error
        found = self._kernels[name]
        if launch.shared_bytes > found[1]:
            limit = driver.gpu().block_shared_bytes
            if launch.shared_bytes > limit:
                raise UserError(f"{launch.entry} of {launch.source} needs {launch.shared_bytes} bytes of shared memory and "
                                f"this {driver.gpu().name} gives a block {limit}; set variant to gpu_basic")
            found[0].max_dynamic_shared_size_bytes = found[1] = launch.shared_bytes
        return found[0].kernel


class Bound(dict):
    """{name: array} of a plan; `launches`: its launches bound to these arrays."""


@dataclasses.dataclass(frozen=True)
class _BoundLaunch:
    """arguments: one tuple per slot of streamed images, twice the same without streaming.

    waits: events of launches on other streams; event: the one that later launches wait for, or None.
    """

    kernel: object
    grid: tuple
    block: tuple
    arguments: tuple
    shared_bytes: int
    stream: int
    waits: tuple
    event: object


class _Feed:
    """Images on the host, copied to the GPU batch by batch, one batch ahead.

    Kernels that read images receive the batch instead, with the identity permutation and zero counters; all other kernels
    receive the real ones, for labels and random numbers. The host tracks these: it fills them, and every step advances the
    offset by its batch.
    """

    def __init__(self, cupy, images, controls):
        self.images, self.shape = images, images.shape
        self.substitutes = ({}, {})   # per slot: buffer name -> array to pass instead
        self.bytes = 0
        self._cupy = cupy
        self._stream = cupy.cuda.Stream(non_blocking=True)
        self._order, self._capacity = np.array(controls["permutation"]), 0
        self._offset = int(controls["counters"][1]) if "counters" in controls else 0
        self._permutation = self._counters = None   # their arrays on the GPU
        self._slot = 0

    def reserve(self, batch, permutation, counters):
        """Allocate both slots for batches of this size; permutation, counters: the arrays on the GPU that the host tracks."""
        self._permutation, self._counters = permutation, counters
        if batch <= self._capacity:
            return
        if self._capacity:
            raise RuntimeError("allocate the plan with the largest batch first: others are bound to its buffers")
        cupy, shape = self._cupy, (batch, *self.images.shape[1:])
        self._capacity = batch
        self._pinned = [_pinned(shape, self.images.dtype) for _ in range(2)]
        identity = _on_device(cupy, np.arange(batch), self._stream)
        start = _on_device(cupy, np.zeros(3, np.int64), self._stream)
        self._device = [_on_device(cupy, pinned, self._stream) for pinned in self._pinned]
        self.substitutes = tuple({"images": array, "permutation": identity, "counters": start} for array in self._device)
        self.bytes = sum(array.nbytes for array in (*self._device, identity, start))
        self._staged = [None, None]   # (offset, images) that a slot holds or is receiving
        self._copied = [(event, event) for event in (cupy.cuda.Event(), cupy.cuda.Event())]   # (begin, end) of the last copy
        self._read = [cupy.cuda.Event(disable_timing=True) for _ in range(2)]

    def follow(self, array, values):
        """Record that the host has overwritten `array`."""
        if array is self._permutation:
            self._order, self._staged = values.copy(), [None, None]
        elif array is self._counters:
            self._offset = int(values[1])

    def take(self, batch, stream, measured):
        """(slot of the next batch, intervals); `stream` waits until the batch is copied.

        intervals, if measured: [(category, begin event, end event)] of the copy, and of the time that `stream` waits for it.
        """
        if self._staged[self._slot] != (self._offset, batch):
            self._stage(self._slot, self._offset, batch)
        begin, end = self._copied[self._slot]
        reached = stream.record(self._cupy.cuda.Event()) if measured else None
        stream.wait_event(end)
        if not measured:
            return self._slot, []
        return self._slot, [(COPIES, begin, end), (WAITING, reached, stream.record(self._cupy.cuda.Event()))]

    def release(self, stream, batch):
        """Start copying the next batch; everything that reads the current one is on `stream`, or joined to it."""
        stream.record(self._read[self._slot])
        self._staged[self._slot] = None
        self._slot, self._offset = 1 - self._slot, self._offset + batch
        following = min(batch, len(self._order) - self._offset)
        if following > 0:
            self._stage(self._slot, self._offset, following)

    def _stage(self, slot, offset, count):
        self._copied[slot][1].synchronize()   # the previous copy may still read the pinned memory
        pinned = self._pinned[slot][:count]
        np.take(self.images, self._order[offset:offset + count], axis=0, out=pinned, mode="clip")   # "raise" would copy twice
        self._stream.wait_event(self._read[slot])
        runtime, begin = self._cupy.cuda.runtime, self._stream.record(self._cupy.cuda.Event())
        runtime.memcpyAsync(self._device[slot].data.ptr, pinned.ctypes.data, pinned.nbytes, runtime.memcpyHostToDevice,
                            self._stream.ptr)
        self._copied[slot] = begin, self._stream.record(self._cupy.cuda.Event())
        self._staged[slot] = (offset, count)


class _Clock:
    """Seconds per category, from sampled steps."""

    def __init__(self, cupy, before=()):
        self._cupy = cupy
        self._before = dict(before)   # {category: seconds} of an interrupted run
        self._steps = self._images = self._sampled_images = 0
        self._sampled, self._pending = {}, []

    def samples(self):
        """True if the next step is to be measured."""
        return self._steps >= WARM_UP and (self._steps - WARM_UP) % SAMPLE_EVERY == 0

    def count(self, images):
        self._steps += 1
        self._images += images

    def keep(self, intervals, images):
        """intervals: [(category, begin event, end event)], ordered by end."""
        self._collect()
        self._pending = intervals
        self._sampled_images += images

    def seconds(self):
        self._collect()
        scale = self._images / self._sampled_images if self._sampled_images else 0
        return {work: self._before.get(work, 0.0) + scale * self._sampled.get(work, 0.0)
                for work in self._before | self._sampled}

    def _collect(self):
        if self._pending:
            self._pending[-1][2].synchronize()
        for work, begin, end in self._pending:
            seconds = self._cupy.cuda.get_elapsed_time(begin, end) / 1000
            self._sampled[work] = self._sampled.get(work, 0.0) + seconds
        self._pending = []


def waits_between_streams(plan):
    """For each launch of the plan, the numbers of earlier launches on other streams that it must wait for.

    On each other stream, that is the last launch with a conflict: both use a buffer and one of them writes it. Arguments that
    the step does not list among its reads count as written.
    """
    waits, done, waited = [], [], {}   # done: (stream, reads, writes); waited: (stream, other stream) -> launch
    for step in plan.steps:
        only_read = set(step.reads.values()) - set(step.writes.values())
        for launch in step.launches:
            touched = {name for name in launch.arguments if isinstance(name, str)}
            reads, writes, wanted = touched & only_read, touched - only_read, {}
            for number, (stream, other_reads, other_writes) in enumerate(done):
                if stream != launch.stream and (other_writes & touched or other_reads & writes):
                    wanted[stream] = number
            wanted = {stream: number for stream, number in wanted.items() if number > waited.get((launch.stream, stream), -1)}
            waited |= {(launch.stream, stream): number for stream, number in wanted.items()}
            waits.append(tuple(sorted(wanted.values())))
            done.append((launch.stream, reads, writes))
    return waits


def cubin(source, architecture, defines):
    """Path of the machine code of a CUDA file, compiled unless it is in the cache."""
    read = [text for path in (*sorted(nvrtc.KERNELS.rglob("*.cuh")), source) for text in (path.name, path.read_text())]
    made_from = [architecture, *nvrtc.OPTIONS, *defines, _dotted(nvrtc.version()), *read]
    digest = hashlib.sha256("\0".join(made_from).encode()).hexdigest()[:16]
    path = _cache() / f"{source.parent.name}-{source.stem}-{architecture}-{digest}.cubin"
    if not path.exists():
        disk.write_atomically(path, nvrtc.compile_file(source, architecture, defines).cubin)
    return path


@functools.cache
def _cupy():
    """The cupy module; raises UserError without a GPU that can run the kernels."""
    reason = variants.no_gpu()
    if reason:
        raise UserError(f"a GPU rung {reason}, or set variant to cpu")
    compiler, newest = nvrtc.version(), driver.cuda_version()
    if compiler[0] > newest[0]:
        raise UserError(f"the NVIDIA driver is too old: NVRTC here is of CUDA {_dotted(compiler)}, the driver runs CUDA "
                        f"{_dotted(newest)} at most; update the driver")
    import cupy

    try:
        cupy.cuda.runtime.memGetInfo()   # the first call that needs the GPU
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise UserError(f"the GPU cannot be used: {error}; nvidia-smi tells more, or set variant to cpu") from error
    return cupy


def _arguments(launch, arrays):
    """A launch's arguments for each of the two slots of streamed images."""
    feed = arrays.get("images")
    slots = feed.substitutes if isinstance(feed, _Feed) and "images" in launch.arguments else ({}, {})
    return tuple(tuple(slot.get(name, arrays[name]) if isinstance(name, str) else name for name in launch.arguments)
                 for slot in slots)


def _what_fits(plan, new, free):
    """Message naming the batch size that fits: buffers with one entry per image grow with the batch, all others are fixed."""
    growing = sum(aligned(buffer.bytes) for buffer in new if _grows(plan, buffer))
    fixed = sum(aligned(buffer.bytes) for buffer in new) - growing
    batch = int((free - fixed) / (growing / plan.batch)) if growing else 0
    return f"batch_size {batch} fits" if batch > 0 else "not even batch_size 1 fits"


def _grows(plan, buffer):
    """True if the buffer has one entry per image; a weight may by chance have as many filters as the batch has images."""
    return (buffer.kind in ("activation", "gradient", "mask", "workspace") and len(buffer.shape) >= 4
            and buffer.shape[0] == plan.batch and buffer.name.removesuffix(".gradient") not in plan.network.parameters)


def aligned(count):
    return -(-count // ALIGNMENT) * ALIGNMENT


def _on_device(cupy, values, stream):
    array = cupy.ndarray(values.shape, values.dtype, memptr=cupy.cuda.MemoryPointer(cupy.cuda.Memory(values.nbytes), 0))
    array.set(values, stream=stream)
    stream.synchronize()
    return array


def _pinned(shape, dtype):
    import cupyx

    return cupyx.empty_pinned(shape, dtype)


def _cache():
    folder = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache", "kernel-ladder/kernels")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _dotted(version):
    return ".".join(map(str, version))
