"""What compiling costs, apart from the work."""

import logging
import threading

import numba
import pytest

from ladder.machine import compiling
from ladder.progress import log


@pytest.fixture
def clock(monkeypatch):
    """A clock that a test moves: now[0] is the time; nothing was compiled before."""
    now = [0.0]
    monkeypatch.setattr(compiling.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(compiling, "_clock", compiling._Clock())
    monkeypatch.setattr(compiling, "seconds", compiling._clock.seconds)
    return now


def test_what_numba_compiles_is_counted_and_its_second_call_is_not():
    compiling.count_numba()
    before, function = compiling.seconds(), numba.njit(lambda x: x + 1)
    assert function(1) == 2
    compiled = compiling.seconds()
    assert compiled > before
    assert function(2) == 3 and compiling.seconds() == compiled


def test_what_is_compiled_within_other_compiling_or_beside_it_is_counted_once(clock):
    with compiling.counted():
        clock[0] = 3.0
        with compiling.counted():
            clock[0] = 5.0
        assert compiling.seconds() == 5.0
    clock[0] = 9.0
    assert compiling.seconds() == 5.0


def test_a_failure_ends_the_count(clock):
    with pytest.raises(ZeroDivisionError), compiling.counted():
        raise ZeroDivisionError
    clock[0] = 9.0
    assert compiling.seconds() == 0.0


@pytest.mark.parametrize(
    ("seconds", "lines"),
    [
        (0.9, []),
        (1.5, ["compiled in 1.5 s"]),
        (
            38.0,
            ["compiling for this machine; the next run finds it in the cache", "compiled in 38 s"],
        ),
    ],
)
def test_compiling_is_said_while_it_lasts_and_afterwards(
    clock, caplog, monkeypatch, seconds, lines
):
    monkeypatch.setattr(compiling, "STEP", 0.001)
    monkeypatch.setattr(log, "propagate", True)
    said, bar = threading.Event(), compiling.progress.bar
    monkeypatch.setattr(
        compiling.progress, "bar", lambda **options: (said.set(), bar(**options))[1]
    )
    with caplog.at_level(logging.INFO), compiling.shown(), compiling.counted():
        clock[0] = seconds
        assert said.wait(10 if len(lines) == 2 else 0.01) == (len(lines) == 2)
    assert caplog.messages == lines
