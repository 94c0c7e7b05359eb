"""Whether the kernels of this checkout become the machine code of another's; then records stay.

    python benchmarks/same_code.py OTHER           OTHER: a worktree of the commit before a change
                                                   of words, folders or formats
    python benchmarks/same_code.py OTHER --carry   writes today's digests into the records

Every kernel of every rung, the text of whose build has other tokens, is compiled in both checkouts
by the NVRTC that is installed, for --architecture (sm_90 if not given): a few lines ask for
`__CUDA_ARCH__`, and those that only others have are not compared. The PTX of a kernel is compared
without the names of variables, which say nothing to a GPU, so that it may move to another file.
Records (RECORDS) know kernels by digests of their text: where all PTX is the same, --carry replaces
those of OTHER, launch by launch, so that counts, compilations and measurements go on counting. Of a
file that has other kernels now the rows of compilations.json are to be made again, and the names of
kernels in the other records to be changed.
The exit status is 1 where code differs, with the kernels that differ.
"""

import argparse
import collections
import concurrent.futures
import functools
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
KERNEL = re.compile(r"^\.visible \.entry (\w+)\(.*?^}\n", re.MULTILINE | re.DOTALL)
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
    both = [in_checkout(root, arguments.architecture) for root in roots]
    rungs = [rung for rung in both[0] if rung in both[1]]  # a new one has no record
    before, today = (
        {
            key: [each for rung in rungs for each in checkout[rung][key]]
            for key in ("kernels", "digests")
        }
        for checkout in both
    )
    if len(before["kernels"]) != len(today["kernels"]):
        sys.exit(f"{len(before['kernels'])} kernels became {len(today['kernels'])}")
    pairs = list(zip(before["kernels"], today["kernels"], strict=True))
    changed = [pair for pair in pairs if pair[0]["tokens"] != pair[1]["tokens"]]
    print(f"{len(pairs)} kernels, {len(changed)} with other tokens", flush=True)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        same = list(pool.map(lambda pair: ptx(pair[0]) == ptx(pair[1]), changed))
    if different := [
        new["name"] for (_, new), equal in zip(changed, same, strict=True) if not equal
    ]:
        sys.exit("\n".join([f"the PTX of {len(different)} differs:", *different]))
    print("the PTX of all is the same")
    if arguments.carry:
        digests = successors(zip(before["digests"], today["digests"], strict=True))
        print(f"{carry(digests)} digests replaced in the records")


def successors(pairs):
    """{digest: the one of today} of those that have one; behind a digest the number of kernels that
    it is of, where that counts.
    """
    today = collections.defaultdict(set)
    for old, new in pairs:
        (digest, *kernels), (successor, *kernels_now) = old.split(), new.split()
        today[digest].add(successor if kernels == kernels_now else None)
    return {old: new for old, (new, *others) in today.items() if new and not others}


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
    """Rung -> {"kernels": [`kernel` of each], "digests": all that name kernels}, both by launches,
    whatever files and macros are called. A kernel of a build is listed with the first rung that has
    it.
    """
    folders = ("benchmarks", "workflow/scripts", "tests/support", "emulator/src")
    sys.path[:0] = [str(root / folder) for folder in folders]
    import compilations
    import count
    import counting
    import plan_checks
    import step_kernels

    seen, listing = set(), {}
    for rung in compilations.documented_rungs():
        launches = {
            (compilations.named(launch), launch.entry): launch
            for launch in compilations.launches(rung)
        }
        launches = {named: launch for named, launch in launches.items() if named not in seen}
        seen |= launches.keys()
        plan = count.step_plan(rung, count.BATCH)
        digests = [counting.key(launch, plan) for launch in plan_checks.launches(plan)]
        digests += [step_kernels.digest(plan)]
        # a row of compilations.json is of all kernels of a file
        digests += [
            f"{compilations.digest(name)} {step_kernels.text(launch.source).count('__global__')}"
            for (name, _), launch in launches.items()
        ]
        listing[rung] = {
            "kernels": [
                kernel(root, architecture, name, launch) for (name, _), launch in launches.items()
            ],
            "digests": digests,
        }
    return listing


def kernel(root, architecture, name, launch):
    """Its names, digest of its tokens, source and compiler options; name: of its build."""
    import compilations
    import step_kernels

    path = root / "kernels" / launch.source
    return {
        "name": f"{name} {launch.entry}",
        "entry": launch.entry,
        "tokens": hashed(" ".join([step_kernels.text(launch.source), *launch.defines])),
        "source": str(path),
        "options": compilations.nvrtc.options(path, architecture, launch.defines),
    }


def hashed(text):
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def ptx(kernel):
    """The digest of a kernel's PTX; raises RuntimeError where NVRTC rejects it."""
    return nameless(
        only(compiled(kernel["name"], kernel["source"], tuple(kernel["options"])), kernel["entry"])
    )


@functools.cache
def compiled(name, source, options):
    """The PTX of a file."""
    from cuda.bindings import nvrtc

    options = [
        option.replace("=sm_", "=compute_").encode()  # PTX alone
        for option in options
        if "ptxas" not in option
    ]
    text = pathlib.Path(source).read_bytes()
    _, program = nvrtc.nvrtcCreateProgram(text, source.encode(), 0, [], [])
    (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    if status.value:
        raise RuntimeError(f"{name}: {status.name}")
    code = b" " * nvrtc.nvrtcGetPTXSize(program)[1]
    nvrtc.nvrtcGetPTX(program, code)
    nvrtc.nvrtcDestroyProgram(program)
    return code.decode()


def only(ptx, entry):
    """PTX without kernels but this one, whose labels do not say which of the file's it is."""
    alone = KERNEL.sub(lambda kernel: kernel[0] if kernel[1] == entry else "", ptx)
    return re.sub(r"\$L__BB\d+_", "$L__BB_", alone)


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
        re.sub(r"([^\S\n]*(//.*)?\n)+[^\S\n]*", "\n", ptx),
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
