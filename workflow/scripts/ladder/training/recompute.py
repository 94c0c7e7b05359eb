"""Activation checkpointing: what a step computes between two poolings is made again in its backward
pass, in place of kept.

Chen, Xu, Zhang and Guestrin, "Training Deep Nets with Sublinear Memory Cost", 2016. Only what a
pooling puts out, and what a later part of the network reads, lasts from the forward pass to the
backward pass. The steps that are made again are those of the forward pass, of the same operands:
random numbers are keyed by the step and the layer, and the counters advance at the end. So all
bytes are those of the plan that keeps everything.

Buffers that are not in use at the same time then share memory: each gets a place in one buffer, the
largest first, at the first offset that is free throughout its use (Pisarchyk and Lee, "Efficient
Memory Management for Deep Neural Net Inference", 2020).
"""

import dataclasses
import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from ladder.training.planning.data import Plan, Step

POOLINGS = {"maxpool2d", "avgpool2d"}  # kinds of layers
MADE_AGAIN = {"activation", "mask"}  # kinds of buffers
# kinds of buffers that are written before they are read
IN_TURN = {"activation", "mask", "gradient", "derived", "workspace"}
AGAIN = "recompute"  # the pass under which the time of the repeated steps is reported
ALIGNMENT = 256  # bytes, of every place


def recomputed(plan: Plan) -> Plan:
    """The plan of the same training step in the least memory: `shared` or, where that takes less,
    `checkpointed` too.
    """
    repeating = checkpointed(plan)
    return (
        repeating
        if len(repeating.steps) == len(plan.steps)
        else min(shared(plan), repeating, key=lambda plan: plan.bytes)
    )


def checkpointed(plan: Plan) -> Plan:
    """The plan that makes again what lies between two poolings, `shared`."""
    segments = _segments(plan)
    repetitions = [_steps_to_repeat(plan, number, segments) for number in range(len(segments))]
    scratch = {
        name: dataclasses.replace(plan.buffers[source], name=name, kind="workspace")
        for repeated in repetitions
        for step in repeated
        for source, name in _scratch(plan, step).items()
    }
    steps, waiting = [], [(_written(repeated), repeated) for repeated in repetitions if repeated]
    for step in plan.steps:
        for writes, repeated in waiting:
            if step.pass_ == "backward" and writes & set(step.reads.values()):
                steps += [_repeated(earlier, _scratch(plan, earlier)) for earlier in repeated]
                waiting = [pair for pair in waiting if pair[1] is not repeated]
        steps.append(step)
    again = set().union(*(_written(repeated) for repeated in repetitions))
    return shared(
        dataclasses.replace(plan, steps=tuple(steps), buffers={**plan.buffers, **scratch}), again
    )


def _segments(plan: Plan) -> list[list[Step]]:
    """The steps of the forward pass as lists, each but the last one up to a group of layers with a
    pooling, this included.
    """
    pools = {layer.name for layer in plan.network.layers if layer.kind in POOLINGS}
    pooled = {layers[0] for layers, _ in plan.kernels if pools & set(layers)}
    forward = [step for step in plan.steps if step.pass_ == "forward"]
    segments: list[list[Step]] = [[]]
    for step, following in itertools.zip_longest(forward, forward[1:]):
        segments[-1].append(step)
        if step.layer in pooled and following and following.layer != step.layer:
            segments.append([])
    return segments


def _steps_to_repeat(plan: Plan, number: int, segments: list[list[Step]]) -> list[Step]:
    """The steps of a segment that compute what the backward pass reads and no other segment does;
    none of the last segment.
    """
    segment, others = segments[number], itertools.chain(*segments[:number], *segments[number + 1 :])
    elsewhere = {name for step in others for name in step.reads.values()}
    wanted = {
        name for step in plan.steps if step.pass_ == "backward" for name in step.reads.values()
    }
    repeated: list[Step] = []
    for step in reversed(segment if number < len(segments) - 1 else []):
        written = {name for name in step.writes.values() if plan.buffers[name].kind in MADE_AGAIN}
        if written & wanted and not written & elsewhere:
            repeated.insert(0, step)
            wanted |= set(step.reads.values())
    return repeated


def _written(steps: Iterable[Step]) -> set[str]:
    return {name for step in steps for name in step.writes.values()}


def _scratch(plan: Plan, step: Step) -> dict[str, str]:
    """Running statistics that a step updates -> scratch memory for a repetition, which must not
    update them again.
    """
    return {
        name: f"{name}.{AGAIN}"
        for name in step.writes.values()
        if plan.buffers[name].kind == "state"
    }


def _repeated(step: Step, scratch: Mapping[str, str]) -> Step:
    """The step once more; scratch: see `_scratch`."""
    launches = tuple(
        dataclasses.replace(
            launch,
            arguments=tuple(
                scratch.get(argument, argument) if isinstance(argument, str) else argument
                for argument in launch.arguments
            ),
        )
        for launch in step.launches
    )
    writes = {role: scratch.get(name, name) for role, name in step.writes.items()}
    return dataclasses.replace(step, writes=writes, launches=launches, pass_=AGAIN)


# Places.


def shared(plan: Plan, again: Collection[str] = frozenset()) -> Plan:
    """The plan whose buffers have places in a shared one; again: the names of those that its steps
    make twice.
    """
    used, places, count = _uses(plan, again), {}, 0
    # of each use: first step, last step, offset, end
    taken = np.empty((sum(map(len, used.values())), 4), np.int64)
    for name in sorted(used, key=lambda name: -plan.buffers[name].bytes):
        uses, size = np.array(used[name]), _aligned(plan.buffers[name].bytes)
        before = taken[:count]
        meets = ((before[:, :1] <= uses[:, 1]) & (uses[:, 0] <= before[:, 1:2])).any(axis=1)
        offset = places[name] = _first_gap(sorted(before[meets, 2:].tolist()), size)
        taken[count : count + len(uses)] = [
            (first, last, offset, offset + size) for first, last in used[name]
        ]
        count += len(uses)
    return plan.sharing(places, int(taken[:, 3].max()))


def _uses(plan: Plan, again: Collection[str]) -> dict[str, list[tuple[int, int]]]:
    """Buffer -> [(first, last)] numbers of steps between which it holds what is needed.

    What is made again is not needed between the two passes. A buffer that only a step's launches
    name is its scratch memory.
    """
    backward = next(
        number for number, step in enumerate(plan.steps) if step.pass_ not in ("load", "forward")
    )
    uses: dict[str, dict[int, tuple[int, int]]] = {}
    for number, step in enumerate(plan.steps):
        named = {*step.reads.values(), *step.writes.values()}
        keys: set[tuple[str, int]] = {
            (name, name in again and number >= backward) for name in named
        }
        keys |= {(name, number) for launch in step.launches for name in launch.buffers - named}
        for name, part in keys:
            if plan.buffers[name].kind in IN_TURN:
                parts = uses.setdefault(name, {})
                parts[part] = (parts.get(part, (number,))[0], number)
    return {name: list(parts.values()) for name, parts in uses.items()}


def _first_gap(taken: Iterable[Sequence[int]], size: int) -> int:
    """The first offset with `size` free bytes; taken: [(start, end)] in order."""
    offset = 0
    for start, end in taken:
        if start - offset >= size:
            break
        offset = max(offset, end)
    return offset


def _aligned(count: int) -> int:
    return -(-count // ALIGNMENT) * ALIGNMENT
