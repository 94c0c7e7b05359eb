"""What a version depends on beside parameters: the sources of a stage, and not the libraries."""

import os
import sys

import pytest

import planned
import processes
from ladder import sources
from ladder.machine import libraries
from ladder.rungs import catalog
from ladder.workflow import planning
from ladder.workflow.stages import STAGES


def test_versions_of_libraries_do_not_count(monkeypatch):
    here = {"numpy": "2.4.6", "scikit-learn": "1.9.1"}
    monkeypatch.setattr(libraries, "_version", here.get)
    usual = planned.chain()
    here["scikit-learn"] = "1.9.2"
    assert planned.chain()["svm"].version == usual["svm"].version


def test_the_sources_of_a_stage_are_the_imports_of_its_script():
    data = planning.stage_sources(STAGES["data"], {})
    assert (
        "workflow/scripts/prepare_data.py" in data
        and "workflow/scripts/ladder/data/datasets.py" in data
    )
    assert "workflow/scripts/ladder/classifiers/svm.py" not in data
    assert not sources.NEUTRAL & set(data) and not any(
        path.endswith("__init__.py") for path in data
    )
    assert "workflow/scripts/ladder/pages/assets/report.html" in planning.stage_sources(
        STAGES["report"], {}
    )
    assert not any("workflow/scripts/ladder/pages/assets" in path for path in data)


def test_an_edited_gpu_rung_leaves_results_of_the_cpu_rungs_as_they_are():
    for rung in ("cpu", "cpu_sequential"):
        counted = planning.stage_sources(STAGES["train"], {"variant": rung})
        assert not [
            path
            for path in counted
            if "gpu_" in path or path.startswith("kernels/") or "cuda" in path
        ], rung
    assert "kernels/gpu_basic/conv2d.cu" in planning.stage_sources(
        STAGES["train"], {"variant": "gpu_basic"}
    )


def test_a_features_stage_depends_on_its_rung_and_the_pixels_do_not():
    chain = planned.chain()
    rung = "workflow/scripts/ladder/rungs/cpu.py"
    assert rung in chain["train"].spec["sources"] and rung in chain["features"].spec["sources"]
    assert rung not in chain["features_pixels"].spec["sources"]


@pytest.mark.parametrize(
    "params, on_gpu",
    [
        ({}, False),
        ({"variant": "cpu", "array_library": "numpy"}, False),
        ({"backend": "sklearn"}, False),
        ({"variant": "gpu_basic"}, True),
        ({"backend": "cuml"}, True),
        ({"variant": "cpu", "array_library": "cupy"}, True),
    ],
)
def test_a_stage_that_computes_on_a_gpu_asks_for_one(params, on_gpu):
    assert catalog.computes_on_gpu(params) == on_gpu


def test_a_command_begins_without_the_libraries_that_take_longest_to_import(tmp_path):
    program = """
import sys
from ladder.workflow import commands, config, copies, jobs, notices, places, plans, search, stages
plans.load({})
print(sorted({"scipy", "jinja2", "sklearn", "numba"} & sys.modules.keys()))
"""
    done = processes.python(
        "-c", program, cwd=tmp_path, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    )
    assert done.stdout == "[]\n", done.stderr
