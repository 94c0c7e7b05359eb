"""A check in processes of its own: nothing that a kernel does harms this one, and all that is wrong
is told, with names, counts and severities.
"""

import os
import re
import subprocess
import sys

import numpy as np
import pytest

import cuda_emulator
from cuda_emulator import KernelFault, check, load
from cuda_emulator.faults import All

ISOLATED = True
HEAD = 'extern "C" __global__ void {}(const float* x, float* y)'
KERNELS = re.sub(
    r"KERNEL\((\w+)\)",
    lambda match: HEAD.format(match[1]),
    r"""
#define BOUND (4 * 8)
typedef float real;
constexpr int ROWS = 8, COLUMNS = ROWS;
KERNEL(right) { y[threadIdx.x] = x[threadIdx.x]; }
KERNEL(null_pointer) { float* p = x[0] == 0 ? nullptr : y; if (threadIdx.x == 5) p[threadIdx.x] = 1; }
KERNEL(wild_pointer) { y[(long long)(x[1]) << 40] = 1; }
KERNEL(divides) { y[threadIdx.x] = 7 / int(x[0]); }
KERNEL(much_stack) {
    float local[50000];
    for (int i = 0; i < 50000; i++) local[i] = x[i % 64];
    y[threadIdx.x] = local[int(x[threadIdx.x])];
}
KERNEL(spins) { volatile float* flag = y; while (flag[1] == 0) {} }
KERNEL(no_end) { for (;;) {} }
KERNEL(exits) {
    y[threadIdx.x] = x[threadIdx.x];
    if (threadIdx.x == 63) exit(0);
}
KERNEL(no_lane) { y[threadIdx.x] = __shfl_down_sync(0xffffu, x[threadIdx.x], 8); }
KERNEL(one_value) {
    __shared__ float held;
    held = x[3];
    __syncthreads();
    y[threadIdx.x] = held;
}
KERNEL(two_values) {
    __shared__ float held;
    held = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = held;
}
KERNEL(casts) { const_cast<float*>(x)[threadIdx.x / 40] = threadIdx.x; }
KERNEL(shifts) {
    int count = int(x[threadIdx.x]) + 31;
    y[threadIdx.x] = float(1u << count) + (-2 >> count) + (1u << (count & 31));
}
KERNEL(all_write) {
    y[0] = x[threadIdx.x] + blockIdx.x;
    y[1 + blockIdx.x] = y[0];
}
KERNEL(no_first) {
    float sum;
    for (int i = threadIdx.x; i < int(x[63]); i += 32) sum += x[i];
    y[threadIdx.x] = sum + clock();  // which the order changes, as it may what a register holds
}
KERNEL(faults_and_exits) {
    y[64] = x[threadIdx.x];
    exit(0);
}
KERNEL(half_written) { if (threadIdx.x % 2) y[threadIdx.x] = x[threadIdx.x]; }
KERNEL(adds) { y[threadIdx.x] += x[threadIdx.x]; }
KERNEL(empty) {}
KERNEL(too_static) {
    __shared__ int held[30000];
    held[threadIdx.x] = threadIdx.x;
    __syncthreads();
    y[threadIdx.x] = held[63 - threadIdx.x];
}
KERNEL(no_index) {
    float local[8];
    for (int i = 0; i <= int(x[8]); i++) local[i] = x[i];
    y[threadIdx.x] = local[int(x[2])];
}
KERNEL(tile_race) {
    __shared__ real tile[ROWS][COLUMNS];
    tile[threadIdx.x / 8][threadIdx.x % 8] = x[threadIdx.x];
    y[threadIdx.x] = tile[7 - threadIdx.x / 8][7 - threadIdx.x % 8];
}
KERNEL(all_read) {
    float same = y[7];
    if (threadIdx.x == 40) y[7] = same + 1;
    y[8 + threadIdx.x] = same;
}
KERNEL(two_races) {
    __shared__ float first[64], second[64];
    first[threadIdx.x] = x[threadIdx.x];
    y[threadIdx.x] = first[63 - threadIdx.x];
    second[threadIdx.x] = x[threadIdx.x];
    y[threadIdx.x] += second[63 - threadIdx.x];  // cuda-emulator: allow race
}
__constant__ int turns = 1;
KERNEL(turned) {
    for (int i = 0; i < turns; i++) y[threadIdx.x] = x[threadIdx.x];
}
extern "C" __global__ void no_arrays(int n) {
    __shared__ int held[64];
    held[threadIdx.x] = n;
    if (held[63 - threadIdx.x] == 7) printf("never");
}
extern "C" __global__ void __launch_bounds__(BOUND) bounded(float* y) { y[threadIdx.x] = 1; }
""",
)


@pytest.fixture(scope="module")
def module(tmp_path_factory):
    path = tmp_path_factory.mktemp("kernels") / "watched.cu"
    path.write_text(KERNELS)
    return load(path)


def arrays():
    return np.arange(64, dtype=np.float32), np.zeros(64, np.float32)


def faults(module, name, block=64, grid=1, **options):
    """Of a check of a kernel, errors and notes."""
    try:
        return check(module.get_function(name), (grid,), (block,), arrays(), **options).faults
    except KernelFault as fault:
        return fault.faults


ERRORS = {  # kernel: (kind, options, words of the message)
    "null_pointer": (
        "out of bounds",
        {},
        "thread (5,0,0) of block (0,0,0) writes 4 bytes through a null",
    ),
    "wild_pointer": ("out of bounds", {}, "through a wild pointer"),
    "divides": ("division by zero", {}, "thread (0,0,0)"),
    "much_stack": ("stack overflow", {}, "128 KB"),
    "spins": ("time limit", {"seconds": 1, "orders": ("forward",)}, "1 s of the processor"),
    "no_lane": ("undefined shuffle", {"block": 16}, "lane 16, which is not in the mask 0000ffff"),
    "two_values": ("race", {"block": 32}, "writes held, which thread (0,0,0) of its block writes"),
    "adds": ("uninitialised read", {"uninitialised": ("y",)}, "reads y[0]"),
    "too_static": ("too much shared memory", {}, "120000 bytes"),
    "no_index": ("out of bounds", {}, "uses index 8 of local 'float [8]'"),
    "casts": ("race", {}, "writes x[0], which thread"),
    "tile_race": ("race", {}, "writes tile[4][0], which thread (31,0,0) of its block reads"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_what_a_kernel_does_is_named_and_ends_nothing(module, name):
    kind, options, words = ERRORS[name]
    first = faults(module, name, **options)[0]
    assert (first.kind, first.severity) == (kind, "error") and words in first.message
    if kind != "too much shared memory":
        start = KERNELS[: KERNELS.index(HEAD.format(name))].count("\n")
        assert start < first.line <= start + 6


NOTES = {
    "one_value": ("same value", {"block": 32}, "writes held"),
    "half_written": ("unwritten output", {}, "128 of 256 bytes of y (64 x float32)"),
    "empty": ("no access", {}, "no thread reads or writes"),
    "shifts": ("undefined shift", {}, "shifts a number of 32 bits by 32"),
}


@pytest.mark.parametrize("name", NOTES)
def test_what_may_be_right_is_a_note_and_can_be_allowed(module, name):
    kind, options, words = NOTES[name]
    notes = faults(module, name, **options)
    assert notes[0].kind == kind and {note.severity for note in notes} == {"note"}
    assert words in notes[0].message
    assert (notes[0].line > 0) == (name != "empty")
    assert kind not in {note.kind for note in faults(module, name, allow=(kind,), **options)}


def test_a_shift_beyond_a_number_gives_what_a_gpu_gives(module):
    x, y = arrays()
    check(module.get_function("shifts"), (1,), (64,), (x, y))
    counts = np.arange(31, 95)
    expected = np.where(counts < 32, 2.0**31, 0) - 1 + 2.0 ** (counts % 32)
    assert (y == expected.astype(np.float32)).all()


def test_a_right_kernel_has_no_fault_and_leaves_its_results(module):
    x, y = arrays()
    report = check(module.get_function("right"), (1,), (64,), (x, y))
    assert report.faults == () and report.accesses == 3 * 64 * 2 and (x == y).all()


def test_a_kernel_without_arrays_is_watched(module):
    with pytest.raises(KernelFault, match="race: .* writes held, which"):
        check(module.get_function("no_arrays"), (1,), (64,), (1,))


def test_a_kernel_that_ends_its_process_has_not_run(module):
    (crash,) = faults(module, "exits", orders=("forward",))
    assert crash.kind == "crash" and "status 0" in crash.message


# A library that waits at the exit of a fork for what only its parent has.
WAITING = """
#include <stdlib.h>
#include <unistd.h>
static int own = getpid();
static int added = atexit([] { while (getpid() != own) pause(); });
"""
EXITS = """
import ctypes, sys, numpy, cuda_emulator
ctypes.CDLL(sys.argv[1])
kernel = cuda_emulator.load(sys.argv[2]).get_function("exits")
try:
    cuda_emulator.check(kernel, (1,), (64,), (numpy.zeros(64, numpy.float32),), orders=("forward",))
except cuda_emulator.KernelFault as fault:
    print(fault)
"""


def test_what_other_libraries_do_at_the_exit_does_not_happen_in_a_watched_process(tmp_path):
    library, kernel = tmp_path / "waiting.so", tmp_path / "exits.cu"
    kernel.write_text('extern "C" __global__ void exits(float* y) { y[threadIdx.x] = 1; exit(3); }')
    (tmp_path / "waiting.cpp").write_text(WAITING)
    subprocess.run(["g++", "-shared", "-fPIC", "-o", library, tmp_path / "waiting.cpp"], check=True)
    ended = subprocess.run(
        [sys.executable, "-c", EXITS, library, kernel],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "ended with status 3" in ended.stdout


def test_all_faults_come_with_their_counts_and_a_comment_allows_one(module):
    (race,) = faults(module, "two_races")
    line = next(i for i, text in enumerate(KERNELS.splitlines(), 1) if "first[63" in text)
    assert race.kind == "race" and race.times == 32
    assert line in (race.line, race.other[1]) and "first[" in race.message
    assert race.orders == tuple(cuda_emulator.ORDERS)
    allow = f"race at watched.cu:{race.line}", "order dependence"
    assert faults(module, "two_races", allow=allow) == ()


def test_the_other_thread_of_a_race_is_another_one(module):
    first = faults(module, "all_read", block=48)[0]
    assert first.kind == "race" and "thread (40,0,0)" in first.message
    assert first.message.count("thread (40,0,0)") == 1


def test_a_sum_that_begins_nowhere_is_named_with_its_line(module):
    function = module.get_function("no_first")
    report = cuda_emulator.watched.examine(function, (1,), (64,), arrays())
    found = [fault for fault in report.errors if fault.kind == "order dependence"]
    line = KERNELS.splitlines().index("    float sum;") + 1
    assert found and line <= found[0].line <= line + 2 and "; sum may be read" in found[0].message


def test_a_place_that_all_blocks_write_is_no_fault_of_the_emulator(module):
    """The other access may be of an earlier block although this one has written since."""
    listed = faults(module, "all_write", grid=3)
    assert {fault.kind for fault in listed} == {"race", "race between blocks"}
    assert all(fault.line for fault in listed)


def test_counting_ends_in_time_and_counts_what_it_counts_here(module, monkeypatch):
    with pytest.raises(KernelFault, match="time limit: .* after 1 s of the processor"):
        module.get_function("no_end").count((1,), (64,), arrays(), seconds=1)
    here = {}
    module.get_global("turns")[:] = 3
    for isolated in (False, True):
        monkeypatch.setattr(cuda_emulator, "isolated", isolated)
        x, y = arrays()
        here[isolated] = module.get_function("turned").count((1,), (64,), (x, y))
        assert (x == y).all()
    assert here[True] == here[False] and here[True]["loads"]["requests"] == 2 * 3


def test_a_block_over_the_launch_bounds_is_refused(module):
    function, y = module.get_function("bounded"), np.zeros(64, np.float32)
    assert check(function, (1,), (32,), (y,)).errors == ()
    with pytest.raises(KernelFault, match="64 threads, where __launch_bounds__ allows 32"):
        check(function, (1,), (64,), (y,))


def test_a_fault_before_the_launch_has_returned_ends_no_check(module, monkeypatch):
    launch = cuda_emulator._launch

    def late(*args, faults, **fields):
        number = launch(*args, faults=faults, **fields)
        while not All.from_address(faults).count:
            pass
        return number

    monkeypatch.setattr(cuda_emulator, "_launch", late)
    found = faults(module, "faults_and_exits", orders=("forward",))
    assert [fault.kind for fault in found] == ["out of bounds", "crash"]


def test_a_call_is_watched_too_and_a_grid_too_large_harms_nothing(module):
    x, y = arrays()
    with pytest.raises(KernelFault, match=r"reads x\[64\]"):
        module.get_function("right")((1,), (128,), (x, y))
    assert (y == x).all()


def test_elements_of_arrays_of_more_dimensions_have_their_place(module):
    x, y = np.zeros((4, 16), np.float32), np.zeros((4, 16), np.float32)
    with pytest.raises(KernelFault) as fault:
        check(module.get_function("right"), (2,), (64,), (x, y))
    assert "y[0] at (0, 0), " in str(fault.value)


@pytest.mark.parametrize(
    "name, kind", [("divides", "division by zero"), ("null_pointer", "out of bounds")]
)
def test_an_unwatched_kernel_that_crashes_is_a_fault_of_this_process(
    module, monkeypatch, name, kind
):
    monkeypatch.setattr(cuda_emulator, "isolated", False)
    before = os.getpid()
    with pytest.raises(KernelFault) as fault:
        module.get_function(name)((1,), (64,), arrays())
    assert fault.value.kind == kind and fault.value.line and os.getpid() == before
    x, y = arrays()
    module.get_function("right")((1,), (64,), (x, y))
    assert (x == y).all()


def test_a_file_that_was_edited_is_loaded_anew(tmp_path):
    results = []
    for number in (1, 2):
        text = f'extern "C" __global__ void f(float* y) {{ y[threadIdx.x] = {number}; }}'
        (tmp_path / "f.cu").write_text(text)
        y = np.zeros(3, np.float32)
        load(tmp_path / "f.cu").get_function("f")((1,), (3,), (y,))
        results.append(y.tolist())
    assert results == [[1, 1, 1], [2, 2, 2]]


SUMS = """
extern "C" __global__ void total(const float* x, float* y, int* places) {
    atomicAdd(&y[0], x[threadIdx.x]);
    places[atomicAdd(&places[64], 1)] = threadIdx.x;
}
extern "C" __global__ void tabled(const float* x, const long long* y, int* places) {
    atomicAdd((float*)y[0], x[threadIdx.x]);
}
// what a race does, and nothing that a kernel may
extern "C" __global__ void last(const float* x, float* y, int* places) {
    y[0] += x[threadIdx.x];  // cuda-emulator: allow race
}
"""


@pytest.fixture(scope="module")
def sums(tmp_path_factory):
    path = tmp_path_factory.mktemp("kernels") / "sums.cu"
    path.write_text(SUMS)
    return load(path)


@pytest.mark.parametrize(
    "kernel, tolerance, kinds",
    [
        ("total", None, {"order of sums": "note", "order of atomics": "note"}),
        ("total", 1e-12, {"order dependence": "error", "order of atomics": "note"}),
        ("tabled", None, {"order of sums": "note"}),
        ("tabled", 1e-12, {"order dependence": "error"}),
        ("last", None, {"order dependence": "error"}),
    ],
)
def test_what_atomics_in_another_order_change_is_a_note_within_the_tolerance(
    sums, kernel, tolerance, kinds
):
    x = np.random.default_rng(0).uniform(0, 1, 64).astype(np.float32)
    y, function = np.zeros(1, np.float32), sums.get_function(kernel)
    given = x, cuda_emulator.Table([y], [y]) if kernel == "tabled" else y, np.zeros(65, np.int32)
    report = cuda_emulator.watched.examine(function, (1,), (64,), given, tolerance=tolerance)
    assert {fault.kind: fault.severity for fault in report.faults} == kinds
    assert f"{'an array' if kernel == 'tabled' else 'y'}[0] is " in "".join(
        fault.message for fault in report.faults
    )
