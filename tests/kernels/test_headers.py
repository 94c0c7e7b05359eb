"""The comment at the top of a kernel's file says what a reader looks for first."""

import itertools

import pytest

from emulated import KERNELS

# folder -> how the rung's line begins; a lesson's file says what its step changes instead
OPENINGS = {
    "gpu_basic": "Rung: the first on the GPU",
    "gpu_opt_v1": "Rung: over gpu_basic",
    "gpu_opt_v2": "Rung: gpu_opt_v2. Changed from",
}


@pytest.mark.parametrize(
    "path", [path for folder in OPENINGS for path in (KERNELS / folder).glob("*.cu")], ids=str
)
def test_the_header_has_the_change_the_layout_the_launches_the_bound_and_the_times(path):
    lines = path.read_text().splitlines()
    head = "\n".join(itertools.takewhile(lambda line: line.startswith("//"), lines))
    parts = [
        OPENINGS[path.parent.name],
        "Layout",
        "Launches:",
        "Bound:",
        "Times: kernels/README.md",
    ]
    if (path.parent.name, path.name[:7]) == ("gpu_opt_v1", "conv2d_"):
        parts += ["Rung: gpu_gemm, over gpu_opt_v1", "256 threads, gpu_gemm"]
    assert [part for part in parts if part not in head] == []
