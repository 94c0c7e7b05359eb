"""The emulator runs good kernels as a GPU would and names every kind of planted bug, with its
line.
"""

import os
import pathlib

import numpy as np
import pytest

import cuda_emulator
from cuda_emulator import KernelFault, check, load

GOOD = r"""
extern "C" __global__ void scale(const float* x, float* y, int count, float factor) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) y[i] = x[i] * factor;
}

#define TILE 8
extern "C" __global__ void __launch_bounds__(TILE * TILE) matmul(const float* __restrict__ a, const float* __restrict__ b,
                                                                 float* c, int m, int n, int k) {
    __shared__ float a_tile[TILE][TILE + 1], b_tile[TILE][TILE];
    int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
    float sum = 0.0f;
    for (int start = 0; start < k; start += TILE) {
        int a_column = start + threadIdx.x, b_row = start + threadIdx.y;
        a_tile[threadIdx.y][threadIdx.x] = row < m && a_column < k ? a[row * k + a_column] : 0.0f;
        b_tile[threadIdx.y][threadIdx.x] = b_row < k && column < n ? b[b_row * n + column] : 0.0f;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < TILE; i++) sum = fmaf(a_tile[threadIdx.y][i], b_tile[i][threadIdx.x], sum);
        __syncthreads();
    }
    if (row < m && column < n) c[row * n + column] = sum;
}

// One block of 64: sums through shuffles and dynamic shared memory.
extern "C" __global__ void sum64(const float4* x, float* out) {
    float* partial = reinterpret_cast<float*>(emulator::dynamic_shared());
    float4 v = __ldg(x + threadIdx.x);
    float sum = (v.x + v.y) + (v.z + v.w);
    for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_down_sync(0xffffffffu, sum, distance);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) *out = partial[0] + partial[1];
}

// Warps talk through shared memory with __syncwarp alone.
extern "C" __global__ void reverse_warps(const float* x, float* y) {
    __shared__ float held[64];
    held[threadIdx.x] = x[threadIdx.x];
    __syncwarp();
    float value = held[threadIdx.x ^ 31];
    __syncwarp();
    held[threadIdx.x] = value;
    y[threadIdx.x] = held[threadIdx.x] + (__any_sync(0xffffffffu, value < 0.0f) ? 1000.0f : 0.0f);
}

// Two tiles of 32 x 4 floats in flight.
extern "C" __global__ void stream(const float* x, float* y, int tiles) {
    __shared__ __align__(16) float held[2][128];
    int at = threadIdx.x * 4;
    emulator::cp_async(16, &held[0][at], x + at, true);
    emulator::cp_async_commit_group();
    for (int tile = 0; tile < tiles; tile++) {
        bool more = tile + 1 < tiles;
        emulator::cp_async(16, &held[(tile + 1) % 2][at], more ? x + (tile + 1) * 128 + at : x, more);
        emulator::cp_async_commit_group();
        emulator::cp_async_wait_group<1>();
        __syncthreads();
        for (int i = 0; i < 4; i++) y[tile * 128 + at + i] = held[tile % 2][127 - at - i];
        __syncthreads();
    }
}
template <int N> __device__ float shifted(float value) {
    __shared__ float held[N];
    held[threadIdx.x] = value;
    __syncthreads();
    float result = held[(threadIdx.x + 1) % N];
    __syncthreads();
    return result;
}
extern "C" __global__ void shift32(const float* x, float* y) { y[threadIdx.x] = shifted<32>(x[threadIdx.x]); }
// Every kind of shuffle, in groups of `width` lanes; 6 results per thread.
extern "C" __global__ void shuffles(int* y, int width) {
    int lane = threadIdx.x, *to = y + 6 * lane;
    to[0] = __shfl_sync(0xffffffffu, lane, 3, width);
    to[1] = __shfl_up_sync(0xffffffffu, lane, 3, width);
    to[2] = __shfl_down_sync(0xffffffffu, lane, 3, width);
    to[3] = __shfl_xor_sync(0xffffffffu, lane, 5, width);
    to[4] = __ballot_sync(0xffffffffu, lane % 3 == 0);
    to[5] = __all_sync(0xffffffffu, lane < 32);
}
extern "C" __global__ void bytes(const unsigned char* x, unsigned char* y, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) y[i] = 255 - x[i];
}
extern "C" __global__ void high_halves(const unsigned long long* x, unsigned long long* y, int count) {
    for (int i = threadIdx.x; i < count * count; i += blockDim.x) y[i] = __umul64hi(x[i / count], x[i % count]);
}
"""


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    path = tmp_path_factory.mktemp("kernels") / "good.cu"
    path.write_text(GOOD)
    return load(path)


def integers(shape, seed=0):
    return np.random.default_rng(seed).integers(-8, 9, shape).astype(np.float32)


def poisoned(shape, dtype=np.float32):
    return (
        np.frombuffer(b"\xff" * int(np.prod(shape)) * np.dtype(dtype).itemsize, dtype)
        .reshape(shape)
        .copy()
    )


def run_plain(function, *launch, **options):
    for order in ("forward", "reverse", 3):
        function(*launch, **options, order=order)


@pytest.mark.parametrize("run", [run_plain, check])
def test_good_kernels_equal_numpy_in_every_order(good, run):
    x, y = integers(100), poisoned(100)
    run(good.get_function("scale"), (4,), (32,), (x, y, np.int32(100), np.float32(3)))
    assert (y == x * 3).all()

    a, b, c = integers((13, 21)), integers((21, 9), 1), poisoned((13, 9))
    run(
        good.get_function("matmul"),
        (2, 2),
        (8, 8),
        (a, b, c, np.int32(13), np.int32(9), np.int32(21)),
    )
    assert (c == a @ b).all()

    x, y = integers(256), poisoned(1)
    run(good.get_function("sum64"), (1,), (64,), (x, y), shared_mem=8)
    assert y[0] == x.sum()

    x, y = integers(64) + 100, poisoned(64)
    run(good.get_function("reverse_warps"), (1,), (64,), (x, y))
    assert (y == x.reshape(2, 32)[:, ::-1].reshape(64)).all()

    x, y = integers(384), poisoned(384)
    run(good.get_function("stream"), (1,), (32,), (x, y, np.int32(3)))
    assert (y == x.reshape(3, 128)[:, ::-1].reshape(-1)).all()

    x, y = integers(32), poisoned(32)
    run(good.get_function("shift32"), (1,), (32,), (x, y))
    assert (y == np.roll(x, -1)).all()

    x, y = np.arange(70, dtype=np.uint8), poisoned(70, np.uint8)
    run(good.get_function("bytes"), (3,), (32,), (x, y, np.int32(70)))
    assert (y == 255 - x).all()


@pytest.mark.parametrize("width", [8, 16, 32])
def test_shuffles_are_those_of_the_cuda_manual(good, width):
    y = poisoned((32, 6), np.int32)
    check(good.get_function("shuffles"), (1,), (32,), (y, np.int32(width)))
    for lane in range(32):
        first, last = lane // width * width, lane // width * width + width - 1
        assert y[lane, :4].tolist() == [
            first + 3,
            lane - 3 if lane - 3 >= first else lane,
            lane + 3 if lane + 3 <= last else lane,
            lane ^ 5,
        ]
    assert (y[:, 4].view(np.uint32) == sum(1 << lane for lane in range(0, 32, 3))).all()
    assert (y[:, 5] == 1).all()


def test_high_half_of_a_64_bit_product(good):
    x = np.array([0, 1, 2**32 - 1, 2**32, 2**63 + 1, 2**64 - 1, 0xD2E7470EE14C6C93], np.uint64)
    y = poisoned((len(x), len(x)), np.uint64)
    check(good.get_function("high_halves"), (1,), (32,), (x, y, np.int32(len(x))))
    assert y.tolist() == [[a * b >> 64 for b in x.tolist()] for a in x.tolist()]


ARITHMETIC = r"""
extern "C" __global__ void least_and_largest(const float* x, const double* d, float* y) {
    float a = x[0], b = x[1];
    y[0] = min(a, b), y[1] = min(b, a), y[2] = max(a, b), y[3] = max(b, a), y[4] = fminf(a, b), y[5] = fmaxf(b, a);
    y[6] = min(d[0], d[1]), y[7] = max(d[1], d[0]);
}
extern "C" __global__ void approximations(const float* x, float* y, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    float a = x[i];
    float results[] = {expf(a),   expm1f(a), logf(a),   powf(a, 2.5f),   __expf(a), __logf(a),
                       __sinf(a), __cosf(a), rsqrtf(a), __fdividef(1.0f, a), __powf(a, 2.5f)};
    for (int k = 0; k < 11; k++) y[11 * i + k] = results[k];
}
extern "C" __global__ void products(const float* x, float* fused, float* rounded, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    fused[i] = x[i] * x[i] + x[i + 1];
    rounded[i] = __fadd_rn(__fmul_rn(x[i], x[i]), x[i + 1]);
}
"""


@pytest.fixture(scope="module")
def arithmetic(tmp_path_factory):
    path = tmp_path_factory.mktemp("kernels") / "arithmetic.cu"
    path.write_text(ARITHMETIC)
    return load(path)


@pytest.mark.parametrize("number, nan", [(0, 1), (1, 0)])
def test_the_minimum_and_maximum_of_a_nan_and_a_number_are_the_number(arithmetic, number, nan):
    x, y = np.zeros(2, np.float32), poisoned(8)
    x[number], x[nan] = 3, np.nan
    check(arithmetic.get_function("least_and_largest"), (1,), (1,), (x, x.astype(float), y))
    assert (y == 3).all()


def test_approximations_are_wrong_by_up_to_the_documented_error(arithmetic):
    x = np.random.default_rng(0).uniform(0.01, 3, 2000).astype(np.float32)
    y, a = poisoned((len(x), 11)), x.astype(float)
    check(arithmetic.get_function("approximations"), (8,), (256,), (x, y, np.int32(len(x))))
    exact = np.stack(
        [
            np.exp(a),
            np.expm1(a),
            np.log(a),
            a**2.5,
            np.exp(a),
            np.log(a),
            np.sin(a),
            np.cos(a),
            a**-0.5,
            1 / a,
            a**2.5,
        ],
        axis=1,
    )
    ulps = np.abs(y - exact) / np.spacing(np.abs(exact).astype(np.float32))
    for number, most in (
        (0, 2),
        (1, 1),
        (2, 1),
        (3, 4),
        (4, 2 + np.floor(1.173 * a)),
        (8, 2),
        (9, 2),
    ):
        assert (ulps[:, number] <= most + 0.5).all() and (
            ulps[:, number] >= np.asarray(most) - 0.5
        ).all()
    error = np.abs(y - exact)
    assert (error[(x >= 0.5) & (x <= 2), 5] <= 2**-21.41 + 1e-7).all() and (
        ulps[(x < 0.5) | (x > 2), 5] <= 3.5
    ).all()
    assert (error[:, 6] <= 2**-21.41 + 1e-7).all() and (error[:, 7] <= 2**-21.19 + 1e-7).all()
    # the logarithm's error, times 2.5 log 2, and more
    assert (error[:, 10] / exact[:, 10] <= 2**-18).all()
    assert (y != exact.astype(np.float32)).mean(axis=0).min() > 0.5  # none is the rounded result


def test_a_product_that_is_added_is_rounded_where_watched_and_fused_where_plain(
    arithmetic, monkeypatch
):
    x = np.random.default_rng(0).standard_normal(1001).astype(np.float32)
    rounded = x[:-1] * x[:-1] + x[1:]
    # but for a few that float64 rounds twice
    exact = (x[:-1].astype(float) ** 2 + x[1:]).astype(np.float32)
    results = {}
    for way in cuda_emulator.ARITHMETIC:
        monkeypatch.setattr(cuda_emulator, "arithmetic", way)
        product, alone = poisoned(1000), poisoned(1000)
        check(
            arithmetic.get_function("products"), (4,), (256,), (x, product, alone, np.int32(1000))
        )
        assert (alone == rounded).all()
        results[way] = product
    assert (results["rounded"] == rounded).all() and (rounded != exact).mean() > 0.05
    assert (results["fused"] != exact).mean() < 0.001


HEAD = 'extern "C" __global__ void kernel'
# kind -> (kernel, launch); the line with the bug ends in "// HERE".
PLANTED = {
    "missing barrier": (
        "race",
        """(const float* x, float* y) {
    __shared__ float held[64];
    held[threadIdx.x] = x[threadIdx.x];
    y[threadIdx.x] = held[63 - threadIdx.x];  // HERE
}""",
        {"block": 64},
    ),
    "missing barrier before the next tile": (
        "race",
        """(const float* x, float* y) {
    __shared__ float held[64];
    float sum = 0.0f;
    for (int tile = 0; tile < 2; tile++) {
        held[threadIdx.x] = x[threadIdx.x] + tile;  // HERE
        __syncthreads();
        sum += held[63 - threadIdx.x];
    }
    y[threadIdx.x] = sum;
}""",
        {"block": 64},
    ),
    "shuffle for a __syncwarp": (
        "race",
        """(const float* x, float* y) {
    __shared__ float held[32];
    held[threadIdx.x] = x[threadIdx.x];
    float other = __shfl_xor_sync(0xffffffffu, x[threadIdx.x], 1);
    y[threadIdx.x] = held[31 - threadIdx.x] + other;  // HERE
}""",
        {"block": 32},
    ),
    "__syncwarp for a __syncthreads": (
        "race",
        """(const float* x, float* y) {
    __shared__ float held[64];
    held[threadIdx.x] = x[threadIdx.x];
    __syncwarp();
    y[threadIdx.x] = held[63 - threadIdx.x];  // HERE
}""",
        {"block": 64},
    ),
    "two blocks write one element": (
        "race between blocks",
        """(const float* x, float* y) {
    y[threadIdx.x] = x[threadIdx.x];  // HERE
}""",
        {"block": 64, "grid": 2},
    ),
    "a block reads what another writes": (
        "race between blocks",
        """(const float* x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = x[i];
    if (i == 31) y[i] = x[i] + y[i + 1];  // HERE
}""",
        {"block": 32, "grid": 2},
    ),
    "two blocks add to one element": (
        "race between blocks",
        """(const float* x, float* y) {
    if (threadIdx.x == 0) y[0] += x[blockIdx.x];  // HERE
}""",
        {"block": 32, "grid": 2},
    ),
    "one past the border": (
        "out of bounds",
        """(const float* x, float* y) {
    y[threadIdx.x] = x[threadIdx.x + 1];  // HERE
}""",
        {"block": 64},
    ),
    "one before the border": (
        "out of bounds",
        """(const float* x, float* y) {
    y[int(threadIdx.x) - 1] = x[threadIdx.x];  // HERE
}""",
        {"block": 64},
    ),
    "far outside": (
        "out of bounds",
        """(const float* x, float* y) {
    y[threadIdx.x] = x[threadIdx.x + 100000];  // HERE
}""",
        {"block": 64},
    ),
    "misaligned 16-byte load": (
        "misaligned access",
        """(const float* x, float* y) {
    float4 v = *reinterpret_cast<const float4*>(x + threadIdx.x);  // HERE
    y[threadIdx.x] = v.x + v.w;
}""",
        {"block": 32},
    ),
    "misaligned 16-byte store": (
        "misaligned access",
        """(const float* x, float* y) {
    *reinterpret_cast<float4*>(y + 2 + 4 * threadIdx.x) = make_float4(x[0], x[1], x[2], x[3]);  // HERE
}""",
        {"block": 8},
    ),
    "static shared memory overflowed": (
        "out of bounds",
        """(const float* x, float* y) {
    __shared__ float held[32];
    held[threadIdx.x] = x[threadIdx.x];  // HERE
    y[threadIdx.x] = held[threadIdx.x];
}""",
        {"block": 64},
    ),
    "the last array of a structure overflowed": (
        "out of bounds",
        """(const float* x, float* y) {
    struct Pair {
        struct { float last[4]; void put(int i, float value) { last[i] = value; } } held;  // HERE
        float behind[4];
    } pair;
    for (int i = 0; i <= int(threadIdx.x); i++) pair.held.put(i, x[i]);
    y[threadIdx.x] = pair.held.last[threadIdx.x % 4] + (threadIdx.x > 3 ? pair.behind[0] : 0.0f);
}""",
        {"block": 5},
    ),
    "static shared memory overflowed by a wide access": (
        "shared memory overflow",
        """(const float* x, float* y) {
    __shared__ __align__(16) float second[32];
    __shared__ __align__(16) float first[32];
    second[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    if (threadIdx.x < 9) *reinterpret_cast<float4*>(&first[4 * threadIdx.x]) = make_float4(0, 0, 0, 0);  // HERE
    __syncthreads();
    y[threadIdx.x] = first[threadIdx.x] + second[threadIdx.x];
}""",
        {"block": 32},
    ),
    "dynamic shared memory read past its end": (
        "shared memory overflow",
        """(const float* x, float* y) {
    extern __shared__ float own[];
    own[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = own[threadIdx.x + 1];  // HERE
}""",
        {"block": 32, "shared_mem": 128},
    ),
    "dynamic shared memory overflowed": (
        "shared memory overflow",
        """(const float* x, float* y) {
    float* held = reinterpret_cast<float*>(emulator::dynamic_shared());
    held[threadIdx.x] = x[threadIdx.x];  // HERE
    y[threadIdx.x] = held[threadIdx.x];
}""",
        {"block": 64, "shared_mem": 63 * 4},
    ),
    "what an earlier block left": (
        "stale shared memory",
        """(const float* x, float* y) {
    __shared__ float held[32];
    if (blockIdx.x == 0) held[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[blockIdx.x * 32 + threadIdx.x] = held[threadIdx.x];  // HERE
}""",
        {"block": 32, "grid": 2},
    ),
    "no wait for a cp.async": (
        "missing cp.async wait",
        """(const float* x, float* y) {
    __shared__ float held[32];
    emulator::cp_async(4, &held[threadIdx.x], x + threadIdx.x, true);
    emulator::cp_async_commit_group();
    __syncthreads();
    y[threadIdx.x] = held[threadIdx.x];  // HERE
}""",
        {"block": 32},
    ),
    "wait that leaves the group under way": (
        "missing cp.async wait",
        """(const float* x, float* y) {
    __shared__ float held[32];
    emulator::cp_async(4, &held[threadIdx.x], x + threadIdx.x, true);
    emulator::cp_async_commit_group();
    emulator::cp_async_wait_group<1>();
    __syncthreads();
    y[threadIdx.x] = held[threadIdx.x];  // HERE
}""",
        {"block": 32},
    ),
    "no barrier after the wait": (
        "race",
        """(const float* x, float* y) {
    __shared__ float held[32];
    emulator::cp_async(4, &held[threadIdx.x], x + threadIdx.x, true);
    emulator::cp_async_commit_group();
    emulator::cp_async_wait_group<0>();
    y[threadIdx.x] = held[31 - threadIdx.x];  // HERE
}""",
        {"block": 32},
    ),
    "misaligned cp.async": (
        "misaligned access",
        """(const float* x, float* y) {
    __shared__ __align__(16) float held[128];
    emulator::cp_async(16, &held[threadIdx.x * 4], x + threadIdx.x, true);  // HERE
    y[threadIdx.x] = 0.0f;
}""",
        {"block": 8},
    ),
    "barrier in a branch": (
        "divergent barrier",
        """(const float* x, float* y) {
    if (threadIdx.x < 8) __syncthreads();  // HERE
    y[threadIdx.x] = x[threadIdx.x];
}""",
        {"block": 64},
    ),
    "two barriers in two branches": (
        "divergent barrier",
        """(const float* x, float* y) {
    if (threadIdx.x < 8) __syncthreads();  // HERE
    else
        __syncthreads();
    y[threadIdx.x] = x[threadIdx.x];
}""",
        {"block": 64},
    ),
    "return before a barrier": (
        "divergent barrier",
        """(const float* x, float* y) {
    if (threadIdx.x > 40) return;
    __syncthreads();  // HERE
    y[threadIdx.x] = x[threadIdx.x];
}""",
        {"block": 64},
    ),
    "missing lanes of a shuffle": (
        "divergent warp operation",
        """(const float* x, float* y) {
    float v = x[threadIdx.x];
    if (threadIdx.x < 16) v = __shfl_down_sync(0xffffffffu, v, 1);  // HERE
    y[threadIdx.x] = v;
}""",
        {"block": 32},
    ),
    "lane outside its own mask": (
        "divergent warp operation",
        """(const float* x, float* y) {
    y[threadIdx.x] = __shfl_xor_sync(0x0000ffffu, x[threadIdx.x], 1);  // HERE
}""",
        {"block": 32},
    ),
    "division by zero": (
        "division by zero",
        """(const float* x, float* y) {
    y[threadIdx.x] = x[int(threadIdx.x) / (int(x[2]) - int(x[2]))];  // HERE
}""",
        {"block": 32},
    ),
}


@pytest.mark.parametrize("bug", PLANTED)
def test_planted_bug_is_named_with_its_line(bug, tmp_path):
    kind, body, launch = PLANTED[bug]
    text = HEAD + body
    path = tmp_path / "planted.cu"
    path.write_text(text)
    x, y = integers(64), poisoned(64)
    function, grid, block = (
        load(path).get_function("kernel"),
        (launch.get("grid", 1),),
        (launch["block"],),
    )
    with pytest.raises(KernelFault) as fault:
        check(function, grid, block, (x, y), launch.get("shared_mem", 0))
    assert fault.value.kind == kind, fault.value
    line = next(i for i, line in enumerate(text.splitlines(), 1) if line.endswith("// HERE"))
    assert f"planted.cu:{line}" in str(fault.value)  # of a race either access may come first


def test_missing_barrier_changes_results_without_watching_too(tmp_path):
    path = tmp_path / "planted.cu"
    path.write_text(HEAD + PLANTED["missing barrier"][1])
    function = load(path).get_function("kernel")
    x, results = integers(64) + 100, []
    for order in ("forward", "reverse"):
        y = poisoned(64)
        function((1,), (64,), (x, y), order=order)
        results.append(y)
    assert np.isnan(results[0]).any() and np.isnan(results[1]).any()
    assert results[0].tobytes() != results[1].tobytes()


def test_result_that_depends_on_the_order_is_found(tmp_path, good):
    """The race that no granule shows: here an array that the test declares twice, behind the
    detector's back.
    """
    function = good.get_function("scale")
    x, y = integers(100), poisoned(100)
    calls = iter([1, 2, 3])
    original = function.watched
    function.watched = lambda *args: (original(*args), y.__setitem__(5, next(calls)))
    with pytest.raises(KernelFault) as fault:
        check(function, (4,), (32,), (x, y, np.int32(100), np.float32(3)))
    assert fault.value.kind == "order dependence"


TABLE = """
extern "C" __global__ void add_one(const long long* table, float one) {
    // A row of three words for each block: from, to, count.
    const long long* row = table + 3 * blockIdx.x;
    const float* from = reinterpret_cast<const float*>(row[0]);
    float* to = reinterpret_cast<float*>(row[1]);
    if (threadIdx.x < row[2]) to[threadIdx.x] = from[threadIdx.x] + one;
}
"""


def add_one(folder, counts, written=lambda to: to):
    """(function, table of from and to arrays of eight elements, from, to)."""
    path = folder / "table.cu"
    path.write_text(TABLE)
    pairs = [(integers(8, seed), poisoned(8)) for seed in range(len(counts))]
    words = [
        word
        for (start, end), count in zip(pairs, counts, strict=True)
        for word in (start, end, count)
    ]
    table = cuda_emulator.Table(words, written([end for _, end in pairs]))
    return load(path).get_function("add_one"), table, pairs


@pytest.mark.parametrize("run", [run_plain, check])
def test_a_table_has_the_addresses_of_arrays(tmp_path, run):
    function, table, pairs = add_one(tmp_path, [8, 3, 0])
    run(function, (3,), (32,), (table, np.float32(1)))
    for (start, end), count in zip(pairs, [8, 3, 0], strict=True):
        assert np.array_equal(end[:count], start[:count] + 1) and np.isnan(end[count:]).all()


def test_accesses_by_a_table_are_watched(tmp_path):
    function, table, _ = add_one(tmp_path, [8, 9])
    with pytest.raises(KernelFault) as fault:
        check(function, (2,), (32,), (table, np.float32(1)))
    assert fault.value.kind == "out of bounds"
    function, table, _ = add_one(tmp_path, [8, 8], written=lambda arrays: arrays[:1])
    with pytest.raises(KernelFault) as fault:
        check(function, (2,), (32,), (table, np.float32(1)))
    assert fault.value.kind == "write to a constant"


@pytest.mark.parametrize(
    "args, said",
    [
        ((integers(8), poisoned(8), np.int32(8)), "takes 4 arguments, got 3"),
        ((integers(8), poisoned(8), 2**31, np.float32(1)), "argument 2 is a int32, got a int"),
        ((integers(8), poisoned(8), np.int32(8), 1.0), "argument 3 is a float32, got a float"),
        (
            (integers(8).astype(np.float64), poisoned(8), np.int32(8), np.float32(1)),
            "0 is a float32 array, got a float64 array",
        ),
        (
            (integers(16)[::2], poisoned(8), np.int32(8), np.float32(1)),
            "0 is a float32 array, got a float32, not contiguous array",
        ),
    ],
)
def test_wrong_arguments_are_refused(good, args, said):
    with pytest.raises(KernelFault, match=said):
        good.get_function("scale")((1,), (8,), args)


def test_overlapping_arrays_are_refused_and_equal_ones_are_one(good):
    x = integers(40)
    with pytest.raises(KernelFault, match="overlaps"):
        check(good.get_function("scale"), (1,), (32,), (x[:32], x[8:], np.int32(32), np.float32(2)))
    check(good.get_function("scale"), (2,), (32,), (x, x, np.int32(40), np.float32(2)))
    assert (x == integers(40) * 2).all()


def test_watched_arrays_lie_as_a_gpu_would_put_them(good):
    function = good.get_function("matmul")
    given = integers(100), integers(7), integers(1), *[np.int32(1)] * 3
    launch = cuda_emulator.watched.Launch(function, (1,), (1,), given, 0)
    first, second, third, *numbers = cuda_emulator._Allocations(
        good.library("watched", "matmul"), launch
    ).args
    assert numbers == [1, 1, 1] and not any(place % 256 for place in (first, second, third))
    assert second - first > 400 + (1 << 20) and third - second > 28 + (1 << 20)


def test_view_is_as_aligned_as_it_would_be_on_a_gpu(good):
    x, y = integers(300), poisoned(1)
    with pytest.raises(KernelFault, match="misaligned access"):
        check(good.get_function("sum64"), (1,), (64,), (x[1:257], y), 8)
    check(good.get_function("sum64"), (1,), (64,), (x[4:260], y), 8)
    assert y[0] == x[4:260].sum()


@pytest.mark.parametrize(
    "grid, block, shared",
    [
        ((1, 65536), (1,), 0),
        ((0,), (32,), 0),
        ((1,), (1025,), 0),
        ((1,), (1, 1, 65), 0),
        ((1,), (32,), 227 * 1024 + 1),
    ],
)
def test_launch_that_no_gpu_accepts_is_refused(good, grid, block, shared):
    with pytest.raises(KernelFault) as fault:
        args = integers(8), poisoned(8), np.int32(8), np.float32(1)
        good.get_function("scale")(grid, block, args, shared_mem=shared)
    assert fault.value.kind == "impossible launch"


def test_unknown_kernel_names_those_there_are(good):
    with pytest.raises(KeyError, match="scale, matmul"):
        good.get_function("scales")


@pytest.mark.skipif(
    not os.path.exists("/proc/self/maps"), reason="no list of the process's mappings (Linux)"
)
def test_kernels_whose_threads_waited_share_the_mappings_of_their_stacks(tmp_path):
    mappings = []
    for number in range(3):
        code = f"""extern "C" __global__ void turned{number}(float* x) {{
            __shared__ float held[1024];
            held[threadIdx.x] = x[threadIdx.x];
            __syncthreads();
            x[threadIdx.x] = held[1023 - threadIdx.x];
        }}"""
        (tmp_path / f"{number}.cu").write_text(code)
        x = np.arange(1024, dtype=np.float32)
        function = load(tmp_path / f"{number}.cu").get_function(f"turned{number}")
        run_plain(function, (1,), (1024,), (x,))
        assert np.array_equal(x, np.arange(1024)[::-1])
        mappings.append(len(pathlib.Path("/proc/self/maps").read_text().splitlines()))
    assert mappings[-1] - mappings[0] < 150


@pytest.mark.parametrize(
    "header, include",
    [
        ("factor.cuh", ()),
        ("below/factor.cuh", ("below",)),
        ("below/factor.cuh", ("below/factor.cuh",)),
    ],
    ids=["beside the file", "in a folder to include", "included before the file"],
)
def test_changed_header_compiles_anew(tmp_path, header, include, monkeypatch):
    monkeypatch.setattr(cuda_emulator, "isolated", True)

    def factor():
        y = poisoned(1)
        folders = tuple(tmp_path / path for path in include)
        load(tmp_path / "k.cu", (), folders).get_function("kernel")((1,), (1,), (y,))
        return y[0]

    (tmp_path / "below").mkdir()
    kernel = 'extern "C" __global__ void kernel(float* y) { *y = FACTOR; }'
    (tmp_path / "k.cu").write_text(
        kernel if include == (header,) else f'#include "factor.cuh"\n{kernel}'
    )
    for number in (2, 3):
        (tmp_path / header).write_text(f"#define FACTOR {number}\n")
        assert factor() == number


def test_compiled_kernels_go_to_the_folder_that_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(cuda_emulator, "cache", "mine/kernels")
    (tmp_path / "k.cu").write_text('extern "C" __global__ void kernel(float* y) { *y = FACTOR; }')
    with pytest.raises(cuda_emulator.CompileError, match="FACTOR"):
        load(tmp_path / "k.cu").get_function("kernel")((1,), (1,), (poisoned(1),))
    assert list((tmp_path / "mine/kernels").iterdir())
