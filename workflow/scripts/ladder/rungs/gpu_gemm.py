"""gpu_opt_v1, its kernels compiled for larger tiles where a convolution or dense layer is large enough to fill them."""

from ladder.rungs import gpu_opt_v1
from ladder.rungs.gpu_basic import blocks
from ladder.rungs.gpu_opt_v1 import PATTERNS, UPDATES_TOGETHER, Tile

__all__ = ["LAUNCHES", "PATTERNS", "UPDATES_TOGETHER"]

LARGE = Tile(128, 128, 8, 8)
LARGE_TILES = 128   # from this many on, they keep a GPU of about as many multiprocessors busy


def pixel_tile(pixels, columns, wide):
    """As gpu_opt_v1.pixel_tile."""
    if wide and columns > LARGE.n // 2 and blocks(pixels, LARGE.m) * blocks(columns, LARGE.n) >= LARGE_TILES:
        return LARGE
    return gpu_opt_v1.pixel_tile(pixels, columns, wide)


def weight_tile(filters, columns, wide):
    """As gpu_opt_v1.weight_tile."""
    if wide and filters >= LARGE.m and columns >= LARGE.n:
        return LARGE
    return gpu_opt_v1.weight_tile(filters, columns, wide)


def conv2d_forward(step, build, tile_for=pixel_tile):
    return gpu_opt_v1.conv2d_forward(step, build, tile_for)


def conv2d_input_grad(step, build, tile_for=pixel_tile):
    return gpu_opt_v1.conv2d_input_grad(step, build, tile_for)


def conv2d_weight_grad(step, build, tile_for=weight_tile):
    return gpu_opt_v1.conv2d_weight_grad(step, build, tile_for)


LAUNCHES = {
    **gpu_opt_v1.LAUNCHES,
    "conv2d_forward": conv2d_forward,
    "conv2d_input_grad": conv2d_input_grad,
    "conv2d_weight_grad": conv2d_weight_grad,
}
