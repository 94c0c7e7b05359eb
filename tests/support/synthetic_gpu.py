"""Records of benchmarks/gpu_check.py with small networks, and with worker processes and a chain
that are stand-ins.
"""

import json
import os
import sys

import chain
import gpu
import gpu_check
import gpu_page
import programs
import race
import results
import sections
import table
from cases import Case
from ladder.machine import driver
from ladder.sources import ROOT

SMALL = {
    "HEADLINES": tuple(Case("small", (4, 4, 3), batch, 8) for batch in (2, 3)),
    "LARGE": Case("small", (4, 4, 3), 4, 8),
    "OTHERS": (Case("labelled", (4, 4, 3), 2, 7),),
    "MULTIPLIED": Case("labelled", (4, 4, 3), 3, 7),
}
SUMMARY = {
    "test_accuracy": 0.9,
    "images_per_second": 1e4,
    "seconds": {"train": 2.5, "svm": 0.5},
    "device": "Fake",
}


def _summary(python, site, folder, name, rung, *_):
    """In place of a run of the chain."""
    (folder / "results").mkdir(exist_ok=True)
    (folder / "results/report.html").write_text(f"{name} with {rung}")
    return {**SUMMARY, "variant": rung}


def until(sections):
    """In place of gpu.Session.left: the time ends with so many sections in the record."""
    return property(
        lambda session: (
            500 * (not session.record or len(session.record.data["sections"]) < sections)
        )
    )


def set_up(patch, folder, modules):
    """measure(*arguments, rungs, faults) makes a record in `folder` with these worker modules, and
    returns it.

    The networks are small. faults: see fake_faults.py; a double underscore stands for a space.
    """
    (folder / "fake").mkdir()
    stand_in(patch, modules)
    patch.setenv("FAKE_FOLDER", str(folder / "fake"))

    def set_faults(faults):
        patch.setenv(
            "FAULTS", json.dumps({name.replace("__", " "): kind for name, kind in faults.items()})
        )

    def measure(*arguments, rungs="gpu_basic,gpu_gemm", **faults):
        set_faults(faults)
        gpu_check.main(["--out", str(folder / "out"), "--rungs", rungs, *arguments])
        return json.loads((folder / "out/record.json").read_text())

    measure.faults = set_faults
    return measure


def stand_in(patch, modules):
    """A GPU, small networks and worker modules for this process."""
    for module in (sections, results, chain, gpu_check, gpu_page, table):
        if hasattr(module, "HEADLINES"):
            patch.setattr(module, "HEADLINES", SMALL["HEADLINES"])
    for name, value in {**SMALL, "MULTIPLIERS": ("exact", "fp16")}.items():
        patch.setattr(sections, name, value)
    for name, value in {"TURNS": 2, "TURN_SECONDS": 0.002, "FEWEST_STEPS": 1}.items():
        patch.setattr(race, name, value)
    # the emulator compiles a kernel when it is first launched
    patch.setattr(sections, "LAUNCHES_SECONDS", 240)
    patch.setattr(gpu, "MODULES", modules)
    patch.setattr(gpu, "find_torch", lambda: sys.executable)
    for module, name, value in (
        (gpu_check.catalog, "no_gpu", None),
        (gpu_check.catalog, "unavailable", None),
        (driver, "gpu", driver.Gpu("Fake", "sm_80", 80 << 30, 100 << 10)),
        (driver, "cuda_version", (13, 0)),
    ):
        patch.setattr(module, name, lambda *_, value=value: value)
    patch.setattr(chain, "_summary", _summary)
    for name in programs.CACHES:
        patch.setenv(name, os.environ.get(name, ""))  # restored after the test
    patch.setattr(gpu, "state", lambda machine: {"clocks.sm": "1500"})
    folders = "tests/support", "emulator/src", "workflow/scripts"
    patch.setenv("PYTHONPATH", os.pathsep.join(str(ROOT / folder) for folder in folders))
