"""A race: rungs and PyTorch train the same network in turns, so that a change of the clock meets all of them."""

import dataclasses
import itertools
import statistics
import time

import spread
from cases import CONTENDERS
from processes import Failed

TURNS, TURN_SECONDS, FEWEST_STEPS = 10, 0.25, 5
PREPARE_SECONDS, TURN_LIMIT = 120, 60   # time limits of calls
SECONDS = 60            # a race that has less time than this does not begin
LATE = "out of time"    # why a contestant is missing that may be there in another call


def kind_of(name):
    """The kind of process that a contestant runs in."""
    return "torch" if name in CONTENDERS else "rungs"


def race(case, line_up, session, seconds):
    """Training steps of the contestants in turns: {"rows", "failed": {name: reason}}; raises Failed where none came through."""
    contest = Contest(case, session, time.monotonic() + seconds)
    for name in line_up:
        contest.enter(name)
    for _ in range(TURNS):
        if not contest.turn():
            break
    rows, failed = contest.rows(), contest.failed
    if not rows and contest.is_late:
        raise Failed(LATE, timed_out=True)
    if not rows:
        raise Failed("; ".join(f"{name}: {reason}" for name, reason in failed.items()) or "no rung is right")
    return {"rows": rows, "failed": failed}


class Contest:
    """A race in progress. A contestant that fails takes its process with it; the others of that process are entered again."""

    def __init__(self, case, session, deadline):
        self.case, self.session, self.deadline = case, session, deadline
        self.entered, self.failed, self.turns = {}, {}, {}   # by name: what `prepare` returned; reasons; what `turn` returned

    @property
    def is_late(self):
        return time.monotonic() > self.deadline - 1

    def enter(self, name):
        """Prepare a contestant, unless half a minute is left, which the turns need."""
        limit = min(PREPARE_SECONDS, self.deadline - time.monotonic() - SECONDS / 2)
        if limit < 1:
            self.failed[name] = LATE
            return
        try:
            self.entered[name] = self.session.call(kind_of(name), "prepare", dataclasses.asdict(self.case), name, limit=limit)
        except Failed as error:
            self.lose(name, error)

    def lose(self, name, reason):
        self.failed[name] = str(reason)
        self.entered.pop(name, None)
        others = [other for other in self.entered if kind_of(other) == kind_of(name)]
        for other in others:
            del self.entered[other]
        for other in others:
            self.enter(other)

    def turn(self):
        """One turn of everybody; False where there is no time or nobody left."""
        for name in list(self.entered):
            limit = min(TURN_LIMIT, self.deadline - time.monotonic())
            if limit < 1:
                return False
            if name not in self.entered:   # lost when its process was
                continue
            try:
                found = self.session.call(kind_of(name), "turn", name, self.steps(name), limit=limit)
            except Failed as error:
                self.lose(name, error)
            else:
                self.turns.setdefault(name, []).append(found)
        return bool(self.entered)

    def steps(self, name):
        """Steps of a turn: TURN_SECONDS of them, but no more than there are new images for."""
        wanted = int(1e6 * TURN_SECONDS / self.entered[name]["step_us"])
        return min(max(FEWEST_STEPS, wanted), self.case.images // self.case.batch)

    def rows(self):
        """The times of all who came through; one that beats the arithmetic is put among the failed."""
        rows = []
        for name, numbers in self.entered.items():
            turns = self.turns.get(name)
            row = turns and row_of(name, self.case, numbers, turns)
            floor = numbers.get("floor_us")
            if row and floor and row["median_us"] < floor:
                self.failed[name] = (f"{row['median_us']:.1f} us is impossible: {numbers['flop'] / 1e9:.3g} GFLOP in "
                                     f"{numbers['precision']} take at least {floor:.1f} us; the kernels did not run, or the "
                                     "clock is wrong")
            elif row:
                rows.append(row)
        return rows


def row_of(name, case, numbers, turns):
    times = spread.percentiles(list(itertools.chain.from_iterable(turn["us"] for turn in turns)))
    clocks = [turn["mhz"] for turn in turns if turn.get("mhz")]
    row = {"name": name, **numbers, **times, "turns_us": [statistics.median(turn["us"]) for turn in turns],
           "mhz": statistics.median(clocks) if clocks else 0,
           "scaled_epoch_seconds": -(-case.images // case.batch) * times["median_us"] / 1e6}
    return row | ({"tflop_per_second": numbers["flop"] / times["median_us"] / 1e6} if "flop" in numbers else {})
