"""How many lines have to be read for a kernel: those of its file and of the headers that its
default build includes, without blank ones.
"""

import pathlib
import shutil
import subprocess

import pytest

from emulated import KERNELS

LIMITS = {
    "gpu_basic/conv2d.cu": 185,
    "gpu_basic/dense.cu": 80,
    "gpu_shared/conv2d.cu": 210,
    "gpu_opt_v1/conv2d_forward.cu": 500,
    "gpu_opt_v1/conv2d_weight_grad.cu": 650,
    "packed/conv2d.cu": 900,
    "gpu_bf16_sm90/conv2d.cu": 800,
}


def files(kernel):
    """The file of a kernel and all headers that it includes without macros."""
    command = ["g++", "-x", "c++", "-MM", "-DCUDA_EMULATOR", f"-I{KERNELS}", KERNELS / kernel]
    rule = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [pathlib.Path(path) for path in rule.replace("\\\n", " ").split()[1:]]


@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ (Debian package: g++)")
@pytest.mark.parametrize("kernel", LIMITS)
def test_a_kernel_is_read_alone(kernel):
    read = files(kernel)
    assert KERNELS / kernel in read
    assert not {"multiplier.cuh", "tensor_tile.cuh"} & {path.name for path in read}
    lines = [line for path in read for line in path.read_text().splitlines() if line.strip()]
    assert len(lines) <= LIMITS[kernel]
