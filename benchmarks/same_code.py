"""Whether the kernels of this checkout become the machine code of another's; then records stay.

    python benchmarks/same_code.py OTHER           OTHER: a worktree of the commit before a change
                                                   of words, folders or formats
    python benchmarks/same_code.py OTHER --carry   writes today's digests into the records

Every build of every rung is compiled for ARCHITECTURES by the NVRTC that is installed, in both
checkouts; their PTX is compared without names of variables, which say nothing to a GPU. Records
(RECORDS) know kernels by digests of their text: where all PTX is the same, --carry replaces those
of OTHER, launch by launch, so that counts, compilations and measurements go on counting.
The exit status is 1 where code differs, with the builds that differ.
"""

import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve()
ARCHITECTURES = ("sm_75", "sm_80", "sm_90")
RECORDS = ("counts.json", "compilations.json", "measured_kernels.json", "gpu/*.json")
NAMED = re.compile(r"\.(?:shared|global|const)\b[^;(]*?\s([A-Za-z_$][\w$]*)\s*(?:\[|=|;)")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("other", type=pathlib.Path)
    parser.add_argument("--carry", action="store_true")
    parser.add_argument("--list", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.list:
        json.dump(listed(arguments.other.resolve()), sys.stdout)
        return
    before, today = (in_checkout(root) for root in (arguments.other, HERE.parents[1]))
    if different := changed(before["builds"], today["builds"]):
        sys.exit("\n".join([f"{len(different)} builds differ:", *different]))
    print(f"the PTX of all {len(today['builds'])} builds is the same on {', '.join(ARCHITECTURES)}")
    if arguments.carry:
        digests = dict(zip(before["digests"], today["digests"], strict=True))
        print(f"{carry(digests)} digests replaced in the records")


def in_checkout(root):
    """What `listed` says of a checkout, by a process that imports that checkout's modules alone."""
    print(f"compiling the kernels of {root}", file=sys.stderr, flush=True)
    command = [sys.executable, "-P", HERE, "--list", root]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def listed(root):
    """{"builds": [[name, [digest of the PTX by architecture]]], "digests": all that name kernels},
    both in the order of rungs and launches, whatever files and macros are called.
    """
    folders = ("benchmarks", "workflow/scripts", "tests/support", "tests/cuda_emulator")
    sys.path[:0] = [str(root / folder) for folder in folders]
    import compilations
    import count
    import counting
    import plan_checks
    import step_kernels

    rungs = compilations.documented_rungs()
    builds = {}
    for rung in rungs:
        for launch in compilations.launches(rung):
            builds.setdefault(compilations.named(launch), (launch, rung))
    digests = [compilations.digest(build) for build in builds]
    for rung in rungs:
        plan = count.step_plan(rung, count.BATCH)
        digests += [counting.key(launch, plan) for launch in plan_checks.launches(plan)]
        digests.append(step_kernels.digest(plan))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        codes = list(pool.map(lambda one: code(compilations, *one), builds.values()))
    return {"builds": list(zip(builds, codes, strict=True)), "digests": digests}


def code(compilations, launch, rung):
    """A digest of the PTX by architecture; None where the rung does not run."""
    source = compilations.nvrtc.KERNELS / launch.source
    return [
        nameless(compilations.nvrtc.compile_file(source, architecture, launch.defines).ptx)
        if compilations.runs(rung, architecture)
        else None
        for architecture in ARCHITECTURES
    ]


def nameless(ptx):
    """12 hex digits of PTX whose variables and kernels are known by the order of their names."""
    names = {*NAMED.findall(ptx), *re.findall(r"\b_Z[\w$]+", ptx)}
    order = {}
    text = re.sub(
        r"[A-Za-z_$][\w$]*",
        lambda found: (
            f"name{order.setdefault(found[0], len(order))}" if found[0] in names else found[0]
        ),
        re.sub(r"//.*", "", ptx),
    )
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def changed(before, today):
    if len(before) != len(today):
        return [f"{len(before)} builds became {len(today)}"]
    pairs = zip(before, today, strict=True)
    return [new for (_, code), (new, code_today) in pairs if code != code_today]


def carry(digests):
    """Replace digests in all records; the number of those that were replaced."""
    found = re.compile(r'(?<=")[0-9a-f]{12}(?:[0-9a-f]{4})?(?=")')
    replaced = 0
    for path in sorted(path for record in RECORDS for path in HERE.parent.glob(record)):
        text, numbers = path.read_text("utf-8"), []

        def today(digest, numbers=numbers):
            numbers.append(digests.get(digest[0], digest[0]) != digest[0])
            return digests.get(digest[0], digest[0])

        path.write_text(found.sub(today, text), "utf-8")
        replaced += sum(numbers)
    return replaced


if __name__ == "__main__":
    main()
