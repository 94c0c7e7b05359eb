"""A lesson: gpu_shared with a tile of 4 x 4 results in the registers of each thread."""

import functools

from ladder.rungs import gpu_shared

SIDE = 64  # of a block's tile of the result

RUNG = gpu_shared.RUNG.with_launches(
    {
        function.__name__: functools.partial(function, folder="gpu_registers", side=SIDE)
        for function in (
            gpu_shared.conv2d_forward,
            gpu_shared.conv2d_input_grad,
            gpu_shared.conv2d_weight_grad,
        )
    }
)
