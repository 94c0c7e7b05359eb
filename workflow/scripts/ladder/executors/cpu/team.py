"""Threads that work through a table of tasks together, and meet after each task without Python and
without sleeping.

Waking a sleeping thread takes 50 microseconds, as long as many a task. So a thread that has
finished a table waits for the next one awake for a while (WAIT), as a training makes step after
step, and sleeps only then.

words: the memory that the threads share, int64: the number of arrivals at all meetings so far, what
is called for, and the state of each thread.
"""

import queue
import threading
import time
import weakref

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ladder.executors.cpu.products import call, compiled, pointer

WAIT = 200_000  # nanoseconds
LOOKS = 2**12  # at a word before a thread lets others run: about 10 microseconds
APART = 16  # words of two cache lines: processors fetch lines in pairs
# The places of the words; the state of thread n is at FIRST + APART n.
ARRIVALS, FIRST = 0, APART
STEPS, LENGTH, BEGUN, THREADS = range(APART, APART + 4)
ASLEEP, AWAKE, CALLED = range(3)  # the states of a thread
CLOCK = time.CLOCK_MONOTONIC

cached = numba.njit(nogil=True, error_model="numpy", cache=True)


class Team:
    """`threads` threads, the caller among them, that call the compiled function of each task of a
    table.

    The function takes the task's address, the number of the thread, `threads` and `like`, a number.
    """

    def __init__(self, threads, like):
        self._words = np.zeros(FIRST + APART * threads, np.int64)
        self._words[THREADS] = threads
        self._like, self._wake = like, [queue.SimpleQueue() for _ in range(threads - 1)]
        for number, wake in enumerate(self._wake, 1):
            threading.Thread(
                target=_member, args=(wake, self._words, number, like), daemon=True
            ).start()
        weakref.finalize(self, _dismiss, self._wake)

    def run(self, steps, nanoseconds):
        """Perform the tasks of a table.

        steps: int64 (tasks, 4), for each task its place in `nanoseconds`, int64, which its time is
        added to, whether all threads meet after it, as they must after the last, its function's
        address and its own.
        """
        asleep = _call(self._words, steps)
        for number, wake in enumerate(self._wake):
            if asleep >> number & 1:
                wake.put(True)
        _lead(self._words, steps, nanoseconds, self._like)


def _member(wake, words, number, like):
    """A thread but the caller: asleep until it is woken, then at work until no table comes for a
    while.
    """
    while wake.get():
        _follow(words, number, like)


def _dismiss(wake):
    for each in wake:
        each.put(False)


@cached
def _call(words, steps):
    """Call all threads to the table; a bit for each, from the second on, that sleeps and must be
    woken.
    """
    words[STEPS], words[LENGTH], words[BEGUN] = steps.ctypes.data, len(steps), words[ARRIVALS]
    asleep = 0
    for number in range(1, words[THREADS]):
        state = _address(words, FIRST + APART * number)
        if not _exchange(state, AWAKE, CALLED):
            _store(state, CALLED)
            asleep |= 1 << (number - 1)
    return asleep


@cached
def _lead(words, steps, nanoseconds, like):
    """The caller's part of the work, which is timed."""
    now, expected = np.empty(2, np.int64), words[BEGUN]
    last = _now(now)
    for place in range(len(steps)):
        call(steps[place, 2], (steps[place, 3], 0, words[THREADS], like))
        if steps[place, 1] != 0:
            expected += words[THREADS]
            _meet(words, expected)
        time_ = _now(now)
        nanoseconds[steps[place, 0]] += time_ - last
        last = time_


@cached
def _follow(words, number, like):
    """Another thread's part, until no table has come for a while."""
    state, now = _address(words, FIRST + APART * number), np.empty(2, np.int64)
    while True:
        since, looks = _now(now), 0
        while _load(state) != CALLED:
            looks += 1
            if looks % LOOKS == 0:
                _let_others_run()
                if _now(now) - since > WAIT and _exchange(state, AWAKE, ASLEEP):
                    return
        steps, expected = (
            numba.carray(pointer(words[STEPS], np.int64(0)), (words[LENGTH], 4)),
            words[BEGUN],
        )
        _store(state, AWAKE)  # nobody is called before all have met
        for place in range(len(steps)):
            call(steps[place, 2], (steps[place, 3], number, words[THREADS], like))
            if steps[place, 1] != 0:
                expected += words[THREADS]
                _meet(words, expected)


@compiled
def _meet(words, expected):
    """Arrive, and wait until there were `expected` arrivals."""
    arrivals, looks = _address(words, ARRIVALS), 0
    if _add(arrivals, 1) + 1 == expected:
        return
    while _load(arrivals) < expected:
        looks += 1
        if looks % LOOKS == 0:
            _let_others_run()


_clock = types.ExternalFunction(
    "clock_gettime", types.int32(types.int32, types.CPointer(types.int64))
)
_let_others_run = types.ExternalFunction("sched_yield", types.int32())


@compiled
def _now(pair):
    """Nanoseconds of a clock; pair: int64 (2,), overwritten."""
    _clock(np.int32(CLOCK), pair.ctypes)
    return 1_000_000_000 * pair[0] + pair[1]


@compiled
def _address(words, place):
    return words.ctypes.data + 8 * place


_INT = ir.IntType(64)


@intrinsic
def _load(typing, address):
    def generate(context, builder, signature, arguments):
        return builder.load_atomic(builder.inttoptr(arguments[0], _INT.as_pointer()), "seq_cst", 8)

    return types.int64(types.int64), generate


@intrinsic
def _store(typing, address, value):
    def generate(context, builder, signature, arguments):
        builder.store_atomic(
            arguments[1], builder.inttoptr(arguments[0], _INT.as_pointer()), "seq_cst", 8
        )
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@intrinsic
def _add(typing, address, value):
    """The value before."""

    def generate(context, builder, signature, arguments):
        return builder.atomic_rmw(
            "add", builder.inttoptr(arguments[0], _INT.as_pointer()), arguments[1], "seq_cst"
        )

    return types.int64(types.int64, types.int64), generate


@intrinsic
def _exchange(typing, address, expected, value):
    """Whether the word was as expected, and is `value` now."""

    def generate(context, builder, signature, arguments):
        place, expected, value = arguments
        done = builder.cmpxchg(
            builder.inttoptr(place, _INT.as_pointer()), expected, value, "seq_cst"
        )
        return builder.extract_value(done, 1)

    return types.boolean(types.int64, types.int64, types.int64), generate
