"""The project's kernels in the emulator of CUDA (emulator/)."""

import pathlib

import cuda_emulator

HERE = pathlib.Path(__file__).resolve().parent
KERNELS = HERE.parents[1] / "kernels"
NAMES = HERE / "emulated.h"

cuda_emulator.cache = "kernel-ladder/emulator"
cuda_emulator.isolated = False  # tests have kernels run in their own process, which is faster


def load(source, defines=()):
    """The cuda_emulator.Module of a CUDA file that may include the project's headers; defines: a
    tuple of -DNAME=VALUE.
    """
    return cuda_emulator.load(source, defines, (KERNELS, NAMES))
