"""`make gpu-check`: this machine's GPU, checked and measured; a page, and one JSON file to send in.

    python benchmarks/gpu_check.py [--out results/gpu-check] [--minutes 10] [--rungs gpu_basic,gpu_opt_v2] [--torch-python FILE]
    python benchmarks/gpu_check.py --prepare [--nvrtc 13.0] [--architecture sm_90]    on any machine, for one without a network

In this order: what is installed; parity of every rung, the newest first; compute-sanitizer's four tools on a short step, where
it is installed; the measurements of gpu.py. Everything ends within --minutes, and is written as it ends: called again, here or
elsewhere with the files of DIR, it goes on where the time ran out. DIR/index.html is the page, DIR/CARD-DATE.json the file to
send in: it names no host and no person (CONTRIBUTING.md says where to).

It needs Python 3.11, NumPy and CuPy, takes what else is there, and downloads nothing. --prepare compiles the kernels into
DIR/cache with the NVRTC that it is run with, and lists in DIR/carry.txt the files of the program that have to come along.
Kernels from there run whatever NVRTC the other machine has, or without one; what is not among them is compiled by its own.
"""

import argparse
import importlib.metadata
import importlib.util
import itertools
import os
import pathlib
import re
import shutil
import sys
import time

import cases
import gpu
import gpu_page
import prepare
import sanitizer
import sections
import tools
from ladder.errors import UserError
from ladder.executors.cuda import executor as cuda_executor
from ladder.machine import driver, gpus
from ladder.rungs import catalog

CACHES = {"XDG_CACHE_HOME": "", "TORCHINDUCTOR_CACHE_DIR": "torch", "TRITON_CACHE_DIR": "triton"}   # folders in DIR/cache
TOOLS = ("compute-sanitizer", "ncu", "nsys")
# Module -> what is left out or replaced without it.
WITHOUT = {"torch": "no comparison with PyTorch", "cuml": "no SVM", "numba": "parity is with NumPy in place of the cpu rung",
           "jinja2": "no page; where Jinja2 is: python benchmarks/gpu_page.py FILE PAGE"}


def main(arguments=None):
    begun, arguments = time.monotonic(), parse(arguments)
    arguments.out.mkdir(parents=True, exist_ok=True)
    use_cache(arguments.out.resolve() / "cache")
    try:
        rungs = cases.newest_first(arguments.rungs)
        if arguments.prepare:
            print("\n".join(prepare.prepare(arguments.out.resolve(), rungs, arguments.architecture, arguments.nvrtc)))
        else:
            check(arguments, rungs, begun)
    except UserError as error:
        sys.exit(f"gpu-check: {error}")


def check(arguments, rungs, begun):
    gpus.claim()
    reason = catalog.no_gpu()
    if reason:
        sys.exit(f"gpu-check {reason}")
    torch_python = arguments.torch_python or gpu.find_torch()
    print(environment(torch_python), flush=True)
    session = gpu.Session(arguments.out, 60 * arguments.minutes, torch_python, begun)
    try:
        gpu.finish(session, "gpu-check: the GPU cannot be used", rungs, wanted)
    finally:
        if session.record:
            print("\n".join(written(arguments.out, session.record)))


def use_cache(folder):
    """Keep in this folder what is compiled from now on, by this process and those that it starts."""
    os.environ |= {name: str(folder / part) for name, part in CACHES.items()}


def wanted(record, rungs, torch_python):
    """Sections, see sections.sections."""
    return itertools.chain(sections.parity(sections.HEADLINES[0], rungs), sanitizer.sections(record, rungs, torch_python),
                           sections.sections(record, rungs, torch_python))


def environment(torch_python):
    """What is installed, a line each, and what is left out."""
    device, cuda = driver.gpu(), driver.cuda_version() or (0, 0)
    lines = [f"{device.name} ({device.architecture}), {device.memory_bytes / 1e9:.0f} GB",
             f"driver {driver.version() or 'unknown'} (CUDA {cuda[0]}.{cuda[1]})",
             f"kernels by NVRTC {', else '.join(cuda_executor.compilers())}"]
    lines += [f"{name}: {installed(names) or 'not installed'}" for name, names in (
        ("CuPy", ("cupy-cuda12x", "cupy-cuda13x", "cupy")), ("NumPy", ("numpy",)),
        ("cuML", ("cuml-cu12", "cuml-cu13", "cuml")))]
    lines.append(f"PyTorch: {torch_python or 'not installed'}")
    lines += [f"{name}: {tools.find(name) or 'not installed'}" for name in TOOLS]
    lacks = [name for name in WITHOUT if not (torch_python if name == "torch" else importlib.util.find_spec(name))]
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("results/gpu-check"), metavar="DIR")
    parser.add_argument("--minutes", type=float, default=10, help="of the whole call (10)")
    parser.add_argument("--rungs", type=lambda text: text.split(","), help="by default all of a GPU")
    parser.add_argument("--torch-python", type=pathlib.Path, metavar="PYTHON", help="an interpreter that has PyTorch")
    parser.add_argument("--prepare", action="store_true", help="compile the kernels and list what to carry; needs no GPU")
    parser.add_argument("--nvrtc", metavar="VERSION", help="the CUDA version that NVRTC has to be of, such as 13.0")
    parser.add_argument("--architecture", choices=prepare.MULTIPROCESSORS, default="sm_90", help="to compile for (sm_90)")
    parsed = parser.parse_args(arguments)
    for rung in parsed.rungs or ():
        if rung not in cases.gpu_rungs():
            parser.error(f"{rung} is no GPU rung; the GPU rungs are {', '.join(cases.gpu_rungs())}")
    return parsed


if __name__ == "__main__":
    main()
