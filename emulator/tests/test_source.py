"""Files of CUDA C++ as people have them load unchanged, or say what is missing."""

import numpy as np
import pytest

from cuda_emulator import CompileError, KernelFault, check, load, survey
from cuda_emulator.source import prepared

FILE = r"""
#include <cuda_runtime.h>
#include <torch/extension.h>
#include "not_there/helper.h"
#include <vector>
#define CHECK(call) do { if ((call) != cudaSuccess) exit(1); } while (0)

using namespace missing::library;
namespace alias = missing::library;
typedef struct { float x, y; } Point;
enum class Kind : int { ADD, MULTIPLY };
constexpr int WIDTH = 4;
static const int HEIGHT = 2;
template <typename T> struct Twice { static __device__ T of(T x) { return 2 * x; } };
template <> struct Twice<int> { static __device__ int of(int x) { return 3 * x; } };
__host__ __device__ inline float helper(float x) { return x + 1.0f; }
float helper(std::vector<float> v) { return v[0]; }  // for the host
__constant__ float weights[WIDTH] = {1, 2, 3, 4};
__device__ int calls;
__device__ const int TABLE[2] = {20, 30};
__device__ Point operator+(Point a, Point b) { return {a.x + b.x, a.y + b.y}; }

template <typename T, int N = 2> __global__ void twice(const T* x, T* y) {
    int i = blockIdx.x * N + threadIdx.x;
    y[i] = Twice<T>::of(x[i]);
}
namespace deep {
namespace er {
__global__ void kernel(float* y) { y[threadIdx.x] = helper(threadIdx.x); }
}
}
extern "C" {
__launch_bounds__(32) __global__ void before(float* y) { y[threadIdx.x] = weights[threadIdx.x]; }
__global__ void __launch_bounds__(WIDTH* HEIGHT) behind(float* y) { y[threadIdx.x] = blockDim.x; }
}
__global__ void by_value(Point p, Kind kind, const Point* points, long n, size_t m, char c, bool b,
                         volatile int* v, float4 four, dim3 d, unsigned char* bytes, void* any) {
    dim3 block(8, 8);
    Point sum = p + points[1];
    v[0] = kind == Kind::MULTIPLY ? int(sum.x * sum.y) : int(n + m + c + b);
    v[1] = four.w + d.y + block.y + bytes[0] + static_cast<int*>(any)[0];
}
__global__ void shared(const float* x, float* y) {
    extern __shared__ __align__(16) float dynamic[];
    static __shared__ float first[32];
    __shared__ alignas(16) float second[32];
    volatile __shared__ float third[32];
    int i = threadIdx.x;
    dynamic[i] = x[i], first[i] = 1, second[i] = 2, third[i] = 3;
    __syncthreads();
    y[i] = dynamic[31 - i] + first[i ^ 1] + second[i ^ 1] + third[i ^ 1];
}
__global__ void counting() { atomicAdd(&calls, TABLE[threadIdx.x & 1] / 20); }
__global__ void outside(float* y) {
    y[threadIdx.x + 1] = 0;
}
template <const int N = 8> void launch(float* x) {
    const int half = N / 2;
    twice<float, half><<<1, half>>>(x, x);
    switch (N) { case 4: twice<double><<<1, 4>>>(nullptr, nullptr); }
}
int main() {
    std::vector<float> host(10);
    launch<64>(host.data());
    CHECK(cudaDeviceSynchronize());
    auto again = [&](auto n) { return n + 1; };
    before<<<1, 1>>>(again(host.data()));
}
"""


TEXTURED = """#include "device.h"
__global__ void textured(float* y, cudaTextureObject_t t) { y[0] = tex2D<float>(t, 0, 0); }
template <int N> __global__ void plain(float* y) { y[threadIdx.x] = N; }
template <int N> void launch(float* x) { const int half = N / 2; plain<half><<<1, 4>>>(x); }
void host(float* x) { launch<64>(x); }
"""


@pytest.fixture(scope="module")
def module(tmp_path_factory):
    path = tmp_path_factory.mktemp("kernels") / "file.cu"
    path.write_text(FILE)
    return load(path)


def zeros(count, dtype=np.float32):
    return np.zeros(count, dtype)


@pytest.mark.parametrize(
    "name, results",
    [("before", [1, 2, 3, 4]), ("behind", [4] * 4), ("deep::er::kernel", [1, 2, 3, 4])],
)
def test_kernels_run_by_their_names(module, name, results):
    y = zeros(4)
    check(module.get_function(name), (1,), (4,), (y,))
    assert y.tolist() == results


def test_a_name_needs_no_namespaces(module):
    assert module.get_function("kernel").name == "deep::er::kernel"


@pytest.mark.parametrize("dtype, name, factor", [(np.float32, "float", 2), (np.int32, "int", 3)])
def test_a_template_runs_with_its_arguments(module, dtype, name, factor):
    x, y = np.arange(8, dtype=dtype), zeros(8, dtype)
    check(module.get_function(f"twice<{name}, 4>"), (2,), (4,), (x, y))
    assert (y == factor * x).all()


def test_a_template_without_arguments_is_told_those_of_the_host_code(module):
    with pytest.raises(KeyError, match=r"template of <typename T, int N = 2>.*twice<float, \("):
        module.get_function("twice")
    twice = next(kernel for kernel in module.kernels if kernel.name == "twice")
    found = [text.replace("(", "").replace(")", "") for text in module.parsed.launched(twice)]
    assert found == ["float, 64 / 2", "double"]


def test_an_unknown_kernel_is_answered_with_those_that_there_are(module):
    with pytest.raises(
        KeyError, match="has no kernel relu; it has twice, deep::er::kernel, before"
    ):
        module.get_function("relu")


def test_arguments_of_all_kinds(module):
    v, points = zeros(2, np.int32), np.array([(0, 0), (3, 4)], [("x", "f4"), ("y", "f4")])
    rest = (np.array([1, 2], np.float32), 1, points, 5, 6, 7, True, v)
    rest += (np.arange(4, dtype=np.float32), np.array([1, 9, 1], np.uint32))
    check(module.get_function("by_value"), (1,), (1,), (*rest, np.full(1, 200, np.uint8), zeros(1)))
    assert v.tolist() == [(1 + 3) * (2 + 4), 3 + 9 + 8 + 200]


def test_a_structure_of_another_size_is_refused(module):
    parameters = module.get_function("by_value").parameters
    assert [parameter.type for parameter in parameters[:8]] == [
        *("struct8", "int32", "struct8", "int64", "uint64", "int8", "bool", "int32")
    ]
    args = [np.zeros(3, np.float32), *[None] * 11]
    with pytest.raises(KernelFault, match="argument 0 is a struct8, got a float32 array"):
        module.get_function("by_value")((1,), (1,), args)


def test_shared_memory_of_all_kinds(module):
    x, y = np.arange(32, dtype=np.float32), zeros(32)
    check(module.get_function("shared"), (1,), (32,), (x, y), shared_mem=128)
    assert (y == x[::-1] + 6).all()


@pytest.mark.parametrize(
    "words",
    [
        "extern __shared__ float s[];",
        "extern float __shared__ s[];",
        "__shared__ extern float s[];",
        "extern __shared__ alignas(16) float s[];",
        "extern __align__(alignof(float4)) __shared__ float s[];",
    ],
)
def test_dynamic_shared_memory_is_declared_in_any_order(words):
    assert prepared(words) == (
        "float (&s)[] = *reinterpret_cast<float (*)[]>(emulator::dynamic_shared());"
    )


def test_variables_of_the_module_keep_their_values_between_launches(module):
    counting, calls = module.get_function("counting"), module.get_global("calls")
    counting((2,), (3,), ())
    check(counting, (1,), (4,), ())
    assert calls == [2 * 3 + 4]
    module.get_global("weights")[:] = 7
    y = zeros(4)
    module.get_function("before")((1,), (4,), (y,))
    assert (y == 7).all()


def test_a_kernel_that_g_plus_plus_rejects_is_the_only_one_that_fails(tmp_path):
    (tmp_path / "file.cu").write_text(TEXTURED + "__global__ void one(float* y) { *y = 1; }")
    module, y = load(tmp_path / "file.cu"), zeros(1)
    module.get_function("one")((1,), (1,), (y,))
    assert y == [1]
    with pytest.raises(CompileError, match="cudaTextureObject_t"):
        module.get_function("textured")((1,), (1,), (y, 0))


def test_a_fault_names_the_line_of_the_file(module):
    with pytest.raises(KernelFault) as fault:
        check(module.get_function("outside"), (1,), (4,), (zeros(4),))
    assert fault.value.kind == "out of bounds"
    assert FILE.splitlines()[fault.value.line - 1].strip() == "y[threadIdx.x + 1] = 0;"


@pytest.mark.parametrize("text", ["__global__ void f( {", "#include <x.h>\n#error no\n"])
def test_what_is_no_cuda_is_said(tmp_path, text):
    (tmp_path / "bad.cu").write_text(text)
    with pytest.raises(CompileError, match="bad.cu: .*(never closed|error no)"):
        load(tmp_path / "bad.cu").get_function("f")


def test_a_survey_tells_what_loads_and_why_not(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "common").mkdir()
    (tmp_path / "src/file.cu").write_text(TEXTURED)
    (tmp_path / "common/device.h").write_text("__global__ void in_header() { __syncthreads(); }\n")
    rows = {row.kernel: row for row in survey.survey(tmp_path)}
    assert {name: row.reason for name, row in rows.items()} == {
        "in_header": "",
        "textured": "textures and surfaces",
        "plain": "",
    }
    assert rows["in_header"].file == "common/device.h" and rows["plain"].arguments == "(64 / 2)"
    assert survey.table(rows.values()).splitlines() == [
        "2 of 3 kernels load (67 %)",
        "    1  textures and surfaces",
    ]
