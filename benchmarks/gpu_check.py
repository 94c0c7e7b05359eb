"""`make gpu-check`: this machine's GPU, checked and measured; a page, and one JSON file to send in.

    python benchmarks/gpu_check.py [--out results/gpu-check] [--minutes 10] [--rungs gpu_basic,gpu_opt_v2]

In this order: what is installed; parity of every rung with the cpu rung; compute-sanitizer's four tools on a short step, where
it is installed, in 5 minutes; the measurements of gpu.py. Called again, it goes on where the time ran out. DIR/index.html is
the page, DIR/CARD-DATE.json the file to send in: it names no host and no person (CONTRIBUTING.md says where to).
"""

import argparse
import importlib.metadata
import pathlib
import re
import shutil
import sys

import cases
import gpu
import gpu_page
import sanitizer
import sections
import tools
from ladder.machine import driver, gpus
from ladder.rungs import catalog
from sections import HEADLINES

PARITY_SECONDS, SANITIZER_SECONDS = 300, 300
TOOLS = ("compute-sanitizer", "ncu", "nsys")


def main(arguments=None):
    arguments = parse(arguments)
    gpus.claim()
    reason = catalog.no_gpu()
    if reason:
        sys.exit(f"gpu-check {reason}")
    arguments.out.mkdir(parents=True, exist_ok=True)
    torch_python = gpu.find_torch()
    print(environment(torch_python), flush=True)
    parts = (("parity", PARITY_SECONDS, parity), ("compute-sanitizer", SANITIZER_SECONDS, sanitizer.sections),
             ("measurements", 60 * arguments.minutes, sections.sections))
    for title, seconds, wanted in parts:
        print(f"\n{title}: at most {seconds / 60:.0f} minutes", flush=True)
        session = gpu.Session(arguments.out, seconds, torch_python)
        gpu.finish(session, "gpu-check: the GPU cannot be used", arguments.rungs or cases.gpu_rungs(), wanted)
    page, sent = write(arguments.out, session.record)
    print(f"\n{gpu_page.verdict(session.record.data)}\n{page}: the page\n{sent}: to send in, see CONTRIBUTING.md")


def parity(record, rungs, torch_python):
    return sections.parity(HEADLINES[0], rungs)


def environment(torch_python):
    """What is installed, a line each."""
    device, cuda = driver.gpu(), driver.cuda_version() or (0, 0)
    lines = [f"{device.name} ({device.architecture}), {device.memory_bytes / 1e9:.0f} GB",
             f"driver {driver.version() or 'unknown'} (CUDA {cuda[0]}.{cuda[1]})"]
    lines += [f"{name}: {installed(names) or 'not installed'}" for name, names in (
        ("CuPy", ("cupy-cuda12x", "cupy-cuda13x", "cupy")), ("cuML", ("cuml-cu12", "cuml-cu13", "cuml")))]
    lines.append(f"PyTorch: {torch_python or 'not installed; the rungs are measured alone'}")
    return "\n".join([*lines, *(f"{name}: {tools.find(name) or 'not installed'}" for name in TOOLS)])


def installed(names):
    """The version of the first of these packages that is installed; None without one."""
    for name in names:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def write(out, record):
    """The paths of the page and of the file to send in, after writing both."""
    card = re.sub(r"[^A-Za-z0-9]+", "-", record.data["machine"]["gpu"]).strip("-")
    page, sent = out / "index.html", out / f"{card}-{record.data['made'][:10]}.json"
    page.write_text(gpu_page.page(record.data), "utf-8")
    shutil.copyfile(record.path, sent)
    return page, sent


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("results/gpu-check"), metavar="DIR")
    parser.add_argument("--minutes", type=float, default=10, help="of the measurements (10)")
    parser.add_argument("--rungs", type=lambda text: text.split(","), help="by default all of a GPU")
    parsed = parser.parse_args(arguments)
    for rung in parsed.rungs or ():
        if rung not in cases.gpu_rungs():
            parser.error(f"{rung} is no GPU rung; the GPU rungs are {', '.join(cases.gpu_rungs())}")
    return parsed


if __name__ == "__main__":
    main()
