"""Whether the kernels of this checkout become the machine code of another's; then records stay.

    python benchmarks/same_code.py OTHER           OTHER: a worktree of the commit before a change
                                                   of words, folders or formats
    python benchmarks/same_code.py OTHER --carry   writes today's digests into the records

Every build of every rung whose tokens differ is compiled in both checkouts by the NVRTC that is
installed, for --architecture (sm_90 if not given): a few lines ask for `__CUDA_ARCH__`, and those
that only others have are not compared. The PTX is compared without the names of variables, which
say nothing to a GPU. Records (RECORDS) know kernels by digests of their text:
where all PTX is the same, --carry replaces those of OTHER, launch by launch, so that counts,
compilations and measurements go on counting.
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
import tempfile

HERE = pathlib.Path(__file__).resolve()
RECORDS = ("counts.json", "compilations.json", "measured_kernels.json", "gpu/*.json")
# A constant, as PTX declares it.
DECLARED = re.compile(
    r"^\.global\b[^;(]*?\s([A-Za-z_$][\w$]*)(?:\[\d+\])?\s*(?:=[^;]*)?;\n", re.MULTILINE
)
NAMED = re.compile(r"\.(?:shared|global|const)\b[^;(]*?\s([A-Za-z_$][\w$]*)\s*(?:\[|=|;)")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("other", type=pathlib.Path)
    parser.add_argument("--carry", action="store_true")
    parser.add_argument("--architecture", default="sm_90", metavar="sm_90")
    parser.add_argument("--list", type=pathlib.Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.list:
        arguments.list.write_text(
            json.dumps(listed(arguments.other.resolve(), arguments.architecture)), "utf-8"
        )
        return
    roots = arguments.other, HERE.parents[1]
    before, today = (in_checkout(root, arguments.architecture) for root in roots)
    if len(before["builds"]) != len(today["builds"]):
        sys.exit(f"{len(before['builds'])} builds became {len(today['builds'])}")
    pairs = list(zip(before["builds"], today["builds"], strict=True))
    changed = [pair for pair in pairs if pair[0]["tokens"] != pair[1]["tokens"]]
    print(f"{len(pairs)} builds, {len(changed)} with other tokens", flush=True)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        same = list(pool.map(lambda pair: ptx(pair[0]) == ptx(pair[1]), changed))
    if different := [
        new["name"] for (_, new), equal in zip(changed, same, strict=True) if not equal
    ]:
        sys.exit("\n".join([f"the PTX of {len(different)} differs:", *different]))
    print("the PTX of all is the same")
    if arguments.carry:
        digests = dict(zip(before["digests"], today["digests"], strict=True))
        print(f"{carry(digests)} digests replaced in the records")


def in_checkout(root, architecture):
    """What `listed` says of a checkout, by a process that imports that checkout's modules alone."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "listed.json")
        subprocess.run(
            [sys.executable, "-P", HERE, "--architecture", architecture, "--list", path, root],
            check=True,
        )
        return json.loads(path.read_text("utf-8"))


def listed(root, architecture):
    """{"builds": [name, digest of its tokens, source and compiler options], "digests": all that
    name kernels}, both by rungs and launches, whatever files and macros are called.
    """
    folders = ("benchmarks", "workflow/scripts", "tests/support", "emulator/src")
    sys.path[:0] = [str(root / folder) for folder in folders]
    import compilations
    import count
    import counting
    import plan_checks
    import step_kernels

    rungs, builds, digests = compilations.documented_rungs(), {}, []
    for rung in rungs:
        for launch in compilations.launches(rung):
            builds.setdefault(compilations.named(launch), launch)
        plan = count.step_plan(rung, count.BATCH)
        digests += [counting.key(launch, plan) for launch in plan_checks.launches(plan)]
        digests.append(step_kernels.digest(plan))
    digests += [compilations.digest(build) for build in builds]
    return {
        "builds": [
            {
                "name": name,
                "tokens": hashed(" ".join([step_kernels.text(launch.source), *launch.defines])),
                "source": str(root / "kernels" / launch.source),
                "options": compilations.nvrtc.options(
                    root / "kernels" / launch.source, architecture, launch.defines
                ),
            }
            for name, launch in builds.items()
        ],
        "digests": digests,
    }


def hashed(text):
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def ptx(build):
    """The digest of a build's PTX; raises RuntimeError where NVRTC rejects it."""
    from cuda.bindings import nvrtc

    options = [
        option.replace("=sm_", "=compute_").encode()  # PTX alone
        for option in build["options"]
        if "ptxas" not in option
    ]
    text = pathlib.Path(build["source"]).read_bytes()
    _, program = nvrtc.nvrtcCreateProgram(text, build["source"].encode(), 0, [], [])
    (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    if status.value:
        raise RuntimeError(f"{build['name']}: {status.name}")
    code = b" " * nvrtc.nvrtcGetPTXSize(program)[1]
    nvrtc.nvrtcGetPTX(program, code)
    nvrtc.nvrtcDestroyProgram(program)
    return nameless(code.decode())


def nameless(ptx):
    """12 hex digits of PTX whose variables and kernels are known by the order of their names,
    without the constants of headers that no instruction uses.
    """
    ptx = DECLARED.sub(lambda line: line[0] if ptx.count(line[1]) > 1 else "", ptx)
    names = {*NAMED.findall(ptx), *re.findall(r"\b_Z[\w$]+", ptx)}
    order = {}
    text = re.sub(
        r"[A-Za-z_$][\w$]*",
        lambda word: (
            f"name{order.setdefault(word[0], len(order))}" if word[0] in names else word[0]
        ),
        re.sub(r"//.*", "", ptx),
    )
    return hashed(text)


def carry(digests):
    """Replace digests in all records; the number of those that were replaced."""
    quoted = re.compile(r'(?<=")[0-9a-f]{12}(?:[0-9a-f]{4})?(?=")')
    replaced = 0
    for path in sorted(path for record in RECORDS for path in HERE.parent.glob(record)):
        text, numbers = path.read_text("utf-8"), []

        def today(digest, numbers=numbers):
            numbers.append(digests.get(digest[0], digest[0]) != digest[0])
            return digests.get(digest[0], digest[0])

        path.write_text(quoted.sub(today, text), "utf-8")
        replaced += sum(numbers)
    return replaced


if __name__ == "__main__":
    main()
