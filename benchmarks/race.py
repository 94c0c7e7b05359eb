"""A race: rungs and PyTorch train the same network in turns, so that a change of the clock meets
all of them.

PyTorch is entered first: where the time ends too early, a rung is missing, and the next call enters
it.
"""

import dataclasses
import itertools
import statistics
import time

import spread
from cases import CONTENDERS
from ladder.machine.worker import Failed

TURNS, TURN_SECONDS, FEWEST_STEPS = 10, 0.25, 5
PREPARE_SECONDS, TURN_LIMIT = 120, 60  # time limits of calls
SECONDS = 60  # a race that has less time than this does not begin
LATE = "out of time"  # why a contestant is missing that may be there in another call


def kind_of(name):
    """The kind of process that a contestant runs in."""
    return "torch" if name in CONTENDERS else "rungs"


def race(case, line_up, session, seconds):
    """Training steps of the contestants in turns: {"rows", "failed": {name: reason}}; raises Failed
    where none came through.
    """
    contest = Contest(case, session, time.monotonic() + seconds)
    for name in sorted(line_up, key=kind_of, reverse=True):
        contest.enter(name)
    for _ in range(TURNS):
        if not contest.turn():
            break
    rows, failed = contest.rows(), contest.failed
    if not rows and contest.left < 1:
        raise Failed(LATE, timed_out=True)
    if not rows:
        raise Failed(
            "; ".join(f"{name}: {reason}" for name, reason in failed.items()) or "no rung runs here"
        )
    return {"rows": rows, "failed": failed}


class Contest:
    """A race in progress. A contestant that fails takes its process with it; the others of that
    process are entered again.

    numbers, turns: by name, what `prepare` and each `turn` returned; failed: reasons; entered: who
    is ready for a turn.
    """

    def __init__(self, case, session, deadline):
        self.case, self.session, self.deadline = case, session, deadline
        self.entered, self.numbers, self.turns, self.failed = [], {}, {}, {}

    @property
    def left(self):
        return self.deadline - time.monotonic()

    def enter(self, name):
        """Prepare a contestant, unless half a minute is left, which the turns need, or little
        more.
        """
        limit = min(PREPARE_SECONDS, self.left - SECONDS / 2)
        if limit < PREPARE_SECONDS / 6:
            self.late(name)
            return
        try:
            described = dataclasses.asdict(self.case)
            self.numbers[name] = self.session.call(
                kind_of(name), "prepare", described, name, limit=limit
            )
            self.entered.append(name)
        except Failed as error:
            if error.timed_out and limit < PREPARE_SECONDS:
                self.late(name)
            else:
                self.failed[name] = str(error)
            self.enter_others(name)

    def late(self, name):
        """There is no time for a contestant; it keeps the turns that it has made before its process
        was replaced.
        """
        if name not in self.turns:
            self.failed[name] = LATE

    def enter_others(self, name):
        """The process of a contestant is gone: those who were in it are entered in a new one."""
        others = [
            other for other in self.entered if kind_of(other) == kind_of(name) and other != name
        ]
        self.entered = [other for other in self.entered if kind_of(other) != kind_of(name)]
        for other in others:
            self.enter(other)

    def turn(self):
        """One turn of everybody; False where there is no time or nobody left."""
        for name in list(self.entered):
            if name not in self.entered:  # it could not be entered again
                continue
            limit = min(TURN_LIMIT, self.left)
            try:
                measured = self.session.call(
                    kind_of(name), "turn", name, self.steps(name), limit=max(0, limit)
                )
                self.turns.setdefault(name, []).append(measured)
            except Failed as error:
                if error.timed_out and limit < TURN_LIMIT:
                    return False
                self.failed[name] = str(error)
                self.enter_others(name)
        return bool(self.entered)

    def steps(self, name):
        """Steps of a turn: TURN_SECONDS of them, but no more than there are new images for."""
        wanted = int(1e6 * TURN_SECONDS / self.numbers[name]["step_us"])
        return min(max(FEWEST_STEPS, wanted), self.case.images // self.case.batch)

    def rows(self):
        """The times of all who came through; one that beats the arithmetic is put among the
        failed.
        """
        rows = []
        for name in self.numbers.keys() - self.failed.keys():
            if name not in self.turns:
                self.failed[name] = LATE
                continue
            row = row_of(name, self.case, self.numbers[name], self.turns[name])
            floor = row.get("floor_us")
            if floor and row["median_us"] < floor:
                self.failed[name] = (
                    f"{row['median_us']:.1f} us is impossible: {row['flop'] / 1e9:.3g} GFLOP in "
                    f"{row['precision']} take at least {floor:.1f} us; the kernels did not run, or the clock "
                    "is wrong"
                )
            else:
                rows.append(row)
        return sorted(rows, key=lambda row: list(self.numbers).index(row["name"]))


def row_of(name, case, numbers, turns):
    times = spread.percentiles(list(itertools.chain.from_iterable(turn["us"] for turn in turns)))
    rates = [turn["mhz"] for turn in turns if turn.get("mhz")]
    row = {
        "name": name,
        **numbers,
        **times,
        "turns_us": [statistics.median(turn["us"]) for turn in turns],
        "mhz": statistics.median(rates) if rates else 0,
        "scaled_epoch_seconds": -(-case.images // case.batch) * times["median_us"] / 1e6,
    }
    return row | (
        {"tflop_per_second": numbers["flop"] / times["median_us"] / 1e6}
        if "flop" in numbers
        else {}
    )
