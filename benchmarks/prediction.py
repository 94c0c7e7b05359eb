"""The time of launches on a GPU as predicted from their counts (counting.py): docs/prediction.md
has the model.

What it assumes is in assumptions.py, and a dictionary of a value for each assumption is called
`rates` here.
"""

import dataclasses
import math

from assumptions import ASSUMPTIONS

WARP, WARPGROUP, LINE, SECTOR = 32, 128, 128, 32
REGISTERS, REGISTER_UNIT = 65536, 256  # of a multiprocessor; a warp is given whole units
# of a multiprocessor, each of which issues an instruction in a cycle
SCHEDULERS = 4
OF_A_MULTIPROCESSOR = {"level 1", "issue", "tensor cores"}


@dataclasses.dataclass(frozen=True)
class Gpu:
    """warps, blocks, shared_bytes, level_1_bytes: of a multiprocessor, shared memory being a part
    of level 1.

    hertz: the clock that predictions are for: an H200's in every turn of 2026-11-26, an A100's
    most, GeForce's boost clock, and of a T4 one of those, up to 1.59 GHz, that 70 W leave.
    multiply_adds: instructions of 32 of float32 in a cycle; matrices: products of 16x8x16 bfloat16
    or 16x8x8 TF32 numbers (4,096 or 2,048 FLOP) in a cycle; both by NVIDIA's dense peaks
    (roofline.FLOP_PER_CYCLE). reserved_shared: bytes that the system takes of each block;
    line_cycles: of 128 bytes of level 1.
    """

    name: str
    architecture: str
    hertz: float
    multiprocessors: int
    warps: int
    blocks: int
    shared_bytes: int
    level_1_bytes: int
    multiply_adds: int
    matrices: float
    reserved_shared: int = 1024
    line_cycles: int = 1


H200 = Gpu("H200", "sm_90", 1.98e9, 132, 64, 32, 228 << 10, 256 << 10, 4, 1)
A100 = Gpu("A100", "sm_80", 1.41e9, 108, 64, 32, 164 << 10, 192 << 10, 2, 1 / 2)
RTX_4090 = Gpu("RTX 4090", "sm_89", 2.52e9, 128, 48, 24, 100 << 10, 128 << 10, 4, 1 / 4)
RTX_3060 = Gpu("RTX 3060", "sm_86", 1.78e9, 28, 48, 16, 100 << 10, 128 << 10, 4, 1 / 4)
T4 = Gpu(
    "T4", "sm_75", 1.2e9, 40, 32, 16, 64 << 10, 96 << 10, 2, 1 / 4, reserved_shared=0, line_cycles=2
)
GPUS = (H200, A100, RTX_4090, RTX_3060, T4)


@dataclasses.dataclass(frozen=True)
class Interval:
    """Seconds. swings: {assumption: (seconds less than the middle at its optimistic end, seconds
    more at the other)}.
    """

    middle: float
    swings: dict

    @property
    def low(self):
        return self.middle - math.hypot(*(less for less, _ in self.swings.values()))

    @property
    def high(self):
        return self.middle + math.hypot(*(more for _, more in self.swings.values()))


def between(gpu, optimism=0.5, **single):
    """The rates with all assumptions at their pessimistic ends (optimism 0), at their optimistic
    ends (1) or between; single: the same for single assumptions, by name.
    """
    ends = {name: assumption.values[gpu.name] for name, assumption in ASSUMPTIONS.items()}
    return {
        name: worst + single.get(name, optimism) * (best - worst)
        for name, (best, worst) in ends.items()
    }


def interval(gpu, launches):
    """The Interval of launches one after another.

    An assumption that errs does so for all launches alike, so that its errors add; two of them have
    nothing to do with each other, so that theirs add as squares do.
    """
    middle = total(gpu, launches, between(gpu))
    best, worst = (
        [total(gpu, launches, between(gpu, **{name: optimism})) for name in ASSUMPTIONS]
        for optimism in (1, 0)
    )
    return Interval(
        middle,
        {
            name: (middle - least, most - middle)
            for name, least, most in zip(ASSUMPTIONS, best, worst, strict=True)
        },
    )


def total(gpu, launches, rates):
    """Seconds of launches one after another."""
    return sum(seconds(gpu, counts, rates) for counts in launches)


def resident_blocks(gpu, threads, registers, shared_bytes):
    """Blocks of so many threads that a multiprocessor runs at once."""
    warps = _up(threads, WARP)
    by_registers = REGISTERS // (_up(registers * WARP, REGISTER_UNIT) * REGISTER_UNIT) // warps
    return min(
        gpu.warps // warps,
        gpu.blocks,
        by_registers,
        gpu.shared_bytes // max(1, shared_bytes + gpu.reserved_shared),
    )


def cache_lines(gpu, resident, shared_bytes):
    """Lines of level 1 that one of the resident blocks has, if they share what shared memory
    leaves.
    """
    return max(1, (gpu.level_1_bytes // resident - shared_bytes - gpu.reserved_shared) // LINE)


def warps(counts):
    """Of a launch, in all its blocks."""
    return counts["blocks"] * _up(counts["threads"], WARP)


def runs(gpu, counts):
    """Whether there is room for a block on the GPU, and the copy engine of Hopper where the launch
    uses it.
    """
    return counts["resident"][gpu.name] > 0 and (
        gpu.architecture == "sm_90" or not bulk_bytes(counts, "bulk_copies")
    )


def occupancy(gpu, counts):
    """The share of a multiprocessor's warps that can run at once; counts: of a launch
    (counting.counted).
    """
    return counts["resident"][gpu.name] * _up(counts["threads"], WARP) / gpu.warps


def waves(gpu, counts):
    """How often the GPU is filled with the launch's blocks; None if there is no room for one."""
    resident = counts["resident"][gpu.name]
    return counts["blocks"] / (gpu.multiprocessors * resident) if resident else None


def issued_per_warp(counts):
    """Instructions: those of the busiest loop as often as its loads were counted, or all of a
    kernel without a loop.
    """
    body, warp = counts["body"], counts["per_warp"]
    if body["is_loop"] and body["shared_words"]:
        return body["instructions"] * max(1, warp["shared_loads"]["least"] / body["shared_words"])
    if body["is_loop"] and body["global_loads"]:
        return body["instructions"] * max(
            1, warp["global_loads"]["requests"] / body["global_loads"]
        )
    return body["instructions"]


def level_2_bytes(counts):
    """Of a warp: what level 1 misses, what the copy engine brings, or is stored."""
    return SECTOR * (
        counts["per_warp"]["missed"] + counts["per_warp"]["global_stores"]["sectors"]
    ) + bulk_bytes(counts, "bulk_copies")


def bulk_bytes(counts, place):
    """Of a warp: what is copied to shared memory for a thread ("bulk_copies"), or wgmma reads there
    ("operands").
    """
    return counts["per_warp"].get(place, {"bytes": 0})["bytes"]


def seconds_by_resource(gpu, counts, rates):
    """{resource: seconds that a launch needs of it alone}."""
    warp = counts["per_warp"]
    # warps of the fullest multiprocessor
    busiest = _up(counts["blocks"], gpu.multiprocessors) * _up(counts["threads"], WARP)
    of_scheduler = _up(busiest, SCHEDULERS)
    wavefronts = sum(warp[place]["wavefronts"] for place in ("shared_loads", "shared_stores"))
    wavefronts += sum(bulk_bytes(counts, place) for place in ("bulk_copies", "operands")) / LINE
    lines = sum(warp[place]["lines"] for place in ("global_loads", "global_stores"))
    multiply_adds = (
        0 if counts["body"]["matrices"] else _repeats(counts) * counts["body"]["products"]
    )
    return {
        "memory": _from_memory(counts, rates) / rates["memory"],
        "level 2": warps(counts) * level_2_bytes(counts) / rates["level_2"],
        "level 1": busiest * (lines + wavefronts) * gpu.line_cycles / gpu.hertz,
        "issue": of_scheduler
        * max(issued_per_warp(counts), SCHEDULERS * multiply_adds / gpu.multiply_adds)
        / gpu.hertz,
        "tensor cores": of_scheduler
        * SCHEDULERS
        * _matrices(counts)
        / _matrix_rate(gpu, counts, rates)
        / gpu.hertz,
        "latency": _latencies(gpu, counts) * rates["wait"],
    }


def seconds(gpu, counts, rates, free=None):
    """Of a launch, with the gap before it; free: a resource that takes no time, to see what it
    costs.
    """
    times = {**seconds_by_resource(gpu, counts, rates), **({free: 0.0} if free else {})}
    longest, *others = sorted((times[name] for name in OF_A_MULTIPROCESSOR), reverse=True)
    computes = longest + rates["apart"] * sum(others) / max(1, _warps_of_scheduler(gpu, counts))
    busy = max(computes, times["memory"], times["level 2"], times["latency"]) + _exposed(
        counts, rates, times
    )
    return rates["formula"] * (times.get("launch", rates["launch"]) + busy)


def bound(gpu, counts, rates, free=None):
    """The resource that a launch needs longest, or "launch" if it takes longer to begin; free: one
    that takes no time.
    """
    times = {**seconds_by_resource(gpu, counts, rates), "launch": rates["launch"]}
    return max((name for name in times if name != free), key=times.get)


def _warps_of_scheduler(gpu, counts):
    """Warps that are on a scheduler at once and compute: where copies are bulk ones, a warpgroup
    does nothing else.
    """
    together = min(counts["resident"][gpu.name], _up(counts["blocks"], gpu.multiprocessors))
    threads = counts["threads"] - (WARPGROUP if bulk_bytes(counts, "bulk_copies") else 0)
    return together * _up(threads, WARP) / SCHEDULERS


def _exposed(counts, rates, times):
    """Seconds in which blocks with tiles in shared memory load the first, and store what they
    computed from the last.
    """
    if not counts["shared_bytes"]:
        return 0
    written = (
        SECTOR * warps(counts) * counts["per_warp"]["global_stores"]["sectors"] / rates["level_2"]
    )
    return (max(times["memory"], times["level 2"]) - written) / _repeats(counts) + written


def _from_memory(counts, rates):
    """Bytes of the launch's arrays that level 2 does not have from the launch before."""
    return max(0, counts["bytes"] - rates["cached"])


def _rounds(gpu, counts):
    """How often the fullest multiprocessor takes as many blocks as it can."""
    return _up(_up(counts["blocks"], gpu.multiprocessors), counts["resident"][gpu.name])


def _matrix_rate(gpu, counts, rates):
    """Products of matrices in a cycle: of wgmma the peak, of mma.sync a share of it."""
    return gpu.matrices * (1 if bulk_bytes(counts, "operands") else rates["mma"])


def _repeats(counts):
    return issued_per_warp(counts) / counts["body"]["instructions"]


def _matrices(counts):
    """Products of matrices of a warp: as many as the loop's repetitions have, or as what wgmma read
    was for.

    For a column that wgmma reads, 32 bytes, each of four warps makes an eighth of a product of
    16x8x16: one for 64 bytes.
    """
    return bulk_bytes(counts, "operands") / 64 or _repeats(counts) * counts["body"]["matrices"]


def _latencies(gpu, counts):
    """Latencies of loads that come one after another until the launch ends.

    A multiprocessor's place for a block takes blocks of the mean chain, and the longest last. Of
    copies to shared memory, as many are under way as a block has shared memory for.
    """
    warp, chain = counts["per_warp"], counts["chain"]
    waves_before = max(0, waves(gpu, counts) - 1)
    missed = warp["missed"] / max(1, warp["global_loads"]["sectors"])
    loads = missed * (chain["longest"] + waves_before * chain["mean"])
    copied = (
        bulk_bytes(counts, "bulk_copies")
        * _up(counts["threads"], WARP)
        / max(1, counts["shared_bytes"])
    )
    iterations = warp["global_loads"]["requests"] / max(1, counts["body"]["global_loads"])
    return max(loads, _rounds(gpu, counts) * max(copied, iterations * counts["body"]["waits"]))


def _up(count, size):
    return math.ceil(count / size)
