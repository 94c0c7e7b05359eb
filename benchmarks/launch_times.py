"""Microseconds of every launch of a rung's training step in its place in the graph; part of
rung_work.py's process.

The time of a launch is that of a graph of steps in which it is made twice, less that of the graph
as it is, by turns: with the clock, the gaps and the second stream of a training, which no profiler
leaves as they are. The second of both finds in level 2 what the first has left there. `advance` is
not made twice, because the steps would leave the permutation.
"""

import copy
import dataclasses
import itertools
import math
import statistics

import timing
from cases import Case
from ladder.executors import create as executors
from ladder.plan import plan
from spread import percentiles

STEPS = timing.LAP  # of a graph
# turns of both graphs; of a turn at least, but no more replays than MOST
TURNS, SECONDS, MOST = 5, 0.015, 10


class Bench:
    """A rung's plans on random images, and the graphs of their steps."""

    def __init__(self, case, rung):
        self.case, self.rung, self.executor = case, rung, executors.create(rung, 1, "device")

    def bind(self):
        """(plan, its arrays after a first run, a graph of its steps)."""
        lowered, arrays = timing.bind(
            self.executor,
            self.case.network,
            self.rung,
            self.case.batch,
            0,
            MOST * STEPS,
            multipliers=plan.made_for(self.rung),
        )
        self.executor.prepare(lowered, arrays)
        return lowered, arrays, self.executor.recorded(arrays, STEPS)

    def microseconds(self, arrays, graph, replays):
        """Of a step: the median of so many replays of a graph."""
        executor = self.executor
        executor.fill(arrays["counters"], 0)
        marks = [executor.stream.record(executor.cupy.cuda.Event())]
        for _ in range(replays):
            graph.launch(executor.stream)
            marks.append(executor.stream.record(executor.cupy.cuda.Event()))
        executor.synchronize()
        between = executor.cupy.cuda.get_elapsed_time
        return statistics.median(
            1000 * between(begin, end) / STEPS for begin, end in itertools.pairwise(marks)
        )

    def extra_us(self, base, changed, step_us):
        """How much longer a step takes in `changed` than in `base`, by turns; both: (arrays,
        graph).
        """
        replays = min(MOST, max(2, math.ceil(1e6 * SECONDS / STEPS / step_us)))
        times = [
            [self.microseconds(*which, replays) for which in (base, changed)] for _ in range(TURNS)
        ]
        return percentiles([after - before for before, after in times])


def launches(case, rung):
    """{"step_us", "launching", "launches": [{"place", "kernel", "stream", "median_us", ...}]} of a
    step, in its order.
    """
    bench = Bench(Case.from_dict(case), rung)
    lowered, arrays, graph = bench.bind()
    step_us = bench.microseconds(arrays, graph, MOST)
    rows = []
    for number, step in enumerate(lowered.steps):
        for place, launch in enumerate(step.launches):
            times = {"median_us": None}
            if step.operation != "advance":
                twice = bench.executor.recorded(with_twice(arrays, number, place), STEPS)
                times = bench.extra_us((arrays, graph), (arrays, twice), step_us)
            kernel = f"{launch.source} {launch.entry}"
            rows.append(
                {"place": place_of(step), "kernel": kernel, "stream": launch.stream, **times}
            )
    return {"step_us": step_us, "launching": bench.executor.launching(), "launches": rows}


def place_of(step):
    """As in the timelines of counts.json."""
    return f"{step.layer} {step.pass_}" if step.layer else step.operation


def with_twice(arrays, number, place):
    """The bound plan with one launch of one step made twice."""
    changed, steps = copy.copy(arrays), list(arrays.steps)
    launched = steps[number].launches
    steps[number] = dataclasses.replace(
        steps[number], launches=(*launched[:place], launched[place], *launched[place:])
    )
    changed.steps = tuple(steps)
    return changed
