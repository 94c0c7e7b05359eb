"""Checks before the first use, in processes of their own that do what fake_check is told."""

import concurrent.futures
import json
import os
import threading

import pytest

from ladder import progress
from ladder.errors import UserError
from ladder.machine import driver
from ladder.sources import ROOT
from ladder.store import first_use, programs


@pytest.fixture
def calls(monkeypatch, tmp_path):
    """A function that returns the names of the checks that were made."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("CALLS", str(tmp_path / "calls.txt"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "tests/support"))
    monkeypatch.setattr(progress.log, "propagate", True)
    monkeypatch.setattr(progress.log, "handlers", [progress.logging.NullHandler()])
    monkeypatch.setattr(first_use, "_outcomes", {})
    return lambda: (
        (tmp_path / "calls.txt").read_text().split() if (tmp_path / "calls.txt").exists() else []
    )


def outcome(monkeypatch, kind=None, name="rung", **key):
    """The outcome in a process that has made no check yet, where the check does what `kind`
    says.
    """
    monkeypatch.setattr(first_use, "_outcomes", {})
    monkeypatch.setenv("FAULTS", json.dumps({name: kind} if kind else {}))
    return first_use.outcome(check(name, **key))


def check(name="rung", **key):
    return first_use.Check(name, "two numbers are compared", "fake_check", "check", (name,), key)


def test_a_check_that_passes_is_said_and_made_once(calls, monkeypatch, caplog):
    caplog.set_level("INFO", "ladder")
    found = outcome(monkeypatch, driver="1")
    assert found["passed"] and found["made"].endswith("Z") and found["seconds"] > 0
    said = [record.getMessage() for record in caplog.records]
    assert said[0] == "checking rung: two numbers are compared"
    assert said[1].startswith("rung passed: sgd 1.9e-07 in a.bias, in ")
    assert outcome(monkeypatch, "wrong", driver="1") == found and calls() == ["rung"]
    assert not outcome(monkeypatch, "wrong", driver="2")["passed"] and calls() == ["rung", "rung"]


@pytest.mark.parametrize(
    "kind, words, kept",
    [
        ("wrong", "rung computes other numbers: enc2.weight deviates by 3.1e-01", True),
        (
            "cudaErrorX: bad\naddress",
            "rung could not be checked: RuntimeError: cudaErrorX: bad address",
            True,
        ),
        ("hang", "rung could not be checked: it hung and was ended after 1 s", True),
        ("segfault", "rung could not be checked: the process was ended by SIGSEGV", True),
        ("die", "rung could not be checked: the process was ended by SIGKILL", False),
        ("memory", "rung: out of memory", False),
    ],
)
def test_whatever_goes_wrong_is_an_outcome_which_is_kept_unless_it_may_pass(
    calls, monkeypatch, kind, words, kept
):
    monkeypatch.setattr(first_use, "SECONDS", 1 if kind == "hang" else 60)
    found = outcome(monkeypatch, kind)
    assert not found["passed"] and found["fault"].startswith(words) and "\n" not in found["fault"]
    assert check().path.exists() == kept
    monkeypatch.setattr(first_use, "SECONDS", 60)
    assert outcome(monkeypatch)["passed"] != kept  # the next command, where it would pass


def test_a_check_that_has_to_pass_stops_in_one_line_with_what_to_do(calls, monkeypatch):
    monkeypatch.setenv("FAULTS", '{"rung": "wrong"}')
    with pytest.raises(UserError) as raised:
        first_use.require(check(), "variant=cpu needs no GPU")
    assert str(raised.value) == (
        f"rung computes other numbers: enc2.weight deviates by 3.1e-01 (checked {first_use.outcome(check())['made']}, kept in "
        f"{check().path}: remove it to check again); please report it with that file (CONTRIBUTING.md); variant=cpu needs no "
        "GPU"
    )
    monkeypatch.setenv("FAULTS", "{}")
    note = first_use.require(check("other"), "")
    assert note["first_use"].keys() == {"name", "made", "seconds", "summary"}
    assert note["first_use"]["summary"] == "sgd 1.9e-07 in a.bias"


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"{",
        b"[]",
        b"\xff",
        b'{"key": {}}',
        b"[" * 10**5,
        b'{"key": {}, "passed": 3, "passing": false, "name": "", "summary": "", "fault": "", '
        b'"made": "", "seconds": 1}',
    ],
    ids=range(7),
)
def test_a_damaged_outcome_is_none(calls, monkeypatch, damage):
    outcome(monkeypatch, "wrong")
    check().path.write_bytes(damage)
    assert outcome(monkeypatch)["passed"] and len(calls()) == 2


def test_an_outcome_that_was_copied_from_another_key_is_none(calls, monkeypatch):
    outcome(monkeypatch, driver="1")
    check(driver="1").path.rename(check(driver="2").path)
    assert not outcome(monkeypatch, "wrong", driver="2")["passed"] and len(calls()) == 2


def test_where_nothing_can_be_kept_a_process_checks_once(calls, monkeypatch, tmp_path):
    (tmp_path / "cache").write_text("no folder")
    assert outcome(monkeypatch)["passed"] and first_use.outcome(check())["passed"]
    assert calls() == ["rung"]
    assert outcome(monkeypatch)["passed"] and len(calls()) == 2


def test_a_check_that_was_never_made_is_not_made_where_that_is_not_wanted(calls):
    assert first_use.outcome(check(), makes=False) is None and calls() == []


def test_two_commands_at_once_both_check_and_one_outcome_is_kept(calls, monkeypatch):
    both, make = threading.Barrier(2), first_use._make
    monkeypatch.setattr(first_use, "_make", lambda check: both.wait() is not None and make(check))
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        assert all(found["passed"] for found in pool.map(first_use.outcome, [check(), check()]))
    assert calls() == ["rung", "rung"] and [
        path.name for path in check().path.parent.iterdir()
    ] == [check().path.name]
    assert outcome(monkeypatch, "wrong")["passed"]


def test_the_key_of_a_machine_is_its_gpu_driver_and_packages(monkeypatch):
    monkeypatch.setattr(driver, "gpu", lambda: driver.Gpu("Fake", "sm_80", 1, 1))
    monkeypatch.setattr(driver, "version", lambda: "550.1")
    found = first_use.machine(["sklearn"])
    assert (
        found["gpu"] == "Fake"
        and found["driver"] == "550.1"
        and list(found["packages"]) == ["scikit-learn"]
    )


def test_the_key_of_the_program_changes_with_any_file_that_it_is_made_of(monkeypatch):
    module, kernel = "ladder.errors", "kernels/gpu_basic/relu.cu"
    before = first_use.code(module), first_use.code(module, {kernel})
    monkeypatch.setattr(
        programs,
        "digest",
        lambda path, right=programs.digest: "other" if path == kernel else right(path),
    )
    assert first_use.code(module) == before[0] and first_use.code(module, {kernel}) != before[1]
    assert os.path.exists(ROOT / kernel)
