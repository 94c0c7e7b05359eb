"""`gpu_check.py` on a machine that has a GPU and little else: no network, no package but NumPy and
CuPy, no compiler.
"""

import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys

import numpy as np
import pytest

import gpu_check
import needs
import processes
import programs
import stand_in_gpu
from ladder.executors.cuda import nvrtc
from ladder.sources import ROOT


@needs.NVRTC
@needs.COMPILER
def test_prepared_kernels_and_one_folder_are_all_that_a_machine_needs(tmp_path):
    out = tmp_path / "check"
    prepared = call(sys.executable, ROOT, {}, out, "--prepare", "--rungs", "gpu_basic,gpu_bf16")
    assert (out / "cache/kernel-ladder/kernels/nvrtc.txt").exists()
    (tar,) = (line for line in prepared.splitlines() if line.startswith("tar "))
    subprocess.run(shlex.split(tar), cwd=tmp_path, check=True)
    machines = [tmp_path / name for name in ("first", "second")]
    for machine in machines:
        shutil.unpack_archive(tmp_path / "gpu-check.tgz", machine)
    chain = processes.python(
        "-m",
        "snakemake",
        "-s",
        machines[0] / "Snakefile",
        "-n",
        "results/report.html",
        cwd=tmp_path,
    )
    assert chain.returncode == 0 and "report" in chain.stdout, (
        "the files that are carried are those of the chain too"
    )
    packages = tmp_path / "packages"
    packages.mkdir()
    stand_in_gpu.install(packages)
    for folder in (
        pathlib.Path(np.__file__).parent,
        pathlib.Path(np.__file__).parents[1] / "numpy.libs",
    ):
        (packages / folder.name).symlink_to(folder)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    python, variables = tmp_path / "venv/bin/python", stand_in_gpu.environment(packages)
    first = machines[0] / "check"
    said = call(python, machines[0], variables, first, "--rungs", "gpu_basic,gpu_bf16")
    assert (
        "without numba: parity is with NumPy" in said
        and "without torch" in said
        and "without jinja2: no page" in said
    )
    record = json.loads((first / "record.json").read_text())
    results = {name: section.get("result") for name, section in record["sections"].items()}
    # no cuML
    assert [name for name, result in results.items() if result is None] == [
        "PyTorch"
    ] and "svm" not in results
    assert all(
        results[f"parity: autoencoder, {rung}"]["passed"] for rung in ("gpu_basic", "gpu_bf16")
    )
    (race,) = (result for name, result in results.items() if name.startswith("race: "))
    assert [(row["name"], row["within_limit"]) for row in race["rows"]] == [
        ("gpu_bf16", True),
        ("gpu_basic", True),
    ]
    shutil.copytree(first, machines[1] / "check", dirs_exist_ok=True)
    call(python, machines[1], variables, machines[1] / "check", "--rungs", "gpu_basic,gpu_bf16")
    again = json.loads((machines[1] / "check/record.json").read_text())
    unchanged = {name for name, result in results.items() if result}
    assert all(again["sections"][name] == record["sections"][name] for name in unchanged)


def call(python, folder, variables, out, *arguments):
    """What gpu_check.py prints, without a network where this machine allows that."""
    alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    apart = ["unshare", "-rn"] if variables and shutil.which("unshare") else []
    if apart and subprocess.run([*apart, "true"], capture_output=True).returncode:
        apart = []
    script = folder / "benchmarks/trial.py" if variables else out.parent / "trial.py"
    script.write_text(stand_in_gpu.SCRIPT)
    ended = processes.run(
        *apart, python, script, "--out", out, *arguments, cwd=folder, env=alone | variables
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_nvrtc_of_another_version_than_asked_for_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(nvrtc, "version", lambda: (12, 9))
    for name in programs.CACHES:
        monkeypatch.setenv(name, "")  # restored after the test
    with pytest.raises(
        SystemExit,
        match="^gpu-check: NVRTC here is of CUDA 12.9, not 13.0; .* cuda-bindings==13.0.*",
    ):
        gpu_check.main(["--prepare", "--nvrtc", "13.0", "--out", str(tmp_path)])
