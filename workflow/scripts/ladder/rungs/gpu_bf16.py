"""gpu_tf32 with bfloat16 operands, where the plan asks for them: twice the products an instruction, from half the bytes.

The operands of a convolution are rounded once, to packed copies in memory, parts of which are copied to shared memory in stages
while others are multiplied; behind an upsampling they are the smaller image and phase weights. Where the taps of a window share
many pixels, a block keeps these in shared memory for all taps. The launch that updates a weight packs it, and an
image or a gradient that nothing else reads is packed by the convolution that makes it, pooled and masked. Convolutions whose
channels do not fit (`packing_of`), and dense layers, round operands when they load them, as gpu_tf32 does. Weights, other
activations and gradients, and sums stay float32.
"""

from ladder.network.optimizers import AVERAGES
from ladder.rungs import bfloat16_launches as launches
from ladder.rungs import gpu_3xtf32
from ladder.rungs.bfloat16_lowering import Lowering
from ladder.rungs.bfloat16_packing import packing_of
from ladder.rungs.gpu_3xtf32 import UPDATES_TOGETHER

__all__ = ["GRADIENTS_IN_PARTS", "LAUNCHES", "PATTERNS", "UPDATES_TOGETHER"]

GRADIENTS_IN_PARTS = True   # see plan.training_plan
PATTERNS = Lowering(packing_of).patterns
LAUNCHES = {
    **gpu_3xtf32.launches("bfloat16"),
    "conv2d_round_input": launches.round_input,
    "copy_weights": launches.copy_weights,
    **{f"{rule}_update": launches.update for rule in AVERAGES},
    "conv2d_round_gradient": launches.round_gradient,
    "rounded_conv2d_forward": launches.forward,
    "rounded_conv2d_input_grad": launches.input_grad,
    "rounded_conv2d_weight_grad": launches.weight_grad,
    "rounded_phase_conv2d_forward": launches.phase_forward,
    "rounded_phase_conv2d_input_grad": launches.input_grad,
    "rounded_phase_conv2d_weight_grad": launches.phase_weight_grad,
}
