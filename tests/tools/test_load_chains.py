"""The longest chain of dependent loads, of kernels whose chain is known on paper and of the
committed counts.
"""

import numpy as np
import pytest

import cuda_emulator
import disassembly
import load_chains
import needs
from ladder.executors.cuda import nvrtc
from ladder.rungs import counted

KERNEL = 'extern "C" __global__ void %s(const int* x, int* y, int n) { int t = threadIdx.x, sum = 0;\n%s\ny[t] = sum; }\n'
BODIES = {
    "one_after_another": "#pragma unroll 1\n for (int i = 0; i < n; i++) sum = x[sum + t];",
    "independent": "#pragma unroll\n for (int i = 0; i < 8; i++) sum += x[i * 32 + t];",
    "in_eights": "#pragma unroll 8\n for (int i = 0; i < n; i++) sum += x[i * 32 + t];",
    "guarded": """
#pragma unroll 1
for (int first = 0; first < n; first += 8) {
    int next[8] = {};
#pragma unroll
    for (int i = 0; i < 8; i++) if (first + i < n) next[i] = x[(first + i) * 32 + t];
#pragma unroll
    for (int i = 0; i < 8; i++) sum += next[i];
}""",
    "indexed": """
#pragma unroll 1
for (int i = 0; i < n; i++) {
    int at = x[i * 32 + t];
    sum += x[at + i + 1];
}""",
    "one_slow_thread": "#pragma unroll 1\n for (int i = 0; i < (t == 3 ? n : 1); i++) sum = x[sum + t + 1];",
}


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    path = tmp_path_factory.mktemp("kernels") / "chains.cu"
    path.write_text("".join(KERNEL % body for body in BODIES.items()))
    return path


@pytest.fixture(scope="module")
def groups(source):
    return load_chains.groups(
        nvrtc.compile_file(source, "sm_90", more=disassembly.WITH_LINES).cubin
    )


@needs.DISASSEMBLER
@pytest.mark.parametrize(
    "name, n, loads",
    [
        ("one_after_another", 13, 13),
        ("independent", 0, 1),
        ("in_eights", 40, 5),
        pytest.param("in_eights", 43, 5 + 3, id="a remainder of single loads"),
        pytest.param("guarded", 44, 6, id="loads nothing behind the last part"),
        pytest.param("guarded", 3, 1, id="fewer parts than a group has"),
        ("indexed", 7, 2 * 7),
        ("one_slow_thread", 9, 9),
    ],
)
def test_the_chain_of_a_kernel_is_the_number_known_on_paper(source, groups, name, n, loads):
    x = np.arange(1, 64 * 32 + 1, dtype=np.int32)  # what is loaded says where the next load is
    counts = (
        cuda_emulator.load(source)
        .get_function(name)
        .count((1,), (32,), (x, np.zeros(32, np.int32), np.int32(n)))
    )
    assert load_chains.longest(counts["threads"], groups[name]) == loads


def test_no_sum_of_parts_waits_for_more_than_40_loads_one_after_another():
    adding = {
        counts["kernel"]: counts["chain"]["longest"]
        for counts in counted.read()["launches"].values()
        if any(name in counts["kernel"] for name in ("update.cu", "add_parts", "add_splits"))
    }
    assert adding and {kernel: longest for kernel, longest in adding.items() if longest > 40} == {}
