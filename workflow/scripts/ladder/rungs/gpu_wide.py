"""A lesson: gpu_registers with accesses of 16 bytes, where 4 divides the channels and filters."""

from collections.abc import Callable

from ladder.rungs import gpu_registers, gpu_shared
from ladder.rungs.gpu_registers import SIDE
from ladder.rungs.launches import Launches, Step
from ladder.rungs.values import LaunchFunction, Values


def wide(function: Callable[..., Launches]) -> LaunchFunction:
    """The launch function `function` of gpu_shared, for gpu_wide's kernels where 4 divides the
    channels and filters.
    """

    def launches(step: Step, values: Values) -> Launches:
        filters, _, _, channels = values.shape(step.reads.get("weight") or step.writes["dweight"])
        if filters % 4 or channels % 4:
            return gpu_registers.RUNG.launches[function.__name__](step, values)
        return function(step, values, folder="gpu_wide", side=SIDE)

    return launches


RUNG = gpu_registers.RUNG.with_launches(
    {
        function.__name__: wide(function)
        for function in (
            gpu_shared.conv2d_forward,
            gpu_shared.conv2d_input_grad,
            gpu_shared.conv2d_weight_grad,
        )
    }
)
