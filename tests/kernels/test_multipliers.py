"""common/multiplier.cuh and products without it in the emulator against multipliers.py, to
the bit, and compiled for every architecture.
"""

import numpy as np
import pytest

import cuda_emulator
import multiplier_references as references
import needs
from compiled import compiled
from emulated import load
from kernel_checks import fused
from ladder.arithmetic import multipliers
from ladder.arithmetic.multipliers import FORMATS, MULTIPLIERS, Table, multiply
from ladder.executors.cuda import nvrtc

TABLE = Table("random", references.random_table(7))
NARROW_TABLE = Table("narrow", references.random_table(3))
NAMED = {**MULTIPLIERS, **FORMATS}
ALL = [*NAMED.values(), TABLE, NARROW_TABLE]

KERNELS = """
#include "common/gemm_tile.cuh"
#include "common/product.cuh"

extern "C" __global__ void __launch_bounds__(256) products(const float* __restrict__ a, const float* __restrict__ b,
                                                           float* __restrict__ c, int count) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) c[i] = multiply(a[i], b[i]);
}

// C (8 rows a thread, 4) += A (8 rows a thread, steps) B (steps, 4)
extern "C" __global__ void __launch_bounds__(64) pieces(const float* __restrict__ a, const float* __restrict__ b,
                                                        float* __restrict__ c, int steps) {
    float sum[8][4] = {};
    int first = (blockIdx.x * blockDim.x + threadIdx.x) * 8;
    for (int k = 0; k < steps; k++) {
        float a_piece[2][4], b_piece[1][4];
        for (int i = 0; i < 8; i++) a_piece[i / 4][i % 4] = a[(first + i) * steps + k];
        for (int j = 0; j < 4; j++) b_piece[0][j] = b[k * 4 + j];
        add_products(a_piece, b_piece, sum);
    }
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < 4; j++) c[(first + i) * 4 + j] = sum[i][j];
}
"""

# Every multiplier in one file, so that an architecture takes one compilation; 8 x 8 sums a thread,
# 128 registers.
EVERY = KERNELS + "".join(
    f"""
extern "C" __global__ void __launch_bounds__(256, 2) piece_{name}(const float* a, const float* b, float* c) {{
    float sum[8][8] = {{}}, a_piece[2][4], b_piece[2][4];
    for (int k = 0; k < 64; k++) {{
#pragma unroll
        for (int i = 0; i < 8; i++) {{
            a_piece[i / 4][i % 4] = a[i * 64 + k];
            b_piece[i / 4][i % 4] = b[(k * 8 + i) * 256 + threadIdx.x];
        }}
        multipliers::add_products<multipliers::{name}>(a_piece, b_piece, sum);
    }}
#pragma unroll
    for (int i = 0; i < 64; i++) c[i * 256 + threadIdx.x] = sum[i / 8][i % 8];
}}
"""
    for name in (*NAMED, "table")
)

EXACT = """
#ifdef WITH
#include "common/product.cuh"
#else
__device__ __forceinline__ float multiply(float a, float b) { return a * b; }
#endif
extern "C" __global__ void dot(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int count) {
    float sum = 0.0f;
    for (int i = 0; i < count; i++) sum += multiply(a[i], b[i]);
    *c = sum;
}
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    path = tmp_path_factory.mktemp("kernels") / "multiplied.cu"
    path.write_text(KERNELS)
    return path


def emulated(source, multiplier, kernel):
    options = tuple(f"-D{define}" for define in multipliers.kernel_defines(multiplier))
    return load(source, options).get_function(kernel)


def same(got, expected):
    return references.same_bits(got, expected) | (np.isnan(got) & np.isnan(expected))


@needs.COMPILER
@pytest.mark.parametrize("multiplier", ALL, ids=lambda multiplier: multiplier.name)
def test_a_million_products_are_those_of_the_library_to_the_bit(source, multiplier):
    a, b = references.pairs(1_000_000)
    c = np.zeros_like(a)
    emulated(source, multiplier, "products")((4,), (256,), (a, b, c, np.int32(len(c))))
    expected = multiply(a, b, multiplier)
    differ = ~(
        same(c, expected) if multiplier.name == "exact" else references.same_bits(c, expected)
    )
    assert not differ.any(), (a[differ][0], b[differ][0], c[differ][0], expected[differ][0])


@needs.COMPILER
@pytest.mark.parametrize(
    "multiplier", [m for m in ALL if m.name != "exact"], ids=lambda multiplier: multiplier.name
)
@pytest.mark.parametrize("operands", ["ordinary", "any"])
def test_pieces_are_products_added_in_order(source, multiplier, operands):
    a, b = references.ordinary((512, 9)), references.ordinary((9, 4))
    if operands == "any":  # near overflow, infinite and NaN, each in some steps and rows only
        values = references.pairs(4000, seed=1)[0]
        a[::3] = values[: a[::3].size].reshape(-1, 9)
        b[4, 1], b[5, 2], b[7, 0] = 1e38, -np.inf, 1e-40
    c = np.zeros((512, 4), np.float32)
    emulated(source, multiplier, "pieces")((1,), (64,), (a, b, c, np.int32(9)))
    assert same(c, references.in_order(a, b, multiplier)).all()


@needs.COMPILER
@pytest.mark.parametrize("name", ["am32", "mit16", "random"])
def test_pieces_around_the_largest_number(source, name):
    multiplier = NAMED.get(name, TABLE)
    # Finite operands, each piece of one size: its largest magnitudes say whether special cases are
    # looked for.
    mantissas = np.resize(np.array([1, 1.25, 1.4375, 1.5, 2 - 2**-23, 1.9375, 1.99, 1.1]), 512)
    a = (mantissas * 2.0 ** (59 + np.arange(512) // 8 % 16))[:, None].astype(np.float32)
    b = np.array([[2.0**56, 1.5 * 2.0**56, -1.5 * 2.0**55, 1.9375 * 2.0**56]], np.float32)
    c = np.zeros((512, 4), np.float32)
    emulated(source, multiplier, "pieces")((1,), (64,), (a, b, c, np.int32(1)))
    assert np.isinf(c).any()
    assert same(c, multiply(a, b, multiplier)).all()


# Subnormals, powers of two, infinity, NaN, and mantissas near their largest at the exponents where
# a product of two is near 1, near the largest number, and beyond it.
SPECIAL = np.array(
    [
        0,
        1,
        0x00007FFF,
        0x00008000,
        0x007FFFFF,
        0x00800000,
        0x00FFFFFF,
        0x1FFFFFFF,
        0x3F800000,
        0x3FFF0000,
        0x3FFFFFFE,
        0x3FFFFFFF,
        0x5F000000,
        0x5F7FFFFF,
        0x5FFF0000,
        0x5FFFFFFF,
        0x60000000,
        0x7F000000,
        0x7F7FFFFF,
        0x7F800000,
        0x7FC00000,
    ],
    np.uint32,
)


@needs.COMPILER
@pytest.mark.parametrize(
    "multiplier", [m for m in ALL if m.name != "exact"], ids=lambda multiplier: multiplier.name
)
def test_pieces_of_one_pair_of_special_numbers(source, multiplier):
    """A piece of equal numbers on either side: its two largest magnitudes alone say whether special
    cases are looked for.
    """
    kernel = emulated(source, multiplier, "pieces")
    a = np.repeat(SPECIAL.view(np.float32), 8)[:, None]
    for right in np.concatenate([SPECIAL, SPECIAL | np.uint32(1 << 31)]).view(np.float32):
        b, c = np.full((1, 4), right, np.float32), np.zeros((len(a), 4), np.float32)
        kernel((1,), (len(SPECIAL),), (a, b, c, np.int32(1)))
        differ = ~same(c, references.in_order(a, b, multiplier))
        assert not differ.any(), (a[differ.any(axis=1)][0], right, c[differ][0])


@needs.COMPILER
def test_pieces_of_the_exact_multiplier_are_its_products(source):
    a, b = references.ordinary((512, 9)), references.ordinary((9, 4))
    c = np.zeros((512, 4), np.float32)
    emulated(source, MULTIPLIERS["exact"], "pieces")((1,), (64,), (a, b, c, np.int32(9)))
    exact = a.astype(np.float64) @ b
    # one may fuse its additions
    assert (np.abs(c - exact) <= 1e-6 * (np.abs(a).astype(np.float64) @ np.abs(b))).all()


@needs.COMPILER
@pytest.mark.parametrize(
    "multiplier", [MULTIPLIERS["am16"], NARROW_TABLE], ids=lambda multiplier: multiplier.name
)
def test_no_access_is_out_of_bounds(source, multiplier):
    a, b = references.pairs(700)
    c = np.zeros_like(a)
    cuda_emulator.check(
        emulated(source, multiplier, "products"), (3,), (256,), (a, b, c, np.int32(len(c)))
    )
    a, b, c = (
        references.ordinary((16, 3)),
        references.ordinary((3, 4)),
        np.zeros((16, 4), np.float32),
    )
    cuda_emulator.check(emulated(source, multiplier, "pieces"), (1,), (2,), (a, b, c, np.int32(3)))
    assert (c == references.in_order(a, b, multiplier)).all()


@needs.COMPILER
def test_an_unknown_multiplier_does_not_compile(source):
    kernel = load(source, ("-DMULTIPLIER=am33",)).get_function("products")
    with pytest.raises(cuda_emulator.CompileError, match="am33"):
        kernel((1,), (1,), ())


@needs.NVRTC
def test_every_multiplier_compiles_without_spilling(tmp_path):
    path = tmp_path / "every.cu"
    path.write_text(EVERY)
    made = nvrtc.compile_file(path, nvrtc.ARCHITECTURES[-1], multipliers.kernel_defines(TABLE))
    assert set(made.kernels) == {
        "products",
        "pieces",
        *(f"piece_{name}" for name in (*NAMED, "table")),
    }
    for name, resources in made.kernels.items():
        assert (resources.spill_bytes, resources.stack_bytes) == (0, 0), name
    assert ".ftz" not in made.ptx


@needs.NVRTC
@pytest.mark.parametrize(
    "file",
    [
        "gpu_basic/conv2d.cu",
        "gpu_basic/dense.cu",
        "gpu_opt_v1/conv2d_forward.cu",
        "gpu_opt_v1/conv2d_weight_grad.cu",
    ],
)
def test_a_simulated_product_is_rounded_before_it_is_added(file):
    """The tests above see what g++ fuses, this one what NVRTC does."""
    for multiplier in ALL:
        made = compiled(
            file, tuple(multipliers.kernel_defines(multiplier)), nvrtc.ARCHITECTURES[-1]
        )
        found = {name: fused(made.ptx, name) for name in made.kernels}
        assert any(found.values()) == (multiplier.name == "exact"), (multiplier.name, found)


@needs.NVRTC
def test_without_the_option_the_code_is_that_of_a_plain_product(tmp_path):
    path = tmp_path / "dot.cu"
    path.write_text(EXACT)
    plain, *made = (
        nvrtc.compile_file(path, nvrtc.ARCHITECTURES[-1], defines).ptx.partition(".entry dot")[2]
        for defines in ((), ("WITH",), ("WITH", "MULTIPLIER=exact"))
    )
    assert "fma.rn.f32" in plain
    assert made == [plain, plain]
