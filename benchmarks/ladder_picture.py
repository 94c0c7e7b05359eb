"""docs/ladder.svg, the picture of the ladder in README.md: for each rung the predicted interval of
a training step, the measured time, and PyTorch's in the same precision, on one logarithmic axis.

table.py writes it with the tables.
"""

import dataclasses
import math
from xml.sax.saxutils import escape

WIDTH, LEFT, RIGHT = 980, 420, 950  # pixels; the axis goes from LEFT to RIGHT
TOP, ROW = 70, 27
FASTEST, SLOWEST = 0.18, 70  # milliseconds at the ends of the axis
# Shorter than the catalog's.
IDEAS = {
    "gpu_basic": "one thread per result",
    "gpu_shared": "tiles in shared memory",
    "gpu_registers": "4x4 results per thread",
    "gpu_wide": "16 bytes at a time",
    "gpu_split_k": "long sums split over blocks",
    "gpu_fused": "convolution and ReLU in one",
    "gpu_opt_v1": "all of these, one update",
    "gpu_opt_v2": "pooling and upsampling fused",
    "gpu_gemm": "larger tiles",
    "gpu_mma": "a warp multiplies, TF32",
    "gpu_async": "copies while it multiplies",
    "gpu_wgmma": "producer, consumer, wgmma",
    "gpu_3xtf32": "tensor cores, float32 by three",
    "gpu_tf32": "copies in stages, TF32",
    "gpu_3xtf32_packed": "the same, float32 by three",
    "gpu_bf16": "half the bytes",
    "gpu_bf16_sm90": "Hopper's copy engine, wgmma",
    "gpu_f16": "float16, for older GPUs too",
    "gpu_f16_sm90": "float16 by Hopper's own",
    "gpu_3xf16_sm90": "float32 as two halves",
}
TICKS = (0.2, 0.5, 1, 2, 5, 10, 20, 50)
STYLE = """
text { font: 14px system-ui, sans-serif; fill: #24292f }
.idea, .tick { font-size: 12px; fill: #57606a }
.end { text-anchor: end }
.tick { text-anchor: middle }
.grid { stroke: #d8dee4 }
.band { fill: #9cc3f5 }
.measured { fill: #0a3069 }
.torch { stroke: #bc4c00; stroke-width: 3 }
"""


@dataclasses.dataclass(frozen=True)
class Row:
    """Milliseconds of a step. predicted: least and most; measured, torch: None where there is no
    measurement.
    """

    rung: str
    idea: str
    predicted: tuple[float, float]
    measured: float | None
    torch: float | None


def place(milliseconds):
    """Pixels from the left."""
    share = math.log(milliseconds / FASTEST) / math.log(SLOWEST / FASTEST)
    return round(LEFT + share * (RIGHT - LEFT), 1)


def picture(rows, card):
    """The text of the SVG file; card: what the measured times are of."""
    height = TOP + ROW * len(rows) + 34
    parts = [
        *legend(card),
        *(part for tick in TICKS for part in grid(tick, height)),
        *(part for number, row in enumerate(rows) for part in marks(row, TOP + ROW * number)),
        f'<text class="tick" x="{(LEFT + RIGHT) // 2}" y="{height - 6}">'
        "milliseconds of a training step (logarithmic)</text>",
    ]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">\n'
        f"<title>The ladder of kernels: predicted and measured times of a training step</title>\n"
        f"<style>{STYLE}</style>\n"
        f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#ffffff"/>\n'
    )
    return head + "\n".join(parts) + "\n</svg>\n"


def legend(card):
    return [
        '<rect class="band" x="20" y="18" width="44" height="14" rx="4"/>',
        '<text x="72" y="30">predicted without a GPU</text>',
        '<circle class="measured" cx="276" cy="25" r="6"/>',
        f'<text x="290" y="30">measured on {escape(card)}</text>',
        '<line class="torch" x1="600" x2="600" y1="15" y2="36"/>',
        '<text x="612" y="30">PyTorch, compiled, same precision</text>',
    ]


def grid(tick, height):
    x, bottom = place(tick), height - 38
    return [
        f'<line class="grid" x1="{x}" x2="{x}" y1="{TOP - 14}" y2="{bottom}"/>',
        f'<text class="tick" x="{x}" y="{bottom + 14}">{tick:g}</text>',
    ]


def marks(row, top):
    """The parts of a row, whose upper edge is at `top`."""
    low, high = map(place, row.predicted)
    middle = top + ROW // 2 - 6
    yield f'<text class="end" x="160" y="{middle + 5}">{escape(row.rung)}</text>'
    yield f'<text class="idea" x="172" y="{middle + 5}">{escape(row.idea)}</text>'
    yield (
        f'<rect class="band" x="{low}" y="{middle - 7}" width="{high - low:.1f}" height="14" rx="4"/>'
    )
    if row.torch is not None:
        x = place(row.torch)
        yield f'<line class="torch" x1="{x}" x2="{x}" y1="{middle - 11}" y2="{middle + 11}"/>'
    if row.measured is not None:
        yield f'<circle class="measured" cx="{place(row.measured)}" cy="{middle}" r="6"/>'
        x = min(low, place(row.measured) - 6) - 6
        yield f'<text class="end" x="{x:.1f}" y="{middle + 5}">{row.measured:.2g}</text>'
