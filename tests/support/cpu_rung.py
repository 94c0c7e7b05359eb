"""Single operations of the cpu rung, as its executor performs them in a plan."""

import numpy as np

from ladder.executors.cpu import blocks, convolution, layers, loops, small, upsampled, winograd
from ladder.executors.cpu import executor as cpu_executor


def perform(executor, operation, **operands):
    dtypes = [
        value.dtype
        for role, value in operands.items()
        if isinstance(value, np.ndarray)
        and role not in small.OTHER_TYPES
        and value.dtype.kind == "f"
    ]
    steps = [(operation, operands, "")]
    for function, own, _ in cpu_executor.bind(
        steps, dtypes[0] if dtypes else np.float32, executor.threads
    ):
        function(executor, **own)


# Where the cpu rung cuts: sizes below which it would not, so that small operands are cut as large
# ones are.
CUTS = {
    cpu_executor: {"SMALL": 1},
    # without the cache
    blocks: {
        "PIECE_WORK": 1,
        "PIECE_COLUMNS": 1,
        "PIECE_ROWS": 1,
        "MOST_PIECES": 3,
        "cut": blocks.Cut,
    },
    convolution: {"BLOCK_PIXELS": 32, "BLOCK_NUMBERS": 1, "UPSAMPLED_PIXELS": 32},
    winograd: {"BLOCK_TILES": 4, "SUM_TILES": 4, "LEAST_TILES": 1},
    upsampled: {"BLOCK_TILES": 4, "CHUNK_TILES": 8, "LEAST_TILES": 1},
    layers: {"ROWS": loops.ROWS},
    small: {"STRIP": 1},
}
# how convolutions of any size are shared by threads
BY_IMAGE, BY_FILTER = {"FEW_WINDOWS": 0}, {"MANY_WEIGHTS": 0}


def cut_at_any_size(monkeypatch, convolutions):
    """Cut operations on small operands into pieces, for all threads; convolutions: BY_IMAGE or
    BY_FILTER.
    """
    for module, sizes in (*CUTS.items(), (convolution, convolutions)):
        for name, value in sizes.items():
            monkeypatch.setattr(module, name, value)
