"""`cuda-emulator run`: whole programs as a course has them, their mistakes, and exit statuses."""

import os
import pathlib
import subprocess
import sys

import pytest

SOURCE = pathlib.Path(__file__).resolve().parents[1] / "src"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(SOURCE)}

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
    if (what == "direction") CHECK(cudaMemcpy(d_x, x.data(), bytes, cudaMemcpyDeviceToHost));
    if (what == "aborts") abort();
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
    printf("sum %g, %d launch\n", sum, count);
    cudaFree(d_x), cudaFree(d_y), cudaFree(d_z), cudaFree(d_s);
}
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A function of a word for the program and of what BARRIER is: a CompletedProcess."""
    path = tmp_path_factory.mktemp("program") / "course.cu"
    path.write_text(PROGRAM, "utf-8")

    def run(word="", barrier="__syncthreads()"):
        command = [sys.executable, "-m", "cuda_emulator", "run", "-D", f"BARRIER={barrier}"]
        return subprocess.run(
            [*command, str(path), word],
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    return run


def test_a_right_program_prints_what_it_prints_on_a_gpu(run):
    ended = run()
    # every column of the product is 2 (0 + ... + 7) 4 for all rows, 32 x 32 of them
    assert (ended.returncode, ended.stdout) == (0, f"sum {32 * 32 * 2 * 28 * 4}, 1 launch\n")
    assert ended.stderr.endswith(
        "course.cu: 0 errors, 0 notes in 3 launches; the program ended with status 0\n"
    )


def test_a_missing_barrier_is_named_and_the_program_goes_on(run):
    ended = run(barrier="")
    assert ended.returncode == 1 and "1 launch" in ended.stdout
    line = PROGRAM[: PROGRAM.index("if (threadIdx.x < d)")].count("\n") + 1
    assert f"course.cu:{line}: error: race: thread (1,0,0)" in ended.stderr


MISTAKES = {  # word: (exit status, what is printed)
    "reads": (2, "ended by SIGSEGV, as where the host reads what cudaMalloc returned"),
    "host": (2, "first: wrong arguments: x is a pointer of the host, not memory of cudaMalloc"),
    "empty": (1, "error: uninitialised read: thread (0,0,0) of block (0,0,0) reads x[0]"),
    "threads": (1, "invalid configuration argument"),
    "direction": (9, "invalid argument\n"),
    "aborts": (2, "ended by SIGABRT\n"),
}


@pytest.mark.parametrize("word", MISTAKES)
def test_mistakes_of_the_host_are_named(run, word):
    ended = run(word)
    status, words = MISTAKES[word]
    assert ended.returncode == status and words in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_file_without_main_and_a_launch_in_a_template_end_in_one_line(tmp_path):
    kernel = "template <class T> __global__ void one(T* x) { x[0] = 1; }\n"
    launches = "template <class T> void start(T* x) { one<T><<<1, 1>>>(x); }\n"
    for text, words in (
        (kernel, "has no main; `check` runs a kernel"),
        (kernel + launches + "int main() { start((float*)0); start((int*)0); }", "line 2 launches"),
    ):
        (tmp_path / "one.cu").write_text(text)
        command = [sys.executable, "-m", "cuda_emulator", "run", str(tmp_path / "one.cu")]
        ended = subprocess.run(
            command, env=ENVIRONMENT, capture_output=True, text=True, timeout=300, check=False
        )
        assert ended.returncode == 2 and words in ended.stderr.splitlines()[-1]
