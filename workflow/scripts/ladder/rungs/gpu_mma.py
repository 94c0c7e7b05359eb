"""A lesson: gpu_fused, the products of a block's tile by tensor cores (mma.sync), for precision
tf32.
"""

import functools

from ladder.rungs import gpu_fused, gpu_shared, gpu_split_k
from ladder.rungs.gpu_registers import SIDE
from ladder.rungs.interface import Implementation


def with_tile(folder: str) -> Implementation:
    """gpu_fused with the kernels of a folder for every convolution, also a narrow one."""
    return gpu_fused.RUNG.with_launches(
        {
            **{
                function.__name__: functools.partial(function, folder=folder, side=SIDE, few=0)
                for function in (gpu_shared.conv2d_forward, gpu_shared.conv2d_input_grad)
            },
            "conv2d_weight_grad": functools.partial(gpu_split_k.split, folder=folder),
        }
    )


RUNG = with_tile("gpu_mma")
