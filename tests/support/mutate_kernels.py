"""Mutation testing of a rung's kernels: changes them in small ways, one at a time, and counts the
mutants that tests kill.

Usage: python tests/support/mutate_kernels.py RUNG [FILE ...] [-k TESTS] [--short] [--sample COUNT]
[--one-by-one]

FILE: in the rung's folder or below kernels/; default: all files of the rung and the headers that
they include. -k: which tests judge, as in pytest; default: all. --short: of these, those of `make
test` judge first, and all judge what survives them. --sample selects COUNT of the mutants, always
the same ones. --one-by-one compiles every mutant for itself, which takes long and finds the same
fates.

Each mutant changes one operator, bound, index, constant, barrier, wait or rounding in a copy of the
project, whose tests/kernels/test_RUNG*.py and cases of the rung in tests/operations then run in the
emulator until the first failure (mutant_fates.py). Prints the surviving mutants and the share of
killed ones; mutants that do not compile are not counted. A survivor needs a better test, or an
entry in equivalent_mutants.toml with the reason why it computes the same.
"""

import argparse
import collections
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib

from tqdm import tqdm

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "emulator/src"))

import cuda_emulator  # noqa: E402
import mutant_schemata  # noqa: E402
import mutations  # noqa: E402

ROOT = HERE.parents[1]
# Of rungs without kernels of their own.
FILES = {
    **dict.fromkeys(("gpu_gemm", "gpu_3xtf32"), "gpu_opt_v1/conv2d_*.cu"),
    **dict.fromkeys(("gpu_tf32", "gpu_3xtf32_packed", "gpu_bf16", "gpu_f16"), "packed/*.cu"),
    **dict.fromkeys(("gpu_f16_sm90", "gpu_3xf16_sm90"), "gpu_bf16_sm90/*.cu"),
}
BODY = re.compile(r"\) (const )?\{( |$)")  # of a function, or of a loop
# pattern -> replacements
MUTATIONS = [
    (r" \+ ", [" - "]),
    (r" - ", [" + "]),
    (r" \* ", [" + "]),
    (r" / ", [" * "]),
    (r" % ", [" / "]),
    (r" \+= ", [" -= ", " = "]),
    (r" < ", [" <= "]),
    (r" >= ", [" > "]),
    (r" <= ", [" < "]),
    (r" > ", [" >= "]),
    (r" == ", [" != "]),
    (r" \|\| ", [" && "]),
    (r" && ", [" || "]),
    (r" << ", [" >> "]),
    (r" >> ", [" << "]),
    (r" & ", [" | "]),
    (r" \| ", [" & "]),
    (r" \^ ", [" | "]),
    (r" \^= ", [" = "]),
    (r"\bmax\(", ["min("]),
    (r"\bmin\(", ["max("]),
    (r"\b0\b(?![.x])", ["1"]),
    (r"\b1\b(?![.x])", ["2"]),
    (r"\b2\b(?![.x])", ["1"]),
    (r"__sync(threads|warp)\(\);", [""]),
    (r"(Tile::sync|sync_first<\w+>)\(\);", [""]),
    (r"cp_async_(wait<[^>]*>|commit)\(\);", [""]),
    (r"(wgmma_(fence|commit|wait<\d>)|async_proxy_fence)\(\);", [""]),
    (r"barrier(s_visible|_wait|_arrive|_expect)\(.*?\);", [""]),
    # rounding: towards zero
    (r"\bpacked_pair\(", ["truncated_pair("]),
    (r"\btf32\(", ["__float_as_uint("]),
    (r"threadIdx\.x", ["threadIdx.y"]),
    (r"threadIdx\.y", ["threadIdx.x"]),
    (r"\bheight\b", ["width"]),
    (r"\bwidth\b", ["height"]),
    (r"\bchannels\b", ["filters"]),
    (r"\bfilters\b", ["channels"]),
    (r"\bdouble\b", ["float"]),
    (r"\b(?=(?:exp|log|pow)f\()", ["__"]),
]


def mutants(kernels, file):
    """Every mutation of the function bodies in a file; comments, signatures, directives, code
    hidden from g++ stay.
    """
    # hidden: directives open within #ifndef CUDA_EMULATOR, itself one
    at, inside, hidden = 0, False, 0
    for number, line in enumerate((kernels / file).read_text().splitlines(keepends=True), 1):
        code = line.partition("//")[0].rstrip()
        opened = BODY.search(code)
        if hidden or line.startswith("#ifndef CUDA_EMULATOR"):
            hidden += line.startswith("#if") - line.startswith("#endif")
        first = 0 if inside else opened.end() if opened else len(code)
        if not hidden and not line.startswith("#"):
            yield from mutations.of_line(file, number, line, at, code, first, MUTATIONS)
        inside = (inside or bool(opened) and opened.end() == len(code)) and not line.startswith("}")
        at += len(line)


def files_of(kernels, rung):
    """All files of a rung and the headers that they include, below kernels/."""
    files = kernels.glob(FILES.get(rung, f"{rung}/*.cu"))
    with_headers = set().union(*(cuda_emulator.with_headers(path, (kernels,)) for path in files))
    return sorted(path.relative_to(kernels).as_posix() for path in with_headers)


def equivalent(root, rung=None):
    """(file, mutated line) of the mutants that compute the same, in all rungs or in this one;
    without a rung, of all.
    """
    entries = tomllib.loads((root / "tests/support/equivalent_mutants.toml").read_text()).get(
        "mutant", []
    )
    return {
        (entry["file"], entry["line"])
        for entry in entries
        if rung is None or entry.get("rung", rung) == rung
    }


def copy_project(source, target):
    for part in ("kernels", "tests", "emulator", "workflow/scripts", "benchmarks"):
        shutil.copytree(source / part, target / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(source / "pyproject.toml", target)


def tests_of(root, rung):
    """Of the rung's kernels; also those of gpu_bf16_sm90 are of gpu_bf16, whose headers it
    includes. Lessons share theirs.
    """
    own = sorted(
        str(path.relative_to(root)) for path in (root / "tests/kernels").glob(f"test_{rung}*.py")
    )
    shared = "tests/operations/test_operations.py"
    return [
        *(own or ["tests/rungs/test_lessons.py"]),
        *([shared] if (root / shared).exists() else []),
    ]


def chosen(rung, expression):
    """As pytest's -k: of the cases of all back ends those of the rung, and of all tests those asked
    for.
    """
    own = f"(not test_an_operation_is_its_definition or {rung})"
    return f"({expression}) and {own}" if expression else own


def fates(root, rung, work, at_once, options=()):
    """(number in `work`, fate) of the mutants, as they are found; fates: mutant_fates.FATES, which
    says what at_once is.

    options: of pytest, which choose the tests that judge.
    """
    if not work:
        return
    with tempfile.TemporaryDirectory() as folder:
        copy, (end, results) = pathlib.Path(folder), os.pipe()
        copy_project(root, copy)
        with open(copy / "tests/support/emulated.h", "a") as header:
            header.write(mutant_schemata.HEADER)
        places = {
            number: (mutant.file, mutant.start, mutant.end, mutant.new)
            for number, mutant in enumerate(work, 1)
        }
        given = {"mutants": places, "at_once": at_once, "results": results}
        (copy / "mutants.json").write_text(json.dumps(given))
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "mutant_fates",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:faulthandler",
            "-p",
            "no:xdist",
            "--assert=plain",
            "--tb=short",
            *options,
            *tests_of(root, rung),
        ]
        environment = {
            **os.environ,
            "PYTHONPATH": str(HERE),
            "MUTANTS": "mutants.json",
            "XDG_CACHE_HOME": str(copy / "cache"),
        }
        process = subprocess.Popen(
            command,
            cwd=copy,
            env=environment,
            pass_fds=[results],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        os.close(results)
        with process, open(end) as lines:
            for line in lines:
                number, _, fate = line.rstrip().partition(" ")
                yield int(number) - 1, fate
            said = process.stdout.read()
        if process.returncode:
            sys.exit(said)


def _judge(root, asked, work, count, options):
    """The mutants that survive; the others are counted by their fates."""
    found = fates(
        root,
        asked.rung,
        work,
        not asked.one_by_one,
        ["-k", chosen(asked.rung, asked.expression), *options],
    )
    ends = dict(tqdm(found, total=len(work), disable=None))
    count.update(end for end in ends.values() if end != "survived")
    return [mutant for number, mutant in enumerate(work) if ends[number] == "survived"]


def main(arguments, root=ROOT):
    parser = argparse.ArgumentParser()
    parser.add_argument("rung")
    parser.add_argument("files", nargs="*")
    parser.add_argument("-k", default="", dest="expression")
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--sample", type=int)
    parser.add_argument("--one-by-one", action="store_true")
    asked = parser.parse_args(arguments)
    rung, kernels, explained = asked.rung, root / "kernels", equivalent(root, asked.rung)
    folder = FILES.get(rung, rung).partition("/")[0]
    files = [file if "/" in file else f"{folder}/{file}" for file in asked.files] or files_of(
        kernels, rung
    )
    work = mutations.sample(
        [mutant for file in files for mutant in mutants(kernels, file)], asked.sample
    )
    count = collections.Counter(
        explained=sum((mutant.file, mutant.line) in explained for mutant in work)
    )
    work = [mutant for mutant in work if (mutant.file, mutant.line) not in explained]
    alive = _judge(root, asked, work, count, ["--short"] if asked.short else [])
    killed, judged = count["killed"], count["killed"] + len(alive)
    if asked.short:
        missed, alive = alive, _judge(root, asked, alive, count, [])
        print(
            *(f"killed by all: {mutant.place()}\n" for mutant in missed if mutant not in alive),
            sep="",
            end="",
        )
    print(*(f"survived: {mutant.place()}\n" for mutant in alive), sep="", end="")
    print(
        f"{rung}: {killed} of {judged} mutants killed ({killed / max(judged, 1):.1%}); "
        f"{count['explained']} more compute the same, {count['does not compile']} do not compile"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
