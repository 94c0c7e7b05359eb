"""Make what docs/climb.md has from the source and from the records, and its figures: python
docs/climb.py [--check]

Between `<!-- KIND: RUNG -->` and the next end: `lines`, those of the source that PARTS names,
behind a link; `counts`, what was counted of its launch and of a rung's below
(benchmarks/counts.json); `rungs: all`, a row for each section, with what was predicted and
measured (benchmarks/gpu).
docs/figures.py draws docs/figures.
With --check nothing is written; it ends with 1 where a file is out of date.
"""

import pathlib
import re
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "docs")]

import figures  # noqa: E402
import generate  # noqa: E402

import counting  # noqa: E402, F401  (before figures: it sets the path)
import prediction  # noqa: E402
import results  # noqa: E402
from ladder.rungs import counted  # noqa: E402
from table import NOT_MEASURED, compared, markdown, measured_row, percent, predicted  # noqa: E402

PAGE = ROOT / "docs" / "climb.md"
RUNGS, EXECUTORS = "workflow/scripts/ladder/rungs", "workflow/scripts/ladder/executors"
# Rung -> (file, function, parts of the first and of the last line of it that are shown); "": its
# own first or last line.
PARTS = {
    "cpu_sequential": (f"{EXECUTORS}/sequential.py", "conv2d_forward", "", ""),
    "cpu": (f"{EXECUTORS}/cpu/convolution.py", "gather", "out[...]", "return out"),
    "gpu_basic": ("kernels/gpu_basic/conv2d.cu", "conv2d_forward", "int filter =", "image = pixel"),
    "gpu_shared": ("kernels/gpu_shared/tile.cuh", "multiply_tile", "b_tile[x][y]", "product.write"),
    "gpu_registers": ("kernels/gpu_registers/tile.cuh", "multiply_tile", "float a[EACH]", "+="),
    "gpu_wide": ("kernels/gpu_wide/tile.cuh", "multiply_tile", "float a[EACH]", "load(b"),
    "gpu_split_k": (
        "kernels/gpu_split_k/split.cuh",
        "conv2d_weight_grad_split",
        "int tap",
        "last});",
    ),
    "gpu_fused": (f"{RUNGS}/gpu_fused.py", "conv2d_relu", "build.steps.add(", "relu=True"),
    "gpu_opt_v1": ("kernels/common/gemm_loop.cuh", "multiply", "for (int step", "__syncthreads"),
    "gpu_opt_v2": ("kernels/gpu_opt_v2/conv2d.cu", "store_windows", "largest[e] =", "at_least"),
    "gpu_gemm": (f"{RUNGS}/gpu_gemm.py", "pixel_tile", "", ""),
    "gpu_mma": ("kernels/gpu_mma/tile.cuh", "multiply_step", "for (int k", "mma_tf32"),
    "gpu_async": (
        "kernels/gpu_async/tile.cuh",
        "multiply_tile",
        "cp_async_commit",
        "all have read",
    ),
    "gpu_wgmma": (
        "kernels/gpu_wgmma/tile.cuh",
        "multiply_tile",
        "if (is_producer) {",
        "arrive(empty",
    ),
    "gpu_3xtf32": (
        "kernels/common/tensor_tile.cuh",
        "add_step",
        "if constexpr (SPLIT)",
        "].big, b[i % 2].big",
    ),
    "gpu_tf32": ("kernels/packed/halo_loop.cuh", "multiply", "cp_async_wait", "accumulators);"),
    "gpu_3xtf32_packed": ("kernels/common/tensor_cores.cuh", "small_part", "", ""),
    "gpu_bf16": ("kernels/common/packed.cuh", "rounded_chunk", "", ""),
    "gpu_bf16_sm90": (
        "kernels/gpu_bf16_sm90/loop.cuh",
        "produce",
        "pixels.acquire",
        "filters.next",
    ),
    "gpu_f16": ("kernels/common/tensor_cores.cuh", "cp_async", "", ""),
    "gpu_f16_sm90": (f"{RUNGS}/packed.py", "in_format", "", ""),
    "gpu_3xf16_sm90": (
        "kernels/gpu_bf16_sm90/loop.cuh",
        "add",
        "a[step + 2]",
        "a[step], moved(b, 32 * step));",
    ),
}
HEAD = "rung", "launch us", "longest parts", "registers", "occupancy"
OVERVIEW = "rung", "one idea", "minutes", "predicted ms", "measured ms", "`make check` finds"


def page():
    """The text of docs/climb.md with its generated parts as they should be."""
    text, record = PAGE.read_text("utf-8"), results.records()[0]
    makers = {
        "lines": lines,
        "counts": counts,
        "rungs": lambda _: overview(text, record),
    }
    return re.sub(
        rf"(<!-- ({'|'.join(makers)}): (\w+) -->\n).*?(<!-- end -->)",
        lambda found: found[1] + makers[found[2]](found[3]) + found[4],
        text,
        flags=re.S,
    )


def lines(rung):
    """A link to lines of the rung, and these without pragmas."""
    file, name, *ends = PARTS[rung]
    text = between(part(ROOT / file, name), *ends)
    language = "python" if file.endswith(".py") else "cpp"
    shown = re.sub(r"^#pragma.*\n", "", text, flags=re.M)
    return f"{link(file, text)}:\n\n```{language}\n{textwrap.dedent(shown)}\n```\n"


def between(text, first, last):
    """The lines from the first one that has `first` to the next one that has `last`; "" : to the
    end.
    """
    rows = text.splitlines()
    begin = next(row for row, line in enumerate(rows) if first in line)
    end = (
        next(row for row, line in enumerate(rows) if row >= begin and last in line) if last else -1
    )
    return "\n".join(rows[begin:] if end < 0 else rows[begin : end + 1])


def part(path, name):
    """The function `name` of a Python or CUDA file without the comment before it; raises ValueError
    if there is none.
    """
    text = path.read_text("utf-8")
    if path.suffix == ".py":
        found = re.search(rf"^( *)def {name}\(.*?(?=^\1\S|\Z)", text, re.M | re.S)
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


def counts(rung):
    """A table with a row of a rung below, if it is one for a GPU, and one of the rung."""
    direction = figures.DIRECTIONS.get(rung, "forward")
    names = [name for name in (compared(rung), rung) if name]
    rows = [counts_row(figures.Rung(name, direction)) for name in names]
    return table_of(HEAD, rows)


def table_of(head, rows):
    first, *others = markdown([head, *rows])
    return "\n" + "\n".join([first, "|" + "---|" * len(head), *others]) + "\n\n"


def counts_row(rung):
    gpu, one = prediction.H200, rung.counts
    forward = prediction.interval(gpu, [one])
    times = prediction.seconds_by_resource(gpu, one, prediction.between(gpu))
    longest = sorted(times, key=times.get, reverse=True)[:2]
    return (
        rung.name,
        counted.span(1e6 * forward.low, 1e6 * forward.high),
        ", ".join(f"{name} {1e6 * times[name]:.0f}" for name in longest),
        str(one["registers"]),
        percent(prediction.occupancy(gpu, one)),
    )


def step_times(rung, record):
    """(predicted, measured) milliseconds of a training step, "" of what has no GPU."""
    counts = counted.read()["rungs"].get(rung)
    if not counts:
        return "", ""
    measured = measured_row(record, rung)
    return (
        predicted(counts, unit=1000),
        f"{measured['median_us'] / 1000:.3g}" if measured else NOT_MEASURED,
    )


def overview(text, record):
    """A row for each section of a rung."""
    rows = [
        (
            f"[{rung}](#{anchor(f'{idea}: {rung}')})",
            idea,
            re.search(r"(\d+) minutes", section)[1],
            *step_times(rung, record),
            ", ".join(dict.fromkeys(re.findall(r"^mine: ([a-z. ]+):", section, re.M))),
        )
        for idea, rung, section in re.findall(
            r"^## ([^\n]+): (\w+)\n(.*?)(?=^## )", text, re.M | re.S
        )
    ]
    return table_of(OVERVIEW, rows)


def anchor(heading):
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def main():
    generate.write({PAGE: page(), **figures.files()}, __doc__)


if __name__ == "__main__":
    main()
