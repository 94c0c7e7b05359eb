"""The SVM backend that `auto` selects, and the reason if a backend cannot run."""

import pytest

import processes
from ladder import caller, progress, sources
from ladder.classifiers import backends
from ladder.errors import UserError
from ladder.store import first_use


@pytest.fixture
def machine(monkeypatch):
    """A function that simulates a machine with `gpus` GPUs and the packages `installed`."""

    def pretend(gpus, *installed):
        backends._passes.cache_clear()
        monkeypatch.setattr(first_use, "outcome", lambda check, makes=True: None)  # never made
        monkeypatch.setattr(backends, "gpu_count", lambda: gpus)
        monkeypatch.setattr(backends, "_installed", lambda package: package in installed)

    return pretend


@pytest.mark.parametrize(
    "gpus, installed, expected",
    [
        (1, ["cupy", "cuml", "sklearnex"], "cuml"),
        (0, ["cupy", "cuml", "sklearnex"], "sklearnex"),
        (1, ["cupy", "sklearnex"], "sklearnex"),
        (1, ["cuml", "sklearnex"], "sklearnex"),
        (1, ["cupy", "cuml"], "cuml"),
        (0, [], "sklearn"),
    ],
)
def test_auto_takes_the_first_that_can_run(machine, gpus, installed, expected):
    machine(gpus, *installed)
    assert backends.resolve_backend("auto") == expected
    assert backends.unavailable(expected) is None


def test_a_named_backend_is_kept_although_it_cannot_run(machine):
    machine(0)
    assert backends.resolve_backend("cuml") == "cuml"  # results of another machine stay reachable


@pytest.mark.parametrize(
    "gpus, installed, backend, words",
    [
        (0, ["cupy", "cuml", "sklearnex"], "cuml", ["NVIDIA GPU", "sklearnex"]),
        (0, [], "cuml", ["NVIDIA GPU", "auto or sklearn"]),
        (1, ["cupy"], "cuml", ["not installed", "envs/", "sklearn"]),
        (0, [], "sklearnex", ["scikit-learn-intelex", "not installed", "sklearn"]),
    ],
)
def test_the_reason_is_one_line_that_says_what_can_run(machine, gpus, installed, backend, words):
    machine(gpus, *installed)
    reason = backends.unavailable(backend)
    assert "\n" not in reason
    for word in words:
        assert word in reason


def test_an_unknown_backend_is_refused_with_the_choices():
    with pytest.raises(UserError, match="thunder.*auto, cuml, sklearnex, sklearn"):
        backends.resolve_backend("thunder")


def test_importing_and_resolving_loads_no_heavy_library():
    code = (
        "import sys; from ladder.classifiers import backends; backends.resolve_backend('auto'); "
        "print([m for m in ('numpy', 'cupy', 'cuml', 'sklearn', 'sklearnex') if m in sys.modules])"
    )
    done = processes.python("-c", code, cwd=sources.SCRIPTS, check=True)
    assert done.stdout.strip() == "[]"


@pytest.fixture
def outcome(machine, monkeypatch):
    """A function that sets what the check of cuML finds, on a machine with all backends; returns
    the list of its calls.
    """

    def set_fault(fault):
        def outcome(check, makes=True):
            made.append(makes)
            return (
                {
                    "passed": not fault,
                    "fault": fault,
                    "passing": False,
                    "made": "now",
                    "name": check.name,
                    "seconds": 1,
                    "summary": "rbf within 1e-4",
                }
                if makes
                else None
            )

        made = []
        machine(1, "cupy", "cuml", "sklearnex")
        monkeypatch.setattr(first_use, "outcome", outcome)
        monkeypatch.setattr(progress.log, "propagate", True)
        monkeypatch.setenv(caller.VARIABLE, '{"checks": true}')
        backends._passes.cache_clear()
        return made

    yield set_fault
    backends._passes.cache_clear()


def test_auto_passes_over_a_cuml_that_fails_its_check_and_says_why(outcome, caplog):
    outcome("RAPIDS rejects the driver")
    assert backends.resolve_backend("auto") == backends.resolve_backend("auto") == "sklearnex"
    (line,) = (record.getMessage() for record in caplog.records)
    assert line.startswith(
        "svm_backend cuml is passed over: RAPIDS rejects the driver (checked now, kept in "
    )
    outcome("")
    assert backends.resolve_backend("auto") == "cuml"


def test_a_command_that_runs_nothing_trusts_a_cuml_that_was_never_checked(outcome, monkeypatch):
    made = outcome("RAPIDS rejects the driver")
    monkeypatch.delenv(caller.VARIABLE)
    assert backends.resolve_backend("auto") == "cuml" and made == [False]


def test_a_named_cuml_that_fails_stops_its_stage_and_others_need_no_check(outcome):
    made = outcome("it hung")
    assert (
        backends.require("sklearn") == backends.require("sklearnex") == backends.require(None) == {}
        and made == []
    )
    with pytest.raises(
        UserError, match=r"^it hung \(checked now.*; set svm_backend to auto, sklearnex or sklearn$"
    ):
        backends.require("cuml")
    outcome("")
    assert backends.require("cuml")["first_use"]["summary"] == "rbf within 1e-4"
