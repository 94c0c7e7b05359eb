"""Threads that work through tables: every thread does every task once, and no task begins before
the one it waits for.
"""

import gc
import threading
import time
import weakref

import numba
import numpy as np
import pytest
from numba import types

from ladder.executors.cpu import team
from ladder.executors.cpu.products import pointer

TASKS = 50


@numba.cfunc(types.void(types.int64, types.int64, types.int64, types.float32))
def count(row, thread, threads, like):
    """row: this and the next row of a table (TASKS + 1, threads), int64; a thread adds to its place
    there all that is here.
    """
    rows = numba.carray(pointer(row, np.int64(0)), (2, threads))
    found = 0
    for other in range(threads):
        found += rows[0, other]
    if thread == found % threads:  # one thread is late, not always the same
        for turn in range(20_000):
            found += turn % 2 * 2 - 1
    rows[1, thread] = found % 1_000_003


@pytest.fixture(params=[1, 2, 3, 5], ids=lambda threads: f"{threads} threads")
def made(request):
    return request.param, team.Team(request.param, np.float32(0))


def expected(threads):
    found = [[1] * threads]
    for _ in range(TASKS):
        found.append([sum(found[-1]) % 1_000_003] * threads)
    return found


def run(members, threads, labels=1):
    table, nanoseconds = np.zeros((TASKS + 1, threads), np.int64), np.zeros(labels, np.int64)
    table[0] = 1
    steps = np.array(
        [(place % labels, 1, count.address, table[place].ctypes.data) for place in range(TASKS)]
    )
    members.run(steps, nanoseconds)
    return table.tolist(), nanoseconds


def test_each_task_sees_all_of_the_one_before(made):
    threads, members = made
    for _ in range(20):
        assert run(members, threads)[0] == expected(threads)


def test_threads_that_fell_asleep_are_woken(made):
    threads, members = made
    for _ in range(3):
        assert run(members, threads)[0] == expected(threads)
        time.sleep(3 * team.WAIT / 1e9)
        assert not (members._words[team.FIRST + team.APART :: team.APART] == team.CALLED).any()


def test_the_time_of_each_task_is_added_to_its_label(made):
    threads, members = made
    started = time.perf_counter_ns()
    nanoseconds = run(members, threads, labels=2)[1]
    assert (nanoseconds > 0).all() and nanoseconds.sum() <= time.perf_counter_ns() - started


def test_the_threads_of_a_team_that_is_gone_end():
    before = set(threading.enumerate())
    members = team.Team(3, np.float32(0))
    own = set(threading.enumerate()) - before
    assert len(own) == 2
    run(members, 3)
    gone = weakref.ref(members)
    del members
    gc.collect()
    assert gone() is None
    for thread in own:
        thread.join(10)
        assert not thread.is_alive()
