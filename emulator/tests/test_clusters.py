"""Clusters of blocks: their barrier, shared memory of other blocks, remote arrivals, multicast."""

import numpy as np
import pytest

from cuda_emulator import KernelFault, check, load

ISOLATED = True
# Each block adds what the other one of its cluster has stored.
EXCHANGE = """
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
extern "C" __global__ void __cluster_dims__(2, 1, 1) exchange(const float* x, float* y) {
    extern __shared__ float own[];
    auto cluster = cg::this_cluster();
    int i = blockIdx.x * 64 + threadIdx.x;
    own[threadIdx.x] = x[i];
    cluster.sync();
    const float* other = cluster.map_shared_rank(own, cluster.block_rank() ^ 1);
    y[i] = own[threadIdx.x] + other[63 - threadIdx.x];
    cluster.sync();
}
"""
# The first warp of each block multiplies by filters of which each block copies a half to both. A
# stage is free when the warps of both blocks have read it.
MULTICAST = """
using namespace emulator;
constexpr int HALF = 128, STAGE = 2 * HALF, STAGES = 2;
__device__ unsigned shared_of(const void* p) { return __cvta_generic_to_shared(p); }
__device__ void arrive_at(unsigned long long* barrier, unsigned rank) {
    asm volatile("{.reg .b32 remote; mapa.shared::cluster.u32 remote, %0, %1; "
                 "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [remote];}"
                 :: "r"(shared_of(barrier)), "r"(rank));
}
extern "C" __global__ void __cluster_dims__(2) stream(const float* w, float* y, int steps) {
    unsigned char* shared = dynamic_shared();
    auto *full = reinterpret_cast<unsigned long long*>(shared + STAGES * STAGE), *empty = full + STAGES;
    unsigned rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) mbarrier_init(full + i, 1), mbarrier_init(empty + i, 2);
        asm volatile("fence.mbarrier_init.release.cluster;");
    }
    asm volatile("barrier.cluster.arrive.release.aligned;");
    asm volatile("barrier.cluster.wait.acquire.aligned;");
    if (threadIdx.x == 32)
        for (int step = 0; step < steps; step++) {
            int stage = step % STAGES;
            mbarrier_wait_parity(empty + stage, step / STAGES % 2 ^ 1);
            mbarrier_arrive_expect_tx(full + stage, STAGE);
            asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                         ".multicast::cluster [%0], [%1], %2, [%3], %4;"
                         :: "r"(shared_of(shared + stage * STAGE + rank * HALF)),
                         "l"(w + (step * STAGE + rank * HALF) / 4), "r"(HALF),
                         "r"(shared_of(full + stage)), "h"(3));
        }
    if (threadIdx.x < 32) {
        float sum = 0;
        for (int step = 0; step < steps; step++) {
            int stage = step % STAGES;
            mbarrier_wait_parity(full + stage, step / STAGES % 2);
            const float* filters = reinterpret_cast<float*>(shared + stage * STAGE);
            sum += filters[threadIdx.x] * filters[32 + threadIdx.x];
            fence_proxy_async();
            __syncwarp();
            if (threadIdx.x < 2) arrive_at(empty + stage, threadIdx.x);
        }
        y[blockIdx.x * 32 + threadIdx.x] = sum;
    }
    asm volatile("barrier.cluster.arrive.release.aligned;");
    asm volatile("barrier.cluster.wait.acquire.aligned;");
}
"""


def changed(text, *pairs):
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new, 1)
    return text


def faults(tmp_path, text, name, expected, *launch, **options):
    """The faults of a launch (grid, block, (input, output, ...), shared); without one that ends it
    the output is what is expected.
    """
    (tmp_path / "kernel.cu").write_text(text)
    try:
        report = check(load(tmp_path / "kernel.cu").get_function(name), *launch, **options)
    except KernelFault as fault:
        return fault.faults
    assert np.array_equal(launch[2][1], expected)
    return report.faults


def exchange(tmp_path, text=EXCHANGE, grid=4, **options):
    x, y = np.arange(256, dtype=np.float32), np.zeros(256, np.float32)
    rows = x.reshape(2, 2, 64)
    expected = (rows + rows[:, ::-1, ::-1]).ravel()
    return faults(tmp_path, text, "exchange", expected, (grid,), (64,), (x, y), 256, **options)


def stream(tmp_path, text=MULTICAST, steps=5):
    w, y = np.arange(5 * 64, dtype=np.float32), np.zeros(128, np.float32)
    rows = w.reshape(5, 2, 32)[:steps]
    expected = np.tile((rows[:, 0] * rows[:, 1]).sum(axis=0), 4)
    launch = (4,), (64,), (w, y, np.int32(steps)), 2 * 256 + 32
    return faults(tmp_path, text, "stream", expected, *launch)


def test_blocks_of_a_cluster_read_what_the_others_stored(tmp_path):
    assert exchange(tmp_path) == ()


def test_the_launch_may_name_the_cluster(tmp_path):
    text = changed(EXCHANGE, ("__cluster_dims__(2, 1, 1) ", ""))
    assert exchange(tmp_path, text, cluster=(2,)) == ()


EXCHANGED = {
    "no barrier before": (
        [("    cluster.sync();\n", "")], "missing cluster barrier", "which may not have begun",
    ),
    "the block's barrier alone": (
        [("    cluster.sync();\n", "    __syncthreads();\n")], "missing cluster barrier", "begun",
    ),
    "no barrier behind": (
        [("other[63 - threadIdx.x];\n    cluster.sync();", "other[63 - threadIdx.x];")],
        "missing cluster barrier", "which may have ended",
    ),
    "arrives alone": (
        [("cluster.sync();", "cluster.barrier_arrive();"),
         ("    cluster.sync();", "    cluster.barrier_wait();")],
        "missing cluster barrier", "which may not have begun",
    ),
    "stores behind the barrier": (
        [("own[threadIdx.x] = x[i];\n    cluster.sync();",
          "cluster.sync(); own[threadIdx.x] = x[i];")],
        "race between blocks", "of its cluster reads",
    ),
    "stores after arriving": (
        [("own[threadIdx.x] = x[i];\n    cluster.sync();",
          "cluster.barrier_arrive(); own[threadIdx.x] = x[i]; cluster.barrier_wait();")],
        "race between blocks", "of its cluster writes",
    ),
    "overwrites what the other may read": (
        [("    cluster.sync();\n}", "    __syncthreads(); own[threadIdx.x] = 0; cluster.sync();\n}")],
        "race between blocks", "of its cluster reads",
    ),
    "reads past the end": ([("other[63 - ", "other[64 - ")], "shared memory overflow", "past the end"),
    "not all arrive": (
        [("    cluster.sync();\n", "    if (blockIdx.x % 2 || threadIdx.x < 32) cluster.sync();\n"
          "    else __syncthreads();\n")],
        "deadlock", "not all threads arrive",
    ),
    "arrives twice": (
        [("    cluster.sync();\n", "    cluster.barrier_arrive(); cluster.sync();\n")],
        "bad cluster", "arrives again",
    ),
    "waits first": (
        [("    cluster.sync();\n", "    cluster.barrier_wait();\n")], "bad cluster", "before it arrives",
    ),
    "no such block": (
        [("cluster.block_rank() ^ 1", "2")], "shared memory overflow", "reads",
    ),
    "an array of fixed size": (
        [("extern __shared__ float own[];", "__shared__ float own[64];")],
        "impossible launch", "extern __shared__",
    ),
}  # fmt: skip


def test_clusters_divide_the_grid(tmp_path):
    (fault,) = exchange(tmp_path, grid=3)
    assert fault.kind == "impossible launch" and "clusters of (2,1,1)" in fault.message


def test_filters_of_two_blocks_come_to_both(tmp_path):
    assert stream(tmp_path) == ()


STREAMED = {
    "no cluster barrier behind the initialisation": (
        [("    asm volatile(\"barrier.cluster.arrive.release.aligned;\");\n"
          "    asm volatile(\"barrier.cluster.wait.acquire.aligned;\");\n", "    __syncthreads();\n")],
        "missing cluster barrier", "which may not have begun",
    ),
    "the other block's readers are not waited for": (
        [("mbarrier_init(empty + i, 2)", "mbarrier_init(empty + i, 1)"),
         ("if (threadIdx.x < 2) arrive_at(empty + stage, threadIdx.x);",
          "if (threadIdx.x == 0) mbarrier_arrive(empty + stage);")],
        "race", "overwrites shared memory",
    ),
    "arrives only at home": (
        [("if (threadIdx.x < 2) arrive_at(empty + stage, threadIdx.x);",
          "if (threadIdx.x == 0) mbarrier_arrive(empty + stage);")],
        "deadlock", "1 of 2 arrivals",
    ),
    "multicast to one block": ([('"h"(3)', '"h"(1 << rank)')], "deadlock", "bytes are missing"),
    "multicast to a block that is not there": ([('"h"(3)', '"h"(7)')], "bad cluster", "block 2"),
    "waits at the other block's barrier": (
        [("mbarrier_wait_parity(full + stage, step / STAGES % 2);",
          "mbarrier_wait_parity(in_block(full + stage, rank ^ 1), step / STAGES % 2);")],
        "bad barrier", "waits for a barrier of block",
    ),
    "no fence before the stage is free": (
        [("            fence_proxy_async();\n", "")], "missing fence", "overtake a load",
    ),
    "ends while the other block still arrives": (
        [("sum;\n    }\n    asm volatile(\"barrier.cluster.arrive.release.aligned;\");\n"
          "    asm volatile(\"barrier.cluster.wait.acquire.aligned;\");\n", "sum;\n    }\n")],
        "missing cluster barrier", "ended",
    ),
}  # fmt: skip


PLANTED = [
    pytest.param(run, changed(text, *pairs), kind, words, id=name)
    for run, text, table in ((exchange, EXCHANGE, EXCHANGED), (stream, MULTICAST, STREAMED))
    for name, (pairs, kind, words) in table.items()
]


@pytest.mark.parametrize("run, text, kind, words", PLANTED)
def test_what_is_wrong_between_blocks_of_a_cluster_is_named(tmp_path, run, text, kind, words):
    found = run(tmp_path, text)
    fault = next(each for each in found if each.kind == kind)
    # a stage that is overwritten is also read too early, which is found before
    assert words in fault.message and (fault is found[0] or kind == "race")


def test_without_a_cluster_a_block_is_alone(tmp_path):
    path = tmp_path / "alone.cu"
    path.write_text(
        """
extern "C" __global__ void alone(unsigned* y) {
    auto cluster = cooperative_groups::this_cluster();
    cluster.sync();
    y[blockIdx.x] = 10 * cluster.block_rank() + cluster.num_blocks();
}
"""
    )
    y = np.zeros(3, np.uint32)
    assert check(load(path).get_function("alone"), (3,), (1,), (y,)).faults == ()
    assert y.tolist() == [1, 1, 1]
