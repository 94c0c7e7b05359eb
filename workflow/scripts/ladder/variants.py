"""The ladder: every rung a person can choose, and what runs it."""

import dataclasses

from . import patterns


@dataclasses.dataclass(frozen=True)
class Variant:
    """executor: what launches the steps; patterns: the groups of layers it has operations for, longest first."""

    executor: str
    patterns: tuple
    technique: str


VARIANTS = {
    "cpu": Variant(
        "numpy", patterns.CPU,
        "im2col and BLAS on blocks of images that fit the cache, one block per thread; ReLU and pooling fused into the "
        "convolution; upsample+conv as one transposed convolution (2.25x less work)"),
}
