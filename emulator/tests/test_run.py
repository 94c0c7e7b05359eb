"""`cuda-emulator run`: whole programs as a course has them, their mistakes, how they end, and exit
statuses.
"""

import contextlib
import os
import signal
import subprocess
import sys

import pytest

COMMAND = [sys.executable, "-m", "cuda_emulator", "run"]

PROGRAM = r"""
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <vector>
#include <cuda_runtime.h>
#define CHECK(call) do { cudaError_t error = (call); if (error != cudaSuccess) { \
    fprintf(stderr, "%s\n", cudaGetErrorString(error)); exit(9); } } while (0)
using namespace std;
__constant__ float factor;
__device__ int launches;
int optind = 7;  // the C library has a variable of this name
namespace course {
template <typename T> __global__ void add(const T* x, const T* y, T* z, size_t n) {
    size_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) z[i] = factor * (x[i] + y[i]);
    if (i == 0) atomicAdd(&launches, 1);
}
}
__global__ void matmul(const float* a, const float* b, float* c, int n) {
    int i = blockIdx.y * blockDim.y + threadIdx.y, j = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0;
    for (int k = 0; k < n; k++) sum += a[i * n + k] * b[k * n + j];
    c[i * n + j] = sum;
}
template <int SIZE> __global__ void reduce(const float* x, float* y) {
    extern __shared__ float part[];
    part[threadIdx.x] = x[blockIdx.x * SIZE + threadIdx.x];
    __syncthreads();
    for (int d = SIZE / 2; d > 0; d /= 2) {
        if (threadIdx.x < d) part[threadIdx.x] += part[threadIdx.x + d];
        BARRIER;
    }
    if (threadIdx.x == 0) atomicAdd(y, part[0]);
}
__global__ void first(float* x) { x[0] += 1; }
int main(int argc, char** argv) {
    ios::sync_with_stdio(false);
    string what = argc > 1 ? argv[1] : "";
    const int n = 32, SIZE = 128;
    vector<float> x(n * n), y(n * n, 2), z(n * n);
    for (int i = 0; i < n * n; i++) x[i] = i % 8;
    float *d_x, *d_y, *d_z, *d_s, three = 3, sum, ms;
    size_t bytes = x.size() * sizeof(float);
    CHECK(cudaMalloc(&d_x, bytes));
    CHECK(cudaMalloc((void**)&d_y, bytes));
    CHECK(cudaMalloc(&d_z, bytes));
    CHECK(cudaMallocManaged(&d_s, sizeof(float)));
    CHECK(cudaMemcpy(d_x, x.data(), bytes, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(d_y, y.data(), bytes, cudaMemcpyHostToDevice));
    if (what == "reads") return int(*d_x);
    if (what == "host") first<<<1, 1>>>(x.data());
    if (what == "empty") first<<<1, 1>>>(d_z);
    if (what == "threads") { first<<<1, 2048>>>(d_x); CHECK(cudaGetLastError()); }
    if (what == "kernels") first<<<1, 2048>>>(d_x), matmul<<<1, 2048>>>(d_x, d_y, d_z, n);
    if (what == "direction") CHECK(cudaMemcpy(d_x, x.data(), bytes, cudaMemcpyDeviceToHost));
    if (what == "size") CHECK(cudaMemcpy(d_x, x.data(), -1, cudaMemcpyHostToDevice));
    if (what == "constant") CHECK(cudaMemcpyToSymbol(factor, d_x, sizeof three));
    if (what == "aborts") abort();
    if (what == "endless") for (;;) puts("begun"), fflush(stdout);
    cudaEvent_t start, stop;
    cudaEventCreate(&start), cudaEventCreate(&stop);
    CHECK(cudaMemcpyToSymbol(factor, &three, sizeof three));
    cudaEventRecord(start);
    course::add<float><<<(n * n + 255) / 256, 256>>>(d_x, d_y, d_z, x.size());
    cudaEventRecord(stop);
    CHECK(cudaEventSynchronize(stop));
    CHECK(cudaEventElapsedTime(&ms, start, stop));
    CHECK(cudaMemcpy(z.data(), d_z, bytes, cudaMemcpyDeviceToHost));
    for (int i = 0; i < n * n; i++) if (z[i] != 3 * (x[i] + 2) || ms <= 0) return 4;
    dim3 block(16, 16), grid(n / block.x, n / block.y);
    matmul<<<grid, block>>>(d_x, d_y, d_z, n);
    CHECK(cudaDeviceSynchronize());
    *d_s = 0;
    reduce<SIZE><<<n * n / SIZE, SIZE, SIZE * sizeof(float)>>>(d_z, d_s);
    int count;
    CHECK(cudaMemcpyFromSymbol(&count, launches, sizeof count));
    CHECK(cudaMemcpy(&sum, d_s, sizeof sum, cudaMemcpyDefault));
    cout << "sum " << sum << ", " << count << " launch, optind " << optind << "\n";
    cudaFree(d_x), cudaFree(d_y), cudaFree(d_z), cudaFree(d_s);
}
"""


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    path = tmp_path_factory.mktemp("program") / "course.cu"
    path.write_text(PROGRAM, "utf-8")
    return path


def run(*words, barrier="__syncthreads()"):
    """The CompletedProcess of the command with these words; barrier: what BARRIER is."""
    return subprocess.run(
        [*COMMAND, "-D", f"BARRIER={barrier}", *words],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_a_right_program_prints_what_it_prints_on_a_gpu(course):
    ended = run(course)
    # every column of the product is 2 (0 + ... + 7) 4 for all rows, 32 x 32 of them
    printed = f"sum {32 * 32 * 2 * 28 * 4}, 1 launch, optind 7\n"
    assert (ended.returncode, ended.stdout) == (0, printed)
    assert ended.stderr.endswith(
        "course.cu: 0 errors, 0 notes in 3 launches; the program ended with status 0\n"
    )


def test_a_missing_barrier_is_named_and_the_program_goes_on(course):
    ended = run(course, barrier="")
    assert ended.returncode == 1 and "1 launch" in ended.stdout
    line = PROGRAM[: PROGRAM.index("if (threadIdx.x < d)")].count("\n") + 1
    assert f"course.cu:{line}: error: race: thread (1,0,0)" in ended.stderr


MISTAKES = {  # word: (exit status, what is printed)
    "reads": (2, "ended by SIGSEGV, as where the host reads what cudaMalloc returned"),
    "host": (2, "first: wrong arguments: x is a pointer of the host, not memory of cudaMalloc"),
    "empty": (1, "error: uninitialised read: thread (0,0,0) of block (0,0,0) reads x[0]"),
    "threads": (1, "invalid configuration argument"),
    "kernels": (1, "matmul: error: impossible launch: no GPU accepts grid (1,1,1), block (2048"),
    "direction": (9, "invalid argument\n"),
    "size": (9, "invalid argument\n"),
    "constant": (9, "invalid argument\n"),
    "aborts": (2, "ended by SIGABRT\n"),
}


@pytest.mark.parametrize("word", MISTAKES)
def test_mistakes_of_the_host_are_named(course, word):
    ended = run(course, word)
    status, words = MISTAKES[word]
    assert ended.returncode == status and words in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_launch_that_cannot_be_checked_ends_the_program_with_one_line(course):
    ended = run("--seconds", "0", course, "empty")
    refused, end = ended.stderr.splitlines()
    assert (ended.returncode, ended.stdout) == (2, "")
    assert refused.startswith("cuda-emulator: seconds is") and end.endswith("status 2")


@pytest.mark.parametrize("end", ["kill", "close"])
def test_an_endless_program_ends_with_its_command_or_its_reader(course, end):
    with subprocess.Popen(
        [*COMMAND, "-D", "BARRIER=", course, "endless"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            assert process.stdout.readline() == "begun\n"
            process.kill() if end == "kill" else process.stdout.close()
            _, ended = process.communicate(timeout=20)  # until no process is left that prints
            assert ended.endswith("by SIGPIPE\n" if end == "close" else "")
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


TEMPLATE = """template <class T> __global__ void one(T* x) { x[0] = 1; }
template <class T> void start(T* x) { one<T><<<1, 1>>>(x); }
"""
REJECTED = {
    TEMPLATE: "has no main; `check` runs a kernel",
    TEMPLATE + "int main() { start((float*)0); start((int*)0); }": "line 2 of one.cu launches",
    "int main() { absent(); }": "absent is not declared",
    "void absent(int); int main() { absent(1); }": "absent(int) is declared, and the file",
}


@pytest.mark.parametrize("text", REJECTED)
def test_a_program_that_cannot_be_compiled_says_why_and_leaves_no_file(tmp_path, monkeypatch, text):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "one.cu").write_text(text)
    ended = run(tmp_path / "one.cu")
    assert ended.returncode == 2 and REJECTED[text] in ended.stderr
    assert {path.suffix for path in tmp_path.glob("cache/*/*")} <= {".lock"}
