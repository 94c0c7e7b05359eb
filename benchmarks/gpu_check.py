"""`make gpu-check`: this machine's GPU, checked and measured; a page, and one JSON file to send in.

    python benchmarks/gpu_check.py [--out results/gpu-check] [--minutes 13] [--mirror DIR] [--rungs
    gpu_basic,gpu_opt_v2]
                                   [--only launches,ncu] [--torch-python FILE]
    python benchmarks/gpu_check.py --prepare [--nvrtc 13.0] [--architecture sm_90] [--python 3.12]
                                                           on any machine, for one without a network

The order is that of `sections`: what matters most comes within the first half. Everything ends
within --minutes, and is written as it ends: called again, here or elsewhere with the files of
--out, or with record.json of --mirror alone, it goes on where the time ran out. OUT/index.html is
the page, OUT/CARD-DATE.json the file to send in: it names no host and no person (CONTRIBUTING.md
says where to). --mirror: a folder that gets a copy of the few files of results after every section,
such as one that outlives a job. --only: kinds of sections, the words before the colon in what is
printed.

It needs Python 3.11, NumPy and CuPy, takes what else is there, and downloads nothing. --prepare
compiles the kernels into OUT/cache with the NVRTC that it is run with, downloads the wheels of
chain.py, and lists in OUT/carry.txt the files of the program that have to come along. Kernels from
there run whatever NVRTC the other machine has, or without one; what is not among them is compiled
by its own.
"""

import argparse
import importlib.metadata
import importlib.util
import pathlib
import re
import shutil
import sys
import time

import cases
import chain
import gpu
import gpu_page
import prepare
import profile_rung
import programs
import sanitizer
import sections
from cases import HEADLINES
from ladder.errors import UserError
from ladder.executors.cuda import executor as cuda_executor
from ladder.machine import driver, gpus
from ladder.machine.worker import Failed
from ladder.rungs import catalog

TOOLS = ("compute-sanitizer", "ncu")
SANITIZED, PROFILED = 4, 3  # rungs that these see before the chain
# Lessons whose launches tell why the steps of five lessons take longer than predicted.
MISSED = ("gpu_basic", "gpu_fused")
# Module -> what is left out or replaced without it.
WITHOUT = {
    "torch": "no comparison with PyTorch",
    "cuml": "no SVM",
    "numba": "parity is with NumPy in place of the cpu rung",
    "jinja2": "no page; where Jinja2 is: python benchmarks/gpu_page.py FILE PAGE",
}


def main(arguments=None):
    begun, arguments = time.monotonic(), parse(arguments)
    arguments.out.mkdir(parents=True, exist_ok=True)
    programs.use_cache(arguments.out)
    try:
        if arguments.prepare:
            print("\n".join(prepare.prepare(arguments)))
        else:
            check(arguments, begun)
    except UserError as error:
        sys.exit(f"gpu-check: {error}")


def check(arguments, begun):
    gpus.claim()
    reason = catalog.no_gpu()
    if reason:
        sys.exit(f"gpu-check {reason}")
    out, mirror = arguments.out, arguments.mirror
    if mirror:
        mirror.mkdir(parents=True, exist_ok=True)
        if not (out / "record.json").exists() and (mirror / "record.json").exists():
            shutil.copyfile(mirror / "record.json", out / "record.json")
    torch_python = arguments.torch_python or gpu.find_torch()
    print(environment(torch_python), flush=True)
    session = gpu.Session(out, 60 * arguments.minutes, torch_python, begun, mirror)
    try:
        session.run(
            lambda record: (
                section
                for section in wanted(record, arguments, torch_python)
                if not arguments.only or section.name.partition(": ")[0] in arguments.only
            )
        )
    except Failed as error:
        sys.exit(f"gpu-check: the GPU cannot be used: {error}")
    except KeyboardInterrupt:
        sys.exit("stopped; the same command goes on")
    finally:
        session.close()
        if session.record:
            print("\n".join(written(out, session.record)))
        session.copy()


def wanted(record, arguments, torch_python):
    """Sections, the most important first, about seven minutes of an H200 before the chain."""
    rungs, case = cases.newest_first(arguments.rungs), HEADLINES[0]
    first = rungs if arguments.rungs else list(cases.HEADLINE_RUNGS)
    others = [rung for rung in rungs if rung not in first]
    yield sections.kernels(case, first)
    yield from sections.launches(first)
    yield from sections.parity(case, first)
    yield sections.single("ceilings", "rungs", "ceilings")
    yield from sections.of_torch(record, torch_python)
    yield sections.race_of(
        case, sections.running(record, case, first) + sections.best_of_torch(record, 1)
    )
    yield from sections.whole_runs(record, case, first)
    yield from sanitizer.sections(first[:SANITIZED])
    yield from profile_rung.sections(first[:PROFILED])
    yield from sections.cudnn(record)
    yield from chain.sections(record, arguments.out, first)
    if others:
        yield from sections.parity(case, others)
        yield sections.race_of(
            case, sections.running(record, case, others), sections.others_name(case)
        )
        yield from profile_rung.sections([rung for rung in MISSED if rung in others])
    yield from sections.tiles(first)
    yield from profile_rung.sections(first[PROFILED:])
    yield from sections.of_other_networks(record, rungs)
    yield from sanitizer.sections([*first[SANITIZED:], *others])


def environment(torch_python):
    """What is installed, a line each, and what is left out."""
    device, cuda = driver.gpu(), driver.cuda_version() or (0, 0)
    lines = [
        f"{device.name} ({device.architecture}), {device.memory_bytes / 1e9:.0f} GB",
        f"driver {driver.version() or 'unknown'} (CUDA {cuda[0]}.{cuda[1]})",
        f"kernels by NVRTC {', else '.join(cuda_executor.compilers())}",
    ]
    lines += [
        f"{name}: {installed(names) or 'not installed'}"
        for name, names in (
            ("CuPy", ("cupy-cuda12x", "cupy-cuda13x", "cupy")),
            ("NumPy", ("numpy",)),
            ("cuML", ("cuml-cu12", "cuml-cu13", "cuml")),
        )
    ]
    lines.append(f"PyTorch: {torch_python or 'not installed'}")
    lines += [f"{name}: {programs.find(name) or 'not installed'}" for name in TOOLS]
    lacks = [
        name
        for name in WITHOUT
        if not (torch_python if name == "torch" else importlib.util.find_spec(name))
    ]
    return "\n".join([*lines, *(f"without {name}: {WITHOUT[name]}" for name in lacks)])


def installed(names):
    """The version of the first of these packages that is installed; None without one."""
    for name in names:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def written(out, record):
    """Write the page and the file to send in; lines that name both."""
    card = re.sub(r"[^A-Za-z0-9]+", "-", record.data["machine"]["gpu"]).strip("-")
    page, sent = out / "index.html", out / f"{card}-{record.data['made'][:10]}.json"
    shutil.copyfile(record.path, sent)
    lines = [gpu_page.verdict(record.data), f"{sent}: to send in, see CONTRIBUTING.md"]
    try:
        page.write_text(gpu_page.page(record.data), "utf-8")
    except ImportError:
        return lines
    return [*lines, f"{page}: the page"]


def parse(arguments):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--out", type=pathlib.Path, default=pathlib.Path("results/gpu-check"), metavar="DIR"
    )
    parser.add_argument("--minutes", type=float, default=13, help="of the whole call (13)")
    parser.add_argument(
        "--mirror", type=pathlib.Path, metavar="DIR", help="folder that gets copies of the results"
    )
    parser.add_argument("--rungs", type=words, help="by default all of a GPU")
    parser.add_argument(
        "--only", type=words, metavar="KINDS", help="kinds of sections, such as launches,ncu"
    )
    parser.add_argument(
        "--torch-python",
        type=pathlib.Path,
        metavar="PYTHON",
        help="an interpreter that has PyTorch",
    )
    parser.add_argument(
        "--prepare",
        action="store_true",
        help="compile the kernels and list what to carry; needs no GPU",
    )
    parser.add_argument(
        "--nvrtc", metavar="VERSION", help="the CUDA version that NVRTC has to be of, such as 13.0"
    )
    parser.add_argument(
        "--architecture",
        choices=prepare.MULTIPROCESSORS,
        default="sm_90",
        help="to compile for (sm_90)",
    )
    parser.add_argument(
        "--python",
        default="3.12",
        metavar="VERSION",
        help="of the wheels that --prepare downloads (3.12)",
    )
    parsed = parser.parse_args(arguments)
    for rung in parsed.rungs or ():
        if rung not in cases.gpu_rungs():
            parser.error(f"{rung} is no GPU rung; the GPU rungs are {', '.join(cases.gpu_rungs())}")
    return parsed


def words(text):
    return text.split(",")


if __name__ == "__main__":
    main()
