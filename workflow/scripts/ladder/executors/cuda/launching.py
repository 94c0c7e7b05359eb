"""How the launches of a plan reach the GPU: replayed as a CUDA graph, or queued one by one.

A graph is recorded by queueing a plan's launches on streams that capture instead of running; waits
between streams become its branches. Kernels keep the arguments that they had: numbers, and
addresses of arrays whose content may change, so a recorded step is every step. One call launches a
graph of many steps where queueing them would take the CPU longer than the GPU computes.

Where NVTX is there, ranges name what a profiler sees: "step" and in it "layer: operation", or "10
steps as a graph".
"""

import dataclasses

from ladder.machine import compiling
from ladder.progress import log

RECORDED = 10  # steps of a graph; what is left of a call is made by graphs of one step


class Bound(dict):
    """{name: array} of a plan.

    prologue, steps  its BoundSteps: those before a sequence of runs, and those of each run
    batches          the streaming.HostBatchStream of its images, or None
    ran              False until the first run, which loads the kernels
    graphs           {(steps, slot of streamed images): cupy.cuda.Graph}
    """

    def __init__(self, arrays, batches):
        super().__init__(arrays)
        self.batches, self.prologue, self.steps, self.ran, self.graphs = batches, (), (), False, {}


@dataclasses.dataclass(frozen=True)
class BoundStep:
    """work: the category and the pass that its time is reported under."""

    label: str
    work: tuple
    launches: tuple


@dataclasses.dataclass(frozen=True)
class BoundLaunch:
    """arguments: one tuple per slot of streamed images, twice the same without streaming.

    waits: events of launches on other streams; event: the one that later launches wait for, or
    None.
    """

    kernel: object
    grid: tuple
    block: tuple
    arguments: tuple
    shared_bytes: int
    stream: int
    waits: tuple
    event: object


class Launcher:
    """Runs bound plans on the streams of one executor.

    streams: by Launch.stream; every run starts and ends on the first. refused: why there are no
    graphs, or None.
    """

    def __init__(self, cupy):
        self._cupy = cupy
        self.streams, self.refused = [], None
        self.stream(0)
        self._open, self._close = ranges(cupy.cuda)

    def stream(self, number):
        while number >= len(self.streams):
            self.streams.append(self._cupy.cuda.Stream(non_blocking=True))
        return self.streams[number]

    def begin(self, bound):
        """Run what precedes a sequence of runs."""
        for step in bound.prologue:
            self._open(step.label)
            for launch in step.launches:
                launch.kernel(
                    launch.grid,
                    launch.block,
                    launch.arguments[0],
                    launch.shared_bytes,
                    self.streams[0],
                )
            self._close()

    def run(self, bound, slot, most):
        """Run the plan once, or several times by one graph, at most `most` times; how often."""
        steps = RECORDED if most >= RECORDED else 1
        graph = self._graph(bound, slot, steps) if bound.ran and not self.refused else None
        if graph is None:
            bound.ran = True
            self._queue(bound, slot)
            return 1
        self._open(f"{steps} steps as a graph")
        graph.launch(self.streams[0])
        self._close()
        return steps

    def record(self, bound):
        """Record all graphs of a plan before they are needed."""
        for steps, slot in ((1, 0), (1, 1)) if bound.batches else ((1, 0), (RECORDED, 0)):
            if not self.refused:
                self._graph(bound, slot, steps)

    def measure(self, bound, slot):
        """Run the plan on one stream; [((category, pass), event before, event after)]."""
        main, bound.ran, marks = self.streams[0], True, []
        marks.append(main.record(self._cupy.cuda.Event()))
        self._open("step")
        for step in bound.steps:
            self._open(step.label)
            for launch in step.launches:
                launch.kernel(
                    launch.grid, launch.block, launch.arguments[slot], launch.shared_bytes, main
                )
            marks.append(main.record(self._cupy.cuda.Event()))
            self._close()
        self._close()
        return list(zip((step.work for step in bound.steps), marks, marks[1:], strict=False))

    def described(self):
        """How launches reach the GPU, in words for a report."""
        return f"one by one ({self.refused})" if self.refused else "as CUDA graphs"

    def _graph(self, bound, slot, steps):
        """The plan's graph of so many steps, recorded now if need be; None, also from now on, where
        that is refused.
        """
        if (steps, slot) not in bound.graphs:
            try:
                with compiling.counted():
                    bound.graphs[steps, slot] = self.recorded(bound, slot, steps)
            # of the runtime or the driver: all of CuPy's errors are such
            except RuntimeError as error:
                self.refused = " ".join(str(error.__context__ or error).split())
                log.info("no CUDA graphs: %s; the launches are queued one by one", self.refused)
        return bound.graphs.get((steps, slot))

    def recorded(self, bound, slot, steps):
        """A new graph of so many runs of the plan; raises RuntimeError where that is refused."""
        main = self.streams[0]
        main.begin_capture()
        try:
            for _ in range(steps):
                self._queue(bound, slot)
        finally:  # also leaves the capture after a failure, which makes this call fail too
            graph = main.end_capture()
        return graph

    def _queue(self, bound, slot):
        main, new_event = self.streams[0], self._cupy.cuda.Event
        others = sorted({launch.stream for step in bound.steps for launch in step.launches} - {0})
        if others:
            started = main.record(new_event(disable_timing=True))
            for number in others:
                self.stream(number).wait_event(started)
        self._open("step")
        for step in bound.steps:
            self._open(step.label)
            for launch in step.launches:
                stream = self.stream(launch.stream)
                for event in launch.waits:
                    stream.wait_event(event)
                launch.kernel(
                    launch.grid, launch.block, launch.arguments[slot], launch.shared_bytes, stream
                )
                if launch.event:
                    stream.record(launch.event)
            self._close()
        self._close()
        for number in others:
            main.wait_event(self.streams[number].record(new_event(disable_timing=True)))


def ranges(cuda):
    """Functions that open and close an NVTX range; they do nothing where CuPy was built without
    NVTX.
    """
    try:
        return cuda.nvtx.RangePush, cuda.nvtx.RangePop
    except (AttributeError, ImportError, RuntimeError):
        return lambda name: None, lambda: None


def waits_between_streams(plan):
    """For each launch of the plan, the numbers of earlier launches on other streams that it must
    wait for.

    On each other stream, that is the last launch with a conflict: both use a buffer and one of them
    writes it. Arguments that the step does not list among its reads count as written.
    """
    # done: (stream, reads, writes); waited: (stream, other stream) -> launch
    waits, done, waited = [], [], {}
    for step in plan.steps:
        only_read = set(step.reads.values()) - set(step.writes.values())
        for launch in step.launches:
            reads, writes, wanted = (
                launch.buffers & only_read,
                launch.buffers - only_read,
                {},
            )
            touched = reads | writes
            for number, (stream, other_reads, other_writes) in enumerate(done):
                if stream != launch.stream and (other_writes & touched or other_reads & writes):
                    wanted[stream] = number
            wanted = {
                stream: number
                for stream, number in wanted.items()
                if number > waited.get((launch.stream, stream), -1)
            }
            waited |= {(launch.stream, stream): number for stream, number in wanted.items()}
            waits.append(tuple(sorted(wanted.values())))
            done.append((launch.stream, reads, writes))
    return waits
