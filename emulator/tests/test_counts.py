"""What the emulator counts of a warp's accesses, for kernels whose numbers are known on paper."""

import re

import numpy as np
import pytest

import cuda_emulator

KERNELS = """
#define I (blockIdx.x * blockDim.x + threadIdx.x)

KERNEL(neighbours) { y[I] = x[I]; }
KERNEL(strided) { y[I] = x[I * n]; }
KERNEL(same) { y[I] = x[0]; }
KERNEL(quads) { *(float4*)(y + 4 * I) = *(const float4*)(x + 4 * I); }
KERNEL(half) { if (threadIdx.x % 2) y[I] = x[I]; }

// A lane leaves out an iteration, or ends early: the others' loads are one request an iteration all the same.
KERNEL(skips) {
    float sum = 0.0f;
    for (int i = 0; i < n; i++) {
        if (i == int(threadIdx.x) % n) continue;
        sum += x[i * 32 + threadIdx.x];
    }
    y[I] = sum;
}
KERNEL(ends) {
    float sum = 0.0f;
    for (int i = 0; i <= int(threadIdx.x) % n; i++)
        for (int j = 0; j < 3; j++) sum += x[(i * 3 + j) * 32 + threadIdx.x];
    y[I] = sum;
}
// The last iteration of the inner loop leaves out the load.
KERNEL(leaves_out) {
    float sum = 0.0f;
    for (int i = 0; i < 3; i++)
        for (int j = 0; j <= n; j++) {
            if (j < n) sum += x[(i * n + j) * 32 + threadIdx.x];
            y[I] = sum;
        }
}
// Reads 32 lines twice.
KERNEL(again) {
    float sum = 0.0f;
    for (int i = 0; i < 2 * n; i++) sum += x[i % n * 32 + threadIdx.x];
    y[I] = sum;
}
KERNEL(banks) {
    __shared__ __align__(16) float tile[32 * 33];
    tile[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[I] = tile[threadIdx.x * n];
}
KERNEL(shared_quads) {
    __shared__ __align__(16) float tile[256];
    *(float4*)(tile + 4 * threadIdx.x) = make_float4(0, 0, 0, 0);
    __syncthreads();
    float4 four = *(const float4*)(tile + (4 * threadIdx.x * n) % 256);
    y[I] = four.x + four.w;
}
"""


@pytest.fixture(scope="module")
def module(tmp_path_factory):
    path = tmp_path_factory.mktemp("kernels") / "patterns.cu"
    path.write_text(
        re.sub(
            r"KERNEL\((\w+)\)",
            r'extern "C" __global__ void \1(const float* x, float* y, int n)',
            KERNELS,
        )
    )
    return cuda_emulator.load(path)


def zeros(size):
    """Aligned as on a GPU."""
    memory = np.zeros(size + 64, np.float32)
    start = -memory.ctypes.data % 256 // 4
    return memory[start : start + size]


def count(module, name, n=1, threads=32, blocks=1, sample=(0,), lines=64, enough=10**6):
    x, y = (zeros(32 * 64) for _ in range(2))
    return module.get_function(name).count(
        (blocks,), (threads,), (x, y, np.int32(n)), 0, list(sample), lines, enough
    )


def traffic(counts):
    return tuple(counts[name] for name in ("requests", "sectors", "lines", "bytes"))


@pytest.mark.parametrize(
    "name, n, loads, stores",
    [
        ("neighbours", 1, (1, 4, 1, 128), (1, 4, 1, 128)),
        ("strided", 2, (1, 8, 2, 128), (1, 4, 1, 128)),
        ("strided", 32, (1, 32, 32, 128), (1, 4, 1, 128)),
        ("same", 1, (1, 1, 1, 4), (1, 4, 1, 128)),
        ("quads", 1, (1, 16, 4, 512), (1, 16, 4, 512)),
        ("half", 1, (1, 4, 1, 64), (1, 4, 1, 64)),
    ],
)
def test_sectors_lines_and_bytes_of_one_request(module, name, n, loads, stores):
    counts = count(module, name, n)
    assert (traffic(counts["loads"]), traffic(counts["stores"])) == (loads, stores)
    assert (counts["warps"], counts["missed"]) == (1, loads[1])


def test_lanes_that_skip_an_iteration_stay_in_step(module):
    """Each of 4 iterations lacks 8 lanes of 32, which are 1 in 4 neighbours: all sectors are
    touched.
    """
    assert traffic(count(module, "skips", 4)["loads"]) == (4, 16, 4, 4 * 24 * 4)


def test_lanes_that_end_early_leave_the_others_in_step(module):
    """Iteration i of 4 has the lanes whose number modulo 4 is at least i."""
    assert traffic(count(module, "ends", 4)["loads"]) == (12, 48, 12, 3 * 4 * (32 + 24 + 16 + 8))


def test_a_load_that_the_last_iteration_leaves_out_is_counted_in_the_others(module):
    assert traffic(count(module, "leaves_out", 5)["loads"]) == (15, 60, 15, 15 * 128)


@pytest.mark.parametrize("lines, missed", [(32, 4 * 32), (31, 2 * 4 * 32), (0, 2 * 4 * 32)])
def test_what_level_1_holds_is_not_loaded_again(module, lines, missed):
    counts = count(module, "again", 32, lines=lines)
    assert (counts["loads"]["sectors"], counts["missed"]) == (2 * 4 * 32, missed)


@pytest.mark.parametrize("n, wavefronts", [(1, 1), (0, 1), (2, 2), (8, 8), (32, 32), (33, 1)])
def test_words_of_one_bank_take_a_wavefront_each(module, n, wavefronts):
    counts = count(module, "banks", n)
    assert counts["shared_loads"] == {"requests": 1, "wavefronts": wavefronts, "least": 1}
    assert (
        counts["shared_stores"] == {"requests": 1, "wavefronts": 1, "least": 1}
        and counts["barriers"] == 1
    )


@pytest.mark.parametrize("n, wavefronts", [(1, 4), (0, 4), (2, 8)])
def test_16_bytes_a_lane_go_by_eight_lanes(module, n, wavefronts):
    assert count(module, "shared_quads", n)["shared_loads"] == {
        "requests": 1,
        "wavefronts": wavefronts,
        "least": 4,
    }


def test_only_the_sample_runs_and_ends_when_it_is_enough(module):
    counts = count(module, "neighbours", threads=64, blocks=20, sample=(3, 17, 4))
    assert (counts["warps"], counts["accesses"], counts["loads"]["requests"]) == (6, 6 * 64, 6)
    counts = count(module, "neighbours", threads=64, blocks=20, sample=(3, 17, 4), enough=65)
    # the warp in which it was enough is whole
    assert (counts["warps"], counts["loads"]["requests"]) == (2, 2)
    counts = count(module, "banks", threads=64, blocks=20, sample=(3, 17, 4), enough=65)
    assert (counts["warps"], counts["barriers"]) == (2, 2)  # with barriers the block is


def test_a_fault_of_the_kernel_is_not_taken_for_enough(module):
    with pytest.raises(cuda_emulator.KernelFault, match="impossible launch"):
        count(module, "neighbours", threads=2000)
