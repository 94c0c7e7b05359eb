"""Make the parts of docs/climb.md that come from the source and from the counts: python
docs/climb.py [--check]

Between `<!-- lines: RUNG -->` and the next end, the lines that a rung changes, behind links to
them: a part of a file, or the difference between the parts of two files, as PARTS says. Between
`<!-- counts: RUNG -->` and the end, what was counted of it and of a rung below
(benchmarks/counts.json). With --check nothing is written; it ends with 1 where the page is out of
date.
"""

import difflib
import pathlib
import re
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "docs")]

import generate  # noqa: E402

import count  # noqa: E402
import counting  # noqa: E402
import prediction  # noqa: E402
from ladder.rungs import counted  # noqa: E402
from table import NOT_COUNTED, compared, markdown, percent  # noqa: E402

PAGE = ROOT / "docs" / "climb.md"
RUNGS, EXECUTORS = "workflow/scripts/ladder/rungs", "workflow/scripts/ladder/executors"
# whose forward convolution the counts are of: 64 images of 16x16x256, 128 filters of 3x3
LAYER = "enc2"

# Rung -> the part that it adds, as (file, name of a function in it); before it, if the difference
# is shown, the part that it replaces.
PARTS = {
    "cpu_sequential": [(f"{EXECUTORS}/sequential.py", "conv2d_forward")],
    "gpu_basic": [("kernels/gpu_basic/conv2d.cu", "conv2d_forward")],
    "gpu_shared": [("kernels/gpu_shared/tile.cuh", "multiply_tile")],
    "gpu_registers": [
        ("kernels/gpu_shared/tile.cuh", "multiply_tile"),
        ("kernels/gpu_registers/tile.cuh", "multiply_tile"),
    ],
    "gpu_wide": [
        ("kernels/gpu_registers/tile.cuh", "multiply_tile"),
        ("kernels/gpu_wide/tile.cuh", "multiply_tile"),
    ],
    "gpu_split_k": [
        ("kernels/gpu_shared/products.cuh", "conv2d_weight_grad"),
        ("kernels/gpu_split_k/split.cuh", "conv2d_weight_grad_split"),
    ],
    "gpu_fused": [(f"{RUNGS}/patterns.py", "_product"), (f"{RUNGS}/gpu_fused.py", "conv2d_relu")],
    "gpu_opt_v1": [("kernels/common/gemm_loop.cuh", "multiply")],
    "gpu_opt_v2": [("kernels/gpu_opt_v2/conv2d.cu", "store_windows")],
    "gpu_gemm": [(f"{RUNGS}/gpu_opt_v1.py", "pixel_tile"), (f"{RUNGS}/gpu_gemm.py", "pixel_tile")],
    "gpu_mma": [("kernels/gpu_mma/tile.cuh", "multiply_step")],
    "gpu_async": [
        ("kernels/gpu_mma/tile.cuh", "multiply_tile"),
        ("kernels/gpu_async/tile.cuh", "multiply_tile"),
    ],
    "gpu_wgmma": [("kernels/gpu_wgmma/tile.cuh", "multiply_tile")],
    "gpu_3xtf32": [("kernels/common/tensor_tile.cuh", "add_step")],
    "gpu_tf32": [
        ("kernels/common/gemm_loop.cuh", "multiply"),
        ("kernels/common/tensor_cores.cuh", "in_stages"),
    ],
    "gpu_3xtf32_packed": [("kernels/common/tensor_cores.cuh", "small_part")],
    "gpu_bf16": [("kernels/common/packed.cuh", "rounded_chunk")],
    "gpu_bf16_sm90": [("kernels/gpu_bf16_sm90/loop.cuh", "produce")],
    "gpu_f16": [("kernels/common/tensor_cores.cuh", "cp_async")],
    "gpu_f16_sm90": [(f"{RUNGS}/gpu_bf16_sm90.py", "rung")],
}
HEAD = (
    "rung",
    "step us",
    "forward us",
    "memory",
    "level 2",
    "level 1",
    "issue",
    "tensor cores",
    "latency",
    "sectors used",
    "multiply",
    "registers",
    "occupancy",
)


def page():
    """The text of docs/climb.md with its generated parts as they should be."""
    record = counted.read()
    makers = {"lines": lines, "counts": lambda rung: counts(rung, record)}
    return re.sub(
        r"(<!-- (lines|counts): (\w+) -->\n).*?(<!-- end -->)",
        lambda found: found[1] + makers[found[2]](found[3]) + found[4],
        PAGE.read_text("utf-8"),
        flags=re.S,
    )


def lines(rung):
    """A fenced block: the part of the rung, or what of it differs from the part that it
    replaces.
    """
    parts = [part(ROOT / file, name) for file, name in PARTS[rung]]
    files = [link(file, text) for (file, _), text in zip(PARTS[rung], parts, strict=True)]
    if len(parts) == 1:
        return f"{files[0]}:\n\n```{'python' if '.py#' in files[0] else 'cpp'}\n{textwrap.dedent(parts[0])}\n```\n"
    differing = list(
        difflib.unified_diff(
            *(textwrap.dedent(text).splitlines() for text in parts), lineterm="", n=1
        )
    )[2:]
    shown = "\n".join("..." if line.startswith("@@") else line for line in differing)
    return f"{files[0]} to {files[1]}:\n\n```diff\n{shown}\n```\n"


def part(path, name):
    """The function `name` of a Python or CUDA file without the comment before it; raises ValueError
    if there is none.
    """
    text = path.read_text("utf-8")
    if path.suffix == ".py":
        found = re.search(rf"^def {name}\(.*?(?=^\S|\Z)", text, re.M | re.S)
    else:  # from the line after a blank one or a comment to the brace that closes it
        found = re.search(rf"(?:^(?!//|#|\n).*\n)*?^[^\n/#]*\b{name}\((?:.*\n)*?^}}", text, re.M)
    if not found:
        raise ValueError(f"{path} has no function {name}")
    return found[0].rstrip()


def link(file, text):
    """A link from docs/ to the lines of a file that are `text`."""
    before, _, _ = (ROOT / file).read_text("utf-8").partition(text)
    first = before.count("\n") + 1
    return f"[`{file.removeprefix('workflow/scripts/ladder/')}`](../{file}#L{first}-L{first + text.count(chr(10))})"


def counts(rung, record):
    """A table with a row of a rung below, if it is one for a GPU, and one of the rung."""
    names = [name for name in (compared(rung), rung) if name]
    rows = [HEAD, tuple("---" for _ in HEAD), *(counts_row(name, record) for name in names)]
    return "\n" + "\n".join(markdown(rows)) + "\n\n"


def counts_row(rung, record):
    if rung not in record["rungs"]:
        return (rung, NOT_COUNTED, *("" for _ in HEAD[2:]))
    made, gpu = count.step_plan(rung, count.BATCH), prediction.H200
    step = next(
        step
        for step in made.steps
        if step.layer.startswith(LAYER)
        and "conv2d" in step.operation
        and step.operation.endswith("forward")
    )
    one = record["launches"][counting.key(step.launches[0], made)]
    times, loads = (
        prediction.seconds_by_resource(gpu, one, prediction.between(gpu)),
        one["per_warp"]["global_loads"],
    )
    forward = prediction.interval(gpu, [one])
    return (
        rung,
        counted.span(*record["rungs"][rung]["predicted"][gpu.name]),
        counted.span(1e6 * forward.low, 1e6 * forward.high),
        *(f"{1e6 * seconds:.0f}" for seconds in times.values()),
        percent(loads["bytes"] / (32 * loads["sectors"])),
        percent(one["body"]["products"] / one["body"]["instructions"]),
        str(one["registers"]),
        percent(prediction.occupancy(gpu, one)),
    )


def main():
    generate.write({PAGE: page()}, __doc__)


if __name__ == "__main__":
    main()
