"""How many lines have to be read for a kernel: those of its file and of the headers that its
default build includes, without blank ones.
"""

import pathlib

import pytest

import needs
import processes
from emulated import KERNELS

# Folder below kernels/ -> most lines of any of its kernels.
LIMITS = {
    "gpu_basic": 175,
    "gpu_shared": 210,
    "gpu_registers": 228,
    "gpu_wide": 242,
    "gpu_split_k": 305,
    "gpu_mma": 754,
    "gpu_async": 768,
    "gpu_wgmma": 821,
    "gpu_opt_v1": 615,
    "gpu_opt_v2": 770,
    "packed": 1326,
    "gpu_bf16_sm90": 1223,
}
LESSON = 120  # of what a lesson on tensor cores itself says
READ_MOST = {
    "gpu_basic/conv2d.cu": 130,
    "gpu_opt_v1/conv2d_forward.cu": 480,
    "gpu_bf16_sm90/conv2d.cu": 893,
}


def files(kernel):
    """The file of a kernel and all headers that it includes without macros."""
    command = ["g++", "-x", "c++", "-MM", "-DCUDA_EMULATOR", f"-I{KERNELS}", KERNELS / kernel]
    rule = processes.run(*command, check=True).stdout
    return [pathlib.Path(path) for path in rule.replace("\\\n", " ").split()[1:]]


@needs.COMPILER
@pytest.mark.parametrize(
    "folder", [path.name for path in KERNELS.iterdir() if any(path.glob("*.cu"))]
)
def test_a_kernel_is_read_alone(folder):
    for path in (KERNELS / folder).glob("*.cu"):
        kernel = path.relative_to(KERNELS).as_posix()
        read = files(kernel)
        assert path in read
        assert not {"multiplier.cuh", "tensor_tile.cuh"} & {file.name for file in read}
        lines = [line for file in read for line in file.read_text().splitlines() if line.strip()]
        assert len(lines) <= READ_MOST.get(kernel, LIMITS[folder]), kernel


@pytest.mark.parametrize("lesson", ["gpu_mma", "gpu_async", "gpu_wgmma"])
def test_a_lesson_on_tensor_cores_has_few_lines_of_its_own(lesson):
    files = list((KERNELS / lesson).iterdir())
    assert sum(len(path.read_text().splitlines()) for path in files) <= LESSON
