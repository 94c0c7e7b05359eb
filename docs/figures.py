"""The figures of docs/climb.md, docs/figures/RUNG.svg: which thread, warp and block loads and
computes what. `python docs/climb.py` writes them.

Numbers and sizes come from the launches of the rung's plan for the forward convolution of the
course (`Rung`), and from the constants of its kernels (`constants`), so that a tile that changes
changes its figure.
"""

import dataclasses
import functools
import math
import re

from drawing import arrow, bars, box, grid, lines, outline, picture, text

import count
import counting
import cuda_emulator
from cuda_emulator.declared import Declarations
from ladder.plan.settings import LOSS_SCALE
from ladder.rungs import counted, tiles
from ladder.rungs.packed_tiles import BFLOAT16, ROW, TF32
from ladder.sources import ROOT

KERNELS = ROOT / "kernels"
# whose forward convolution the course is about: 64 images of 16x16x256, 128 filters of 3x3
LAYER = "enc2"
DIRECTIONS = {"gpu_split_k": "weight_grad"}  # of a rung that leaves the forward one as it is
WARP = 32
WORD = 4  # bytes


@dataclasses.dataclass(frozen=True)
class Rung:
    """The launch of a rung's convolution, its counts, and what its plan says of both."""

    name: str
    direction: str = "forward"

    @functools.cached_property
    def plan(self):
        return count.step_plan(self.name, count.BATCH)

    @functools.cached_property
    def step(self):
        return next(
            step
            for step in self.plan.steps
            if step.layer.startswith(LAYER)
            and "conv2d" in step.operation
            and step.operation.endswith(self.direction)
        )

    @property
    def launch(self):
        return self.step.launches[0]

    @functools.cached_property
    def counts(self):
        return counted.read()["launches"][counting.key(self.launch, self.plan)]

    @property
    def blocks(self):
        return math.prod(self.launch.grid)

    @property
    def threads(self):
        return math.prod(self.launch.block)

    @property
    def defines(self):
        """{macro: its numbers} of the kernel."""
        return {
            name: [int(one) for one in re.findall(r"\d+", values)]
            for name, values in (define.split("=") for define in self.launch.defines)
        }

    @property
    def tile(self):
        """(pixels, filters) of a block."""
        return self.defines["TILE_M"][0], self.defines["TILE_N"][0]

    def bytes_of(self, role):
        """Of a buffer that the step reads or writes."""
        name = {**self.step.reads, **self.step.writes}[role]
        return WORD * math.prod(self.plan.buffers[name].shape)

    @property
    def footer(self):
        """What stands where: two lines."""
        counts = self.counts
        shared = f"{counts['shared_bytes']:,} bytes of" if counts["shared_bytes"] else "no"
        return (
            f"A block: {counts['threads']} threads, {shared} shared memory.",
            f"A thread: {counts['registers']} registers. {counts['blocks']:,} blocks in all.",
        )


def constants(file, *names, **known):
    """The values of constants of a file of kernels/ that follow from `known` and one another."""
    text = cuda_emulator.without_comments((KERNELS / file).read_text("utf-8"))
    declared = Declarations(text, [f"-D{name}={value}" for name, value in known.items()])
    return [declared.number(name) for name in names]


def files():
    """{path: text} of all figures."""
    return {ROOT / f"docs/figures/{name}.svg": figure(name) for name in FIGURES}


def figure(name):
    return FIGURES[name](Rung(name, DIRECTIONS.get(name, "forward")))


def finished(rung, title, description, height, parts):
    """A picture with the rung's footer from `height` on."""
    footer = lines(14, height + 22, *rung.footer, classes="s")
    return picture(title, description, height + 56, [*parts, footer])


# ---- on a processor


def cpu_sequential(_):
    kernel, channels = window_of_layer()
    size, x, y = 34, 60, 108
    seen = [(row, column) for row in range(kernel - 1) for column in range(kernel - 1)]
    parts = [
        text(14, 58, f"x: {channels} channels a pixel"),
        grid(x, y, 5, 5, size, "n", seen, "a"),
        grid(300, y, kernel, kernel, size, "n", [(1, 1), (1, 2), (2, 1), (2, 2)], "b"),
        outline(x - size, y - size, kernel * size, kernel * size, "AA dash"),
        text(300, y - 10, "a filter"),
        arrow(351, y + 106, 351, y + 142),
        text(362, y + 130, "added", "s"),
        box(334, y + 146, size, size, "C", "y"),
        text(265, y + 60, "times", "mid"),
        lines(
            14,
            306,
            f"This output adds {len(seen)} of {kernel * kernel} taps: two ifs skip",
            "what the window (dashed) has outside the image.",
            f"Inside there are {kernel * kernel} taps of {channels} channels,",
            f"{kernel * kernel * channels:,} multiply-adds for one number.",
        ),
    ]
    return picture(
        "One output: a window times a filter",
        "The window of the first pixel lies over the corner of the image. Four of its nine taps are "
        "inside and are multiplied by the same taps of the filter; their sum is one output.",
        390,
        parts,
    )


def cpu(_):
    kernel, channels = window_of_layer()
    size = 22
    rows = {1: (0, 0), 3: (2, 2)}
    parts = [
        text(14, 58, "x"),
        grid(14, 68, 5, 5, size),
        text(190, 58, f"rows of {kernel * kernel} x {channels} numbers"),
        grid(190, 68, 5, 9, 14, "n", [(row, column) for row in rows for column in range(9)], "a"),
        box(350, 68, 50, 126, "b", "W", 0),
        text(333, 105, "x", "mid"),
        text(414, 105, "="),
        box(430, 68, 26, 70, "c", "y", 0),
        lines(
            14,
            226,
            "Every window becomes a row of a matrix (im2col);",
            "the filters are the other matrix.",
            "One product of matrices then does what seven",
            "loops did, and BLAS has the fastest on a processor.",
        ),
    ]
    for row, (down, across) in rows.items():
        parts += [
            outline(14 + size * across, 68 + size * down, 3 * size, 3 * size, "AA"),
            arrow(14 + size * (across + 3), 68 + size * (down + 1.5), 184, 75 + 14 * row),
        ]
    return picture(
        "Windows as rows of a matrix",
        "Two windows of the image are copied to two rows of a matrix, which is multiplied by the "
        "matrix of filters.",
        310,
        parts,
    )


def window_of_layer():
    """(kernel, channels) of the course's convolution."""
    step = Rung("gpu_basic").step
    shape = Rung("gpu_basic").plan.buffers[step.reads["weight"]].shape
    return shape[1], shape[3]


# ---- threads that multiply


def gpu_basic(rung):
    across = rung.launch.block[0]
    down = WARP // across
    size, left, top = 34, 176, 150
    parts = [
        text(left, 56, f"{across} filters: {across} lines of 128 bytes"),
        text(14, 118, f"{down} pixels:"),
        text(14, 139, f"{down} lines"),
        grid(left, top, down, across, size, "c"),
        *(box(left + size * i + 9, 66, 16, 76, "b") for i in range(across)),
        *(box(left + size * i + 9, 90, 16, 7, "B", rx=0) for i in range(across)),
        *(box(14, top + size * j + 9, 150, 16, "a") for j in range(down)),
        *(box(60, top + size * j + 9, 9, 16, "A", rx=0) for j in range(down)),
        *(
            text(
                left + size * (lane % across + 0.5), top + size * (lane // across) + 23, lane, "mid"
            )
            for lane in range(WARP)
        ),
        lines(
            14,
            top + size * down + 32,
            f"Green: the {WARP} lanes of a warp, each with its own sum.",
            f"For one multiply-add each, a warp asks for {down} + {across}",
            f"= {down + across} lines, and uses a word of each (full colour).",
        ),
    ]
    return finished(
        rung,
        "One thread, one output",
        f"A warp's {WARP} lanes are {down} pixels by {across} filters. Each pixel and each filter "
        "is a line of 128 bytes in memory, of which one word is used at a time.",
        top + size * down + 84,
        parts,
    )


@dataclasses.dataclass(frozen=True)
class Product:
    """Where the tiles of a matrix product stand: A left of C, B above it, all to one scale."""

    top: int
    side: int  # of C, in elements; A is side x k, B k x side
    k: int
    scale: float

    @property
    def c(self):
        return 456 - self.side * self.scale, self.top + self.k * self.scale + 12

    @property
    def a(self):
        return self.c[0] - self.k * self.scale - 12, self.c[1]

    @property
    def b(self):
        return self.c[0], self.top

    @property
    def bottom(self):
        return self.c[1] + self.side * self.scale

    def drawn(self, rows, columns, fine):
        """rows, columns: those of the marked elements."""
        k = range(self.k)
        return [
            grid(
                *self.a,
                self.side,
                self.k,
                self.scale,
                "a",
                [(r, i) for r in rows for i in k],
                "A",
                fine,
            ),
            grid(
                *self.b,
                self.k,
                self.side,
                self.scale,
                "b",
                [(i, s) for s in columns for i in k],
                "B",
                fine,
            ),
            grid(
                *self.c,
                self.side,
                self.side,
                self.scale,
                "c",
                [(r, s) for r in rows for s in columns],
                "C",
                fine,
            ),
        ]


def gpu_shared(rung):
    side, k = constants("gpu_shared/tile.cuh", "SIDE", "STEP")
    tile = Product(48, side, k, 11)
    parts = [
        *tile.drawn([5], [9], fine=False),
        lines(
            14,
            70,
            "Shared memory:",
            f"{side} pixels and",
            f"{side} filters,",
            f"{k} channels",
            "of each.",
        ),
        lines(14, tile.c[1] + 16, "A:", "pixels"),
        text(tile.b[0] - 10, tile.b[1] + 16, "B: filters", "end"),
        lines(
            14,
            tile.bottom + 30,
            "A thread (full green) multiplies a row by a column.",
            f"An element is loaded once and read by {side} threads,",
            f"so memory is asked {side} times less.",
        ),
    ]
    return finished(
        rung,
        "Load once, use sixteen times" if side == 16 else f"Load once, use {side} times",
        f"A block keeps a tile of {side} x {k} elements of each operand in shared memory. Each "
        f"thread reads one row of A and one column of B for its one element of C.",
        tile.bottom + 82,
        parts,
    )


def gpu_registers(rung):
    side, k, each, threads = constants("gpu_registers/tile.cuh", "SIDE", "STEP", "EACH", "THREADS")
    tile = Product(48, side, k, 186 / side)
    own = [5 + threads * i for i in range(each)], [9 + threads * i for i in range(each)]
    parts = [
        *tile.drawn(*own, fine=True),
        *registers(14, 104, each),
        text(14, 62, "a thread's registers"),
        lines(
            14,
            tile.bottom + 30,
            f"{each} + {each} words from shared memory serve {each} x {each} products,",
            f"{number_of(2 / each)} words each in place of 2. A block has",
            f"{side} x {side} elements with the same {rung.threads} threads.",
        ),
    ]
    return finished(
        rung,
        f"{each} x {each} sums in the registers of a thread",
        f"A thread has {each} x {each} elements of the {side} x {side} tile of C, every "
        f"{threads}th of each row and column. Of each step of k it reads {each} values of A and "
        f"{each} of B for {each * each} products.",
        tile.bottom + 82,
        parts,
    )


def registers(x, y, each, size=26):
    """A thread's values of A and B, and its sums."""
    return [
        grid(x + size + 8, y - size - 8, 1, each, size, "B"),
        grid(x, y, each, 1, size, "A"),
        grid(x + size + 8, y, each, each, size, "C"),
    ]


def number_of(value):
    return f"{value:.3g}"


def gpu_wide(rung):
    side, each, threads = constants("gpu_wide/tile.cuh", "SIDE", "EACH", "THREADS")
    scale, top = 150 / side, 196
    spread = [5 + threads * i for i in range(each)]
    close = [4 * 5 + i for i in range(each)]
    parts = []
    for x, name, own, words in (
        (14, "gpu_registers", spread, range(0, 16, 5)),
        (250, "gpu_wide", close, range(4, 4 + each)),
    ):
        parts += [
            text(x, 58, name),
            grid(x, 68, 1, 16, 12.5, "n", [(0, word) for word in words], "A"),
            grid(
                x + 25, top, side, side, scale, "c", [(r, s) for r in own for s in own], "C", True
            ),
        ]
    parts += [
        *(
            arrow(14 + 12.5 * (word + 0.5), 86, 75 + 17 * i, 124)
            for i, word in enumerate(range(0, 16, 5))
        ),
        grid(66, 130, 1, each, 17, "A"),
        arrow(250 + 12.5 * (4 + each / 2), 86, 250 + 86, 124),
        grid(302, 130, 1, each, 17, "A"),
        text(14, 178, f"{each} loads of {WORD} bytes"),
        text(250, 178, f"one load of {WORD * each} bytes"),
        lines(
            14,
            top + 182,
            f"Green: a thread's {each} x {each} sums in the tile. Where they",
            "are neighbours, so are the words: one instruction",
            f"reads {each}. As many words, fewer instructions.",
        ),
    ]
    return finished(
        rung,
        "One access in place of four" if each == 4 else f"One access in place of {each}",
        f"Left, {each} words that lie apart in shared memory take {each} loads. Right, {each} "
        f"neighbours take one load of {WORD * each} bytes.",
        top + 234,
        parts,
    )


def gpu_split_k(rung):
    before, after = (Rung(name, rung.direction).blocks for name in ("gpu_wide", rung.name))
    count_of_parts = after // before
    pixels = math.prod(rung.plan.buffers[rung.step.reads["dy"]].shape[:3])
    width = 442 / count_of_parts
    columns = 22

    def busy(blocks):
        return [divmod(i, columns) for i in range(min(blocks, tiles.H200))]

    parts = [text(14, 56, f"one sum over {pixels:,} pixels, in {count_of_parts} parts:")]
    for i in range(count_of_parts):
        left, middle = 14 + width * i, 14 + width * (i + 0.5) - 2
        parts += [
            box(left, 66, width - 4, 26, "a", i + 1),
            arrow(middle, 94, middle, 116),
            box(middle - 15, 120, 30, 30, "C", rx=0),
        ]
    parts += [
        text(14, 178, "added in their order: the same bytes in every run"),
        text(14, 216, f"before: {before} blocks"),
        grid(14, 226, tiles.H200 // columns, columns, 9, "n", busy(before), "C"),
        text(250, 216, f"now: {after} blocks"),
        grid(250, 226, tiles.H200 // columns, columns, 9, "n", busy(after), "C"),
        lines(
            14,
            306,
            f"A square is one of {tiles.H200} multiprocessors (H200);",
            "a green one has work.",
        ),
    ]
    return finished(
        rung,
        "More blocks for one sum",
        f"A weight gradient's sum over {pixels:,} pixels is cut into {count_of_parts} parts, so that "
        f"{after} blocks take the place of {before} and every multiprocessor has work.",
        338,
        parts,
    )


def gpu_fused(rung):
    megabytes = f"{rung.bytes_of('y') / 1e6:.1f} MB"
    parts = [
        text(14, 62, "before"),
        box(14, 74, 120, 44, "b", "convolution"),
        box(160, 152, 110, 36, "n", megabytes),
        box(204, 74, 70, 44, "b", "ReLU"),
        box(346, 152, 110, 36, "n", megabytes),
        arrow(110, 120, 172, 150),
        arrow(225, 150, 238, 121),
        arrow(268, 120, 372, 150),
        text(84, 146, "write", "end s"),
        text(262, 144, "read", "s"),
        text(380, 128, "write", "s"),
        text(14, 176, "memory:", "s"),
        text(14, 228, "now"),
        box(14, 240, 190, 44, "b", "convolution, ReLU"),
        box(346, 318, 110, 36, "n", megabytes),
        arrow(196, 286, 342, 326),
        text(300, 302, "write", "s"),
        text(14, 342, "memory:", "s"),
        lines(
            14,
            390,
            "The ReLU is a comparison on a sum that is still in a",
            "register. A launch goes, and two of three passes",
            "over the image in memory.",
        ),
    ]
    return finished(
        rung,
        "What is never written need not be read",
        f"Before, the convolution wrote {megabytes}, and the ReLU read and wrote as much. Fused, "
        "only the result is written.",
        442,
        parts,
    )


def gpu_opt_v1(rung):
    unit = 28
    (m, n), thread = rung.tile, (rung.defines["THREAD_M"][0], rung.defines["THREAD_N"][0])
    before = [(5 * i, 5 * i + 3, "a", f"load {i}") for i in range(3)]
    before += [(5 * i + 3, 5 * i + 5, "c", f"x {i}") for i in range(3)]
    parts = [
        text(14, 58, "before: load, barrier, multiply, barrier"),
        bars(14, 72, unit, before),
        *barriers([3, 5, 8, 10, 13, 15], 66, 104, unit),
        text(14, 146, "now: one barrier a step, buffers 0 and 1"),
        bars(14, 160, unit, [(3 * i, 3 * i + 3, "a", f"{i} to {i % 2}") for i in range(5)]),
        bars(14, 192, unit, [(3 * i + 3, 3 * i + 5, "c", f"x {i}") for i in range(4)]),
        *barriers([3, 6, 9, 12, 15], 154, 224, unit),
        lines(
            14,
            258,
            "Time runs to the right; orange lines are barriers.",
            "While the threads multiply a step (green) out of",
            "one buffer, the loads of the next (blue) are under",
            "way, and are stored to the other one.",
            f"The tile: {m} x {n}, {thread[0]} x {thread[1]} sums a thread.",
        ),
    ]
    return finished(
        rung,
        "Load the next step during this one",
        "Two timelines. Before, loads and products alternate with two barriers a step. Now the "
        "loads of the next step overlap the products of this one, with one barrier a step.",
        354,
        parts,
    )


def barriers(times, top, bottom, unit):
    return [
        f'<path class="BB" d="{"".join(f"M{13 + unit * time} {top}V{bottom}" for time in times)}"/>'
    ]


def gpu_opt_v2(rung):
    _, _, m, n = rung.defines["TILE"]
    size, top, window = 27, 72, 4
    right = 14 + size * n + 40
    parts = [
        text(14, 58, f"a thread's {m} x {n} sums"),
        text(right, 58, "what it writes"),
        grid(14, top, m, n, size, "c"),
    ]
    for first in range(0, m, window):
        y = top + size * first
        parts += [
            outline(14, y, n * size, window * size, "CC"),
            arrow(18 + n * size, y + 54, right - 6, y + 54),
            grid(right, y + 8, 1, n, 22, "C"),
            text(right, y + 47, "the largest", "s"),
            grid(right, y + 58, 1, n, 22, "n"),
            text(right, y + 97, "its place, or 4: none", "s"),
        ]
    every, kept = WORD * m * n, WORD * m * n // window + m * n // window
    parts.append(
        lines(
            14,
            top + m * size + 28,
            "Four rows (a frame) are a window of 2 x 2 pixels,",
            "since a tile's rows are ordered so. Pooled while in",
            f"registers, {every} bytes become {kept}.",
        )
    )
    return finished(
        rung,
        "Pooled before it is written",
        f"Of a thread's {m} x {n} sums four rows are a pooling window. Only the largest of each and "
        "its place are written.",
        top + m * size + 82,
        parts,
    )


def gpu_gemm(rung):
    parts, x, scale = [], 14, 1.5
    for one in (Rung("gpu_opt_v1"), rung):
        (m, n), (tall, wide) = one.tile, (one.defines["THREAD_M"][0], one.defines["THREAD_N"][0])
        parts += [
            text(x, 58, one.name),
            box(x, 70, 12, scale * m, "A", rx=0),
            box(x + 18, 76 + scale * m, scale * n, 12, "B", rx=0),
            box(x + 18, 70, scale * n, scale * m, "c", f"{m} x {n}", rx=0),
            lines(
                x,
                306,
                f"{tall} + {wide} words for",
                f"{tall} x {wide} products:",
                f"{number_of((tall + wide) / (tall * wide))} each;",
                f"{one.blocks} blocks",
            ),
        ]
        x += 220
    parts.append(
        lines(
            14,
            408,
            "The edges (blue, orange) are loaded, the area (green)",
            "is multiplied: twice the side, half the loads for a",
            f"product. But {rung.blocks} blocks have to fill {tiles.H200} processors.",
        )
    )
    return finished(
        rung,
        "Larger tiles load less for each product",
        "Two tiles to one scale with the edges of both operands that they load. The larger one has "
        "twice the edge and four times the products.",
        460,
        parts,
    )


# ---- tensor cores


def gpu_mma(rung):
    side, m, n = constants("gpu_mma/tile.cuh", "SIDE", "WARP_M", "WARP_N")
    lane, size, k = 5, 15, 8
    g, q = lane // 4, lane % 4
    x, y, scale = 14, 70, 150 / side
    left, right, top, below = 196, 330, 70, 210
    parts = [
        text(x, 58, f"a block: {side // m} x {side // n} warps"),
        grid(x, y, side, side, scale, "c", fine=True),
        *(
            outline(x + n * scale * j, y + m * scale * i, n * scale, m * scale, "CC")
            for i in range(side // m)
            for j in range(side // n)
        ),
        box(x + n * scale, y + m * scale, 8 * scale, 16 * scale, "C", rx=0),
        arrow(x + (n + 8) * scale, y + (m + 8) * scale, left - 2, 132),
        lines(left + 4, 118, "one mma.sync", "of a warp"),
        text(right, 58, "B: 8 x 8"),
        text(left, below - 8, "A: 16 x 8"),
        grid(right, top, k, 8, size, "b", [(q, g), (q + 4, g)], "B"),
        grid(left, below, 16, k, size, "a", [(g + r, q + c) for r in (0, 8) for c in (0, 4)], "A"),
        grid(
            right,
            below,
            16,
            8,
            size,
            "c",
            [(g + r, 2 * q + c) for r in (0, 8) for c in (0, 1)],
            "C",
        ),
        lines(
            14,
            262,
            "Full colours:",
            f"what lane {lane} has",
            "in its registers,",
            "4 of A, 2 of B,",
            "4 sums.",
        ),
        lines(
            14,
            below + 270,
            f"One instruction: 16 x 8 x 8 = {16 * 8 * 8:,} multiply-adds,",
            f"their numbers spread over the {WARP} lanes of a warp.",
        ),
    ]
    return finished(
        rung,
        "A warp multiplies two matrices",
        f"A block's tile belongs to {side // m * side // n} warps. An instruction multiplies 16 x 8 "
        "by 8 x 8 elements, of which each lane holds ten with its sums.",
        below + 300,
        parts,
    )


def gpu_async(rung):
    stages = int(
        re.search(r"Stage stages\[(\d+)\]", (KERNELS / "gpu_async/tile.cuh").read_text("utf-8"))[1]
    )
    unit = 20
    parts = [
        box(14, 60, 104, 40, "n", "global"),
        box(183, 60, 104, 40, "c", "registers"),
        box(352, 60, 104, 40, "a", "shared"),
        arrow(120, 80, 181, 80),
        arrow(289, 80, 350, 80),
        '<path class="AA" marker-end="url(#tip)" d="M66 102v30h338v-28"/>',
        text(235, 154, "cp.async: no register, no waiting", "mid"),
        text(150, 72, "load", "mid s"),
        text(319, 72, "store", "mid s"),
        text(14, 196, "gpu_mma"),
        bars(14, 206, unit, [(7 * i, 7 * i + 5, "a", f"load {i}, wait") for i in range(3)]),
        bars(14, 206, unit, [(7 * i + 5, 7 * i + 7, "c", f"x {i}") for i in range(3)]),
        text(14, 264, f"gpu_async: copies, step to stage; {stages} stages"),
        bars(
            14, 274, unit, [(4.4 * i, 4.4 * i + 4.4, "a", f"{i} to {i % stages}") for i in range(5)]
        ),
        bars(14, 306, unit, [(4.4 * i + 4.4, 4.4 * i + 6.4, "c", f"x {i}") for i in range(4)]),
        lines(
            14,
            364,
            "The thread says what goes where and goes on. While",
            "a stage is multiplied, the copies to the other one",
            "are under way.",
        ),
    ]
    return finished(
        rung,
        "Copy while you multiply",
        "A load passes a register, where the thread waits for it; cp.async goes straight to shared "
        f"memory. With {stages} stages copies and products overlap.",
        416,
        parts,
    )


def gpu_wgmma(rung):
    names = "STAGES", "WARPGROUP", "STEP", "SIDE"
    stages, group, k, side = constants("gpu_wgmma/tile.cuh", *names, CHANNEL_BLOCK=BFLOAT16.step)
    unit = 72

    def at(time):
        return 14 + unit * time

    parts = [
        text(14, 58, f"producer, {group} threads"),
        bars(14, 68, unit, [(2 * i, 2 * i + 2, "a", f"fills {i % stages}") for i in range(3)]),
        lines(14, 204, "consumer,", f"{group} threads"),
        bars(14, 200, unit, [(2 * i + 2, 2 * i + 3, "c", f"x {i % stages}") for i in range(2)]),
    ]
    for i in range(2):
        parts += [
            arrow(at(2 * i + 2), 97, at(2 * i + 2) + 8, 197),
            arrow(at(2 * i + 3) - 4, 197, at(2 * i + 4), 97),
            text(at(2 * i + 2) - 2, 188, f"full {i % stages}", "end"),
            text(at(2 * i + 3.5) - 12, 126, f"empty {i % stages}", "end"),
        ]
    parts.append(
        lines(
            14,
            266,
            f"{stages} stages of {side} x {k} numbers of A and of B. A stage",
            "has two barriers: full, when all is stored, and",
            "empty, when all is read. Each waits for the other",
            "there, and nobody for the whole block. wgmma",
            f"multiplies {side} x 16 by 16 x {side}, B in shared memory.",
        )
    )
    return finished(
        rung,
        "One fills, one multiplies",
        "A timeline of a producer that fills stages and a consumer that multiplies them. Arrows say "
        "which barrier each waits for.",
        360,
        parts,
    )


def gpu_3xtf32(rung):
    size = 13.4
    parts = [
        text(14, 58, "a float32: 23 bits of mantissa"),
        grid(14, 68, 1, 32, size, "n", [(0, i) for i in range(9, 32)], "a"),
        text(14, 118, "big: the first 10, as tensor cores read them (TF32)"),
        grid(14, 128, 1, 32, size, "n", [(0, i) for i in range(9, 19)], "A"),
        text(14, 178, "small: what is left, in a number of its own"),
        grid(14, 188, 1, 32, size, "n", [(0, i) for i in range(9, 22)], "B"),
        text(14, 240, "x y  ="),
    ]
    for i, (one, other) in enumerate((("B", "A"), ("A", "B"), ("A", "A"))):
        x = 72 + 130 * i
        parts += [
            box(x, 222, 48, 26, one, "small" if one == "B" else "big"),
            text(x + 56, 240, "·", "mid"),
            box(x + 63, 222, 48, 26, other, "small" if other == "B" else "big"),
            *[text(x + 120, 240, "+", "mid")] * (i < 2),
        ]
    parts.append(
        lines(
            14,
            284,
            "Three products of TF32 are nearly one of float32.",
            "The fourth, small · small, is below its last bit.",
        )
    )
    return finished(
        rung,
        "One product of float32 from three of TF32",
        "The mantissa of a float32 is split into a big part of 10 bits and a small part. Three "
        "products of these are added.",
        320,
        parts,
    )


def gpu_tf32(rung):
    m, n = rung.tile
    columns, kernel = rung.defines["TILE_COLUMNS"][0], rung.defines["KERNEL"][0]
    rows, reach, size = m // columns, kernel - 1, 17
    x, y = 14, 72
    halo = (rows + reach) * (columns + reach)
    stage, window = n * ROW, halo * ROW
    parts = [
        text(14, 58, f"{rows + reach} x {columns + reach} pixels in shared memory"),
        grid(x, y, rows + reach, columns + reach, size, "a"),
        outline(x, y, columns * size, rows * size, "BB"),
        outline(x + reach * size, y + reach * size, columns * size, rows * size, "CC"),
        lines(
            x + (columns + reach) * size + 12,
            y + 16,
            "tap 0: the",
            "block's",
            f"{rows} x {columns}",
            "outputs",
            "(orange)",
        ),
        lines(x + (columns + reach) * size + 12, y + 134, f"tap {kernel * kernel - 1}:", "(green)"),
        lines(
            14,
            y + (rows + reach) * size + 26,
            f"A tap is a shift of one rectangle: {halo} pixels are",
            f"copied once; {kernel * kernel} taps of {m} would read {kernel * kernel * m:,}.",
        ),
        text(14, 336, f"shared memory, {rung.launch.shared_bytes:,} bytes, two uses:"),
        *(box(14 + 66 * i, 346, 62, 30, "b", f"{stage:,}") for i in range(kernel)),
        *(box(14 + 66 * kernel + 92 * i, 346, 88, 30, "a", f"{window:,}") for i in range(2)),
        lines(
            14,
            400,
            f"Weights of a tap arrive in {kernel} stages (orange),",
            f"the next {TF32.step} channels of the pixels meanwhile (blue).",
        ),
    ]
    return finished(
        rung,
        "A pixel is copied once for all nine taps" if kernel == 3 else "A pixel once for all taps",
        f"A block has {rows} x {columns} pixels and the {reach} further rows and columns that its "
        "windows reach in shared memory. Each tap reads a shifted rectangle of them.",
        432,
        parts,
    )


def gpu_3xtf32_packed(rung):
    parts = [
        text(14, 62, "memory"),
        box(14, 72, 110, 36, "n", "32 bits"),
        text(180, 62, "shared memory"),
        box(180, 72, 110, 36, "a", "32 bits"),
        text(346, 62, "registers"),
        box(346, 72, 110, 36, "c", "32 bits"),
        arrow(126, 90, 177, 90),
        arrow(292, 90, 343, 90),
        text(152, 126, "cp.async", "mid s"),
        text(318, 126, "ldmatrix", "mid s"),
        arrow(380, 110, 355, 148),
        arrow(422, 110, 440, 148),
        box(314, 152, 70, 30, "A", "big"),
        box(392, 152, 64, 30, "B", "small"),
        arrow(384, 186, 384, 206),
        box(314, 210, 142, 30, "C", "3 x mma"),
        lines(
            14,
            160,
            "A number is split only when",
            "a lane has read it: nothing",
            "on the way is larger than",
            "in gpu_tf32.",
        ),
        lines(
            14,
            276,
            "Three products for one keep the tensor cores busy",
            f"three times as long. The parts need registers: {rung.counts['registers']} a",
            f"thread, and a tile of {rung.tile[0]} x {rung.tile[1]} for this layer.",
        ),
    ]
    return finished(
        rung,
        "Whole in every copy, split in registers",
        "A number of 32 bits is copied to shared memory and read into registers, where it is split "
        "into a big and a small part for three products.",
        328,
        parts,
    )


def gpu_bf16(rung):
    width, parts = 442, []
    for i, (name, number_format, bits) in enumerate(
        (
            ("gpu_tf32", TF32, "1 + 8 + 10 bits, in 32"),
            ("gpu_bf16", BFLOAT16, "1 + 8 + 7 bits, in 16"),
        )
    ):
        y, k, numbers = 58 + 108 * i, 2 * number_format.chunk, number_format.step
        parts += [
            text(14, y, f"{name}: {bits}"),
            grid(
                14,
                y + 12,
                1,
                numbers,
                width / numbers,
                "a",
                [(0, j) for j in range(k)],
                "A",
                height=28,
            ),
            text(14, y + 62, f"{numbers} numbers in {ROW} bytes; an mma takes {k} (full)"),
        ]
    parts.append(
        lines(
            14,
            276,
            "Half the bytes in memory, in shared memory and in",
            "registers; twice the products of an instruction.",
            "Every count is halved but that of the launches.",
        )
    )
    return finished(
        rung,
        "Twice the numbers in the same bytes",
        f"A row of {ROW} bytes in shared memory holds {TF32.step} numbers of TF32 or {BFLOAT16.step} "
        "of bfloat16, and an instruction multiplies twice as many.",
        330,
        parts,
    )


def gpu_bf16_sm90(rung):
    m, n = rung.tile
    stages, pixel_stages = constants("gpu_bf16_sm90/loop.cuh", "STAGES", "PIXEL_STAGES")
    filters = n * ROW
    groups = m // 64
    pixels = (rung.launch.shared_bytes - stages * filters) // pixel_stages // ROW
    parts = [
        text(14, 58, "global memory: runs of rows, already arranged"),
        box(14, 68, 200, 30, "a", "pixels"),
        box(230, 68, 226, 30, "b", "filters, tap by tap"),
        text(235, 128, "one thread starts each copy (the copy engine, TMA)", "mid"),
        *(box(14 + 102 * i, 164, 98, 34, "a", f"{pixels} rows") for i in range(pixel_stages)),
        *(box(230 + 57.5 * i, 164, 53.5, 34, "b", f"tap {i}") for i in range(stages)),
        arrow(114, 136, 114, 161),
        arrow(343, 136, 343, 161),
        text(14, 222, f"shared memory: {pixel_stages} + {stages} stages, each with full and empty"),
        arrow(114, 230, 150, 256),
        arrow(343, 230, 300, 256),
        *(box(14 + 150 * i, 260, 140, 34, "C", f"{WARP * 4} threads") for i in range(groups)),
        box(330, 260, 126, 34, "n", "1 that copies"),
        lines(
            14,
            322,
            f"wgmma: {WARP * 4} threads multiply 64 pixels by {n} filters,",
            "pixels from registers, filters from shared memory.",
            "The next tap is loaded while this one is multiplied.",
        ),
    ]
    return finished(
        rung,
        "One thread copies, warpgroups multiply",
        "One thread starts bulk copies of pixels and filters to stages of shared memory. "
        f"{groups} warpgroups multiply from there.",
        374,
        parts,
    )


def gpu_f16(rung):
    low, x, unit, scale = -26, 20, 9.8, LOSS_SCALE

    def at(exponent):
        return x + unit * (exponent - low)

    gradient = math.log2(1e-6)
    scaled = gradient + math.log2(scale)
    parts = [
        text(14, 58, "float16, by size of the number"),
        box(at(-24), 74, at(-14) - at(-24), 30, "b"),
        box(at(-14), 74, at(16) - at(-14), 30, "a"),
        text((at(-24) + at(-14)) / 2, 94, "fewer bits", "mid"),
        text((at(-14) + at(16)) / 2, 94, "all 11 bits", "mid"),
        *(
            text(at(exponent), 126, label, "mid s")
            for exponent, label in ((-24, "6e-8"), (-14, "6e-5"), (0, "1"), (16, "65504"))
        ),
        box(at(gradient) - 4, 140, 8, 30, "B", rx=0),
        box(at(scaled) - 4, 140, 8, 30, "C", rx=0),
        arrow(at(gradient) + 8, 155, at(scaled) - 8, 155),
        text(at(scaled) + 12, 161, f"x {scale:,}"),
        text(14, 196, "orange: a gradient of 1e-6; green: what is stored"),
        lines(
            14,
            236,
            f"The loss is multiplied by {scale:,}, with it gradients;",
            "the update divides by it. bfloat16 has 8 bits of",
            "exponent in place of 5 and needs no scale.",
        ),
    ]
    return finished(
        rung,
        "A scale moves gradients to more bits",
        f"On a scale of sizes a gradient of 1e-6 lies where float16 has few bits. Times {scale} it "
        "lies where it has all.",
        288,
        parts,
    )


def gpu_f16_sm90(rung):
    size, parts = 23, []
    for i, (name, exponent, mantissa) in enumerate(
        (("gpu_tf32: TF32", 8, 10), ("gpu_bf16_sm90: bfloat16", 8, 7), (rung.name, 5, 10))
    ):
        y = 58 + 62 * i
        parts += [
            text(14, y, name if i < 2 else f"{name}: float16"),
            grid(14, y + 10, 1, 1, size, "n"),
            grid(14 + size, y + 10, 1, exponent, size, "b"),
            grid(14 + size * (1 + exponent), y + 10, 1, mantissa, size, "a"),
        ]
    parts += [
        text(14, 244, "grey: sign; orange: exponent; blue: mantissa"),
        lines(
            14,
            284,
            "The kernels are those of gpu_bf16_sm90, with another",
            "word in wgmma: TF32's mantissa in bfloat16's bytes.",
            f"The loss is multiplied by {LOSS_SCALE:,}, as in gpu_f16.",
        ),
    ]
    return finished(
        rung,
        "TF32's mantissa in half the bytes",
        "TF32 has 8 bits of exponent and 10 of mantissa, bfloat16 8 and 7, float16 5 and 10.",
        348,
        parts,
    )


def gpu_3xf16_sm90(rung):
    size, parts = 13, [text(14, 58, "a pixel's 128 bytes in shared memory: 32 channels")]
    for place, (name, color) in enumerate((("high halves", "A"), ("low halves", "a"))):
        parts += [
            grid(14 + 200 * place, 74, 1, 15, size, color),
            text(14 + 200 * place + 97, 114, name, "mid s"),
        ]
    for i, (left, right) in enumerate((("a", "B"), ("A", "b"), ("A", "B"))):
        y = 138 + 36 * i
        parts += [
            box(60, y, 60, 24, left),
            text(140, y + 17, "x", "mid"),
            box(160, y, 60, 24, right),
            arrow(228, y + 12, 276, y + 12),
        ]
    parts += [
        box(282, 138, 110, 96, "c"),
        text(337, 190, "accumulators", "mid s"),
        lines(
            14,
            268,
            "x 2^exponent = high + low, 22 bits of 24. Six wgmma",
            "a row: two of 16 channels for each product. Low x",
            "low is below the last bit of a float32.",
        ),
    ]
    return finished(
        rung,
        "A number is two halves, a product three",
        "The first half of a row has the high halves of 32 channels, the other the low ones. Low times "
        "high, high times low and high times high go to the same accumulators.",
        330,
        parts,
    )


FIGURES = {
    function.__name__: function
    for function in (
        cpu_sequential,
        cpu,
        gpu_basic,
        gpu_shared,
        gpu_registers,
        gpu_wide,
        gpu_split_k,
        gpu_fused,
        gpu_opt_v1,
        gpu_opt_v2,
        gpu_gemm,
        gpu_mma,
        gpu_async,
        gpu_wgmma,
        gpu_3xtf32,
        gpu_tf32,
        gpu_3xtf32_packed,
        gpu_bf16,
        gpu_bf16_sm90,
        gpu_f16,
        gpu_f16_sm90,
        gpu_3xf16_sm90,
    )
}
