import importlib.metadata

import pytest

from ladder import sources
from ladder.machine import libraries
from ladder.workflow.planning import stage_sources
from ladder.workflow.stages import STAGES


def test_the_libraries_of_a_stage_are_those_that_its_sources_import():
    assert libraries.installed(stage_sources(STAGES["normalized"], {}), False) == {
        "numpy": importlib.metadata.version("numpy")
    }
    trained = libraries.installed(stage_sources(STAGES["train"], {"variant": "cpu"}), False)
    assert trained.keys() == {"llvmlite", "numba", "numpy"}
    fitted = libraries.installed(stage_sources(STAGES["svm"], {}), False)
    assert (
        fitted["scikit-learn"] == importlib.metadata.version("scikit-learn")
        and "numba" not in fitted
    )


def test_on_a_gpu_cupy_and_the_compiler_of_kernels_count(monkeypatch):
    here = {
        "numpy": "2.4.6",
        "cupy-cuda12x": "14.2.0",
        "nvidia-cuda-nvrtc-cu12": "12.9.86",
        "scipy": "1.17",
    }
    monkeypatch.setattr(libraries, "_version", here.get)
    found = libraries.installed(stage_sources(STAGES["train"], {"variant": "gpu_opt_v2"}), True)
    assert found == {
        name: here[name] for name in ("cupy-cuda12x", "numpy", "nvidia-cuda-nvrtc-cu12")
    }
    assert libraries.installed(stage_sources(STAGES["svm"], {}), False) == {
        name: here[name] for name in ("numpy", "scipy")
    }


@pytest.mark.parametrize(
    "before, after, said",
    [
        (
            {"numpy": "2.4.5", "numba": "1"},
            {"numpy": "2.4.6", "numba": "1"},
            ["numpy 2.4.5 -> 2.4.6"],
        ),
        ({}, {"numpy": "2"}, ["numpy none -> 2"]),
        ({"numpy": "2"}, {"numpy": "2"}, []),
    ],
)
def test_changed_versions_in_words(before, after, said):
    assert libraries.changed(before, after) == said


def test_every_library_of_the_table_is_imported_somewhere():
    files = {path.relative_to(sources.ROOT).as_posix() for path in sources.SCRIPTS.rglob("*.py")}
    assert libraries.PACKAGES.keys() <= sources.libraries(files)
