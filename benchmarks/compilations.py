"""Compile every kernel of every rung for every architecture, without a GPU, and compare every launch with the limits of a GPU:
writes benchmarks/compilations.json, and the table of registers, spills and local memory in kernels/README.md.

    python benchmarks/compilations.py                 by the NVRTC that is installed, what changed since
    python benchmarks/compilations.py --nvrtc FOLDER  by the NVRTC in this folder, as a program for another CUDA has it:
        pip install --target DIR --no-deps 'nvidia-cuda-nvrtc==13.0.*', and FOLDER is DIR/nvidia/cu13/lib
    python benchmarks/compilations.py --check         compiles nothing; ends with 1 where a row of the record is not of today's
                                                      kernels and plans

A rung's builds are the files of all launches in tests/support/rung_plans.py, with the macros of each; those of the rungs for
float32 with products from tables too, which need most registers, and of the one with the largest tile with any multiplier.
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

import plan_checks
import rung_plans
import step_kernels
from ladder.arithmetic.multipliers import FORMATS, MULTIPLIERS, ByDirection, Integers, Table
from ladder.errors import UserError
from ladder.executors.cuda import nvrtc
from ladder.rungs import catalog
from multiplier_references import random_integers, random_table
from table import HERE, documented_rungs, markdown, with_table

RECORD, PAGE = HERE / "compilations.json", HERE.parent / "kernels/README.md"
# Part of the name of a build -> why it may have local memory.
REASONS = {f" {kernel} MULTIPLIER={kind} ": "look-ups in a table beside a lesson's 4 x 4 sums, made for exact products"
           for kernel, kind in (("conv2d_forward", "table"), ("conv2d_input_grad", "table"), ("conv2d_forward", "integers"),
                                ("conv2d_input_grad", "integers"), ("conv2d_weight_grad_split", "integers"))}
LARGEST_TILE = "gpu_gemm"
LONGEST = 40   # macro that the record shows: a table of products has thousands of numbers
BEGIN = "<!-- table: made by benchmarks/compilations.py -->"
ARCHITECTURES = {"sm_75": "T4", "sm_80": "A100", "sm_86": "RTX 30", "sm_89": "RTX 40", "sm_90": "H100, H200", "sm_100": "B200",
                 "sm_120": "RTX 50"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nvrtc", type=pathlib.Path, metavar="FOLDER")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    record = read()
    if arguments.check:
        if stale := outdated(record):
            sys.exit(f"{', '.join(stale)} changed since it was compiled; run: python benchmarks/compilations.py, once by each "
                     f"NVRTC of the record ({', '.join(versions(record))})")
        return
    for library in sorted(arguments.nvrtc.glob("libnvrtc*.so.*")) if arguments.nvrtc else ():
        ctypes.CDLL(str(library))   # whoever loads NVRTC later gets this one
    try:
        update(record, ".".join(map(str, nvrtc.version())))
    except UserError as error:
        sys.exit(str(error))
    PAGE.write_text(with_table(PAGE.read_text("utf-8"), table(read()), BEGIN), "utf-8")


def read():
    """{"sources": files below kernels/, "rows": {"12.9 sm_75 gpu_basic": row}}; empty without the record."""
    return json.loads(RECORD.read_text("utf-8")) if RECORD.exists() else {"sources": [], "rows": {}}


def update(record, version):
    """Compile by this NVRTC what its rows in the record are not of; the record is written after each architecture.

    Rows of another NVRTC for the same major version of CUDA make room.
    """
    major = version.partition(".")[0]
    rows = {key: row for key, row in record["rows"].items() if key.split(".")[0] != major or key.split()[0] == version}
    record |= {"sources": sorted({source for rung in documented_rungs() for source, _ in builds(rung)}), "rows": rows}
    for architecture in ARCHITECTURES:
        rungs = {rung: name(version, architecture, rung) for rung in documented_rungs() if runs(rung, architecture)}
        stale = {rung: key for rung, key in rungs.items() if rows.get(key, {}).get("digest") != digest(rung)}
        files = sorted({file for rung in stale for file in builds(rung)})
        print(f"NVRTC {version}, {architecture}: {len(files)} builds", flush=True)
        compiled = compiled_all(files, architecture)
        rows |= {key: row_of(rung, compiled, architecture) for rung, key in stale.items()}
        write(record)


def write(record):
    """Only rows of rungs and architectures that there are; whole or not at all."""
    places = {key: place for key in record["rows"] if (place := place_of(key))}
    lines = ",\n".join(f"  {json.dumps(key)}: {json.dumps(record['rows'][key])}" for key in sorted(places, key=places.get))
    text = f'{{"sources": {json.dumps(record["sources"])}, "rows": {{\n{lines}\n}}}}\n'
    temporary = RECORD.with_suffix(".tmp")
    temporary.write_text(text, "utf-8")
    os.replace(temporary, RECORD)


def place_of(key):
    """By version of NVRTC, architecture and rung, as the ladder has them; None where a rung or an architecture is gone."""
    version, architecture, rung = key.split()
    if rung in documented_rungs() and architecture in ARCHITECTURES and runs(rung, architecture):
        numbers = [int(part) for part in version.split(".")]
        return numbers, list(ARCHITECTURES).index(architecture), documented_rungs().index(rung)
    return None


def name(version, architecture, rung):
    return f"{version} {architecture} {rung}"


def versions(record):
    return list(dict.fromkeys(key.split()[0] for key in record["rows"]))


def runs(rung, architecture):
    entry = catalog.RUNGS[rung]
    return entry.oldest <= int(architecture.removeprefix("sm_")) <= (entry.newest or math.inf)


@functools.cache
def launches(rung):
    """{launch: its plan}, all that the rung may launch."""
    simulated = []
    if catalog.RUNGS[rung].precision == "float32":
        simulated = [Table("random", random_table(7)), Integers("signed", random_integers()),
                     Integers("unsigned", random_integers(False)),
                     *(rung == LARGEST_TILE) * [*MULTIPLIERS.values(), *FORMATS.values()]]
    plans = (*rung_plans.plans(rung), *(
        rung_plans.trained_in(rung_plans.NETWORK, rung, 64, multipliers=ByDirection.everywhere(multiplier))
        for multiplier in simulated))
    return {launch: plan for plan in plans for launch in plan_checks.every_launch(plan)}


def builds(rung):
    """{(source, defines)} of the rung's launches."""
    return {(launch.source, launch.defines) for launch in launches(rung)}


@functools.cache
def digest(rung):
    """16 hex digits of all that the rung's rows depend on but the compiler."""
    parts = [[step_kernels.text(source), *defines] for source, defines in sorted(builds(rung))]
    parts.append(sorted({f"{launch.entry} {launch.defines} {launch.grid} {launch.block} {launch.shared_bytes}"
                         for launch in launches(rung)}))
    return hashlib.sha256(json.dumps([nvrtc.OPTIONS, nvrtc.SPECIFIC, parts]).encode()).hexdigest()[:16]


def outdated(record):
    """The rungs of which a row is missing or not of today's kernels and plans."""
    rows = record["rows"]
    return [rung for rung in documented_rungs()
            if any(rows.get(name(version, architecture, rung), {}).get("digest") != digest(rung)
                   for version in versions(record) for architecture in ARCHITECTURES if runs(rung, architecture))]


def compiled_all(files, architecture):
    """{(source, defines): nvrtc.Compiled}."""
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        compiled = pool.map(lambda file: nvrtc.compile_file(nvrtc.KERNELS / file[0], architecture, file[1]), files)
        return dict(zip(files, compiled, strict=True))


def row_of(rung, compiled, architecture):
    """The row of the record: numbers of builds and kernels, most registers of a thread, bytes of local memory of all, who has
    some, who stores nothing, and the launches that the GPU would refuse, with the reason.
    """
    kernels = [(described(source, entry, defines), resources)
               for source, defines in sorted(builds(rung)) for entry, resources in compiled[source, defines].kernels.items()]
    refused = {launch: plan_checks.refusals(launch, plan, compiled[launch.source, launch.defines].kernels[launch.entry],
                                            architecture) for launch, plan in launches(rung).items()}
    return {
        "digest": digest(rung), "builds": len(builds(rung)), "kernels": len(kernels),
        "registers": max(resources.registers for _, resources in kernels),
        "spill_bytes": sum(resources.spill_bytes for _, resources in kernels),
        "stack_bytes": sum(resources.stack_bytes for _, resources in kernels),
        "local": [kernel for kernel, resources in kernels if resources.spill_bytes or resources.stack_bytes],
        "idle": [described(source, entry, defines) for source, defines in sorted(builds(rung))
                 for entry in compiled[source, defines].kernels if not stores(compiled[source, defines].ptx, entry)],
        "refused": sorted({f"{described(launch.source, launch.entry, launch.defines)}: {reason}"
                           for launch, reasons in refused.items() for reason in reasons}),
    }


def described(source, entry, defines):
    return " ".join((source, entry, *(define for define in defines if len(define) <= LONGEST)))


def stores(ptx, entry):
    """Whether this kernel writes to memory: one that does not was compiled to nothing."""
    return "st.global" in ptx.partition(f".entry {entry}(")[2].partition(".entry")[0]


def table(record):
    """The table in Markdown, and the kernels with local memory."""
    head = ("rung", "builds", "kernels", *(f"{architecture} ({gpu})" for architecture, gpu in ARCHITECTURES.items()))
    rows = [head, tuple("---" for _ in head)]
    for rung in documented_rungs():
        own = [row for key, row in record["rows"].items() if key.endswith(f" {rung}")]
        rows.append((rung, str(own[0]["builds"]), str(own[0]["kernels"]),
                     *(cell(record, architecture, rung) for architecture in ARCHITECTURES)))
    local = {}
    for key, row in record["rows"].items():
        for kernel in row["local"]:
            local.setdefault(kernel, {})[" ".join(key.split()[:2])] = None
    lines = [f"- {kernel}: {', '.join(where)}; {reason(kernel) or 'not explained'}" for kernel, where in local.items()]
    compilers = " and by ".join(versions(record))
    notes = [f"Most registers of a thread, by NVRTC {compilers} where they differ; a build is a file and values of its macros.",
             *(["Local memory, spilled registers or others:", "", *lines] if lines else ["No kernel has local memory."])]
    return "\n".join([*markdown(rows), "", *notes]) + "\n"


def reason(kernel):
    """Why a kernel may have local memory; None if it may not."""
    return next((why for part, why in REASONS.items() if part in f"{kernel} "), None)


def cell(record, architecture, rung):
    """'128', or '128, 130', or with local memory '80 (8 bytes local)'; empty where the rung does not run."""
    rows = [record["rows"].get(name(version, architecture, rung)) for version in versions(record)]
    shown = [f"{row['registers']}" + (f" ({row['stack_bytes']} bytes local)" if row["local"] else "") for row in rows if row]
    return ", ".join(dict.fromkeys(shown)) or ("not compiled" if runs(rung, architecture) else "")


if __name__ == "__main__":
    main()
