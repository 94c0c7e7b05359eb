"""The chain as a section of `make gpu-check`: what is carried, and what is kept of a run; pip and
Snakemake are stand-ins.
"""

import json
import os
import pathlib
import types

import pytest
import yaml

import chain
from ladder.errors import UserError
from ladder.machine.worker import Failed
from ladder.sources import ROOT
from ladder.workflow import config as loaded
from ladder.workflow import runs

SNAKEMAKE = """
import json, os, pathlib, sys
print(*sys.argv[1:])
if "variant=gpu_bad" in sys.argv:
    print("Error in rule train:"), sys.exit(1)
pathlib.Path("results").mkdir(exist_ok=True)
pathlib.Path("results/report.html").write_text(sys.argv[-1])
pathlib.Path("results/summary.json").write_text(json.dumps({"variant": sys.argv[-1], "path": os.environ["PYTHONPATH"]}))
"""


@pytest.fixture
def out(tmp_path, monkeypatch):
    """A folder with one carried wheel, whose Snakemake is SNAKEMAKE, on a machine without
    another.
    """

    def run(command, seconds, **options):
        if "pip" in command:
            (site := pathlib.Path(command[command.index("--target") + 1])).mkdir()
            (site / "snakemake.py").write_text(SNAKEMAKE)
            return 0, []
        return own(command, seconds, **options)

    own, find_spec = chain.programs.run, chain.importlib.util.find_spec
    monkeypatch.setattr(chain.programs, "run", run)
    monkeypatch.setattr(
        chain.importlib.util, "find_spec", lambda name: name != "snakemake" and find_spec(name)
    )
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels/snakemake-9-py3-none-any.whl").touch()
    return tmp_path


def test_a_run_is_by_the_carried_packages_in_a_folder_of_its_own(out):
    summary = chain.run(out, "config.yaml", "gpu_basic", 30)["summary"]
    assert summary["variant"] == "variant=gpu_basic" and summary["path"].split(os.pathsep)[
        0
    ] == str(out / "site")
    assert (out / "chain/results/summary.json").exists() and (
        out / "report.html"
    ).read_text() == "variant=gpu_basic"
    chain.run(out, "PCA and ridge", "gpu_basic", 30)
    first, second = (
        line for line in (out / "log.txt").read_text().splitlines() if line.startswith("-s")
    )
    assert (
        f"-s {ROOT / 'Snakefile'}" in first
        and "results/report.html --config variant=gpu_basic" in first
    )
    assert second.endswith("features_pca=128 evaluations=ridge")


def test_the_summary_of_the_cpu_rung_may_be_carried(out):
    (out / "chain-PCA-and-ridge-cpu.json").write_text(json.dumps({"variant": "cpu"}))
    assert chain.run(out, "PCA and ridge", "cpu", 30) == {
        "carried": True,
        "summary": {"variant": "cpu"},
    }
    assert chain.run(out, "config.yaml", "cpu", 30)["carried"] is False, "that of another run"


def test_a_run_that_fails_is_one_line_and_the_log_has_the_rest(out):
    with pytest.raises(
        Failed, match="^snakemake ended with status 1: Error in rule train:; log.txt has the rest$"
    ):
        chain.run(out, "config.yaml", "gpu_bad", 30)
    assert "variant=gpu_bad" in (out / "log.txt").read_text()


def test_what_the_chain_needs_is_named(out, monkeypatch):
    (out / "wheels/snakemake-9-py3-none-any.whl").unlink()
    with pytest.raises(
        Failed, match="^Snakemake is not installed here, and --prepare has left no wheels to carry$"
    ):
        chain.run(out, "config.yaml", "gpu_basic", 30)
    monkeypatch.setattr(
        chain.importlib.util, "find_spec", lambda name: name not in ("numba", "scipy")
    )
    with pytest.raises(Failed, match="^the chain needs scipy, numba, not installed here$"):
        chain.run(out, "config.yaml", "gpu_basic", 30)


def test_wheels_are_those_of_the_pins_by_their_hashes(tmp_path, monkeypatch):
    asked, large = {}, []

    def run(command):
        asked.update(command=command, pins=pathlib.Path(command[-1]).read_text())
        (folder := pathlib.Path(command[command.index("--dest") + 1])).mkdir()
        (folder / "one.whl").write_bytes(bytes(len(large) * chain.MOST_BYTES + 1))
        return types.SimpleNamespace(returncode=0)

    monkeypatch.setattr(chain.subprocess, "run", run)
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels/of-another-python.whl").touch()
    assert chain.download(tmp_path / "wheels", "3.12").endswith(
        f"for Python 3.12: {tmp_path / 'wheels'}, 1 B"
    )
    pins = [line for line in asked["pins"].splitlines() if "==" in line]
    names = {line.partition("==")[0] for line in pins}
    assert {"snakemake", "pydantic-core", "jinja2"} <= names and not names & chain.NOT_CARRIED
    assert asked["pins"].count("--hash=") >= len(pins) and "--require-hashes" in asked["command"]
    every = {
        line.partition("==")[0]
        for line in (ROOT / "envs/cpu.txt").read_text().splitlines()
        if "==" in line
    }
    assert chain.NOT_CARRIED <= every, "what is left out is pinned"
    large.append(1)
    with pytest.raises(UserError, match="have 30.0 MB, and 30.0 MB are carried at most"):
        chain.download(tmp_path / "wheels", "3.12")


def test_the_kernels_that_are_compiled_before_are_those_of_config_yaml():
    config, case = yaml.safe_load((ROOT / "config.yaml").read_text()), chain.CASES[0]
    own = runs.resolve(loaded.load(config | {"variant": "cpu"})).settings
    assert (case.name, case.batch) == (own.network, own.batch_size)
    assert dict(case.options) == {
        "filters": own.wta_filters,
        "kernels": tuple(own.wta_kernels),
    }
