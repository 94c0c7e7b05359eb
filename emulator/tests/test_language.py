"""What kernels use of CUDA C++ beside plain loops: atomics and fences, 16-bit numbers, cooperative
groups, wmma, barriers, bits, inline PTX.
"""

from fractions import Fraction

import numpy as np
import pytest

from cuda_emulator import KernelFault, check, load

FILE = r"""
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <mma.h>
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda/barrier>
#include <cuda/pipeline>
#include <cuda/atomic>
#include <cuComplex.h>
namespace cg = cooperative_groups;
using namespace nvcuda;
using namespace std;

// ---- atomics
__global__ void all_atomics(int* y, unsigned* u, float* f, unsigned long long* l) {
    int i = threadIdx.x;
    atomicAdd(y, i), atomicSub(y + 1, i), atomicMin(y + 2, -i), atomicMax(y + 3, i);
    atomicAnd(y + 4, ~(1 << i)), atomicOr(y + 5, 1 << i), atomicXor(y + 6, 3 << i);
    atomicInc(u, 4), atomicDec(u + 1, 4);
    atomicAdd(f, 0.5f), atomicAdd(l, 1ull << 40);
    for (unsigned old = u[2 + i], assumed; ; ) {
        assumed = old;
        old = atomicCAS(u + 2 + i, assumed, assumed + i);
        if (old == assumed) break;
    }
}
__global__ void plain_beside_atomic(int* y) {
    if (threadIdx.x == 40) *y = 1;
    else atomicAdd(y, 1);
}
__global__ void read_beside_atomic(int* y, int* z) {
    atomicAdd(y, 1);
    if (threadIdx.x == 40) *z = *y;
}
__global__ void of_a_block(int* y) { atomicAdd_block(y, 1); }
__global__ void after_a_barrier(int* z) {
    __shared__ int sum;
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    atomicAdd(&sum, 1);
    __syncthreads();
    z[threadIdx.x] = sum;
}
__device__ double add_to(double* address, double value) {  // as CUDA's guide has it
    auto* at = reinterpret_cast<unsigned long long*>(address);
    unsigned long long old = *at, assumed;
    do {
        assumed = old;
        double sum = value + __longlong_as_double(assumed);
        old = atomicCAS(at, assumed, __double_as_longlong(sum));
    } while (assumed != old);
    return __longlong_as_double(old);
}
__global__ void guessed(double* sum) { add_to(sum, threadIdx.x); }
__global__ void looked_at(int* y, int* z) {
    if (threadIdx.x % 2) atomicCAS(y, 0, 1);
    else z[threadIdx.x] = *y;
}
__device__ cuda::atomic<int, cuda::thread_scope_device> ready;
__global__ void referred(const int* x, int* y, float* f, int* flag) {
    __shared__ cuda::atomic<int, cuda::thread_scope_block> count;
    if (threadIdx.x == 0) count.store(0, cuda::memory_order_relaxed);
    __syncthreads();
    cuda::atomic_ref<int, cuda::thread_scope_device> most(y[0]);
    most.fetch_max(x[threadIdx.x], cuda::memory_order_relaxed);
    cuda::atomic_ref<float, cuda::thread_scope_device>(*f) += 0.5f;
    count++;
    __syncthreads();
    int none = 0;
    if (threadIdx.x == 0 && ready.compare_exchange_strong(none, count)) *flag = 7;
}
enum { NONE, OF_BLOCK, OF_DEVICE };
template <int FENCE> __global__ void last_block(const float* x, float* parts, float* sum, unsigned* done) {
    __shared__ bool last;
    parts[blockIdx.x * 32 + threadIdx.x] = x[blockIdx.x * 32 + threadIdx.x];
    if (FENCE == OF_BLOCK) __threadfence_block();
    if (FENCE == OF_DEVICE) __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) last = atomicInc(done, gridDim.x) == gridDim.x - 1;
    __syncthreads();
    if (!last || threadIdx.x) return;
    float all = 0;
    for (int i = 0; i < 32 * gridDim.x; i++) all += parts[i];
    *sum = all;
}
__global__ void locked(int* lock, int* sum) {
    if (threadIdx.x % 32 == 0) {
        while (atomicCAS(lock, 0, 1)) {}
        __threadfence();
        *sum += 1;
        __threadfence();
        atomicExch(lock, 0);
    }
}

// ---- 16 bits
template <typename T> __global__ void arithmetic(const T* a, const T* b, T* y, int n) {
    int i = threadIdx.x;
    if (i >= n) return;
    y[i] = a[i] + b[i], y[n + i] = a[i] * b[i], y[2 * n + i] = a[i] / b[i];
    y[3 * n + i] = __hfma(a[i], b[i], T(1.0f)), y[4 * n + i] = __hmax(a[i], b[i]);
}
__global__ void converted(const float* x, half* h, __nv_bfloat16* b, float* back, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    h[i] = __float2half(x[i]), b[i] = __float2bfloat16(x[i]);
    back[i] = __half2float(h[i]) + __bfloat162float(b[i]);
}
__global__ void pairs(const half2* x, half2* y) {
    half2 v = __hadd2(x[threadIdx.x], __float2half2_rn(1.0f));
    y[threadIdx.x] = __halves2half2(__high2half(v), __low2half(v));
}
__global__ void packed(const half2* x, half2* y) {
    half held[5];
    *reinterpret_cast<half2*>(held + 1) = x[threadIdx.x];
    *reinterpret_cast<half2*>(held + 3) = x[threadIdx.x];
    y[threadIdx.x] = __halves2half2(held[2], held[3]);
}
template <int N> __device__ half first_of(half x) {
    __shared__ half held[N];
    held[threadIdx.x] = x;
    __syncthreads();
    return held[0];
}
__global__ void shared_halves(const half* x, half* y) { y[threadIdx.x] = first_of<32>(x[threadIdx.x]); }

// ---- words of two or four integers, and numbers rounded in a direction
__global__ void words(const unsigned* x, const unsigned* z, unsigned* y) {
    unsigned a = x[threadIdx.x], b = z[threadIdx.x];
    unsigned all[] = {__vadd2(a, b), __vaddss4(a, b), __vsubus2(a, b), __vmaxs4(a, b),
                      __vminu2(a, b), __vabsdiffs4(a, b), __vcmpgts2(a, b), __vsetltu4(a, b),
                      __vavgs2(a, b), __vsads4(a, b), __vneg2(a), __vcmpeq4(a, b & 0xffff00ff)};
    for (int i = 0; i < 12; i++) y[12 * threadIdx.x + i] = all[i];
}
__global__ void directed(const float* x, const float* z, float* y) {
    float a = x[threadIdx.x], b = z[threadIdx.x], *to = y + 12 * threadIdx.x;
    to[0] = __fadd_rd(a, b), to[1] = __fadd_ru(a, b), to[2] = __fadd_rz(a, b);
    to[3] = __fmul_rd(a, b), to[4] = __fmul_ru(a, b), to[5] = __fmul_rz(a, b);
    to[6] = __fdiv_rd(a, b), to[7] = __fdiv_ru(a, b), to[8] = __fdiv_rz(a, b);
    to[9] = __fmaf_rd(a, b, b), to[10] = __fmaf_ru(a, b, b), to[11] = __fmaf_rz(a, b, b);
}
__global__ void complex_numbers(cuFloatComplex* a, const cuDoubleComplex* b, int* odd) {
    int i = threadIdx.x;
    a[i] = cuCaddf(cuCmulf(a[i], a[i]), make_cuFloatComplex(cuCabs(b[i]), cuCimag(cuConj(b[i]))));
    odd[i] = isnan(a[i].x) || isinf(a[i].y) || !isfinite(b[i].x) || signbit(b[i].y);
}

// ---- groups
__global__ void tiles(const int* x, int* y) {
    auto block = cg::this_thread_block();
    cg::thread_block_tile<8> tile = cg::tiled_partition<8>(block);
    __shared__ int s[64];
    int v = x[block.thread_rank()], *to = y + 8 * threadIdx.x;
    to[0] = cg::reduce(tile, v, cg::plus<int>());
    to[1] = cg::inclusive_scan(tile, v);
    to[2] = tile.shfl_down(v, 2);
    to[3] = tile.ballot(v & 1);
    to[4] = 100 * tile.meta_group_rank() + tile.thread_rank();
    s[threadIdx.x] = v;
    tile.sync();
    to[5] = s[threadIdx.x ^ 7];
    to[6] = cg::reduce(tile, v, cg::greater<int>());
    to[7] = tile.any(v > 100);
}
__global__ void wider_than_the_tile(const int* x, int* y) {
    auto tile = cg::tiled_partition<8>(cg::this_thread_block());
    __shared__ int s[64];
    s[threadIdx.x] = x[threadIdx.x];
    tile.sync();
    y[threadIdx.x] = s[threadIdx.x ^ 8];
}
__global__ void coalesced(const int* x, int* y, int* count) {
    if (x[threadIdx.x] < 0) return;
    auto group = cg::coalesced_threads();
    int first = 0;
    if (group.thread_rank() == 0) first = atomicAdd(count, group.size());
    atomicAdd(&y[group.shfl(first, 0) + group.thread_rank()], x[threadIdx.x]);
}

// ---- tensor cores
template <typename T, typename L> __global__ void product(const T* a, const T* b, const float* c, float* y) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, T, wmma::row_major> left;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, T, L> right;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
    wmma::load_matrix_sync(left, a, 16);
    wmma::load_matrix_sync(right, b, 16);
    wmma::load_matrix_sync(sum, c, 16, wmma::mem_row_major);
    for (int i = 0; i < sum.num_elements; i++) sum.x[i] *= 2;
    wmma::mma_sync(sum, left, right, sum);
    wmma::store_matrix_sync(y, sum, 16, wmma::mem_col_major);
}

// ---- barriers
__global__ void barrier(const float* x, float* y) {
    __shared__ cuda::barrier<cuda::thread_scope_block> full;
    __shared__ float s[64];
    if (threadIdx.x == 0) init(&full, blockDim.x);
    __syncthreads();
    for (int round = 0; round < 2; round++) {
        cuda::memcpy_async(&s[threadIdx.x], &x[64 * round + threadIdx.x], sizeof(float), full);
        auto token = full.arrive();
        full.wait(std::move(token));
        y[64 * round + threadIdx.x] = s[63 - threadIdx.x];
        full.arrive_and_wait();
    }
}
__global__ void too_few(const float* x, float* y) {
    __shared__ cuda::barrier<cuda::thread_scope_block> full;
    if (threadIdx.x == 0) init(&full, blockDim.x + 1);
    __syncthreads();
    full.arrive_and_wait();
}
__global__ void pipeline(const float4* x, float4* y) {
    __shared__ float4 s[2][32];
    auto pipe = cuda::make_pipeline();
    for (int i = 0; i < 2; i++) {
        pipe.producer_acquire();
        cuda::memcpy_async(&s[i][threadIdx.x], &x[32 * i + threadIdx.x], sizeof(float4), pipe);
        pipe.producer_commit();
    }
    for (int i = 0; i < 2; i++) {
        pipe.consumer_wait();
        y[32 * i + threadIdx.x] = s[i][threadIdx.x];
        pipe.consumer_release();
    }
}

// ---- the rest
__global__ void bits(const unsigned* x, int* y) {
    unsigned v = x[threadIdx.x];
    int* to = y + 8 * threadIdx.x;
    to[0] = __popc(v), to[1] = __clz(v), to[2] = __ffs(v), to[3] = __brev(v);
    to[4] = __byte_perm(v, 0, 0x0123), to[5] = __umulhi(v, v), to[6] = max(-1, 1u), to[7] = min(3, 4);
}
__global__ void votes(int* y) {
    int* to = y + 4 * threadIdx.x;
    to[0] = __syncthreads_count(threadIdx.x % 3 == 0), to[1] = __syncthreads_or(threadIdx.x == 9);
    to[2] = __match_any_sync(~0u, threadIdx.x / 4), to[3] = __reduce_add_sync(~0u, int(threadIdx.x));
}
__global__ void asserting(int n) {
    assert(n < 3 && "small");
    printf("n is %d, %s\n", n, "small");
}
__global__ void ptx(const float* x, float* y) {
    __shared__ float s[128];
    unsigned lane, to = __cvta_generic_to_shared(&s[threadIdx.x * 4]);
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], %2;\n" ::"r"(to), "l"(x + threadIdx.x * 4), "n"(16));
    asm volatile("cp.async.commit_group;\n" ::);
    asm volatile("cp.async.wait_group %0;\n" ::"n"(0));
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    __syncwarp();
    y[threadIdx.x] = s[127 - lane];
}
__global__ void half_product(const unsigned* a, const unsigned* b, unsigned* y) {
    __shared__ __align__(16) unsigned s[128];
    for (int i = 0; i < 4; i++) s[threadIdx.x + 32 * i] = a[threadIdx.x + 32 * i];
    __syncwarp();
    unsigned l[4], c[2] = {0, 0}, at = __cvta_generic_to_shared(&s[threadIdx.x % 16 * 8 + threadIdx.x / 16 * 4]);
    asm volatile("ldmatrix.sync.aligned.x4.m8n8.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(l[0]), "=r"(l[1]), "=r"(l[2]), "=r"(l[3]) : "r"(at));
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3, %4, %5}, "
                 "{%6, %7}, {%8, %9};\n" : "=r"(c[0]), "=r"(c[1])
                 : "r"(l[0]), "r"(l[1]), "r"(l[2]), "r"(l[3]), "r"(b[2 * threadIdx.x]),
                   "r"(b[2 * threadIdx.x + 1]), "r"(c[0]), "r"(c[1]));
    y[2 * threadIdx.x] = c[0], y[2 * threadIdx.x + 1] = c[1];
}
"""


@pytest.fixture(scope="module")
def module(tmp_path_factory):
    path = tmp_path_factory.mktemp("kernels") / "language.cu"
    path.write_text(FILE)
    return load(path)


def zeros(count, dtype=np.float32):
    return np.zeros(count, dtype)


def fault_of(module, name, grid, block, args):
    with pytest.raises(KernelFault) as fault:
        check(module.get_function(name), grid, block, args)
    return fault.value.kind


# ---- atomics


def test_every_atomic_combines_the_values_of_all_threads(module):
    y, u = np.array([0, 0, 5, 5, -1, 0, 0], np.int32), zeros(12, np.uint32)
    f, wide, i = zeros(1), zeros(1, np.uint64), np.arange(10)
    check(module.get_function("all_atomics"), (1,), (10,), (y, u, f, wide))
    xor = np.bitwise_xor.reduce(3 << i)
    assert y.tolist() == [45, -45, -9, 9, ~1023, 1023, xor]
    assert u.tolist() == [0, 0, *i] and f == [5.0] and wide == [10 << 40]


@pytest.mark.parametrize(
    "name, grid, kind",
    [
        ("plain_beside_atomic", 1, "race"),
        ("read_beside_atomic", 1, "race"),
        ("of_a_block", 2, "race between blocks"),
    ],
)
def test_what_may_not_come_beside_an_atomic_access_is_a_race(module, name, grid, kind):
    args = [zeros(1, np.int32) for _ in module.get_function(name).parameters]
    assert fault_of(module, name, (grid,), (64,), args) == kind


def test_a_barrier_orders_atomics(module):
    z = zeros(64, np.int32)
    check(module.get_function("after_a_barrier"), (1,), (64,), (z,))
    assert (z == 64).all()


def last_block_sums(module, fence):
    x, total = np.arange(96, dtype=np.float32), zeros(1)
    kernel = module.get_function(f"last_block<{fence}>")
    check(kernel, (3,), (32,), (x, zeros(96), total, zeros(1, np.uint32)))
    return total == [x.sum()]


def test_the_last_block_may_read_what_the_others_wrote_before_a_fence(module):
    assert last_block_sums(module, "OF_DEVICE")


@pytest.mark.parametrize("fence", ["NONE", "OF_BLOCK"])
def test_without_a_fence_that_reaches_it_the_last_block_may_not(module, fence):
    with pytest.raises(KernelFault) as fault:
        last_block_sums(module, fence)
    assert fault.value.kind == "race between blocks"


def test_a_plain_read_that_a_compare_and_swap_checks_is_no_race(module):
    total = zeros(1, np.float64)
    check(module.get_function("guessed"), (2,), (64,), (total,))
    assert total == [2 * sum(range(64))]
    args = zeros(1, np.int32), zeros(64, np.int32)
    assert fault_of(module, "looked_at", (1,), (64,), args) == "race"


def test_atomics_of_libcu(module):
    x, y, f, flag = np.arange(-9, 55, dtype=np.int32), zeros(1, np.int32), zeros(1), zeros(1, "i")
    check(module.get_function("referred"), (2,), (64,), (x, y, f, flag))
    assert (*y, *f, *flag) == (54, 64, 7)


def test_a_lock_with_fences_orders_those_that_hold_it(module):
    lock, total = zeros(1, np.int32), zeros(1, np.int32)
    check(module.get_function("locked"), (3,), (64,), (lock, total))
    assert total == [6] and lock == [0]


# ---- 16 bits


def test_halves_compute_as_numpy_does(module):
    a, b = (np.random.default_rng(i).normal(0, 8, 1024).astype(np.float16) for i in (0, 1))
    y = zeros(5 * 1024, np.float16)
    check(module.get_function("arithmetic<half>"), (1,), (1024,), (a, b, y, 1024))
    fused = (a.astype(np.float64) * b + 1).astype(np.float16)
    assert (y.reshape(5, -1) == [a + b, a * b, a / b, fused, np.maximum(a, b)]).all()


def test_bfloat16_rounds_each_operation_to_nearest_even(module):
    a, b = (np.random.default_rng(i).normal(0, 8, 512).astype(np.float32) for i in (0, 1))
    a, b, y = bfloat16(a), bfloat16(b), zeros(5 * 512, np.uint16)
    check(module.get_function("arithmetic<__nv_bfloat16>"), (1,), (512,), (a, b, y, 512))
    wide_a, wide_b = widened(a), widened(b)
    exact = [wide_a + wide_b, wide_a * wide_b, wide_a / wide_b]
    exact += [wide_a * wide_b + 1, np.maximum(wide_a, wide_b)]
    assert (y.reshape(5, -1) == [bfloat16(row.astype(np.float32)) for row in exact]).all()


def bfloat16(x):
    """The bits of float32 numbers rounded to bfloat16."""
    bits = x.view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def widened(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def test_conversions_round_at_every_edge(module):
    x = np.array([0, -0.0, 65504, 65519.9, 65520, 1e30, np.inf, -np.inf, 6e-8, 2.9e-8, 1 + 2**-11])
    x = np.concatenate([x, np.random.default_rng(2).normal(0, 1, 53)]).astype(np.float32)
    h, b, back = zeros(64, np.float16), zeros(64, np.uint16), zeros(64)
    check(module.get_function("converted"), (1,), (64,), (x, h, b, back, 64))
    with np.errstate(over="ignore"):
        assert (h == x.astype(np.float16)).all()
    assert (b == bfloat16(x)).all()
    assert (back == h.astype(np.float32) + widened(b).astype(np.float32)).all()


def test_pairs_of_halves(module):
    x, y = np.arange(8, dtype=np.float16).reshape(4, 2), zeros((4, 2), np.float16)
    check(module.get_function("pairs"), (1,), (4,), (x, y))
    assert (y == x[:, ::-1] + 1).all()


def test_registers_are_packed_at_any_place(module):
    x, y = np.arange(8, dtype=np.float16).reshape(4, 2), zeros((4, 2), np.float16)
    check(module.get_function("packed"), (1,), (4,), (x, y))
    assert (y == x[:, ::-1]).all()


def test_shared_arrays_of_halves_in_templates(module):
    x, y = np.arange(5, 37, dtype=np.float16), zeros(32, np.float16)
    check(module.get_function("shared_halves"), (1,), (32,), (x, y))
    assert (y == 5).all()


# ---- groups


def test_tiles_reduce_scan_shuffle_vote_and_synchronise(module):
    x = np.random.default_rng(3).integers(-50, 50, 64).astype(np.int32)
    y, tiles = zeros((64, 8), np.int32), x.reshape(8, 8)
    check(module.get_function("tiles"), (1,), (64,), (x, y))
    odd = ((tiles & 1) << np.arange(8)).sum(1)
    down = np.concatenate([tiles[:, 2:], tiles[:, 6:]], axis=1)
    expected = [
        *(tiles.sum(1).repeat(8), tiles.cumsum(1), down, odd.repeat(8)),
        *([100 * i + j for i in range(8) for j in range(8)], tiles[:, ::-1]),
        *(tiles.max(1).repeat(8), (tiles > 100).any(1).repeat(8)),
    ]
    assert (y.T == [np.ravel(row) for row in expected]).all()


def test_a_tile_orders_none_but_its_own_lanes(module):
    args = zeros(64, np.int32), zeros(64, np.int32)
    assert fault_of(module, "wider_than_the_tile", (1,), (64,), args) == "race"


def test_coalesced_lanes_are_those_that_come(module):
    x, y, count = np.arange(64, dtype=np.int32) % 5 - 1, zeros(64, np.int32), zeros(1, np.int32)
    module.get_function("coalesced")((1,), (64,), (x, y, count))
    assert count == [(x >= 0).sum()] and sorted(y) == sorted([*x[x >= 0], *[0] * (x < 0).sum()])


# ---- tensor cores, barriers


@pytest.mark.parametrize("layout", ["row_major", "col_major"])
@pytest.mark.parametrize("kind", ["half", "__nv_bfloat16"])
def test_wmma_multiplies(module, kind, layout, sums):
    a, b, c = np.random.default_rng(4).integers(-8, 9, (3, 16, 16)).astype(np.float32)
    stored = (a, b) if layout == "row_major" else (a, b.T)
    stored = [np.ascontiguousarray(each) for each in stored]
    stored = [e.astype(np.float16) if kind == "half" else bfloat16(e) for e in stored]
    y = zeros((16, 16))
    name = f"product<{kind}, nvcuda::wmma::{layout}>"
    check(module.get_function(name), (1,), (32,), (*stored, c, y))
    assert (y.T == a @ b + 2 * c).all()


def test_a_barrier_of_the_block_brings_copies_and_orders_them(module):
    x, y = np.arange(128, dtype=np.float32), zeros(128)
    check(module.get_function("barrier"), (1,), (64,), (x, y))
    assert (y.reshape(2, 64) == x.reshape(2, 64)[:, ::-1]).all()


def test_a_barrier_that_waits_for_too_many_is_a_deadlock(module):
    assert fault_of(module, "too_few", (1,), (32,), (zeros(1), zeros(1))) == "deadlock"


def test_a_pipeline_brings_its_stages_one_after_another(module):
    x, y = np.arange(256, dtype=np.float32), zeros(256)
    check(module.get_function("pipeline"), (1,), (32,), (x, y))
    assert (y == x).all()


# ---- the rest


def test_bits(module):
    x, y = np.array([1, 0, 0x12345678, 0xFFFFFFFF], np.uint32), zeros((4, 8), np.int32)
    check(module.get_function("bits"), (1,), (4,), (x, y))
    for value, row in zip(x.tolist(), y.view(np.uint32).tolist(), strict=True):
        text = f"{value:032b}"
        reverse = int.from_bytes(value.to_bytes(4, "big"), "little")
        assert row == [
            *(value.bit_count(), 32 - value.bit_length(), text[::-1].find("1") + 1),
            *(int(text[::-1], 2), reverse, value * value >> 32, 0xFFFFFFFF, 3),
        ]


def test_words_of_two_and_of_four_integers(module):
    x, z = np.random.default_rng(0).integers(0, 1 << 32, (2, 64), np.uint32)
    y = zeros((64, 12), np.uint32)
    check(module.get_function("words"), (1,), (64,), (x, z, y))

    def both(dtype, of=lambda word: word):
        return (of(word).view(dtype).reshape(64, -1).astype(int) for word in (x, z))

    def word(values, dtype):
        return np.ascontiguousarray(values.astype(dtype)).view(np.uint32).ravel()

    (s2, t2), (s4, t4), (u2, v2), (u4, v4) = map(both, ("i2", "i1", "u2", "u1"))
    kept = (z & 0xFFFF00FF).view("u1").reshape(64, 4)
    expected = [
        word(u2 + v2, "u2"),
        word((s4 + t4).clip(-128, 127), "i1"),
        word((u2 - v2).clip(0), "u2"),
        word(np.maximum(s4, t4), "i1"),
        word(np.minimum(u2, v2), "u2"),
        word(abs(s4 - t4), "u1"),
        word(-(s2 > t2).astype(int), "i2"),
        word(u4 < v4, "u1"),
        word((s2 + t2 + (s2 + t2 >= 0)) >> 1, "i2"),
        abs(s4 - t4).sum(1),
        word(-s2, "i2"),
        word(-(u4 == kept).astype(int), "i1"),
    ]
    assert (y.T == expected).all()


def test_numbers_are_rounded_down_up_and_to_zero(module):
    x, z = np.random.default_rng(1).normal(0, 1, (2, 64)).astype(np.float32)
    y = zeros((64, 4, 3))
    check(module.get_function("directed"), (1,), (64,), (x, z, y))
    for a, b, rows in zip(map(Fraction, x.tolist()), map(Fraction, z.tolist()), y, strict=True):
        for exact, (down, up, zero) in zip((a + b, a * b, a / b, a * b + b), rows, strict=True):
            assert down <= exact <= up
            assert up == (down if down == exact else np.nextafter(down, np.float32(np.inf)))
            assert zero == (down if exact > 0 else up)


def test_complex_numbers_of_cuda_and_what_is_no_number(module):
    a, b = np.array([1 + 2j, np.nan], np.complex64), np.array([3 + 4j, 1 - 0.5j])
    given, odd = a.copy(), zeros(2, np.int32)
    check(module.get_function("complex_numbers"), (1,), (2,), (a, b, odd))
    assert a[0] == given[0] ** 2 + 5 - 4j and odd.tolist() == [0, 1]


def test_votes_of_a_block_and_of_a_warp(module):
    y = zeros((32, 4), np.int32)
    check(module.get_function("votes"), (1,), (32,), (y,))
    match = [0xF << i // 4 * 4 for i in range(32)]
    assert y.view(np.uint32).tolist() == [[11, 1, match[i], 496] for i in range(32)]


def test_a_failed_assertion_is_a_fault_and_what_is_printed_comes_once(module, capfd):
    check(module.get_function("asserting"), (1,), (1,), (2,))
    assert capfd.readouterr().out == "n is 2, small\n"
    assert fault_of(module, "asserting", (1,), (1,), (3,)) == "failed assertion"


def test_inline_ptx_is_run_by_its_models(module):
    x, y = np.arange(128, dtype=np.float32), zeros(32)
    check(module.get_function("ptx"), (1,), (32,), (x, y))
    assert (y == x[:95:-1]).all()


def test_a_product_that_is_rounded_to_halves(module):
    a, b = np.random.default_rng(5).integers(-4, 5, (2, 16, 16)).astype(np.float16)
    lane, half = np.arange(32)[:, None], np.arange(2)
    # of b, columns 0 to 7: a lane has rows 2 (l % 4) + {0, 1} and 8 more, of column l / 4
    rows = (2 * (lane % 4) + half)[:, None, :] + np.array([0, 8])[None, :, None]
    right = np.ascontiguousarray(b[rows, (lane // 4)[:, :, None]])
    y = zeros((32, 2, 2), np.float16)
    check(
        module.get_function("half_product"),
        (1,),
        (32,),
        (a.view(np.uint32).reshape(-1), right.view(np.uint32).reshape(-1), y.view(np.uint32)),
    )
    product = (a.astype(np.float32) @ b.astype(np.float32))[:, :8]
    found = np.zeros((16, 8))
    for i in (0, 1):
        found[lane // 4 + 8 * i, 2 * (lane % 4) + half] = y[:, i]
    assert (found == product).all()
