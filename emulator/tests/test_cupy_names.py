"""CuPy's RawKernel and RawModule run on NumPy arrays."""

import numpy as np
import pytest

from cuda_emulator import KernelFault
from cuda_emulator.cupy_names import RawKernel, RawModule

TEXT = r"""
#include <cupy/complex.cuh>
#include <cuda_fp16.h>
struct Pair { int count; double scale; };
__constant__ float factor;
__device__ int launches;
template <typename T> __global__ void square(const T* x, T* y, unsigned int n) {
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * x[i];
}
extern "C" {
__global__ void scaled(const half* x, float* y, long long n) {
    if (threadIdx.x < n) y[threadIdx.x] = factor * (float)x[threadIdx.x];
    if (threadIdx.x == 0) launches++;
}
__global__ void pairs(const Pair* pairs, Pair one, double* y) {
    y[threadIdx.x] = pairs[threadIdx.x].count * pairs[threadIdx.x].scale + one.count * one.scale;
}
}
"""
PAIR = np.dtype([("count", np.int32), ("scale", np.float64)], align=True)


@pytest.fixture(scope="module")
def module():
    names = ["square<float>", "square<complex<double>>"]
    return RawModule(code=TEXT, options=("-std=c++17", "-DUNUSED=1"), name_expressions=names)


@pytest.mark.parametrize(
    "name, dtype", [("square<float>", np.float32), ("square<complex<double>>", np.complex128)]
)
def test_name_expressions_are_instances_of_templates(module, name, dtype):
    x = (np.arange(12) * (1 + 2j if dtype == np.complex128 else 1)).astype(dtype)
    y = np.zeros_like(x)
    module.get_function(name)((2,), (8,), (x, y, x.size))  # a Python int, as in CuPy's examples
    assert (y == x * x).all()


def test_half_arrays_and_variables(module):
    module.get_global("factor")[...] = 3
    x, y = np.arange(4, dtype=np.float16), np.zeros(4, np.float32)
    module.get_function("scaled")((1,), (8,), (x, y, 2**2))
    assert (y == 3 * x).all() and module.get_global("launches") == [1]


def test_structures_are_records_of_the_same_layout(module):
    pairs, y = np.array([(1, 0.5), (2, 4.0)], PAIR), np.zeros(2)
    module.get_function("pairs")((1,), (2,), (pairs, np.array((3, 10.0), PAIR)[()], y))
    assert y.tolist() == [0.5 + 30, 8 + 30]


def test_a_kernel_of_a_text():
    fill = RawKernel('extern "C" __global__ void fill(double* y, double x) { *y = x; }', "fill")
    y = np.zeros(1)
    fill((1,), (1,), (y, 2.5))
    assert y == [2.5]
    with pytest.raises(KernelFault, match="argument 1 is a float64, got a int"):
        fill((1,), (1,), (y, 2))


def test_an_unknown_variable_is_said(module):
    with pytest.raises(KeyError, match="no __device__ or __constant__ variable weights"):
        module.get_global("weights")
