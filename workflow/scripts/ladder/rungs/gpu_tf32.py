"""gpu_3xtf32 with one product of TF32 operands in place of three, where the plan asks for TF32, and
operands that are copied.

The operands of a convolution are rounded once, to packed copies in memory, parts of which are
copied to shared memory in stages while others are multiplied; behind an upsampling they are the
smaller image and phase weights. Where the taps of a window share many pixels, a block keeps these
in shared memory for all taps. The launch that updates a weight packs it, those that load a batch
and compute the loss pack what convolutions read of it, and an image or a gradient that nothing else
reads is packed by the convolution that makes it, pooled and masked. Convolutions whose
channels do not fit (`packing_of`), and dense layers, round operands when they load them. Weights,
other activations and gradients, and sums stay float32.
"""

from ladder.rungs import gpu_3xtf32, packed_lowering
from ladder.rungs.packed_tiles import TF32

RUNG = packed_lowering.rung(gpu_3xtf32.rung("tf32"), TF32)
