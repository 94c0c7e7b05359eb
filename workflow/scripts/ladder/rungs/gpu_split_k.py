"""A lesson: gpu_wide with weight gradients that several blocks sum in parts (split-K)."""

from ladder.rungs import gpu_wide
from ladder.rungs.gpu_basic import blocks, convolution_sizes, elements, integers
from ladder.rungs.gpu_registers import SIDE
from ladder.rungs.gpu_shared import FEW, THREADS
from ladder.rungs.launches import Launch, Launches, Step
from ladder.rungs.values import Values

# In all: 4 for each of the 132 multiprocessors of an H200. Splits change the bytes, so they must
# not depend on the GPU's size.
BLOCKS = 528
LEAST_PIXELS = 64  # of a split


def conv2d_weight_grad(step: Step, values: Values) -> Launches:
    filters, _, _, channels = values.shape(step.writes["dweight"])
    if filters % 4 or channels % 4 or min(filters, channels) <= FEW:
        return gpu_wide.RUNG.launches["conv2d_weight_grad"](step, values)
    return split(step, values, "gpu_split_k")


def split(step: Step, values: Values, folder: str) -> Launches:
    """A weight gradient of any shape; folder: of the kernels."""
    x, dy, dweight = step.operands("x", "dy", "dweight")
    filters, kernel, _, channels = values.shape(dweight)
    pixels, weights = elements(values, dy) // filters, elements(values, dweight)
    tiles = blocks(filters, SIDE) * blocks(channels, SIDE) * kernel * kernel
    splits = max(1, min(BLOCKS // tiles, pixels // LEAST_PIXELS))
    per_split = blocks(pixels, splits)
    partials = values.workspace(f"{step.layer}.partials", (splits, weights))
    grid = blocks(filters, SIDE), blocks(channels, SIDE), kernel * kernel * splits
    source = f"{folder}/weight_grad.cu"
    return (
        Launch(
            source,
            "conv2d_weight_grad_split",
            grid,
            THREADS,
            (x, dy, partials, *convolution_sizes(step, values, x, dweight), *integers(per_split)),
        ),
        Launch(
            source,
            "conv2d_add_splits",
            (blocks(weights),),
            (256,),
            (partials, dweight, *integers(weights, splits)),
        ),
    )


RUNG = gpu_wide.RUNG.with_launches({"conv2d_weight_grad": conv2d_weight_grad})
