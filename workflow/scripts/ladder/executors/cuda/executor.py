"""Runs plans on an NVIDIA GPU through CuPy.

Kernels are compiled by nvrtc.py to machine code for this GPU and cached in the user's cache folder
under a hash of sources and options; CuPy loads them and compiles nothing. What another machine has
compiled is taken from a cache folder that says with which NVRTC (CARRIED): such kernels need none
here.

A plan's buffers lie in one block of GPU memory, allocated once. Launches keep the plan's order on
their streams; a launch that conflicts with an earlier one on another stream (one of them writes a
buffer that both use) waits for it. launching.py has how they get there.

The images are either on the GPU, or streamed: gathered on the host batch by batch into pinned
memory and copied on a separate stream during the computation of the previous batch,
double-buffered. The kernels, and so the results' bytes, are the same. Of a copy only the time that
a step waits for it is lost; `seconds` has both, as COPIES and WAITING.
"""

import functools
import hashlib
import itertools
import math
import re

import numpy as np

from ladder.errors import UserError
from ladder.executors.cuda import nvrtc
from ladder.executors.cuda.clock import Clock
from ladder.executors.cuda.launching import (
    Bound,
    BoundLaunch,
    BoundStep,
    Launcher,
    waits_between_streams,
)
from ladder.executors.cuda.streaming import HostBatchStream
from ladder.machine import compiling, driver
from ladder.progress import size
from ladder.rungs import catalog
from ladder.rungs.launches import Table
from ladder.store import cache

ALIGNMENT = 256  # bytes, of every buffer
# bytes of dynamic shared memory that a launch may use without raising the kernel's limit
PLAIN_SHARED = 48 << 10
# in the cache folder: the CUDA version of the NVRTC that compiled what was carried here
CARRIED = "nvrtc.txt"
# fraction of the free memory: data_residency auto streams images that take more
SHARE_FOR_IMAGES = 0.5


class Executor:
    """Runs plans on the first GPU of this process (interface: see create.py).

    data_residency: 'device', 'host' (streamed) or 'auto': on the device if the images take at most
    half of its free memory. Raises UserError if this machine cannot run a GPU rung, and from
    `allocate` if the memory does not suffice or a kernel does not compile.
    """

    together = 50

    def __init__(self, threads, data_residency="auto"):
        self._cupy = _cupy()
        self._residency = data_residency
        self._launcher = Launcher(self._cupy)
        self._free_at_start = self._free()
        self._kernels = {}
        self._batches = None
        self._clock = Clock(self._cupy)
        self.measures_every_step = False

    def upload(self, arrays):
        uploaded, resident = {}, dict(arrays)
        if "images" in resident and self._streams_images(resident["images"]):
            uploaded["images"] = self._batches = HostBatchStream(
                self._cupy, resident.pop("images"), resident
            )
        else:
            self._batches = None
        resident = {name: np.asarray(array) for name, array in resident.items()}
        sizes = {name: (array.shape, array.dtype) for name, array in resident.items()}
        uploaded |= self._arrays(sizes, "the images and weights")
        for name, array in resident.items():
            self.fill(uploaded[name], array)
        return uploaded

    def allocate(self, plan, uploaded):
        new = {name: buffer for name, buffer in plan.buffers.items() if name not in uploaded}
        needed, free = sum(aligned(buffer.bytes) for buffer in new.values()), self._free()
        if needed > free:
            raise UserError(
                f"batch_size {plan.batch} needs {size(needed)} of GPU memory and {size(free)} are free; "
                f"{_what_fits(plan, new.values(), free)}"
            )
        for name in uploaded.keys() & plan.buffers.keys():
            if plan.buffers[name].shape != uploaded[name].shape:
                raise ValueError(
                    f"buffer {name} is {plan.buffers[name].shape}, not {uploaded[name].shape}"
                )
        batches = uploaded.get("images")
        arrays = Bound(uploaded, batches if isinstance(batches, HostBatchStream) else None)
        arrays |= self._arrays(
            {name: (buffer.shape, buffer.dtype) for name, buffer in new.items()}, "the plan"
        )
        arrays.prologue, arrays.steps = self._bind(plan, arrays)
        return arrays

    def run(self, plan, arrays):
        self.run_many(plan, arrays, 1)

    def prepare(self, plan, arrays):
        self.run(plan, arrays)
        self._launcher.record(arrays)
        self.synchronize()

    def recorded(self, arrays, runs):
        """A CUDA graph of so many runs, apart from those that run_many replays; RuntimeError where
        that is refused.
        """
        return self._launcher.recorded(arrays, 0, runs)

    def run_many(self, plan, arrays, count):
        self._launcher.begin(arrays)
        while count:
            count -= self._run_some(plan, arrays, count)

    def fill(self, array, values):
        values = np.ascontiguousarray(np.broadcast_to(np.asarray(values, array.dtype), array.shape))
        array.set(values, stream=self.stream)
        self.stream.synchronize()
        if self._batches:
            self._batches.follow(array, values)

    def download(self, array):
        values = np.empty(array.shape, array.dtype)
        array.get(stream=self.stream, out=values)
        self.stream.synchronize()
        return values

    @property
    def seconds(self):
        """Measured with events on one step in SAMPLE_EVERY, its launches one after another,
        extrapolated to all images.
        """
        return self._clock.seconds()

    @seconds.setter
    def seconds(self, spent):
        self._clock = Clock(self._cupy, spent, self.passes)

    @property
    def passes(self):
        return self._clock.passes()

    @passes.setter
    def passes(self, spent):
        self._clock = Clock(self._cupy, self.seconds, spent)

    def device(self):
        toolkit = self._cupy.cuda.runtime.runtimeGetVersion()
        return (
            f"{driver.gpu().name}, driver {driver.version() or 'unknown'} (CUDA {_dotted(driver.cuda_version())}), "
            f"CuPy {self._cupy.__version__} for CUDA {toolkit // 1000}.{toolkit % 1000 // 10}, "
            f"NVRTC {', '.join(compilers())}"
        )

    def launching(self):
        return self._launcher.described()

    def workspace_bytes(self):
        """Bytes of GPU memory beyond the plan's buffers: the buffers of streamed images."""
        return self._batches.bytes if self._batches else 0

    def device_bytes(self):
        """GPU memory that all processes have taken since this executor was made, according to the
        driver.
        """
        return self._free_at_start - self._free()

    @property
    def cupy(self):
        return self._cupy

    @property
    def stream(self):
        """The main stream, which every run starts and ends on."""
        return self._launcher.streams[0]

    def synchronize(self):
        """Wait until everything is done."""
        self.stream.synchronize()

    # Memory.

    def _free(self):
        return self._cupy.cuda.runtime.memGetInfo()[0]

    def _streams_images(self, images):
        return self._residency == "host" or (
            self._residency == "auto" and images.nbytes > SHARE_FOR_IMAGES * self._free()
        )

    def _arrays(self, wanted, what):
        """Zeroed arrays in one new block of GPU memory; wanted: name -> (shape, dtype)."""
        cupy, offsets, end = self._cupy, {}, 0
        for name, (shape, dtype) in wanted.items():
            offsets[name] = end
            end += aligned(math.prod(shape) * np.dtype(dtype).itemsize)
        try:
            memory = cupy.cuda.MemoryPointer(cupy.cuda.Memory(max(end, ALIGNMENT)), 0)
        except cupy.cuda.runtime.CUDARuntimeError as error:
            hint = (
                "set data_residency to host"
                if "images" in wanted
                else "choose a smaller batch_size"
            )
            raise UserError(
                f"{what} need {size(end)} of GPU memory and {size(self._free())} are free; {hint}"
            ) from error
        memory.memset_async(0, end, self.stream)
        return {
            name: cupy.ndarray(shape, dtype, memptr=memory + offsets[name])
            for name, (shape, dtype) in wanted.items()
        }

    # Launching.

    def _bind(self, plan, arrays):
        """A launching.BoundStep for each step of the plan's prologue, and for each of its steps."""
        waits = waits_between_streams(plan)
        awaited = {number for numbers in waits for number in numbers}
        events = {number: self._cupy.cuda.Event(disable_timing=True) for number in awaited}
        if arrays.batches:
            arrays.batches.reserve(plan.batch, arrays.get("permutation"), arrays.get("counters"))
        bound = (
            self._bound(
                launch, arrays, tuple(events[other] for other in waits[number]), events.get(number)
            )
            for number, launch in enumerate(plan.launches)
        )
        prologue = tuple(
            _bound_step(step, [self._bound(launch, arrays) for launch in step.launches])
            for step in plan.prologue
        )
        return prologue, tuple(
            _bound_step(step, itertools.islice(bound, len(step.launches))) for step in plan.steps
        )

    def _bound(self, launch, arrays, waits=(), event=None):
        return BoundLaunch(
            kernel=self._kernel(launch),
            grid=launch.grid,
            block=launch.block,
            arguments=self._arguments(launch, arrays),
            shared_bytes=launch.shared_bytes,
            stream=launch.stream,
            waits=waits,
            event=event,
        )

    def _arguments(self, launch, arrays):
        """A launch's arguments for each of the two slots of streamed images."""
        arguments = [
            self._table(each, arrays) if isinstance(each, Table) else each
            for each in launch.arguments
        ]
        slots = (
            arrays.batches.substitutes
            if arrays.batches and "images" in launch.buffers
            else ({}, {})
        )
        return tuple(
            tuple(
                slot.get(each, arrays[each]) if isinstance(each, str) else each
                for each in arguments
            )
            for slot in slots
        )

    def _table(self, table, arrays):
        values = table.array(lambda name: arrays[name].data.ptr)
        array = self._arrays({"table": (values.shape, values.dtype)}, "the plan")["table"]
        self.fill(array, values)
        return array

    def _run_some(self, plan, arrays, most):
        """Run the plan at least once and at most `most` times; how often. One step in SAMPLE_EVERY
        is measured.
        """
        batches, main = arrays.batches, self.stream
        unmeasured = 0 if self.measures_every_step else self._clock.until_sample()
        slot, copied = batches.take(plan.batch, main, not unmeasured) if batches else (0, [])
        if unmeasured:
            steps = self._launcher.run(arrays, slot, 1 if batches else min(most, unmeasured))
        else:
            self._clock.keep([*copied, *self._launcher.measure(arrays, slot)], plan.batch)
            steps = 1
        self._clock.count(steps, steps * plan.batch)
        if batches:
            batches.release(main, plan.batch)
        return steps

    def _kernel(self, launch):
        """The loaded kernel of a launch, its dynamic shared memory limit raised if needed."""
        source, name = nvrtc.KERNELS / launch.source, (launch.source, launch.defines, launch.entry)
        if name not in self._kernels:
            path = cubin(source, driver.gpu().architecture, launch.defines)
            try:
                self._kernels[name] = [
                    self._cupy.RawModule(path=str(path)).get_function(launch.entry),
                    PLAIN_SHARED,
                ]
            except self._cupy.cuda.driver.CUDADriverError as error:
                raise UserError(
                    f"the driver does not take {source} as NVRTC {compilers()[0]} compiles it: {error}; "
                    "update the driver"
                ) from error
        loaded = self._kernels[name]
        if launch.shared_bytes > loaded[1]:
            limit = driver.gpu().block_shared_bytes
            if launch.shared_bytes > limit:
                raise UserError(
                    f"{launch.entry} of {launch.source} needs {launch.shared_bytes} bytes of shared memory and "
                    f"this {driver.gpu().name} gives a block {limit}; set variant to gpu_basic"
                )
            loaded[0].max_dynamic_shared_size_bytes = loaded[1] = launch.shared_bytes
        return loaded[0].kernel


def _bound_step(step, launches):
    return BoundStep(f"{step.layer}: {step.operation}", (step.work, step.pass_), tuple(launches))


def cubin(source, architecture, defines):
    """Path of the machine code of a CUDA file, compiled unless it is in the cache."""
    if cached := find_cubin(source, architecture, defines):
        return cached
    with compiling.counted():
        return cache.keep(
            _path(source, architecture, defines, compilers()[-1]),
            nvrtc.compile_file(source, architecture, defines).cubin,
        )


def find_cubin(source, architecture, defines):
    """Path of the machine code of a CUDA file in the cache; None where it is not."""
    paths = (_path(source, architecture, defines, compiler) for compiler in compilers())
    return next(filter(None, map(cache.find, paths)), None)


def compilers():
    """The CUDA versions of the NVRTCs whose code runs here: of that which compiled carried kernels,
    and of this machine's.

    Carried kernels that the driver is too old for do not count. Raises UserError where there is
    neither.
    """
    (newest, _), path = driver.cuda_version() or (0, 0), _cache() / CARRIED
    carried = (
        re.fullmatch(r"(\d{1,2})\.\d{1,2}", path.read_text("utf-8").strip())
        if path.exists()
        else None
    )
    versions = [carried[0]] if carried and int(carried[1]) <= newest else []
    if not versions or nvrtc.installed():
        versions.append(_dotted(nvrtc.version()))
    return list(dict.fromkeys(versions))


def _path(source, architecture, defines, compiler):
    read = [
        text
        for path in (*sorted(nvrtc.KERNELS.rglob("*.cuh")), source)
        for text in (path.name, path.read_text("utf-8"))
    ]
    options = nvrtc.SPECIFIC.get(architecture, ""), *nvrtc.OPTIONS
    digest = hashlib.sha256(
        "\0".join([architecture, *options, *defines, compiler, *read]).encode()
    ).hexdigest()[:16]
    return _cache() / f"{source.parent.name}-{source.stem}-{architecture}-{digest}.cubin"


@functools.cache
def _cupy():
    """The cupy module; raises UserError without a GPU that can run the kernels."""
    reason = catalog.no_gpu()
    if reason:
        raise UserError(f"a GPU rung {reason}, or set variant to cpu")
    compiler, newest = compilers()[0], driver.cuda_version()
    if int(compiler.partition(".")[0]) > newest[0]:
        raise UserError(
            f"the NVIDIA driver is too old: NVRTC here is of CUDA {compiler}, the driver runs CUDA "
            f"{_dotted(newest)} at most; update the driver"
        )
    import cupy

    try:
        cupy.cuda.runtime.memGetInfo()  # the first call that needs the GPU
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise UserError(
            f"the GPU cannot be used: {error}; nvidia-smi tells more, or set variant to cpu"
        ) from error
    return cupy


def _what_fits(plan, new, free):
    """Message naming the batch size that fits: buffers with one entry per image grow with the
    batch, all others are fixed.
    """
    growing = sum(_growing_bytes(plan, buffer) for buffer in new)
    fixed = sum(aligned(buffer.bytes) for buffer in new) - growing
    batch = int((free - fixed) / (growing / plan.batch)) if growing else 0
    return f"batch_size {batch} fits" if batch > 0 else "not even batch_size 1 fits"


def _growing_bytes(plan, buffer):
    """Bytes that grow with the batch."""
    return aligned(buffer.bytes) if _grows(plan, buffer) else 0


def _grows(plan, buffer):
    """True if the buffer has one entry per image; a weight may by chance have as many filters as
    the batch has images.
    """
    return (
        buffer.kind in ("activation", "gradient", "mask", "workspace")
        and len(buffer.shape) >= 4
        and buffer.shape[0] == plan.batch
        and buffer.name.removesuffix(".gradient") not in plan.network.parameters
    )


def aligned(count):
    return -(-count // ALIGNMENT) * ALIGNMENT


def _cache():
    return cache.folder("kernels")


def _dotted(version):
    return ".".join(map(str, version))
