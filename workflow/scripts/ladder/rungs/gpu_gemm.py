"""gpu_opt_v1, its kernels compiled for larger tiles where a convolution or dense layer is large
enough to fill them.
"""

import functools

from ladder.rungs import gpu_opt_v1, tiles
from ladder.rungs.gpu_opt_v1 import FEW_COLUMNS
from ladder.rungs.tiles import LARGE, TIMES, Tile


def pixel_tile(pixels: int, columns: int, wide: bool, multiprocessors: int) -> Tile:
    """As gpu_opt_v1.pixel_tile."""
    if wide and columns > FEW_COLUMNS.n:
        return tiles.quickest(TIMES, pixels, columns, multiprocessors)
    return gpu_opt_v1.pixel_tile(pixels, columns, wide, multiprocessors)


def weight_tile(filters: int, columns: int, wide: bool) -> Tile:
    """As gpu_opt_v1.weight_tile."""
    if wide and filters >= LARGE.m and columns >= LARGE.n:
        return LARGE
    return gpu_opt_v1.weight_tile(filters, columns, wide)


RUNG = gpu_opt_v1.RUNG.with_launches(
    {
        "conv2d_forward": functools.partial(gpu_opt_v1.conv2d_forward, tile_for=pixel_tile),
        "conv2d_input_grad": functools.partial(gpu_opt_v1.conv2d_input_grad, tile_for=pixel_tile),
        "conv2d_weight_grad": functools.partial(
            gpu_opt_v1.conv2d_weight_grad, tile_for=weight_tile
        ),
    }
)
