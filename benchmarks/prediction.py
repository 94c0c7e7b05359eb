"""The time of a launch on a GPU as predicted from its counts (counting.py): docs/prediction.md has the model.

Every number here is counted or a property of the GPU; none was measured.
"""

import dataclasses
import math

WARP, WARPGROUP, LINE, SECTOR = 32, 128, 128, 32
REGISTERS, REGISTER_UNIT = 65536, 256   # of a multiprocessor; a warp is given whole units
RESERVED_SHARED = 1024                  # bytes of shared memory that the system takes of each block
ISSUED = 4                              # instructions that a multiprocessor issues in a cycle
FFMA_CYCLES = 4                         # from a product to one that adds to its result
# Cycles until a load arrives, about, from shared memory, level 1, level 2 and memory: rounded from Luo et al., Benchmarking and
# Dissecting the Nvidia Hopper GPU Architecture via Microbenchmarking, 2024.
SHARED_CYCLES, LEVEL_1_CYCLES, LEVEL_2_CYCLES, MEMORY_CYCLES = 30, 40, 260, 600


@dataclasses.dataclass(frozen=True)
class Gpu:
    """warps, blocks, shared_bytes, level_1_bytes: of a multiprocessor, shared memory being a part of level 1.

    bytes: per second from and to memory; matrices: products of 16x8x16 bfloat16 or 16x8x8 TF32 numbers (4,096 or 2,048 FLOP)
    that a multiprocessor's tensor cores make in a cycle, by NVIDIA's dense peaks (roofline.FLOP_PER_CYCLE); level_2_bytes: per
    cycle from level 2, as NVIDIA states for the A100.
    """

    name: str
    architecture: str
    multiprocessors: int
    hertz: float
    warps: int
    blocks: int
    shared_bytes: int
    level_1_bytes: int
    bytes: float
    matrices: float
    level_2_bytes: float = 5120


H200 = Gpu("H200", "sm_90", 132, 1.98e9, 64, 32, 228 << 10, 256 << 10, 4.3e12, 1)
A100 = Gpu("A100", "sm_80", 108, 1.41e9, 64, 32, 164 << 10, 192 << 10, 1.555e12, 1 / 2)
RTX_4090 = Gpu("RTX 4090", "sm_89", 128, 2.52e9, 48, 24, 100 << 10, 128 << 10, 1.008e12, 1 / 4)
RTX_3060 = Gpu("RTX 3060", "sm_86", 28, 1.777e9, 48, 16, 100 << 10, 128 << 10, 0.36e12, 1 / 4)
GPUS = (H200, A100, RTX_4090, RTX_3060)


def resident_blocks(gpu, threads, registers, shared_bytes):
    """Blocks of so many threads that a multiprocessor runs at once."""
    warps = _up(threads, WARP)
    by_registers = REGISTERS // (_up(registers * WARP, REGISTER_UNIT) * REGISTER_UNIT) // warps
    return min(gpu.warps // warps, gpu.blocks, by_registers, gpu.shared_bytes // (shared_bytes + RESERVED_SHARED))


def cache_lines(gpu, resident, shared_bytes):
    """Lines of level 1 that one of the resident blocks has, if they share what shared memory leaves."""
    return max(1, (gpu.level_1_bytes // resident - shared_bytes - RESERVED_SHARED) // LINE)


def warps(counts):
    """Of a launch, in all its blocks."""
    return counts["blocks"] * _up(counts["threads"], WARP)


def occupancy(gpu, counts):
    """The share of a multiprocessor's warps that can run at once; counts: of a launch (counting.counted)."""
    return counts["resident"][gpu.name] * _up(counts["threads"], WARP) / gpu.warps


def waves(gpu, counts):
    """How often the GPU is filled with the launch's blocks."""
    return counts["blocks"] / (gpu.multiprocessors * counts["resident"][gpu.name])


def issued_per_warp(counts):
    """Instructions: those of the busiest loop as often as its loads were counted, or all of a kernel without a loop."""
    body, warp = counts["body"], counts["per_warp"]
    if body["is_loop"] and body["shared_words"]:
        return body["instructions"] * max(1, warp["shared_loads"]["least"] / body["shared_words"])
    if body["is_loop"] and body["global_loads"]:
        return body["instructions"] * max(1, warp["global_loads"]["requests"] / body["global_loads"])
    return body["instructions"]


def level_2_bytes(counts):
    """Of a warp: what level 1 misses, what the copy engine brings, or is stored."""
    return (SECTOR * (counts["per_warp"]["missed"] + counts["per_warp"]["global_stores"]["sectors"])
            + bulk_bytes(counts, "bulk_copies"))


def bulk_bytes(counts, place):
    """Of a warp: what is copied to shared memory for a thread ("bulk_copies"), or wgmma reads there ("operands")."""
    return counts["per_warp"].get(place, {"bytes": 0})["bytes"]


def seconds_by_resource(gpu, counts):
    """{resource: seconds that a launch needs of it}; the time is that of the longest."""
    warp = counts["per_warp"]
    busiest = _up(counts["blocks"], gpu.multiprocessors) * _up(counts["threads"], WARP)   # warps of the fullest multiprocessor
    wavefronts = sum(warp[place]["wavefronts"] for place in ("shared_loads", "shared_stores"))
    wavefronts += sum(bulk_bytes(counts, place) for place in ("bulk_copies", "operands")) / LINE
    lines = sum(warp[place]["lines"] for place in ("global_loads", "global_stores"))
    rounds = _up(_up(counts["blocks"], gpu.multiprocessors), counts["resident"][gpu.name])
    return {
        "memory": counts["bytes"] / gpu.bytes,
        "level 2": warps(counts) * level_2_bytes(counts) / gpu.level_2_bytes / gpu.hertz,
        "level 1": busiest * (lines + wavefronts) / gpu.hertz,
        "issue": busiest * issued_per_warp(counts) / ISSUED / gpu.hertz,
        "tensor cores": busiest * _matrices(counts) / gpu.matrices / gpu.hertz,
        "latency": rounds * _cycles_of_a_warp(gpu, counts) / gpu.hertz,
    }


def seconds(gpu, counts):
    return max(seconds_by_resource(gpu, counts).values())


def _repeats(counts):
    return issued_per_warp(counts) / counts["body"]["instructions"]


def _matrices(counts):
    """Products of matrices of a warp: as many as the loop's repetitions have, or as what wgmma read was for.

    For a column that wgmma reads, 32 bytes, each of four warps makes an eighth of a product of 16x8x16: one for 64 bytes.
    """
    return bulk_bytes(counts, "operands") / 64 or _repeats(counts) * counts["body"]["matrices"]


def _cycles_of_a_warp(gpu, counts):
    """Cycles of a warp that has the multiprocessor to itself: its loads wait, as many at once as a loop has, and its sums.

    It has one of the multiprocessor's tensor cores, a quarter. Copies to shared memory are under way while it multiplies. Where
    they are bulk copies, a warpgroup does nothing else, and the others do all that the counts say of all.
    """
    body, warp = counts["body"], counts["per_warp"]
    loads, matrices = warp["global_loads"], body["matrices"]
    sectors = max(loads["sectors"], 1)
    from_memory = min(1, counts["bytes"] / max(1, warps(counts) * SECTOR * warp["missed"]))
    missed = warp["missed"] / sectors
    cycles = (1 - missed) * LEVEL_1_CYCLES + missed * ((1 - from_memory) * LEVEL_2_CYCLES + from_memory * MEMORY_CYCLES)
    waits = loads["requests"] / max(1, body["global_loads"]) * cycles
    shared = warp["shared_loads"]["least"] / max(1, body["shared_words"]) * SHARED_CYCLES
    one_by_one = 0 if matrices else body["products"] * FFMA_CYCLES / min(body["chains"], FFMA_CYCLES)
    sums = _repeats(counts) * one_by_one + _matrices(counts) * ISSUED / gpu.matrices
    computes = shared + max(sums, issued_per_warp(counts))
    if bulk_bytes(counts, "bulk_copies"):
        return max(waits, computes * counts["threads"] / (counts["threads"] - WARPGROUP))
    return max(waits, computes) if body["copies"] else waits + computes


def _up(count, size):
    return math.ceil(count / size)
