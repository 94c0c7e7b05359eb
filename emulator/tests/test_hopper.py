"""The emulator's barriers in shared memory, bulk copies and warpgroup products, by the PTX ISA, and
misuse of each.
"""

import numpy as np
import pytest

from cuda_emulator import KernelFault, check, load

# b comes by ordinary stores; the descriptor's first byte is added to what is given.
MULTIPLY = r"""
using namespace emulator;
extern "C" __global__ void multiply(const unsigned* a, const uint4* b, float* c, unsigned long long descriptor) {
    unsigned char* shared = dynamic_shared();
    for (int i = threadIdx.x; i < BYTES / 16; i += 128) reinterpret_cast<uint4*>(shared)[i] = b[i];
    fence_proxy_async();
    __syncthreads();
    unsigned mine[4];
    float sums[COLUMNS / 2];
    for (int i = 0; i < 4; i++) mine[i] = a[4 * threadIdx.x + i];
    for (int i = 0; i < COLUMNS / 2; i++) sums[i] = c[COLUMNS / 2 * threadIdx.x + i];
    wgmma_fence();
    wgmma_mma_async<TRANSPOSED, FLOAT16>(
        sums, mine, descriptor + (__cvta_generic_to_shared(shared) >> 4));
    wgmma_commit_group();
    wgmma_wait_group<0>();
    for (int i = 0; i < COLUMNS / 2; i++) c[COLUMNS / 2 * threadIdx.x + i] = sums[i];
}
"""
# Tiles of 64 columns and 16 k come one after the other in two stages of 2 KB; a is the same for
# all.
STREAM = r"""
using namespace emulator;
constexpr int STAGES = 2, TILE = 64 * 128;
// Of a matrix whose rows are 128 bytes, swizzled, eight of them `stride` bytes from the next eight.
__device__ unsigned long long descriptor(const void* first, unsigned long long stride) {
    return (__cvta_generic_to_shared(first) | stride << 32) >> 4 | 1ull << 62;
}
extern "C" __global__ void stream(const unsigned* a, const unsigned char* b, float* c, int tiles) {
    unsigned char* shared = dynamic_shared();
    auto *full = reinterpret_cast<unsigned long long*>(shared + STAGES * TILE), *empty = full + STAGES;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) mbarrier_init(full + i, 1), mbarrier_init(empty + i, 4);
        fence_mbarrier_init();
    }
    __syncthreads();
    if (threadIdx.x >= 128) {
        for (int tile = 0; threadIdx.x == 128 && tile < tiles; tile++) {
            int stage = tile % STAGES;
            mbarrier_wait_parity(empty + stage, tile / STAGES % 2 ^ 1);
            mbarrier_arrive_expect_tx(full + stage, TILE);
            cp_async_bulk(shared + stage * TILE, b + tile * TILE, TILE, full + stage);
        }
        return;
    }
    unsigned mine[4];
    float sums[32] = {};
    for (int i = 0; i < 4; i++) mine[i] = a[4 * threadIdx.x + i];
    for (int tile = 0; tile < tiles; tile++) {
        int stage = tile % STAGES;
        mbarrier_wait_parity(full + stage, tile / STAGES % 2);
        unsigned long long b = descriptor(shared + stage * TILE, 1024);
        wgmma_fence();
        for (int i = 0; i < 4; i++) wgmma_mma_async<0>(sums, mine, b + (32 * i >> 4));
        wgmma_commit_group();
        wgmma_wait_group<0>();
        __syncwarp();
        if (threadIdx.x % 32 == 0) mbarrier_arrive(empty + stage);
    }
    for (int i = 0; i < 32; i++) c[32 * threadIdx.x + i] = sums[i];
}
"""
STREAM_BYTES, TILES = 2 * 64 * 128 + 32, 5
MODES = {16: 0, 128: 1, 64: 2, 32: 3}  # bits 62 and 63 of a descriptor by the bytes of a row


def bf16(x):
    """The upper halves of float32, which have to be exact."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    assert (bits & 0xFFFF == 0).all()
    return (bits >> 16).astype(np.uint16)


def half(x):
    return np.ascontiguousarray(x, np.float16).view(np.uint16)


def fragments(a, bits=bf16):
    """Registers (128, 4) of a (64, 16): PTX ISA, "Register Fragments for
    wgmma.mma_async.m64nNk16".
    """
    thread = np.arange(128)
    row, column = thread // 32 * 16 + thread % 32 // 4, thread % 4 * 2
    pairs = [
        (a[row + down, column + right], a[row + down, column + right + 1])
        for right in (0, 8)
        for down in (0, 8)
    ]
    return np.stack(
        [bits(low).astype(np.uint32) | bits(high).astype(np.uint32) << 16 for low, high in pairs],
        axis=1,
    )


def of_threads(c):
    """Registers (128, N / 2) of c (64, N)."""
    thread = np.arange(128)
    row, column = thread // 32 * 16 + thread % 32 // 4, thread % 4 * 2
    return np.stack(
        [
            c[row + down, 8 * j + column + right]
            for j in range(c.shape[1] // 8)
            for down in (0, 8)
            for right in (0, 1)
        ],
        axis=1,
    ).astype(np.float32)


def in_rows(matrix, row_bytes, bits=bf16):
    """Bytes of a matrix (rows, numbers) in blocks of eight rows, each of row_bytes; a row's chunks
    of 16 bytes are swapped by its place in a pattern of 128-byte lines; a longer row goes on in the
    next such block, after all rows.
    """
    rows, numbers = matrix.shape
    per_row = row_bytes // 2
    blocks = bits(matrix).reshape(rows, -(-numbers // per_row), per_row // 8, 8).swapaxes(0, 1)
    stored = np.empty_like(blocks)
    for row in range(rows):
        for chunk in range(per_row // 8):
            stored[:, row, chunk ^ row * row_bytes // 128 % (row_bytes // 16)] = blocks[
                :, row, chunk
            ]
    return stored.reshape(-1).view(np.uint8)


def descriptor(leading, stride, row_bytes):
    return np.uint64(leading >> 4 << 16 | stride >> 4 << 32 | MODES[row_bytes] << 62)


def multiply(tmp_path, a, memory, c, described, transposed, bits=bf16):
    path = tmp_path / "multiply.cu"
    path.write_text(MULTIPLY)
    options = (
        f"-DBYTES={memory.size}",
        f"-DCOLUMNS={c.shape[1]}",
        f"-DTRANSPOSED={int(transposed)}",
        f"-DFLOAT16={int(bits is half)}",
    )
    product = of_threads(c)
    check(
        load(path, options).get_function("multiply"),
        (1,),
        (128,),
        (fragments(a, bits), memory.view(np.uint32), product, described),
        memory.size,
    )
    return product


A, C = np.arange(1024).reshape(64, 16) % 251, np.arange(64 * 256).reshape(64, 256)
B = 128 - np.arange(256 * 16).reshape(16, 256) % 255


@pytest.mark.parametrize("columns", [8, 64, 128, 256])
@pytest.mark.parametrize("row_bytes", [128, 64, 32])
def test_rows_are_columns_of_b(tmp_path, sums, columns, row_bytes):
    memory = in_rows(np.pad(B[:, :columns].T, ((0, 0), (0, row_bytes // 2 - 16))), row_bytes)
    product = multiply(
        tmp_path, A, memory, C[:, :columns], descriptor(0, 8 * row_bytes, row_bytes), False
    )
    assert (product == of_threads(A @ B[:, :columns] + C[:, :columns])).all()


@pytest.mark.parametrize("columns", [64, 128])
@pytest.mark.parametrize("row_bytes", [128, 64, 32])
def test_rows_are_k(tmp_path, columns, row_bytes):
    memory = in_rows(B[:, :columns], row_bytes)
    product = multiply(
        tmp_path,
        A,
        memory,
        C[:, :columns],
        descriptor(16 * row_bytes, 8 * row_bytes, row_bytes),
        True,
    )
    assert (product == of_threads(A @ B[:, :columns] + C[:, :columns])).all()


def test_halves_are_multiplied(tmp_path):
    """As numbers that bfloat16 does not have."""
    a, b = A * 8 + 1, B[:, :64] / 1024
    memory = in_rows(np.pad(b.T, ((0, 0), (0, 48))), 128, half)
    product = multiply(tmp_path, a, memory, C[:, :64], descriptor(0, 1024, 128), False, half)
    np.testing.assert_allclose(product, of_threads(a @ b + C[:, :64]), rtol=1e-6)


@pytest.mark.parametrize("transposed", [False, True])
def test_without_a_swizzle_chunks_of_eight_rows_lie_together(tmp_path, transposed):
    """In 8 x 8 matrices of 128 bytes: two along k, 256 bytes apart in one direction, eight along
    the columns.
    """
    b = B[:, :64]
    # k or n first
    matrices = bf16(b if transposed else b.T).reshape(
        *((2, 8, 8, 8) if transposed else (8, 8, 2, 8))
    )
    # then n, k, 8, 8
    by_columns = matrices.transpose(2, 0, 1, 3) if transposed else matrices.transpose(0, 2, 1, 3)
    product = multiply(
        tmp_path,
        A,
        by_columns.reshape(-1).view(np.uint8),
        C[:, :64],
        descriptor(128, 256, 16),
        transposed,
    )
    assert (product == of_threads(A @ b + C[:, :64])).all()


def test_the_next_16_k_are_32_bytes_further(tmp_path):
    deep = 128 - np.arange(64 * 64).reshape(64, 64) % 255
    memory = in_rows(deep.T, 128)
    for i in range(4):
        product = multiply(
            tmp_path, A, memory, C[:, :64], descriptor(0, 1024, 128) + np.uint64(2 * i), False
        )
        assert (product == of_threads(A @ deep[16 * i : 16 * i + 16] + C[:, :64])).all()


def test_products_of_tiles_that_come_while_others_are_multiplied(tmp_path, sums):
    assert (streamed(tmp_path, STREAM) == wanted()).all()


TILES_OF_B = np.random.default_rng(0).integers(-3, 4, (TILES, 64, 64))  # tile, k, column


def wanted():
    return of_threads(
        sum(A % 7 @ tile[16 * i : 16 * i + 16] for tile in TILES_OF_B for i in range(4))
    )


def streamed(tmp_path, text, tiles=TILES_OF_B, stored=in_rows):
    # a loaded file is not read again
    path = tmp_path / f"stream{len(list(tmp_path.iterdir()))}.cu"
    path.write_text(text)
    memory = np.concatenate([stored(tile.T, 128) for tile in tiles])
    c = np.zeros((128, 32), np.float32)
    check(
        load(path).get_function("stream"),
        (1,),
        (256,),
        (fragments(A % 7), memory, c, np.int32(len(tiles))),
        STREAM_BYTES,
    )
    return c


MISUSES = {
    "no commit": ("wgmma_commit_group();", "", "missing wgmma wait"),
    "no wait for products": ("wgmma_wait_group<0>();", "", "missing wgmma wait"),
    "a wait that leaves the last group": (
        "wgmma_wait_group<0>",
        "wgmma_wait_group<1>",
        "missing barrier wait",
    ),
    "no fence before products": ("wgmma_fence();", "", "missing wgmma fence"),
    "no wait for the copy": (
        "mbarrier_wait_parity(full + stage, tile / STAGES % 2);",
        "",
        "missing barrier wait",
    ),
    "the other phase": (
        "(full + stage, tile / STAGES % 2)",
        "(full + stage, tile / STAGES % 2 ^ 1)",
        "missing barrier wait",
    ),
    "a phase that does not change": ("tile / STAGES % 2 ^ 1", "1", "bad barrier"),
    "the copying thread waits for the other phase": (
        "tile / STAGES % 2 ^ 1",
        "tile / STAGES % 2",
        "deadlock",
    ),
    "too many bytes expected": ("(full + stage, TILE)", "(full + stage, TILE + 16)", "deadlock"),
    "too few bytes expected": ("(full + stage, TILE)", "(full + stage, TILE - 16)", "deadlock"),
    "no bytes expected": (
        "_expect_tx(full + stage, TILE)",
        "(full + stage)",
        "missing barrier wait",
    ),
    "no wait before a stage is overwritten": (
        "mbarrier_wait_parity(empty + stage, tile / STAGES % 2 ^ 1)",
        "",
        "bad barrier",
    ),
    "a stage released before its products": (
        "wgmma_commit_group();",
        "wgmma_commit_group(); if (threadIdx.x % 32 == 0) mbarrier_arrive(empty + stage);",
        "race",
    ),
    "one lane releases for others": ("__syncwarp();", "", "race"),
    "one warp releases for all": (
        "if (threadIdx.x % 32 == 0) mbarrier_arrive",
        "if (threadIdx.x == 0) for (int i = 0; i < 4; i++) mbarrier_arrive",
        "race",
    ),
    "barriers that the copy engine does not see": ("fence_mbarrier_init();", "", "missing fence"),
    "no barrier after the initialisation": ("    __syncthreads();", "", "race"),
    "arrivals of too many": (
        "mbarrier_init(empty + i, 4)",
        "mbarrier_init(empty + i, 5)",
        "deadlock",
    ),
    "rows unlike the swizzle's": ("TILE, 1024", "TILE + 128, 1024", "bad descriptor"),
    "eights of rows too near": (" 1024)", " 512)", "bad descriptor"),
    "eights of rows too far": (" 1024)", " 4096)", "missing barrier wait"),
    "a copy not of 16 bytes": (
        "TILE, full + stage)",
        "TILE - 8, full + stage)",
        "misaligned access",
    ),
    "three warps": (
        "wgmma_fence();",
        "if (threadIdx.x >= 96) return; wgmma_fence();",
        "divergent warpgroup operation",
    ),
    "sums read too early": (
        "wgmma_wait_group<0>",
        "c[0] = sums[0]; wgmma_wait_group<0>",
        "missing wgmma wait",
    ),
    "fragments changed too early": (
        "wgmma_wait_group<0>",
        "mine[0] = 0; wgmma_wait_group<0>",
        "missing wgmma wait",
    ),
}


@pytest.mark.parametrize("name", MISUSES)
def test_misuse_is_named(name, tmp_path):
    old, new, kind = MISUSES[name]
    assert STREAM.count(old) == 1
    with pytest.raises(KernelFault) as fault:
        streamed(tmp_path, STREAM.replace(old, new))
    assert fault.value.kind == kind, fault.value


# Of each tile, numbers that threads load, in place of products: the copy engine may overtake the
# loads.
RELEASE = (
    "        __syncwarp();\n        if (threadIdx.x % 32 == 0) mbarrier_arrive(empty + stage);\n"
)
LOADED = "        sums[0] += shared[stage * TILE + threadIdx.x];\n"


def loading(before="", after=""):
    """STREAM whose threads load a number of each tile, with more text before and after they release
    its stage.
    """
    assert STREAM.count(RELEASE) == 1
    return STREAM.replace(RELEASE, LOADED + before + RELEASE + after)


def test_a_fence_of_every_thread_that_loads_a_stage_lets_a_copy_overwrite_it(tmp_path):
    streamed(tmp_path, loading("        fence_proxy_async();\n"))


@pytest.mark.parametrize(
    "fence",
    [
        (),
        ("        if (threadIdx.x != 77) fence_proxy_async();\n",),
        ("", "        fence_proxy_async();\n"),
    ],
    ids=["none", "not of all threads", "too late"],
)
def test_a_copy_overtakes_loads_that_are_not_fenced(tmp_path, fence):
    with pytest.raises(KernelFault) as fault:
        streamed(tmp_path, loading(*fence))
    assert fault.value.kind == "missing fence", fault.value


# Fragments come from the stage too, and their products have ended when it is released.
FRAGMENTS = STREAM.replace(
    "        wgmma_fence();\n",
    """\
        ldmatrix(mine, shared + stage * TILE + threadIdx.x % 32 * 16, 4, false);
        fence_proxy_async();
        wgmma_fence();
""",
)


def test_fragments_that_are_fenced_let_a_copy_overwrite_what_they_were(tmp_path):
    streamed(tmp_path, FRAGMENTS)


def test_a_copy_overtakes_loads_of_fragments_although_their_products_have_ended(tmp_path):
    with pytest.raises(KernelFault) as fault:
        streamed(tmp_path, FRAGMENTS.replace("        fence_proxy_async();\n", ""))
    assert fault.value.kind == "missing fence", fault.value


# Every lane arrives, for itself.
ALL_ARRIVE = FRAGMENTS.replace(
    "mbarrier_init(empty + i, 4)", "mbarrier_init(empty + i, 128)"
).replace(RELEASE, "        mbarrier_arrive(empty + stage);\n")


def test_lanes_that_all_arrive_need_no_barrier_of_the_warp(tmp_path):
    assert (streamed(tmp_path, ALL_ARRIVE) == streamed(tmp_path, FRAGMENTS)).all()


@pytest.mark.parametrize(
    "old, new, kind",
    [
        (
            "        mbarrier_arrive(empty",
            "        if (threadIdx.x % 32 == 0) for (int i = 0; i < 32; i++) mbarrier_arrive(empty",
            "race",
        ),
        (
            "        fence_proxy_async();\n        wgmma",
            "        if (threadIdx.x != 77) fence_proxy_async();\n        wgmma",
            "missing fence",
        ),
    ],
    ids=["one lane for all", "one lane that does not fence"],
)
def test_arrivals_that_hand_over_too_little_are_noticed(tmp_path, old, new, kind):
    assert ALL_ARRIVE.count(old) == 1
    with pytest.raises(KernelFault) as fault:
        streamed(tmp_path, ALL_ARRIVE.replace(old, new))
    assert fault.value.kind == kind, fault.value


def test_sums_that_the_thread_changed_need_a_fence_before_more_products(tmp_path):
    changed = STREAM.replace(
        "wgmma_wait_group<0>();\n", "wgmma_wait_group<0>();\n        sums[0] += tile;\n"
    )
    assert (
        streamed(tmp_path, changed) - wanted() == sum(range(TILES)) * (np.arange(32) == 0)
    ).all()
    with pytest.raises(KernelFault) as fault:
        streamed(
            tmp_path,
            changed.replace("        wgmma_fence();\n", "        if (tile == 0) wgmma_fence();\n"),
        )
    assert fault.value.kind == "missing wgmma fence"


def test_a_tile_that_is_not_swizzled_gives_other_numbers(tmp_path):
    assert (
        streamed(tmp_path, STREAM, stored=lambda tile, _: bf16(tile).reshape(-1).view(np.uint8))
        != wanted()
    ).any()


def test_a_stored_operand_needs_a_fence_of_each_thread_that_stores(tmp_path):
    path = tmp_path / "multiply.cu"
    path.write_text(
        MULTIPLY.replace(
            "    fence_proxy_async();\n", "    if (threadIdx.x) fence_proxy_async();\n"
        )
    )
    memory = in_rows(np.pad(B[:, :64].T, ((0, 0), (0, 48))), 128)
    macros = f"BYTES={memory.size}", "COLUMNS=64", "TRANSPOSED=0", "FLOAT16=0"
    with pytest.raises(KernelFault) as fault:
        check(
            load(path, tuple(f"-D{macro}" for macro in macros)).get_function("multiply"),
            (1,),
            (128,),
            (fragments(A), memory.view(np.uint32), of_threads(C[:, :64]), descriptor(0, 1024, 128)),
            memory.size,
        )
    assert fault.value.kind == "missing fence"


# The first 128 threads exchange numbers; the others have nothing to do.
EXCHANGE = r"""
using namespace emulator;
extern "C" __global__ void exchange(int* x) {
    unsigned char* shared = dynamic_shared();
    if (threadIdx.x >= 128) return;
    int* held = reinterpret_cast<int*>(shared);
    held[threadIdx.x] = x[threadIdx.x];
    bar_sync<128>();
    x[threadIdx.x] = held[127 - threadIdx.x];
}
"""


def exchanged(tmp_path, source):
    path, x = tmp_path / "exchange.cu", np.arange(128, dtype=np.int32)
    path.write_text(source)
    check(load(path).get_function("exchange"), (1,), (256,), (x,), 512)
    return x


def test_a_barrier_of_the_first_threads_does_not_wait_for_others(tmp_path):
    assert np.array_equal(exchanged(tmp_path, EXCHANGE), np.arange(127, -1, -1))


@pytest.mark.parametrize(
    "old, new, kind",
    [
        ("    bar_sync<128>();\n", "", "race"),
        ("bar_sync<128>", "bar_sync<256>", "divergent warpgroup operation"),
        ("bar_sync<128>();", "__syncthreads();", "divergent barrier"),
    ],
    ids=["none", "of too many", "of all"],
)
def test_misuse_of_a_barrier_of_the_first_threads_is_noticed(tmp_path, old, new, kind):
    with pytest.raises(KernelFault) as fault:
        exchanged(tmp_path, EXCHANGE.replace(old, new))
    assert fault.value.kind == kind


# Three warpgroups: 168 registers a thread at the launch.
REGISTERS = r"""
using namespace emulator;
extern "C" __global__ void share(int* x) {
    if (threadIdx.x >= 256) {
        setmaxnreg_dec<40>();
        return;
    }
    setmaxnreg_inc<232>();
    x[threadIdx.x]++;
}
"""


def shared_out(tmp_path, source):
    path, x = tmp_path / "share.cu", np.zeros(256, np.int32)
    path.write_text(source)
    check(load(path).get_function("share"), (1,), (384,), (x,))
    return x


def test_warpgroups_share_out_the_registers_of_the_launch(tmp_path):
    assert (shared_out(tmp_path, REGISTERS) == 1).all()


@pytest.mark.parametrize(
    "old, new, kind",
    [
        ("        setmaxnreg_dec<40>();\n", "", "deadlock"),
        ("setmaxnreg_dec<40>", "setmaxnreg_dec<48>", "deadlock"),
        ("setmaxnreg_dec<40>", "setmaxnreg_dec<176>", "bad registers"),
        ("setmaxnreg_inc<232>", "setmaxnreg_inc<160>", "bad registers"),
        (
            "setmaxnreg_dec",
            "if (threadIdx.x != 300) setmaxnreg_dec",
            "divergent warpgroup operation",
        ),
    ],
    ids=[
        "none given",
        "too few given",
        "more given than there are",
        "fewer taken than there are",
        "not of all threads",
    ],
)
def test_misuse_of_registers_is_noticed(tmp_path, old, new, kind):
    with pytest.raises(KernelFault) as fault:
        shared_out(tmp_path, REGISTERS.replace(old, new))
    assert fault.value.kind == kind, fault.value


# One warp stores numbers for another, in two stages; neither uses the copy engine.
PRODUCER_CONSUMER = r"""
using namespace emulator;
extern "C" __global__ void relay(const float* x, float* y, int steps) {
    __shared__ float stages[2][32];
    __shared__ unsigned long long full[2], empty[2];
    if (threadIdx.x == 0)
        for (int i = 0; i < 2; i++) mbarrier_init(full + i, 32), mbarrier_init(empty + i, 32);
    __syncthreads();
    int lane = threadIdx.x % 32;
    for (int step = 0; step < steps; step++) {
        int stage = step % 2, parity = step / 2 % 2;
        if (threadIdx.x < 32) {
            mbarrier_wait_parity(empty + stage, parity ^ 1);
            stages[stage][lane] = x[32 * step + lane];
            mbarrier_arrive(full + stage);
        } else {
            mbarrier_wait_parity(full + stage, parity);
            y[32 * step + lane] = stages[stage][lane ^ 1];
            mbarrier_arrive(empty + stage);
        }
    }
}
"""


def relay(tmp_path, old="", new=""):
    assert old in PRODUCER_CONSUMER
    path = tmp_path / "relay.cu"
    path.write_text(PRODUCER_CONSUMER.replace(old, new))
    x = np.arange(160, dtype=np.float32)
    y = np.zeros_like(x)
    check(load(path).get_function("relay"), (1,), (64,), (x, y, np.int32(5)))
    return x.reshape(5, 32), y.reshape(5, 32)


def test_barriers_order_what_threads_store_and_read(tmp_path):
    x, y = relay(tmp_path)
    np.testing.assert_array_equal(y, x[:, np.arange(32) ^ 1])


def test_who_waited_for_all_that_read_may_read_before_it_stores(tmp_path):
    added = "= x[32 * step + lane] + (step < 2 ? 0 : 0 * stages[stage][lane]);"
    read = "stages[stage][lane ^ 1] + 0 * stages[stage][lane];"
    path = tmp_path / "relay.cu"
    path.write_text(
        PRODUCER_CONSUMER.replace("= x[32 * step + lane];", added).replace(
            "stages[stage][lane ^ 1];", read
        )
    )
    x, y = np.arange(160, dtype=np.float32), np.zeros(160, np.float32)
    check(load(path).get_function("relay"), (1,), (64,), (x, y, np.int32(5)))


# The second copy is shorter: what the first one brought behind it is still there.
SHORTER = r"""
using namespace emulator;
extern "C" __global__ void shorter(const float* x, float* y) {
    __shared__ __align__(128) float tile[16];
    __shared__ unsigned long long full;
    if (threadIdx.x == 0) mbarrier_init(&full, 1), fence_mbarrier_init();
    for (int turn = 0, bytes = 64; turn < 2; turn++, bytes = 32) {
        __syncthreads();
        if (threadIdx.x == 0) {
            mbarrier_arrive_expect_tx(&full, bytes);
            cp_async_bulk(tile, x + 16 * turn, bytes, &full);
        }
        mbarrier_wait_parity(&full, turn);
        y[threadIdx.x] = tile[threadIdx.x];
        fence_proxy_async();
    }
}
"""


def test_what_a_shorter_copy_leaves_can_be_read(tmp_path):
    path, x, y = tmp_path / "shorter.cu", np.arange(32, dtype=np.float32), np.zeros(16, np.float32)
    path.write_text(SHORTER)
    check(load(path).get_function("shorter"), (1,), (16,), (x, y))
    assert y.tolist() == [*range(16, 24), *range(8, 16)]


@pytest.mark.parametrize(
    "line",
    [
        "mbarrier_wait_parity(full + stage, parity);",
        "mbarrier_wait_parity(empty + stage, parity ^ 1);",
    ],
)
def test_without_a_wait_what_threads_store_races(tmp_path, line):
    with pytest.raises(KernelFault, match="race|bad barrier") as caught:
        relay(tmp_path, line)
    assert "stages" in str(caught.value) or "arrives at a phase" in str(caught.value)


def test_what_is_stored_after_the_arrival_races(tmp_path):
    store, arrival = "stages[stage][lane] = x[32 * step + lane];", "mbarrier_arrive(full + stage);"
    with pytest.raises(KernelFault, match="race.*stages"):
        relay(tmp_path, f"{store}\n            {arrival}", f"{arrival} {store}")


def test_what_is_read_after_the_arrival_races(tmp_path):
    read = "y[32 * step + lane] = stages[stage][lane ^ 1];"
    arrival = "mbarrier_arrive(empty + stage);"
    with pytest.raises(KernelFault, match="race.*stages"):
        relay(tmp_path, f"{read}\n            {arrival}", f"{arrival} {read}")
