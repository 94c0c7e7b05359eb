"""A lesson: convolutions in tiles that a block of threads keeps in shared memory."""

from ladder.rungs import gpu_basic
from ladder.rungs.gpu_basic import blocks, convolution_sizes, elements, integers
from ladder.rungs.launches import Launch, Launches, Step
from ladder.rungs.values import Values

SIDE = 16  # of a block's tile of the result
THREADS = 16, 16
FEW = 4  # filters or channels up to which a tile would be nearly empty: gpu_basic's kernels


def conv2d_forward(
    step: Step,
    values: Values,
    folder: str = "gpu_shared",
    side: int = SIDE,
    few: int = FEW,
) -> Launches:
    """folder: of the kernels; side: of their tile; few: as FEW; likewise in the gradients."""
    x, weight, bias, y = step.operands("x", "weight", "bias", "y")
    filters, relu = values.shape(y)[3], step.attributes.get("relu", False)
    if filters <= few and not relu:
        return gpu_basic.conv2d_forward(step, values)
    grid = blocks(elements(values, y) // filters, side), blocks(filters, side)
    sizes = convolution_sizes(step, values, x, weight)
    arguments = x, weight, bias, y, *sizes, *integers(relu)
    return (Launch(f"{folder}/conv2d.cu", "conv2d_forward", grid, THREADS, arguments),)


def conv2d_input_grad(
    step: Step,
    values: Values,
    folder: str = "gpu_shared",
    side: int = SIDE,
    few: int = FEW,
) -> Launches:
    dy, weight, dx = step.operands("dy", "weight", "dx")
    channels = values.shape(dx)[3]
    if channels <= few:
        return gpu_basic.conv2d_input_grad(step, values)
    grid = blocks(elements(values, dx) // channels, side), blocks(channels, side)
    arguments = (dy, weight, dx, *convolution_sizes(step, values, dx, weight))
    return (Launch(f"{folder}/conv2d.cu", "conv2d_input_grad", grid, THREADS, arguments),)


def conv2d_weight_grad(
    step: Step, values: Values, folder: str = "gpu_shared", side: int = SIDE
) -> Launches:
    x, dy, dweight = step.operands("x", "dy", "dweight")
    filters, kernel, _, channels = values.shape(dweight)
    if min(filters, channels) <= FEW:
        return gpu_basic.conv2d_weight_grad(step, values)
    grid = blocks(filters, side), blocks(channels, side), kernel * kernel
    arguments = (x, dy, dweight, *convolution_sizes(step, values, x, dweight))
    return (Launch(f"{folder}/conv2d.cu", "conv2d_weight_grad", grid, THREADS, arguments),)


RUNG = gpu_basic.RUNG.with_launches(
    {
        "conv2d_forward": conv2d_forward,
        "conv2d_input_grad": conv2d_input_grad,
        "conv2d_weight_grad": conv2d_weight_grad,
    }
)
