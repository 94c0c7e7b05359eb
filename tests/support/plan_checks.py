"""Static checks of a GPU rung's plan: launches that a GPU would reject, reads of unwritten buffers,
unsynchronized launches on two streams, and the memory traffic.
"""

import dataclasses
import math

import numpy as np

import emulator_executor
from ladder.rungs.launches import Table

# That one block may have: CUDA C++ Programming Guide, "Technical Specifications per Compute
# Capability".
SHARED_BYTES = {
    "sm_75": 64 << 10,
    **dict.fromkeys(("sm_80", "sm_87"), 163 << 10),
    **dict.fromkeys(("sm_86", "sm_88", "sm_89", "sm_120", "sm_121"), 99 << 10),
    # of sm_107 nothing is published but that it has sm_103's instructions
    **dict.fromkeys(("sm_90", "sm_100", "sm_101", "sm_103", "sm_107", "sm_110"), 227 << 10),
}
# static and dynamic together, unless the kernel's limit was raised
PLAIN_SHARED_BYTES = 48 << 10
REGISTERS = 65536  # that one block may have
MOST_THREADS, MOST_THREADS_BY_DIMENSION = 1024, (1024, 1024, 64)
MOST_BLOCKS = (2**31 - 1, 65535, 65535)
# kinds of buffers initialized before the first step
GIVEN = ("dataset", "control", "parameter", "state", "optimizer")


def launches(plan):
    """Of one step, without those of plan.prologue."""
    return [launch for step in plan.steps for launch in step.launches]


def every_launch(plan):
    """Of one step, and of plan.prologue."""
    return [launch for step in (*plan.prologue, *plan.steps) for launch in step.launches]


# ---- limits of a GPU


def refusals(launch, plan, resources, architecture):
    """Reasons why a GPU of this architecture would reject or misrun the launch. resources:
    nvrtc.Resources of its kernel.
    """
    grid, block = _three(launch.grid), _three(launch.block)
    threads, most_threads = (
        math.prod(block),
        min(resources.most_threads or MOST_THREADS, MOST_THREADS),
    )
    shared = resources.static_shared_bytes + launch.shared_bytes
    found = []
    if min(grid) < 1 or min(block) < 1:
        found.append(f"an empty grid or block: {grid} of {block}")
    if any(size > most for size, most in zip(grid, MOST_BLOCKS, strict=True)):
        found.append(f"a grid of {grid}")
    if threads > most_threads or any(
        size > most for size, most in zip(block, MOST_THREADS_BY_DIMENSION, strict=True)
    ):
        found.append(f"a block of {block} where {most_threads} threads are allowed")
    if _registers(resources.registers, threads) > REGISTERS:
        found.append(f"{resources.registers} registers for each of {threads} threads")
    if shared > SHARED_BYTES[architecture]:
        found.append(f"{shared} bytes of shared memory of {SHARED_BYTES[architecture]}")
    if shared > PLAIN_SHARED_BYTES and launch.shared_bytes <= PLAIN_SHARED_BYTES:
        found.append(
            f"{shared} bytes of shared memory, for which the executor does not ask: it looks at the dynamic ones"
        )
    if any(size * count >= 2**31 for size, count in zip(grid, block, strict=True)):
        found.append(f"a grid of {grid} times {block}: a thread's number does not fit 32 bits")
    for name in sorted(launch.buffers):
        if math.prod(plan.buffers[name].shape) >= 2**31:
            found.append(
                f"buffer {name} of {plan.buffers[name].shape}: an index does not fit 32 bits"
            )
    return found


def wrong_arguments(launch, plan):
    """Differences between the launch's arguments and its kernel's parameters."""
    taken = parameters(launch)
    if len(taken) != len(launch.arguments):
        return [f"{len(launch.arguments)} arguments where the kernel takes {len(taken)}"]
    found = []
    for number, (argument, parameter) in enumerate(zip(launch.arguments, taken, strict=True)):
        is_array = isinstance(argument, str | Table)
        dtype = (
            np.dtype(plan.buffers[argument].dtype)
            if isinstance(argument, str)
            else np.dtype(np.int64)
            if is_array
            else getattr(argument, "dtype", type(argument))
        )
        if (is_array, dtype) != (parameter.is_array, parameter.dtype):
            found.append(f"argument {number} is {argument} ({dtype}), the kernel takes {parameter}")
    return found


def _registers(each, threads):
    """Registers allocated to a block: per warp in units of 256, for a multiple of four warps."""
    warps = _round_up(_round_up(threads, 32) // 32, 4)
    return warps * _round_up(each * 32, 256)


# ---- reads, writes and their order

_parameters = {}  # (source, entry, what a copy's dtype depends on) -> the kernel's parameters


def parameters(launch):
    """The parameters of the launch's kernel: cuda_emulator.Parameter in order."""
    # of the defines they depend on these alone
    of_dtype = "MULTIPLIER=", "IN_CHANNEL_BLOCKS="
    defines = tuple(define for define in launch.defines if define.startswith(of_dtype))
    key = launch.source, launch.entry, defines
    if key not in _parameters:
        _parameters[key] = emulator_executor.function(launch).parameters
    return _parameters[key]


def writes(launch):
    """Buffers that the launch may write (and read): its kernel's parameter is not `const`, or its
    Table says so.
    """
    passed = {
        name
        for name, parameter in zip(launch.arguments, parameters(launch), strict=True)
        if isinstance(name, str) and parameter.writable
    }
    return passed.union(
        *(argument.written for argument in launch.arguments if isinstance(argument, Table))
    )


def reads(launch):
    return launch.buffers - writes(launch)


def undeclared_writes(plan):
    """(operation, buffer) of launches that write a buffer, other than workspace, that their step
    does not list as written.

    The executor orders streams by these lists.
    """
    return [
        (step.operation, name)
        for step in (*plan.prologue, *plan.steps)
        for launch in step.launches
        for name in sorted(writes(launch))
        if name not in step.writes.values() and plan.buffers[name].kind != "workspace"
    ]


def hazards(plan, waits):
    """Reads of unwritten buffers, and conflicts between unordered launches on two streams.

    waits: for each launch, the numbers of the earlier launches that it waits for. A launch runs
    after those, after the previous launch on its own stream, and, transitively, after everything
    that these run after. The executor joins its streams at the end of each run of a plan.
    """
    found, done, last = [], [], {}  # last: of each stream
    given = {name for name, buffer in plan.buffers.items() if buffer.kind in GIVEN}
    given = given.union(*(writes(launch) for step in plan.prologue for launch in step.launches))
    for number, launch in enumerate(launches(plan)):
        before = {*waits[number], *last.get(launch.stream, ())}
        before = before.union(*(done[other].before for other in before))
        last[launch.stream] = (number,)
        this = _Done(launch, reads(launch), writes(launch), before)
        place = f"{number} ({launch.entry})"
        for name in sorted(this.reads):
            if name not in given and not any(name in done[other].writes for other in before):
                found.append(f"launch {place} reads {name}, which nothing before it writes")
        for other in set(range(number)) - before:
            shared = (
                this.writes & (done[other].reads | done[other].writes)
                | this.reads & done[other].writes
            )
            found += [
                f"launches {other} ({done[other].launch.entry}) and {place} both use {name}"
                for name in sorted(shared)
            ]
        done.append(this)
    return found


@dataclasses.dataclass(frozen=True)
class _Done:
    """before: numbers of all launches that have ended when this one starts."""

    launch: object
    reads: set
    writes: set
    before: set


# ---- memory traffic


def touched_bytes(plan):
    """Bytes of the arrays that the launches read or write, each counted once a launch; of a
    dataset, a batch of it.
    """

    def share(buffer):
        if buffer.kind == "dataset":
            return buffer.bytes * plan.batch // buffer.shape[0]
        return 0 if buffer.kind == "control" else buffer.bytes

    return sum(share(plan.buffers[name]) for launch in launches(plan) for name in launch.buffers)


def _three(sizes):
    return tuple(int(size) for size in (*sizes, 1, 1, 1)[:3])


def _round_up(number, multiple):
    return -(-number // multiple) * multiple
