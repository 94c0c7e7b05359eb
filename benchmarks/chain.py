"""The chain itself on a GPU, once: Snakemake from the images to the report, with a rung of the GPU
and with the cpu rung.

Two runs on the digits that come with the project: that of config.yaml, and the same with the PCA
and kernel ridge that CuPy computes. On a machine that can download nothing, Snakemake and what it
needs come as wheels in DIR/wheels; NumPy, SciPy, scikit-learn, Numba and CuPy have to be there.
Numba with LLVM is too large to carry, and no rung of a GPU runs without it: its first use is
compared with the cpu rung.
"""

import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import cases
import programs
from cases import HEADLINES, Case
from ladder.errors import UserError
from ladder.machine import runtime
from ladder.machine.worker import Failed
from ladder.progress import size
from ladder.sources import ROOT
from ladder.store import disk
from sections import Section, best_in, race_name

# Of the run of config.yaml, and of the batches of half the size that a rung's first use is checked
# with.
CASES = tuple(
    Case("wta_autoencoder", (28, 28, 1), batch, 6000, (("filters", 8), ("kernels", (11, 7))))
    for batch in (64, 33)
)
# name -> settings
RUNS = {"config.yaml": (), "PCA and ridge": ("features_pca=128", "evaluations=ridge")}
SECONDS = {"config.yaml": 75, "PCA and ridge": 75}  # time limits
NEEDS = "numpy", "scipy", "sklearn", "numba"  # modules that no wheel brings
# Of the packages that envs/cpu.txt pins: those that the other machine has, and what this run does
# without, oneDAL, the solver of large schedules and the searches of hyperparameters.
NOT_CARRIED = {
    "numpy",
    "scipy",
    "scikit-learn",
    "joblib",
    "threadpoolctl",
    "narwhals",
    "numba",
    "llvmlite",
    "scikit-learn-intelex",
    "daal",
    "tbb",
    "tcmlib",
    "pulp",
    "connection-pool",
    "optuna",
    "alembic",
    "mako",
    "colorlog",
}
PLATFORMS = (
    "manylinux_2_28_x86_64",
    "manylinux_2_27_x86_64",
    "manylinux_2_17_x86_64",
    "manylinux2014_x86_64",
    "manylinux1_x86_64",
)
MOST_BYTES = 30_000_000  # of all wheels


def sections(record, out, rungs):
    """A Section for each run with each rung: the fastest of float32 that is right, or the one that
    `auto` takes.

    Those with the cpu rung wait for all other sections, unless their summaries were carried.
    """
    fastest = best_in(
        record.result(race_name(HEADLINES[0])),
        [rung for rung in rungs if cases.precision(rung) == "fp32"],
    )
    for name in RUNS:
        for place, rung in (("gpu", (fastest or ["auto"])[0]), ("cpu", "cpu")):
            yield Section(
                section_name(name, place),
                lambda session, seconds, name=name, rung=rung: run(out, name, rung, seconds),
                SECONDS[name],
                of=[rung],
                until=float(place == "gpu" or _carried(out, name).exists()),
            )


def section_name(name, place):
    return f"chain: {name}, {place}"


def run(out, name, rung, seconds):
    """The run's summary.json; raises Failed. That of the cpu rung may have been carried; of a
    GPU's, the report is kept too.
    """
    carried = _carried(out, name)
    if rung == "cpu" and carried.exists():
        return {"carried": True, "summary": json.loads(carried.read_text("utf-8"))}
    lacks = [module for module in NEEDS if not importlib.util.find_spec(module)]
    if lacks:
        raise Failed(f"the chain needs {', '.join(lacks)}, not installed here")
    folder = out / "chain"
    folder.mkdir(exist_ok=True)
    summary = _summary(sys.executable, _packages(out), folder, name, rung, seconds, out / "log.txt")
    if rung != "cpu":
        shutil.copyfile(folder / "results/report.html", out / "report.html")
    return {"carried": False, "summary": summary}


def _carried(out, name):
    return out / f"chain-{name.partition('.')[0].replace(' ', '-')}-cpu.json"


def _packages(out):
    """The folder with the packages of the carried wheels, installed if need be; None where
    Snakemake is installed.
    """
    if importlib.util.find_spec("snakemake"):
        return None
    site, wheels = out.resolve() / "site", sorted((out / "wheels").glob("*.whl"))
    if not wheels:
        raise Failed("Snakemake is not installed here, and --prepare has left no wheels to carry")
    if not site.exists():
        status, output = programs.run(
            [
                sys.executable,
                "-m",
                "pip",
                "install",
                "--quiet",
                "--no-index",
                "--no-deps",
                "--no-compile",
                "--target",
                str(site),
                *map(str, wheels),
            ],
            60,
        )
        if status != 0:
            raise Failed(
                f"the carried wheels cannot be installed: {(output or ['pip did not end'])[-1][:200]}"
            )
    return site


def _summary(python, site, folder, name, rung, seconds, log):
    """Run Snakemake in a folder; the summary."""
    path = os.pathsep.join(filter(None, (str(site or ""), os.environ.get("PYTHONPATH"))))
    command = [
        str(python),
        "-m",
        "snakemake",
        "-s",
        str(ROOT / "Snakefile"),
        "--scheduler",
        "greedy",
        "--cores",
        str(runtime.available_cores()),
        "results/report.html",
        "--config",
        f"variant={rung}",
        *RUNS[name],
    ]
    status, output = programs.run(
        command, seconds, cwd=folder, env=os.environ | {"PYTHONPATH": path}
    )
    with open(log, "a", encoding="utf-8") as file:
        file.write("\n".join([f"chain: {name}, {rung}", *output, ""]))
    if status is None:
        raise Failed(f"was ended after {seconds:.0f} s", timed_out=True)
    if status != 0:
        said = next(
            (line for line in reversed(output) if "rror" in line), output[-1] if output else ""
        )
        raise Failed(
            f"snakemake ended with status {status}: {said.strip()[:200]}; {log.name} has the rest"
        )
    return json.loads((folder / "results/summary.json").read_text("utf-8"))


# ---- on a machine that has a network


def prepare(out, version):
    """Download the wheels for a Python of this version, and run the chain with the cpu rung; lines
    about both.
    """
    return [download(out / "wheels", version), on_the_cpu(out)]


def download(folder, version):
    """Download the wheels, by the hashes of envs/cpu.txt; a line. Raises UserError."""
    pins = re.split(r"\n(?=\S)", (ROOT / "envs/cpu.txt").read_text("utf-8"))
    wanted = [pin for pin in pins if "==" in pin and pin.partition("==")[0] not in NOT_CARRIED]
    shutil.rmtree(folder, ignore_errors=True)  # of another Python
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("\n".join(wanted) + "\n")
        file.flush()
        ended = subprocess.run(
            [
                sys.executable,
                "-m",
                "pip",
                "download",
                "--quiet",
                "--disable-pip-version-check",
                "--no-deps",
                "--require-hashes",
                "--only-binary=:all:",
                "--implementation",
                "cp",
                "--python-version",
                version,
                *(f"--platform={name}" for name in PLATFORMS),
                "--dest",
                str(folder),
                "-r",
                file.name,
            ]
        )
    sizes = [path.stat().st_size for path in folder.glob("*.whl")]
    if ended.returncode:
        raise UserError(
            f"the wheels for Python {version} cannot be downloaded; pip's messages above give the reason"
        )
    if sum(sizes) > MOST_BYTES:
        raise UserError(
            f"the wheels in {folder} have {size(sum(sizes))}, and {size(MOST_BYTES)} are carried at most; "
            "NOT_CARRIED in benchmarks/chain.py names what is left out"
        )
    return f"{len(sizes)} wheels of Snakemake and what the chain needs, for Python {version}: {folder}, {size(sum(sizes))}"


def on_the_cpu(out):
    """Run the chain with the cpu rung by the project's environment, and keep the summaries to
    carry; a line.
    """
    python = ROOT / ".venv/bin/python"
    if not python.exists():
        return "the chain was not run with the cpu rung: make environment brings what it needs"
    print("running the chain with the cpu rung, about a minute", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        for name in RUNS:
            summary = _summary(
                python, None, pathlib.Path(folder), name, "cpu", 600, out / "prepare.txt"
            )
            disk.write_atomically(_carried(out, name), json.dumps(summary).encode())
    return f"the chain with the cpu rung: {', '.join(str(_carried(out, name)) for name in RUNS)}"
