"""A plan as data, and what its memory is reported under."""

import dataclasses
from collections.abc import Mapping

from ladder.network.networks import Network
from ladder.rungs.launches import Launch, Step
from ladder.rungs.values import Buffer

# Kind of buffer of a training step -> the purpose under which its bytes are reported. The data set
# is none of them.
PURPOSES = {
    "parameter": "weights",
    "state": "running statistics",
    "gradient": "gradients",
    "optimizer": "optimizer",
    "activation": "activations",
    "mask": "masks",
    "derived": "workspace",
    "workspace": "workspace",
    "copy": "weights",
}
# what the plan does not know: memory that the executor takes for itself
EXECUTOR = "workspace of the executor"


@dataclasses.dataclass(frozen=True)
class Plan:
    """Steps in order, over buffers that are allocated once.

    buffers   name -> Buffer
    output    the buffer of the network's output
    kernels   (layers of a group, operation of their forward pass), in order
    prologue  steps that an executor runs once before a sequence of runs (`run`, `run_many`): they
              make the copies of parameters, which each update keeps up to date. Whatever else
              changes a parameter does so between two sequences.
    """

    network: Network
    rung: str
    batch: int
    buffers: Mapping[str, Buffer]
    steps: tuple[Step, ...]
    kernels: tuple[tuple[tuple[str, ...], str], ...]
    output: str
    prologue: tuple[Step, ...] = ()

    @property
    def flop(self) -> int:
        """Floating-point operations of one run."""
        return sum(step.flop for step in self.steps)

    @property
    def launches(self) -> list[Launch]:
        """The kernel launches of all steps, in order."""
        return [launch for step in self.steps for launch in step.launches]

    @property
    def kernel_table(self) -> list[dict[str, str]]:
        """A JSON-able row for each of `kernels`: layer (e.g. 'conv1 + conv1_relu'), kernel."""
        return [
            {"layer": " + ".join(layers), "kernel": operation} for layers, operation in self.kernels
        ]

    @property
    def bytes(self) -> int:
        """Bytes of the buffers of a step, without the data set and the counters of a run."""
        return sum(self.bytes_by_purpose().values())

    def bytes_by_kind(self) -> dict[str, int]:
        """Kind of buffer -> total bytes."""
        total: dict[str, int] = {}
        for buffer in self.buffers.values():
            total[buffer.kind] = total.get(buffer.kind, 0) + buffer.bytes
        return total

    def bytes_by_purpose(self) -> dict[str, int]:
        """Purpose -> total bytes of the buffers of a step, without the data set and the counters of
        a run.
        """
        total: dict[str, int] = {}
        for kind, count in self.bytes_by_kind().items():
            if kind in PURPOSES:
                total[PURPOSES[kind]] = total.get(PURPOSES[kind], 0) + count
        return {
            purpose: total[purpose]
            for purpose in dict.fromkeys(PURPOSES.values())
            if purpose in total
        }
