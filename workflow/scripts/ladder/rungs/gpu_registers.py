"""A lesson: gpu_shared with a tile of 4 x 4 results in the registers of each thread."""

import functools

from ladder.rungs import gpu_shared
from ladder.rungs.gpu_shared import PATTERNS
from ladder.rungs.patterns import LaunchFunction

__all__ = ["LAUNCHES", "PATTERNS"]

SIDE = 64  # of a block's tile of the result

LAUNCHES: dict[str, LaunchFunction] = {
    **gpu_shared.LAUNCHES,
    **{
        function.__name__: functools.partial(function, folder="gpu_registers", side=SIDE)
        for function in (
            gpu_shared.conv2d_forward,
            gpu_shared.conv2d_input_grad,
            gpu_shared.conv2d_weight_grad,
        )
    },
}
