"""The ladder: every rung a person can choose, and what runs it."""

import dataclasses
import importlib


@dataclasses.dataclass(frozen=True)
class Variant:
    """executor: what runs the steps (the module <executor>_executor); technique: what the rung shows."""

    executor: str
    technique: str


VARIANTS = {
    "cpu": Variant("numpy", "im2col and BLAS on blocks of images that fit the cache, one block per thread; ReLU and pooling "
                            "fused into the convolution; upsample+conv as one transposed convolution (2.25x less work)"),
    "gpu_basic": Variant("cuda", "one thread per output element, global memory only, one kernel per operation"),
}


def rung(variant):
    """The module rungs/<variant>.py, loaded by name so that a variant's version depends on its own rung alone."""
    return importlib.import_module(f".rungs.{variant}", __package__)
