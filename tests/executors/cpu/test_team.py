"""Threads that work through tables: every piece of a task is done once, no task begins before the
one it waits for, and no thread waits for one that does not come.
"""

import gc
import queue
import threading
import time
import weakref

import numba
import numpy as np
import pytest
from numba import types

from ladder.executors.cpu import team
from ladder.executors.cpu.products import pointer

TASKS, PIECES = 50, 7


@numba.cfunc(types.void(types.int64, types.int64, types.int64, types.float32))
def count(row, piece, pieces, like):
    """row: this and the next row of a table (TASKS + 1, pieces), int64; a piece adds to its place
    there all that is here.
    """
    rows = numba.carray(pointer(row, np.int64(0)), (2, pieces))
    found = 0
    for other in range(pieces):
        found += rows[0, other]
    if piece == found % pieces:  # one piece is long, not always the same
        for turn in range(20_000):
            found += turn % 2 * 2 - 1
    rows[1, piece] += found % 1_000_003


@pytest.fixture(params=[1, 2, 3, 5], ids=lambda threads: f"{threads} threads")
def members(request):
    return team.Team(request.param, np.float32(0))


def expected(pieces):
    found = [[1] * pieces]
    for _ in range(TASKS):
        found.append([sum(found[-1]) % 1_000_003] * pieces)
    return found


def run(members, pieces=PIECES, labels=1):
    table, nanoseconds = np.zeros((TASKS + 1, pieces), np.int64), np.zeros(labels, np.int64)
    table[0] = 1
    steps = [
        (place % labels, 1, count.address, table[place].ctypes.data, pieces)
        for place in range(TASKS)
    ]
    members.run(np.array(steps), nanoseconds)
    return table.tolist(), nanoseconds


@pytest.mark.parametrize("pieces", [1, PIECES])
def test_each_task_sees_all_of_the_one_before(members, pieces):
    for _ in range(20):
        assert run(members, pieces)[0] == expected(pieces)


def test_threads_that_fell_asleep_are_woken(members):
    for _ in range(3):
        assert run(members)[0] == expected(PIECES)
        states = members._words[team.FIRST :: team.APART][: len(members._wake)]
        deadline = time.monotonic() + 30  # a thread that does not run cannot fall asleep
        while not (states == team.ASLEEP).all() and time.monotonic() < deadline:
            time.sleep(3 * team.WAIT / 1e9)
        assert (states == team.ASLEEP).all()


def test_nobody_waits_for_a_thread_that_does_not_come():
    members = team.Team(3, np.float32(0))
    wake, members._wake = members._wake, [queue.SimpleQueue(), queue.SimpleQueue()]
    assert run(members)[0] == expected(PIECES)
    team._dismiss(wake)


def test_the_time_of_each_task_is_added_to_its_label(members):
    started = time.perf_counter_ns()
    nanoseconds = run(members, labels=2)[1]
    assert (nanoseconds > 0).all() and nanoseconds.sum() <= time.perf_counter_ns() - started


def test_the_threads_of_a_team_that_is_gone_end():
    before = set(threading.enumerate())
    members = team.Team(3, np.float32(0))
    own = set(threading.enumerate()) - before
    assert len(own) == 2
    run(members)
    gone = weakref.ref(members)
    del members
    gc.collect()
    assert gone() is None
    for thread in own:
        thread.join(10)
        assert not thread.is_alive()
