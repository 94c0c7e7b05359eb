"""Compile every kernel of every rung for every architecture, without a GPU, and compare every
launch with the limits of a GPU: writes benchmarks/compilations.json, and the tables of registers
and local memory in kernels/README.md.

    python benchmarks/compilations.py                 by the NVRTC that is installed, the builds
                                                      that changed since
    python benchmarks/compilations.py --nvrtc FOLDER  by the NVRTC in this folder, as COMPILERS has
                                                      others:
        pip install --target DIR --no-deps 'nvidia-cuda-nvrtc==13.0.*', and FOLDER is
        DIR/nvidia/cu13/lib
    python benchmarks/compilations.py --architectures sm_90 sm_100   for these alone
    python benchmarks/compilations.py --check         compiles nothing; ends with 1 where a row of
                                                      the record is not of today's kernels and plans

A build is a file with values of its macros. A rung's are those of all launches in
tests/support/rung_plans.py; those of the rungs for float32 with products from tables too, which
need most registers, and of the one with the largest tile with any multiplier. A row of the record
is a build; only a build whose text, macros or launches changed is compiled again.
"""

import argparse
import concurrent.futures
import ctypes
import functools
import hashlib
import json
import math
import os
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [
    str(HERE.parent / folder) for folder in ("workflow/scripts", "tests/support", "emulator/src")
]

import plan_checks  # noqa: E402
import rung_plans  # noqa: E402
import step_kernels  # noqa: E402
from ladder.arithmetic.multipliers import FORMATS, MULTIPLIERS, ByDirection, Integers, Table  # noqa: E402
from ladder.errors import UserError  # noqa: E402
from ladder.executors.cuda import nvrtc  # noqa: E402
from ladder.rungs import catalog  # noqa: E402
from ladder.store import disk  # noqa: E402
from multiplier_references import random_integers, random_table  # noqa: E402
from table import documented_rungs, markdown, with_table  # noqa: E402

RECORD, PAGE = HERE / "compilations.json", HERE.parent / "kernels/README.md"
# Part of the name of a build -> why it may have local memory.
REASONS = {
    f" {kernel} MULTIPLIER={kind} ": "look-ups in a table beside a lesson's 4 x 4 sums, made for exact products"
    for kernel, kind in (
        ("conv2d_forward", "table"),
        ("conv2d_input_grad", "table"),
        ("conv2d_forward", "integers"),
        ("conv2d_input_grad", "integers"),
        ("conv2d_weight_grad", "table"),
        ("conv2d_weight_grad_split", "integers"),
    )
}
LARGEST_TILE = "gpu_gemm"
SHOWN = 100  # builds after which the record is written on the way
LONGEST = 40  # macro that the record shows: a table of products has thousands of numbers
BEGIN = "<!-- table: made by benchmarks/compilations.py -->"
# architectures that a compiler knows nothing of
UNKNOWN = {
    "12.9": ("sm_88", "sm_107", "sm_110"),
    "13.0": ("sm_101", "sm_107"),
    "13.5": ("sm_101",),
}
COMPILERS = {"12.9": "pinned for CUDA 12", "13.0": "pinned for gpu-prepare", "13.5": "the newest"}
ARCHITECTURES = {
    "sm_75": "T4, RTX 20",
    "sm_80": "A100",
    "sm_86": "RTX 30",
    "sm_87": "Jetson Orin",
    "sm_88": "of CUDA 13",
    "sm_89": "RTX 40, L4",
    "sm_90": "H100, H200",
    "sm_100": "B200",
    "sm_101": "Jetson Thor in CUDA 12",
    "sm_103": "B300",
    "sm_107": "Rubin",
    "sm_110": "Jetson Thor",
    "sm_120": "RTX 50",
    "sm_121": "GB10",
}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nvrtc", type=pathlib.Path, metavar="FOLDER")
    parser.add_argument(
        "--architectures",
        nargs="+",
        choices=ARCHITECTURES,
        default=ARCHITECTURES,
        metavar="sm_90",
    )
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    record = read()
    if arguments.check:
        if stale := outdated(record):
            sys.exit(
                f"{', '.join(stale)} changed since it was compiled; run: python benchmarks/compilations.py, once by each "
                f"NVRTC of the record ({', '.join(record['compiled'])})"
            )
        return
    for library in sorted(arguments.nvrtc.glob("libnvrtc*.so.*")) if arguments.nvrtc else ():
        ctypes.CDLL(str(library))  # whoever loads NVRTC later gets this one
    try:
        compiler = ".".join(map(str, nvrtc.version()))
        for architecture in arguments.architectures:
            update(record, compiler, architecture)
            PAGE.write_text(with_table(PAGE.read_text("utf-8"), tables(read()), BEGIN), "utf-8")
    except UserError as error:
        sys.exit(str(error))


# ---- the record


def read():
    """{"compiled": {"12.9": ["sm_75"]}, "rows": {build: row}}; a row's registers are {"12.9 sm_75":
    most of its kernels}.

    Whole for what `compiled` names; empty without the record.
    """
    if not RECORD.exists():
        return {"compiled": {}, "rows": {}}
    record = json.loads(RECORD.read_text("utf-8"))
    architectures = record["architectures"]
    rows = {
        build: row | {"registers": _unpacked(row["registers"], architectures)}
        for build, row in record["rows"].items()
    }
    return {"compiled": record["compiled"], "rows": rows}


def _unpacked(registers, architectures):
    return {
        f"{compiler} {architecture}": int(count)
        for compiler, counts in registers.items()
        for architecture, count in zip(architectures, counts.split(), strict=True)
        if count != "-"
    }


def _packed(registers):
    """{"12.9": "64 56 -"}, by architecture: what the record's lines have."""
    packed = {
        compiler: " ".join(
            str(registers.get(f"{compiler} {architecture}", "-")) for architecture in ARCHITECTURES
        )
        for compiler in COMPILERS
    }
    return {compiler: counts for compiler, counts in packed.items() if set(counts) != {"-", " "}}


def write(record):
    """Only rows of builds that there are; whole or not at all."""
    lines = ",\n".join(
        f"{json.dumps(build)}: {json.dumps(row | {'registers': _packed(row['registers'])})}"
        for build, row in sorted(record["rows"].items())
        if build in builds()
    )
    compiled = {
        compiler: [name for name in ARCHITECTURES if name in record["compiled"].get(compiler, ())]
        for compiler in COMPILERS
    }
    head = json.dumps({"architectures": list(ARCHITECTURES), "compiled": compiled})
    text = f'{head[:-1]}, "rows": {{\n{lines}\n}}}}\n'
    disk.write_atomically(RECORD, text.encode())


def update(record, compiler, architecture):
    """Compile by this NVRTC what the record has not of it; the record is written on the way."""
    if compiler not in COMPILERS:
        raise UserError(
            f"this is NVRTC {compiler}; the record is of {', '.join(COMPILERS)}: COMPILERS in {HERE.name}/"
            f"{pathlib.Path(__file__).name} says which"
        )
    if architecture not in nvrtc.architectures():
        return
    place, rows = f"{compiler} {architecture}", record["rows"]
    stale = missing(record, place)
    print(f"NVRTC {compiler}, {architecture}: {len(stale)} builds", flush=True)
    for number, (build, compiled) in enumerate(
        zip(stale, compiled_all(stale, architecture), strict=True), 1
    ):
        if rows.get(build, {}).get("digest") != digest(build):
            rows[build] = {
                "digest": digest(build),
                "kernels": len(compiled.kernels),
                "registers": {},
            }
        add(rows[build], build, compiled, place)
        if number % SHOWN == 0:
            write(record)
            print(f"  {number} of {len(stale)}", flush=True)
    record["compiled"].setdefault(compiler, []).append(architecture)
    write(record)


def missing(record, place):
    """The builds that run on this architecture and of which the record has nothing by this
    compiler, as they are today.
    """
    rows, architecture = record["rows"], place.split()[1]
    return [
        build
        for build, rungs in builds().items()
        if any(runs(rung, architecture) for rung in rungs)
        and (
            rows.get(build, {}).get("digest") != digest(build)
            or place not in rows[build]["registers"]
        )
    ]


def outdated(record):
    """The files of which a row is missing or not of today's kernels and plans."""
    return sorted(
        {
            build.split()[0]
            for compiler, names in record["compiled"].items()
            for architecture in names
            for build in missing(record, f"{compiler} {architecture}")
        }
    )


def add(row, build, compiled, place):
    """Add to a row what NVRTC says: most registers of a thread, bytes of local memory, spilled
    registers or others, of kernels that have some, those that store nothing, and the launches that
    the GPU would refuse, with the reason.
    """
    kernels, architecture = compiled.kernels, place.split()[1]
    row["registers"][place] = max(resources.registers for resources in kernels.values())
    for entry, resources in kernels.items():
        if local := max(resources.spill_bytes, resources.stack_bytes):
            row.setdefault("local", {}).setdefault(entry, {})[place] = local
        if not stores(compiled.ptx, entry):
            row.setdefault("idle", []).append(f"{entry}, {place}")
    refused = {
        f"{launch.entry}, {place}: {reason}"
        for rung, launches in builds()[build].items()
        if runs(rung, architecture)
        for launch, plan in launches.items()
        for reason in plan_checks.refusals(launch, plan, kernels[launch.entry], architecture)
    }
    if refused:
        row["refused"] = sorted({*row.get("refused", ()), *refused})


# ---- builds


def runs(rung, architecture):
    entry = catalog.RUNGS[rung]
    return entry.oldest <= int(architecture.removeprefix("sm_")) <= (entry.newest or math.inf)


def launches(rung):
    """{launch: its plan}, all that the rung may launch."""
    simulated = []
    if catalog.RUNGS[rung].precision == "float32":
        simulated = [
            Table("random", random_table(7)),
            Integers("signed", random_integers()),
            Integers("unsigned", random_integers(False)),
            *(rung == LARGEST_TILE) * [*MULTIPLIERS.values(), *FORMATS.values()],
        ]
    plans = (
        *rung_plans.plans(rung),
        *(
            rung_plans.trained_in(
                rung_plans.NETWORK, rung, 64, multipliers=ByDirection.everywhere(multiplier)
            )
            for multiplier in simulated
        ),
    )
    return {launch: plan for plan in plans for launch in plan_checks.every_launch(plan)}


@functools.cache
def builds():
    """{build: {rung: {launch: its plan}}}, by name."""
    launched = {}
    for rung in documented_rungs():
        for launch, plan in launches(rung).items():
            launched.setdefault(named(launch), {}).setdefault(rung, {})[launch] = plan
    return dict(sorted(launched.items()))


def named(launch):
    """The name of a launch's build; a macro that is too long to be shown is known by its digest."""
    return " ".join(
        (
            launch.source,
            *(
                define
                if len(define) <= LONGEST
                else f"{define.partition('=')[0]}=#{hashed(define)}"
                for define in launch.defines
            ),
        )
    )


def file_of(build):
    """(source, defines) of a build."""
    launch = next(iter(next(iter(builds()[build].values()))))
    return launch.source, launch.defines


@functools.cache
def digest(build):
    """12 hex digits of all that a build's row depends on but the compiler."""
    source, defines = file_of(build)
    shapes = {
        f"{rung} {launch.entry} {launch.grid} {launch.block} {launch.shared_bytes}"
        for rung, launches in builds()[build].items()
        for launch in launches
    }
    return hashed(
        [nvrtc.OPTIONS, nvrtc.SPECIFIC, step_kernels.text(source), defines, sorted(shapes)]
    )


def hashed(described):
    return hashlib.sha256(json.dumps(described).encode()).hexdigest()[:12]


def compiled_all(stale, architecture):
    """nvrtc.Compiled of each build, in order."""

    def compiled(build):
        source, defines = file_of(build)
        return nvrtc.compile_file(nvrtc.KERNELS / source, architecture, defines)

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        yield from pool.map(compiled, stale)


def stores(ptx, entry):
    """Whether this kernel writes to memory: one that does not was compiled to nothing."""
    return "st.global" in ptx.partition(f".entry {entry}(")[2].partition(".entry")[0]


# ---- the tables


def tables(record):
    """The tables in Markdown, by rung and by architecture, and the kernels with local memory."""
    compilers = [f"NVRTC {compiler}" for compiler in COMPILERS]
    rungs = [
        (
            rung,
            *counted_builds(record, rung),
            *(registers(record, rung, compiler) for compiler in COMPILERS),
        )
        for rung in documented_rungs()
    ]
    architectures = [
        (
            architecture,
            gpu,
            *(local_bytes(record, compiler, architecture) for compiler in COMPILERS),
        )
        for architecture, gpu in ARCHITECTURES.items()
    ]
    named = {}  # reason -> kernels
    for kernel in sorted(local(record)):
        # source, kernel and kind of multiplier
        shown = " ".join(kernel.split()[:3]) if why(kernel) else kernel
        named.setdefault(why(kernel) or "not explained", {})[shown] = None
    lines = [f"- {reason}: {', '.join(kernels)}" for reason, kernels in named.items()]
    return (
        "\n".join(
            [
                *ruled(("rung", "builds", "kernels", *compilers), rungs),
                "",
                "A build is a file and values of its macros. The numbers are the most registers of a thread, where they are fewest and",
                f"where most. The compilers are {', '.join(f'{name} ({what})' for name, what in COMPILERS.items())}.",
                "",
                *ruled(("architecture", "GPU", *compilers), architectures),
                "",
                "The bytes are local memory of a thread, spilled registers or others, summed over the kernels that have some:",
                "",
                *(lines or ["none."]),
            ]
        )
        + "\n"
    )


def ruled(head, rows):
    return markdown([head, tuple("---" for _ in head), *rows])


def rows_of(record, rung):
    return [
        record["rows"][build]
        for build, rungs in builds().items()
        if rung in rungs and build in record["rows"]
    ]


def counted_builds(record, rung):
    rows = rows_of(record, rung)
    return str(len(rows)), str(sum(row["kernels"] for row in rows))


def registers(record, rung, compiler):
    """'56 to 64': most registers of a thread of the rung's kernels, on the architecture with fewest
    and the one with most.
    """
    rows = rows_of(record, rung)
    most = [
        max(row["registers"].get(f"{compiler} {architecture}", 0) for row in rows)
        for architecture in record["compiled"].get(compiler, ())
        if runs(rung, architecture)
    ]
    return " to ".join(map(str, sorted({min(most), max(most)}))) if most else "not compiled"


def local_bytes(record, compiler, architecture):
    """Bytes of local memory of all the kernels that have some."""
    if architecture not in record["compiled"].get(compiler, ()):
        return "not compiled" if architecture not in UNKNOWN.get(compiler, ()) else "not known"
    place = f"{compiler} {architecture}"
    return str(sum(places.get(place, 0) for places in local(record).values()))


def local(record):
    """{kernel: {"12.9 sm_75": bytes of local memory}}, of those that have some."""
    return {
        f"{source} {' '.join((entry, *macros))}": places
        for build, row in record["rows"].items()
        for source, *macros in [build.split()]
        for entry, places in row.get("local", {}).items()
    }


def why(kernel):
    """Why a kernel may have local memory; None if it may not."""
    return next((reason for part, reason in REASONS.items() if part in f"{kernel} "), None)


if __name__ == "__main__":
    main()
