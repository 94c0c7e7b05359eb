"""The command: exit statuses, formats, sizes that are swept, words for what cannot be checked."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import cuda_emulator
from cuda_emulator import arguments, command, hints

ISOLATED = True
ADD = """#define BLOCK 64
__global__ void add(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] + 1;
}
__global__ void careless(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n) y[i] = x[i] + 1;
}
__global__ void strided(const float* x, float* y, int n) {
    y[threadIdx.x] = x[threadIdx.x * 32];
}
__global__ void banked(const float* x, float* y, int n) {
    __shared__ float tile[32][32];
    tile[threadIdx.x][0] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = tile[threadIdx.x][0];
}
int main() { return 0; }
"""
ARGS = "--grid n/64 --block 64 --args x:float32[n] y:float32[n]=empty n:int32=n"


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """A function of the words behind `cuda-emulator`: (exit status, standard output, errors)."""
    (tmp_path / "add.cu").write_text(ADD)
    monkeypatch.chdir(tmp_path)

    def run(words):
        status = command.main(words.split())
        return status, *capsys.readouterr()

    return run


def test_a_right_kernel_ends_with_0_for_every_size_that_is_swept(run):
    status, printed, _ = run(f"check add.cu add --size n=sweep {ARGS}")
    assert status == command.RIGHT
    assert re.fullmatch(
        r"add: 0 errors, 0 notes in 7 launches, each in 3 orders of threads; [\d,]+ accesses watched "
        r"in [\d.]+ s; __CUDA_ARCH__ is 900\n",
        printed,
    )


def test_a_fault_ends_with_1_and_is_shown_once_with_the_sizes_that_have_it(run):
    status, printed, _ = run(f"check add.cu careless --size n=sweep {ARGS}")
    lines = printed.splitlines()
    assert status == command.WRONG and lines[0] == "with n=1:"
    assert re.search(r"add.cu:8: error: out of bounds: .* reads x\[1\], ", lines[1])
    assert lines[2].strip() == "if (i <= n) y[i] = x[i] + 1;"
    assert lines[3] == "out of bounds (add.cu:8): also with n=63; n=65; n=127; n=129"


def test_a_fault_that_is_allowed_ends_with_0_and_a_note_with_1_where_it_is_strict(run):
    assert run(f"check add.cu careless --size n=63 --allow out --size m=1 {ARGS}")[0] == 1
    words = ["check", "add.cu", "careless", "--size", "n=63", "--allow", "out of bounds"]
    assert command.main([*words, *ARGS.split()]) == command.RIGHT
    half = "--block 32 --args x:float32[64] y:float32[64] n:int32=32"
    assert run(f"check add.cu add {half}")[0] == command.RIGHT
    assert run(f"check add.cu add --strict {half}")[0] == command.WRONG


def test_json_and_annotations_have_the_fault_and_its_place(run, tmp_path):
    _, printed, _ = run(f"check add.cu careless --size n=63 --format json {ARGS}")
    report = json.loads(printed)
    assert (report["kernel"], report["errors"], report["notes"]) == ("careless", 1, 0)
    (launch,) = report["launches"]
    assert (launch["sizes"], launch["grid"], launch["block"]) == ({"n": 63}, [1, 1, 1], [64, 1, 1])
    (fault,) = launch["faults"]
    assert (fault["kind"], fault["line"]) == ("out of bounds", 8)
    assert fault["file"] == str(tmp_path / "add.cu")
    _, printed, _ = run(f"check add.cu careless --size n=63 --format github {ARGS}")
    assert printed.startswith("::error file=add.cu,line=8,title=out of bounds::thread (63,0,0) of")


@pytest.mark.parametrize(
    "words, message",
    [
        ("check nowhere.cu add", "cuda-emulator: nowhere.cu is no file"),
        ("check add.cu", "add.cu has add, careless, strided, banked: name one"),
        ("check add.cu ad", "no kernel ad; it has add, careless"),
        ("check add.cu add", "--size n=1000 --args x:float32[n] y:float32[n] n:int32=n"),
        ("check add.cu add --args x:float32[n] y:float32[1] n:int32=1", "--size n=1000 gives n"),
        ("check add.cu add --args x=none.npy y:float32[1] n:int32=1", "none.npy"),
        ("check add.cu add --args x:float33[1] y:float32[1] n:int32=1", "'float33' is no type"),
        ("check add.cu add --args x:float32[1] y:int32[1] n:int32=1", "float32 array, got a int32"),
        ("check add.cu add --block 1,1,1,1", "more than three dimensions"),
        ("check add.cu add --args x:float32[-5] y:float32[1] n:int32=1", "a size below 0"),
        ("check add.cu add --args x:object[1] y:float32[1] n:int32=1", "'object' is no type"),
        ("survey nowhere", "is no folder"),
    ],
)
def test_what_cannot_be_checked_ends_with_2_and_one_line(run, words, message):
    status, printed, error = run(words)
    assert (status, printed) == (command.UNCHECKED, "") and message in error
    assert error.startswith("cuda-emulator: ") and error.count("\n") == 1


def test_a_grid_of_more_than_32_bits_is_no_smaller_one(run):
    args = "--args x:float32[64] y:float32[64] n:int32=64"
    status, printed, _ = run(f"check add.cu add --block 64 --grid 4294967297 {args}")
    assert status == command.WRONG and "impossible launch" in printed


def test_no_seconds_end_nothing_but_the_command(tmp_path):
    (tmp_path / "add.cu").write_text(ADD)
    words = "count add.cu add --seconds 0 --args x:float32[1] y:float32[1] n:int32=1".split()
    result = subprocess.run(
        [sys.executable, "-m", "cuda_emulator", *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        start_new_session=True,  # whose processes an earlier version ended, all of them
    )
    assert result.returncode == command.UNCHECKED and "from 1 on" in result.stderr


def test_an_interrupted_command_ends_with_one_line(tmp_path):
    (tmp_path / "endless.cu").write_text(
        '__global__ void endless(float* x) { printf("begun\\n"); for (;;) x[0] += 1; }'
    )
    command_line = [sys.executable, "-m", "cuda_emulator", "check", "endless.cu", "--block", "1"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(
        [*command_line, "--args", "x:float32[1]"], cwd=tmp_path, **pipes
    ) as process:
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
    assert process.returncode == command.INTERRUPTED
    assert error.splitlines()[-1] == "cuda-emulator: interrupted" and "Traceback" not in error


def test_the_cache_keeps_what_was_used_last_within_its_bounds(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(cuda_emulator, "KEPT_BYTES", 20)
    folder, now, day = cuda_emulator._cache(), time.time(), 24 * 3600
    days_ago = {"older": 31, "old": 3, "used": 2, "new": 1, "old.txt": 31}
    for name, days in days_ago.items():
        (folder / name).write_bytes(bytes(0 if name == "old.txt" else 10))
        os.utime(folder / name, (now - days * day,) * 2)
    with cuda_emulator.missing(folder / "old") as absent:
        assert not absent
    cuda_emulator._forget_unused.__wrapped__()
    assert {path.name for path in folder.iterdir()} == {"new", "old", "old.txt"}
    os.utime(folder / "new", (now - 31 * day,) * 2)
    cuda_emulator._forget_unused.__wrapped__()
    assert {path.name for path in folder.iterdir()} == {"old", "old.txt"}


def test_a_cache_that_cannot_be_written_is_one_line(run, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "add.cu"))
    status, printed, error = run(f"check add.cu add --size n=1 {ARGS}")
    assert (status, printed, error.count("\n")) == (command.UNCHECKED, "", 1)


def test_headers_in_a_circle_and_an_older_encoding_are_read(run, tmp_path):
    for here, other in ("ab", "ba"):
        (tmp_path / here).mkdir()
        text = f'#pragma once\n#include "../{other}/{other}.cuh"\n// caf\xe9\n'
        (tmp_path / here / f"{here}.cuh").write_text(text, encoding="latin-1")
    (tmp_path / "add.cu").write_text('#include "a/a.cuh"\n' + ADD)
    assert run(f"check add.cu add --size n=64 {ARGS}")[0] == command.RIGHT
    assert "4 of 4 kernels load" in run("survey .")[1]


def test_a_kernel_that_does_not_compile_has_a_sentence_and_the_first_error(run, tmp_path):
    (tmp_path / "bad.cu").write_text("__global__ void f(float* x) { x[0] = nothing(3); }\n")
    status, printed, error = run("check bad.cu --args x:float32[3]")
    first, second, third, _ = error.splitlines()
    assert (status, printed) == (command.UNCHECKED, "") and "nothing is not declared" in first
    assert "bad.cu:1:" in second and "x[0] = nothing(3)" in third


@pytest.mark.parametrize(
    "text, words",
    [
        ("a.cu:1:10: fatal error: mine.h: No such file or directory", "-I FOLDER"),
        ("a.cu:1:10: error: ‘tex2D’ was not declared in this scope", "no textures"),
        ("error: ‘t’ was not declared in\nerror: ‘tex1Dfetch’ was not declared", "no textures"),
        ("error: ‘latch’ is not a member of ‘cuda’", "has no cuda::latch: write it in a header"),
        ("error: ‘__vexotic4’ was not declared in this scope", "has no __vexotic4: write it"),
        ("a.cu:1:10: error: ‘curandState’ does not name a type", "no cuRAND"),
        ("a.cu: Assembler messages:\na.cu:3: Error: junk at end of line", "ptx.h"),
    ],
)
def test_what_gxx_says_is_behind_what_to_do(text, words):
    assert words in hints.with_hint(text).splitlines()[0]
    assert hints.with_hint(text).endswith(text)


@pytest.mark.parametrize(
    "kernel, row, sentence",
    [
        ("add", "global loads +4 +4.0 sectors +100 %", "Nothing stands out"),
        ("strided", "global loads +2 +32.0 sectors +12 %", "Global loads use 12 % of the bytes"),
        ("banked", "shared loads +1 +32.0 wavefronts +3 %", "takes 32.0 times the wavefronts"),
    ],
)
def test_counts_are_a_table_with_a_sentence_of_advice(run, kernel, row, sentence):
    threads = {"add": 128, "strided": 64, "banked": 32}[kernel]
    args = "--args x:float32[2048] y:float32[2048] n:int32=2048"
    status, printed, _ = run(f"count add.cu {kernel} --block {threads} {args}")
    assert status == command.RIGHT and re.search(row, printed)
    assert sentence in printed.splitlines()[-1]


def test_words_become_arrays_and_numbers(tmp_path):
    np.save(tmp_path / "w.npy", np.arange(6, dtype=np.float16).reshape(2, 3))
    sizes = {"n": 5}
    array = arguments.parsed("x:float32[n*2+1,3]=1.5", sizes)
    assert array.value.shape == (11, 3) and (array.value == 1.5).all() and array.name == "x"
    empty = arguments.parsed("y:uint8[n]=empty", sizes)
    assert empty.empty and empty.value.dtype == np.uint8
    number = arguments.parsed("n:int32=n", sizes).value
    assert (number, number.dtype) == (5, np.int32)
    assert arguments.parsed(f"w={tmp_path / 'w.npy'}").value.shape == (2, 3)
    random = arguments.parsed("x:float32[1000]").value
    assert -1 <= random.min() < random.max() <= 1
    assert (random == arguments.parsed("x:float32[1000]").value).all()
    assert (random != arguments.parsed("x:float32[1000]", seed=1).value).any()


TEST = """
import numpy as np

def test_add(check_kernel):
    x, y = np.ones({size}, np.float32), np.zeros(64, np.float32)
    report = check_kernel("add.cu", "add", (1,), (64,), (x, y, np.int32(60)))
    assert (y[:60] == 2).all() and report.errors == ()
"""


@pytest.mark.parametrize("size, outcome", [(64, "1 passed, 1 warning"), (59, "1 failed")])
def test_the_fixture_of_pytest_checks_a_kernel_beside_the_test(tmp_path, size, outcome):
    (tmp_path / "add.cu").write_text(ADD)
    (tmp_path / "test_add.py").write_text(TEST.format(size=size))
    options = "-q", "-p", "cuda_emulator.plugin", "-p", "no:cacheprovider", "--rootdir", tmp_path
    result = subprocess.run(
        [sys.executable, "-m", "pytest", *options, tmp_path],
        capture_output=True,
        text=True,
    )
    assert outcome in result.stdout.splitlines()[-1], result.stdout
