"""The emulator's ldmatrix, mma and conversions, by the tables of the PTX ISA and against
float64.
"""

import functools

import numpy as np
import pytest

import cuda_emulator
from cuda_emulator import KernelFault, check, load

KERNELS = r"""
// Four 8x8 matrices of 16-bit numbers, one below the other.
extern "C" __global__ void load4(const unsigned short* x, unsigned* straight, unsigned* transposed) {
    __shared__ __align__(16) unsigned short held[256];
    for (int i = threadIdx.x; i < 256; i += 32) held[i] = x[i];
    __syncthreads();
    unsigned to[4];
    emulator::ldmatrix(to, held + 8 * threadIdx.x, 4, false);
    for (int i = 0; i < 4; i++) straight[4 * threadIdx.x + i] = to[i];
    emulator::ldmatrix(to, held + 8 * threadIdx.x, 4, true);
    for (int i = 0; i < 4; i++) transposed[4 * threadIdx.x + i] = to[i];
}
extern "C" __global__ void load_fewer(const unsigned short* x, unsigned* one, unsigned* two) {
    __shared__ __align__(16) unsigned short held[128];
    for (int i = threadIdx.x; i < 128; i += 32) held[i] = x[i];
    __syncthreads();
    unsigned to[1], both[2];
    emulator::ldmatrix(to, threadIdx.x < 8 ? held + 8 * threadIdx.x : nullptr, 1, false);
    emulator::ldmatrix(both, threadIdx.x < 16 ? held + 8 * threadIdx.x : nullptr, 2, false);
    one[threadIdx.x] = to[0], two[2 * threadIdx.x] = both[0], two[2 * threadIdx.x + 1] = both[1];
}
// Registers as given, products added to `c`; a: 4, b: 2, c: 4 of each lane.
template <class Multiply>
__device__ void multiply(const unsigned* a, const unsigned* b, float* c, Multiply mma) {
    unsigned mine[4], other[2];
    float sums[4];
    for (int i = 0; i < 4; i++) mine[i] = a[4 * threadIdx.x + i], sums[i] = c[4 * threadIdx.x + i];
    for (int i = 0; i < 2; i++) other[i] = b[2 * threadIdx.x + i];
    mma(sums, mine, other);
    for (int i = 0; i < 4; i++) c[4 * threadIdx.x + i] = sums[i];
}
extern "C" __global__ void multiply_bf16(const unsigned* a, const unsigned* b, float* c) {
    multiply(a, b, c, [](auto& sums, auto& a, auto& b) { emulator::mma_bf16(sums, a, b); });
}
extern "C" __global__ void multiply_tf32(const unsigned* a, const unsigned* b, float* c) {
    multiply(a, b, c, [](auto& sums, auto& a, auto& b) { emulator::mma_tf32(sums, a, b); });
}
extern "C" __global__ void multiply_f16(const unsigned* a, const unsigned* b, float* c) {
    multiply(a, b, c, [](auto& sums, auto& a, auto& b) { emulator::mma_f16(sums, a, b); });
}
// a: 2, b: 1 of each lane.
extern "C" __global__ void multiply_f16_k8(const unsigned* a, const unsigned* b, float* c) {
    unsigned mine[2] = {a[2 * threadIdx.x], a[2 * threadIdx.x + 1]};
    float sums[4];
    for (int i = 0; i < 4; i++) sums[i] = c[4 * threadIdx.x + i];
    emulator::mma_f16_k8(sums, mine, b[threadIdx.x]);
    for (int i = 0; i < 4; i++) c[4 * threadIdx.x + i] = sums[i];
}
extern "C" __global__ void convert(const float* x, unsigned* pairs, unsigned* rounded, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) pairs[i] = emulator::cvt_bf16x2(x[i], -x[i]), rounded[i] = emulator::cvt_tf32(x[i]);
}
extern "C" __global__ void halve(const float* x, unsigned* pairs, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) pairs[i] = emulator::cvt_f16x2(x[i], -x[i]);
}
"""
LANES = np.arange(32)
G, Q = LANES // 4, LANES % 4


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    path = tmp_path_factory.mktemp("kernels") / "tensor_cores.cu"
    path.write_text(KERNELS)
    return load(path)


def bf16(x):
    """The upper halves of float32, which have to be exact."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    assert (bits & 0xFFFF == 0).all()
    return bits >> 16


def f16(x):
    """The bits of halves, which have to be exact."""
    halves = x.astype(np.float16)
    assert (halves == x)[np.isfinite(x)].all()
    return halves.view(np.uint16).astype(np.uint32)


def operands_of_16_bits(a, b, bits=bf16):
    """Registers (32, 4) and (32, 2) of a (16, 16) and b (16, 8): the tables of m16n8k16, written
    out for each register.

    Of a (16, 8) and b (8, 8) the first half, as m16n8k8 has them. bits: of numbers, in 16.
    """

    def pair(low, high):
        return (bits(low) | bits(high) << 16).astype(np.uint32)

    columns = range(0, a.shape[1], 8)
    registers_a = [
        pair(a[G + down, 2 * Q + right], a[G + down, 2 * Q + right + 1])
        for right in columns
        for down in (0, 8)
    ]
    registers_b = [pair(b[2 * Q + down, G], b[2 * Q + down + 1, G]) for down in columns]
    return np.stack(registers_a, axis=1), np.stack(registers_b, axis=1)


def tf32_operands(a, b):
    """Registers (32, 4) and (32, 2) of a (16, 8) and b (8, 8)."""
    registers_a = [a[G + down, Q + right] for right in (0, 4) for down in (0, 8)]
    registers_b = [b[Q + down, G] for down in (0, 4)]
    return (
        np.stack(registers, axis=1).astype(np.float32).view(np.uint32)
        for registers in (registers_a, registers_b)
    )


def of_lanes(c):
    """Registers (32, 4) of c (16, 8)."""
    return np.stack(
        [c[G + down, 2 * Q + right] for down in (0, 8) for right in (0, 1)], axis=1
    ).astype(np.float32)


def multiply(kernels, precision, a, b, c):
    halves = functools.partial(operands_of_16_bits, bits=f16)
    operands = {
        "bf16": operands_of_16_bits,
        "tf32": tf32_operands,
        "f16": halves,
        "f16_k8": halves,
    }[precision]
    registers = [np.ascontiguousarray(operand) for operand in operands(a, b)]
    product = of_lanes(c)
    check(kernels.get_function(f"multiply_{precision}"), (1,), (32,), (*registers, product))
    return product


def test_ldmatrix_gives_each_lane_two_neighbours_of_a_row(kernels):
    x = np.arange(256, dtype=np.uint16)
    straight, transposed = np.zeros((32, 4), np.uint32), np.zeros((32, 4), np.uint32)
    check(kernels.get_function("load4"), (1,), (32,), (x, straight, transposed))
    matrices = x.reshape(4, 8, 8).astype(np.uint32)
    for i, matrix in enumerate(matrices):
        assert (straight[:, i] == (matrix[G, 2 * Q] | matrix[G, 2 * Q + 1] << 16)).all()
        assert (transposed[:, i] == (matrix[2 * Q, G] | matrix[2 * Q + 1, G] << 16)).all()


def test_ldmatrix_of_fewer_matrices_reads_no_address_of_the_other_lanes(kernels):
    x = np.arange(128, dtype=np.uint16)
    one, two = np.zeros(32, np.uint32), np.zeros((32, 2), np.uint32)
    check(kernels.get_function("load_fewer"), (1,), (32,), (x, one, two))
    wanted = [
        (matrix[G, 2 * Q] | matrix[G, 2 * Q + 1] << 16)
        for matrix in x.reshape(2, 8, 8).astype(np.uint32)
    ]
    assert (one == wanted[0]).all() and (two == np.stack(wanted, axis=1)).all()


@pytest.mark.parametrize(
    "precision, depth", [("bf16", 16), ("tf32", 8), ("f16", 16), ("f16_k8", 8)]
)
def test_a_product_of_distinct_integers_is_exact(kernels, sums, precision, depth):
    a = np.arange(16 * depth).reshape(16, depth)
    b = 128 - np.arange(8 * depth).reshape(depth, 8)
    c = 1000 * np.arange(128).reshape(16, 8)
    assert (multiply(kernels, precision, a, b, c) == of_lanes(a @ b + c)).all()


@pytest.mark.parametrize(
    "precision, depth, bits",
    [("bf16", 16, 16), ("tf32", 8, 13), ("f16", 16, 13), ("f16_k8", 8, 13)],
)
def test_a_sum_is_rounded_once_or_its_terms_are_cut_below_the_largest(
    kernels, sums, precision, depth, bits
):
    random = np.random.default_rng(0)
    a, b = (
        cut(random.standard_normal(shape) * 10.0 ** random.integers(-3, 4, shape), bits)
        for shape in ((16, depth), (depth, 8))
    )
    c = random.standard_normal((16, 8)).astype(np.float32)
    product = multiply(kernels, precision, a, b, c)
    terms = np.concatenate(
        [a.astype(float)[:, :, None] * b.astype(float)[None], c.astype(float)[:, None]], axis=1
    )
    if sums == "rounded":  # exact in long double
        wanted = terms.astype(np.longdouble).sum(axis=1).astype(np.float32)
    else:
        unit = 2.0 ** (np.floor(np.log2(np.abs(terms).max(axis=1, keepdims=True))) - 23)
        exact = (np.trunc(terms / unit) * unit).sum(axis=1)
        wanted = exact.astype(np.float32)
        larger = np.abs(wanted.astype(float)) > np.abs(exact)
        wanted[larger] = np.nextafter(wanted[larger], np.float32(0))
    assert (product == of_lanes(wanted)).all()


def test_the_two_models_of_a_sum_differ(kernels, monkeypatch):
    """1 and 16 products of 2^-24: rounded once they make 1 + 2^-20, cut one by one they are
    gone.
    """
    a, b, c = np.full((16, 16), 2.0**-12), np.full((16, 8), 2.0**-12), np.ones((16, 8))
    products = {}
    for model in cuda_emulator.TENSOR_SUMS:
        monkeypatch.setattr(cuda_emulator, "tensor_sums", model)
        products[model] = multiply(kernels, "bf16", a, b, c)
    assert (products["rounded"] == 1 + 2.0**-20).all() and (products["truncated"] == 1).all()


def test_tf32_reads_only_19_bits_of_an_operand(kernels, sums):
    a, b, c = np.full((16, 8), 1 + 2.0**-11), np.ones((8, 8)), np.zeros((16, 8))
    assert (multiply(kernels, "tf32", a, b, c) == 8).all()


def test_infinities_and_nan_go_through(kernels, sums):
    a, b, c = np.ones((16, 16)), np.ones((16, 8)), np.zeros((16, 8))
    a[0, 3], a[1, 3], a[1, 4], c[2, 0] = np.inf, np.inf, -np.inf, np.nan
    product = multiply(kernels, "bf16", a, b, c)
    assert (
        (product[:4, :2] == np.inf).all()
        and np.isnan(product[4:8, :2]).all()
        and np.isnan(product[8, 0])
    )
    assert (product[12:, :2] == 16).all()


def test_conversions_round_to_the_nearest_and_tf32_leaves_its_low_bits_undefined(kernels):
    bits = np.random.default_rng(0).integers(0, 2**32, 4000, np.uint64).astype(np.uint32)
    # ties, the largest, infinity
    bits[:6] = [0x3F808000, 0x3F818000, 0x3F801000, 0x3F803000, 0x7F7FFFFF, 0x7F800000]
    x = bits.view(np.float32)
    pairs, rounded = np.zeros(len(x), np.uint32), np.zeros(len(x), np.uint32)
    check(kernels.get_function("convert"), (16,), (256,), (x, pairs, rounded, np.int32(len(x))))
    finite = np.isfinite(x)
    low, tf = (pairs << 16).view(np.float32), (rounded & 0xFFFFE000).view(np.float32)
    high = (pairs & 0xFFFF0000).view(np.float32)
    assert (
        (low[finite] == -high[finite]).all()
        and (np.isnan(low) == np.isnan(x)).all()
        and (np.isnan(tf) == np.isnan(x)).all()
    )
    # ties to even
    assert (
        pairs[0] & 0xFFFF == 0x3F80 and pairs[1] & 0xFFFF == 0x3F82 and pairs[4] & 0xFFFF == 0x7F80
    )
    # ties away from zero
    assert rounded[2] & 0xFFFFE000 == 0x3F802000 and rounded[3] & 0xFFFFE000 == 0x3F804000
    usual = finite & (np.abs(x) > 1e-30) & (np.abs(x) < 1e38)
    exact = x[usual].astype(float)
    assert (np.abs(low[usual] - exact) <= np.abs(exact) * 2.0**-8).all()
    assert (np.abs(tf[usual] - exact) <= np.abs(exact) * 2.0**-11).all()
    assert (rounded & 0x1FFF).std() > 1000  # a kernel that takes them for zeros is found


def test_halves_are_rounded_to_the_nearest_even_subnormal_ones_and_the_largest_too(kernels):
    bits = np.random.default_rng(0).integers(0, 2**32, 4000, np.uint64).astype(np.uint32)
    small = np.ldexp(bits / np.float32(2**32), np.arange(4000) % 48 - 28).astype(np.float32)
    x = np.concatenate(
        [
            bits.view(np.float32),
            small,
            np.array([65519, 65520, 2**-25, 3 * 2**-25, 1 + 2**-11, np.inf, np.nan], np.float32),
        ]
    )
    pairs = np.zeros(len(x), np.uint32)
    check(kernels.get_function("halve"), (32,), (256,), (x, pairs, np.int32(len(x))))
    with np.errstate(over="ignore"):
        low, high = (values.astype(np.float16) for values in (x, -x))
    numbers = ~np.isnan(x)
    assert (
        pairs[numbers]
        == (low.view(np.uint16) | high.view(np.uint16).astype(np.uint32) << 16)[numbers]
    ).all()
    assert (pairs[~numbers] == 0x7FFF7FFF).all()


HEAD = 'extern "C" __global__ void kernel'


def reading(held, pitch):
    """A kernel whose lanes name rows `pitch` apart in `held` 16-bit numbers of shared memory."""
    return """(const unsigned short* x, unsigned* y) {
    __shared__ __align__(16) unsigned short held[HELD];
    for (int i = threadIdx.x; i < HELD; i += 32) held[i] = x[i];
    __syncthreads();
    unsigned to[4];
    emulator::ldmatrix(to, held + PITCH * threadIdx.x, 4, false);  // HERE
    y[threadIdx.x] = to[0];
}""".replace("HELD", str(held)).replace("PITCH", str(pitch))


PLANTED = {
    "rows not aligned": ("misaligned access", reading(512, 9)),
    "rows from global memory": (
        "bad ldmatrix",
        """(const unsigned short* x, unsigned* y) {
    unsigned to[4];
    emulator::ldmatrix(to, x + 8 * threadIdx.x, 4, false);  // HERE
    y[threadIdx.x] = to[0];
}""",
    ),
    "no barrier before ldmatrix": (
        "race",
        """(const unsigned short* x, unsigned* y) {
    __shared__ __align__(16) unsigned short held[256];
    for (int i = threadIdx.x; i < 256; i += 32) held[i] = x[i];  // HERE
    unsigned to[4];
    emulator::ldmatrix(to, held + 8 * threadIdx.x, 4, false);
    y[threadIdx.x] = to[0];
}""",
    ),
    "a row past the array": ("shared memory overflow", reading(248, 8)),
    "half of the warp": (
        "divergent warp operation",
        """(const unsigned short* x, unsigned* y) {
    float c[4] = {};
    unsigned a[4] = {x[threadIdx.x]}, b[2] = {};
    if (threadIdx.x < 16) emulator::mma_bf16(c, a, b);  // HERE
    y[threadIdx.x] = c[0];
}""",
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_misuse_is_named_with_its_line(name, tmp_path):
    kind, body = PLANTED[name]
    path = tmp_path / "kernel.cu"
    path.write_text(HEAD + body)
    with pytest.raises(KernelFault) as fault:
        check(
            load(path).get_function("kernel"),
            (1,),
            (32,),
            (np.zeros(512, np.uint16), np.zeros(32, np.uint32)),
        )
    line = next(
        number for number, text in enumerate(path.read_text().splitlines(), 1) if "// HERE" in text
    )
    assert (fault.value.kind, fault.value.line) == (kind, line)


def cut(x, zeros):
    """float32 with the lowest bits cleared."""
    return (x.astype(np.float32).view(np.uint32) >> zeros << zeros).view(np.float32)
