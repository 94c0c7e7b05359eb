"""Threads that work through a table of tasks together, without Python.

A task is cut into pieces, of which each thread takes the next one as soon as it has finished its
last: on a machine that other programs use too, a thread that is not running holds up nobody, unless
it was stopped within a piece. The calling thread begins a task when all pieces of the one before
are finished, and takes pieces like the others, all of them if no other thread comes.

Waking a sleeping thread takes 50 microseconds, as long as many a task. So a thread that waits for a
piece, or for the last one of others, stays awake for about as long (LOOKS). Then the other is most
likely not running, and the thread sleeps for moments, since one that has slept is soon let run:
with another process on each core a small CNN's step took 0.8 to 0.93 of the time that it took when
threads yielded. After a longer while without a piece (WAIT), as after a training, it sleeps until
it is woken.

words: the memory that the threads share, int64. TICKET is the number of tasks begun so far, times
TASK_UNIT, plus the number of pieces of the last one that nobody has taken. A thread takes a piece
by lowering it with a compare-and-swap, which fails if any task or piece was begun since the thread
looked: what it read of the task is then right if it succeeds.
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

from ladder.executors.cpu.products import call, compiled, inlined

WAIT = 200_000  # nanoseconds
LOOKS = 2**17  # at a word before a thread sleeps for a moment: about 40 microseconds
APART = 16  # words of two cache lines: processors fetch lines in pairs
# The places of the words: the last task, the finished pieces of all tasks, and from FIRST on the
# state of each thread, APART words apart.
TICKET, FUNCTION, TASK, PIECES = range(4)
FINISHED = APART
FIRST = 2 * APART
TASK_UNIT = 2**20
ASLEEP, AWAKE = range(2)  # the states of a thread
CLOCK = time.CLOCK_MONOTONIC

cached = numba.njit(nogil=True, error_model="numpy", cache=True)


class Team:
    """`threads` threads, the caller among them, that call the compiled function of each task of a
    table.

    The function takes the task's address, the number of a piece, the number of pieces and `like`, a
    number.
    """

    def __init__(self, threads, like):
        self._words = np.zeros(FIRST + APART * threads, np.int64)
        self._like, self._wake = like, [queue.SimpleQueue() for _ in range(threads - 1)]
        for number, wake in enumerate(self._wake):
            threading.Thread(
                target=_member, args=(wake, self._words, number, like), daemon=True
            ).start()
        weakref.finalize(self, _dismiss, self._wake)

    def run(self, steps, nanoseconds):
        """Perform the tasks of a table.

        steps: int64 (tasks, 5), for each task its place in `nanoseconds`, int64, which its time is
        added to, whether the next one waits for it, as the last one must be waited for, its
        function's address, its own, and the number of its pieces.
        """
        for number, wake in enumerate(self._wake):
            if _wakes(self._words, number):
                wake.put(True)
        _lead(self._words, steps, nanoseconds, self._like)


def _member(wake, words, number, like):
    """A thread but the caller: asleep until it is woken, then at work until no piece comes for a
    while.
    """
    while wake.get():
        _follow(words, number, like)


def _dismiss(wake):
    for each in wake:
        each.put(False)


@cached
def _wakes(words, number):
    """Whether the thread sleeps and must be woken; its state is AWAKE then."""
    return _exchange(_address(words, FIRST + APART * number), ASLEEP, AWAKE)


@cached
def _lead(words, steps, nanoseconds, like):
    """The caller's part of the work, which is timed."""
    now = np.empty(2, np.int64)
    last = _now(now)
    ticket, finished = _address(words, TICKET), _address(words, FINISHED)
    wanted = _load(finished)
    for place in range(len(steps)):
        pieces = steps[place, 4]
        if pieces == 1:
            call(steps[place, 2], (steps[place, 3], 0, 1, like))
        else:
            words[FUNCTION], words[TASK], words[PIECES] = steps[place, 2], steps[place, 3], pieces
            _store(ticket, (_load(ticket) // TASK_UNIT + 1) * TASK_UNIT + pieces)
            wanted += pieces
            _add(finished, _take_pieces(words, like))
        looks = 0
        while steps[place, 1] != 0 and _load(finished) < wanted:
            looks += 1
            if looks % LOOKS == 0:
                _sleep(np.uint32(1))
        time_ = _now(now)
        nanoseconds[steps[place, 0]] += time_ - last
        last = time_


@cached
def _follow(words, number, like):
    """Another thread's part, until no piece has come for a while."""
    state, now = _address(words, FIRST + APART * number), np.empty(2, np.int64)
    ticket, finished = _address(words, TICKET), _address(words, FINISHED)
    since, looks = _now(now), 0
    while True:
        if _load(ticket) % TASK_UNIT != 0:
            _add(finished, _take_pieces(words, like))
            since, looks = _now(now), 0
        looks += 1
        if looks % LOOKS == 0:
            _sleep(np.uint32(1))
            if _now(now) - since > WAIT:
                _store(state, ASLEEP)
                return


@compiled
def _take_pieces(words, like):
    """Do pieces of the last task until none is left: their number."""
    ticket, done = _address(words, TICKET), 0
    while True:
        seen = _load(ticket)
        left = seen % TASK_UNIT
        if left == 0:
            return done
        function, task, pieces = (
            _load(_address(words, FUNCTION)),
            _load(_address(words, TASK)),
            _load(_address(words, PIECES)),
        )
        if _exchange(ticket, seen, seen - 1):
            call(function, (task, pieces - left, pieces, like))
            done += 1


_clock = types.ExternalFunction(
    "clock_gettime", types.int32(types.int32, types.CPointer(types.int64))
)
_sleep = types.ExternalFunction("usleep", types.int32(types.uint32))


@compiled
def _now(pair):
    """Nanoseconds of a clock; pair: int64 (2,), overwritten."""
    _clock(np.int32(CLOCK), pair.ctypes)
    return 1_000_000_000 * pair[0] + pair[1]


@inlined
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
