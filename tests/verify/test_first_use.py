"""Which rung `auto` takes after the checks, whose outcomes are made up here, and what a stage
requires.
"""

import pytest

from ladder import caller, progress
from ladder.errors import UserError
from ladder.machine import driver
from ladder.rungs import catalog
from ladder.store import first_use as checks
from ladder.verify import first_use

PLAN = first_use.described({"network": "lenet_5", "image": [28, 28, 1], "classes": 10}, 64)


@pytest.fixture
def outcomes(monkeypatch):
    """Variant -> the fault that its check finds, on a machine with a GPU; a check that is not in it
    passes.
    """
    faults = {}

    def outcome(check, makes=True):
        made.append((check.name, makes))
        fault = faults.get(check.name, "")
        return (
            {
                "passed": not fault,
                "fault": fault,
                "passing": False,
                "made": "now",
                "name": check.name,
                "seconds": 1,
                "summary": "",
            }
            if makes
            else None
        )

    made = []
    monkeypatch.setattr(catalog, "no_gpu", lambda: None)
    monkeypatch.setattr(driver, "gpu", lambda: driver.Gpu("Fake", "sm_86", 1, 1))
    monkeypatch.setattr(checks, "outcome", outcome)
    monkeypatch.setattr(progress.log, "propagate", True)
    monkeypatch.setenv(caller.VARIABLE, '{"checks": true}')
    first_use._choose.cache_clear()
    yield faults, made
    first_use._choose.cache_clear()


def test_auto_takes_the_first_that_passes_and_says_which_it_passes_over(outcomes, tmp_path, caplog):
    faults, made = outcomes
    faults |= {"gpu_opt_v2": "enc2.weight deviates by 0.3", "gpu_gemm": "it hung"}
    assert first_use.choose("auto", "float32", PLAN, tmp_path)[0] == "gpu_opt_v1"
    assert [name for name, _ in made] == ["gpu_opt_v2", "gpu_gemm", "gpu_opt_v1"]
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2 and lines[0].startswith(
        "rung gpu_opt_v2 is passed over: enc2.weight deviates by 0.3 (checked now, kept in "
    )
    first_use.choose("auto", "float32", PLAN, tmp_path)
    assert len(caplog.records) == 2  # once in a command


def test_auto_ends_at_the_cpu(outcomes, tmp_path):
    faults, _ = outcomes
    faults |= {rung: "no" for rung in catalog.RUNGS if catalog.uses_gpu(rung)}
    assert first_use.choose("auto", "float32", PLAN, tmp_path)[0] == "cpu"


def test_a_command_that_runs_nothing_trusts_a_rung_that_was_never_checked(
    outcomes, tmp_path, monkeypatch
):
    _, made = outcomes
    monkeypatch.delenv(caller.VARIABLE)
    rung, reason = first_use.choose("auto", "float32", PLAN, tmp_path)
    assert rung == "gpu_opt_v2" and reason.endswith("; it is checked before its first use")
    assert made == [("gpu_opt_v2", False)]


def test_a_named_rung_is_kept_and_required_by_its_stage(outcomes):
    faults, made = outcomes
    assert first_use.choose("gpu_basic", "float32", PLAN) == ("gpu_basic", "") and made == []
    assert first_use.require("gpu_basic", PLAN)["first_use"]["name"] == "gpu_basic"
    faults["gpu_basic"] = "enc2.weight deviates by 0.3"
    with pytest.raises(
        UserError,
        match=r"^enc2.weight deviates by 0.3 \(checked now.*variant=auto takes a rung that passes",
    ):
        first_use.require("gpu_basic", PLAN)


def test_rungs_of_the_cpu_need_no_check(outcomes):
    assert (
        first_use.require("cpu", PLAN)
        == first_use.require("cpu_sequential", PLAN)
        == first_use.require(None, PLAN)
        == {}
    )
    assert outcomes[1] == []


def test_a_check_is_of_one_rung_network_batch_and_program(outcomes):
    other = [
        first_use._check("gpu_basic", PLAN),
        first_use._check("gpu_opt_v1", PLAN),
        first_use._check(
            "gpu_basic",
            first_use.described({"network": "lenet_5", "image": [28, 28, 1], "classes": 10}, 32),
        ),
    ]
    assert len({check.path for check in other}) == 3
    assert other[0].path == first_use._check("gpu_basic", PLAN).path
