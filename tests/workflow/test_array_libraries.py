"""The array library that `auto` takes, and its part in versions."""

import pytest

import planned
from ladder.rungs import catalog
from ladder.workflow import array_libraries, config, runs

NO_GPU = "needs an NVIDIA GPU and no driver answers here"


@pytest.mark.parametrize("reason, chosen", [(None, "cupy"), (NO_GPU, "numpy")])
def test_auto_is_cupy_where_a_gpu_can_run_it(monkeypatch, reason, chosen):
    monkeypatch.setattr(catalog, "no_gpu", lambda: reason)
    assert array_libraries.resolve("auto") == chosen and array_libraries.unavailable(chosen) is None


def test_a_named_library_is_kept_although_it_cannot_run(monkeypatch):
    monkeypatch.setattr(catalog, "no_gpu", lambda: NO_GPU)
    assert array_libraries.resolve("cupy") == "cupy"  # results of another machine stay reachable
    assert (
        array_libraries.unavailable("cupy")
        == f"array_library cupy {NO_GPU}; set array_library to auto or numpy"
    )


def test_a_run_of_a_list_whose_library_cannot_run_is_left_out_with_the_reason(monkeypatch):
    monkeypatch.setattr(catalog, "no_gpu", lambda: NO_GPU)
    usual = config.load(planned.RAW | {"variant": "cpu", "svm_backend": "sklearn"})
    assert runs.entry(usual, {"array_library": "cupy"}).reason == array_libraries.unavailable(
        "cupy"
    )
    assert runs.entry(usual, {"array_library": "numpy"}).reason == ""
