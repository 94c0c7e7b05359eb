"""NVRTC compiles without a GPU, reports a kernel's resources, and names an error in one line."""

import sys
import types

import pytest

import needs
from ladder.errors import UserError
from ladder.executors.cuda import nvrtc

COPY = """
extern "C" __global__ void __launch_bounds__(256) copy_wide(const float4* __restrict__ x, float4* y, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) y[i] = x[i];
}
extern "C" __global__ void copy_narrow(const float* x, float* y, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) y[i] = x[i];
}
extern "C" __global__ void reverse(const float* x, float* y) {
    __shared__ float held[64];
    extern __shared__ float more[];
    held[threadIdx.x] = x[threadIdx.x];
    more[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = held[63 - threadIdx.x] * 2.0f + more[63 - threadIdx.x];
}
"""

STREAM = """
#include "common/tensor_cores.cuh"
extern "C" __global__ void stream(const float* x, float* y, int count) {
    __shared__ __align__(16) float held[128];
    int at = threadIdx.x * 4;
    cp_async(SIZE, &held[at], x + at, at < count);
    cp_async_commit();
    cp_async_wait<0>();
    __syncthreads();
    y[threadIdx.x] = held[127 - at];
}
"""

# 64 values that all live at once, with 16 registers allowed.
SPILLING = """
extern "C" __global__ void __launch_bounds__(1024, 2) spill(const float* x, float* y) {
    float v[64];
#pragma unroll
    for (int i = 0; i < 64; i++) v[i] = x[i * 1024 + threadIdx.x];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 64; i++) y[i * 1024 + threadIdx.x] = v[i] * v[63 - i];
}
"""


@pytest.fixture
def compiled(tmp_path):
    def compile_text(text, architecture="sm_80", **options):
        path = tmp_path / "kernel.cu"
        path.write_text(text)
        return nvrtc.compile_file(path, architecture, **options)

    return compile_text


@needs.NVRTC
@pytest.mark.parametrize("architecture", nvrtc.ARCHITECTURES)
def test_every_architecture_compiles_to_machine_code(compiled, architecture):
    result = compiled(COPY, architecture)
    assert result.cubin.startswith(b"\x7fELF")
    assert set(result.kernels) == {"copy_wide", "copy_narrow", "reverse"}
    wide, reverse = result.kernels["copy_wide"], result.kernels["reverse"]
    assert 4 < wide.registers < 40 and wide.most_threads == 256 and wide.static_shared_bytes == 0
    assert reverse.static_shared_bytes == 256 and reverse.most_threads is None
    assert all(kernel.spill_bytes == kernel.stack_bytes == 0 for kernel in result.kernels.values())


@needs.NVRTC
@pytest.mark.parametrize("size", [4, 16])
@pytest.mark.parametrize("architecture", nvrtc.ARCHITECTURES[1:])
def test_copies_are_asynchronous_from_sm_80_on(compiled, architecture, size):
    ptx = compiled(STREAM, architecture, defines=(f"SIZE={size}",)).ptx
    assert (
        f"cp.async.{'cg' if size == 16 else 'ca'}.shared.global" in ptx
        and "cp.async.wait_group" in ptx
    )


@needs.NVRTC
def test_spills_are_reported(compiled):
    assert compiled(SPILLING).kernels["spill"].spill_bytes > 0


@needs.NVRTC
def test_16_byte_accesses_are_found_where_they_are(compiled):
    ptx = compiled(COPY).ptx
    assert nvrtc.wide_accesses(ptx, "copy_wide") == (1, 1)
    assert nvrtc.wide_accesses(ptx, "copy_narrow") == (0, 0)


@needs.NVRTC
def test_denormals_are_kept_and_multiply_add_is_fused(compiled):
    ptx = compiled(COPY).ptx
    assert "fma.rn.f32" in ptx
    assert ".ftz" not in ptx


@needs.NVRTC
def test_defines_reach_the_source(compiled):
    text = '#if TILE != 8\n#error "no tile"\n#endif\nextern "C" __global__ void nothing() {}'
    assert "nothing" in compiled(text, defines=("TILE=8",)).kernels
    with pytest.raises(UserError, match="no tile"):
        compiled(text, defines=("TILE=7",))


@needs.NVRTC
def test_error_names_file_line_and_reason_in_one_line(compiled):
    with pytest.raises(
        UserError, match=r'kernel\.cu:3: identifier "missing" is undefined \(compiling for sm_80\)$'
    ) as error:
        compiled(
            'extern "C" __global__ void f(float* y) {\n    y[0] = 1.0f;\n    y[1] = missing;\n}\n'
        )
    assert "\n" not in str(error.value)


@needs.NVRTC
def test_error_in_a_header_names_the_header(compiled, tmp_path):
    (tmp_path / "part.cuh").write_text("\nint broken(;\n")
    with pytest.raises(UserError, match=r"part\.cuh:2: "):
        compiled('#include "part.cuh"\n')


@needs.NVRTC
def test_missing_header_is_named(compiled):
    with pytest.raises(UserError, match=r"kernel\.cu:1: .*absent\.cuh"):
        compiled('#include "absent.cuh"\n')


@needs.NVRTC
def test_too_much_static_shared_memory_is_refused(compiled):
    with pytest.raises(UserError, match="too much shared data"):
        compiled(
            'extern "C" __global__ void f(float* y) { __shared__ float held[20000]; held[threadIdx.x] = y[0]; '
            "__syncthreads(); y[threadIdx.x] = held[y[1] > 0]; }"
        )


@needs.NVRTC
def test_unknown_architecture_is_refused(compiled):
    with pytest.raises(
        UserError,
        match="does not compile for sm_12, only for .*sm_80.*; a newer one is in .*-nvrtc",
    ):
        compiled(COPY, "sm_12")


def test_without_nvrtc_the_message_says_what_to_install(monkeypatch, tmp_path):
    nvrtc._nvrtc.cache_clear()
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    try:
        with pytest.raises(UserError, match=r"pip install -r envs/kernels\.txt"):
            nvrtc.compile_file(tmp_path / "kernel.cu", "sm_80")
        assert not nvrtc.installed()
    finally:
        nvrtc._nvrtc.cache_clear()


class CuPyNvrtc:
    """cupy.cuda.nvrtc, whose functions end text and machine code one byte early."""

    class NVRTCError(RuntimeError):
        pass

    def __init__(self, fails=False, version=(13, 0)):
        self.fails, self.version, self.destroyed = fails, version, []

    def getVersion(self):
        return self.version

    def getSupportedArchs(self):
        return 75, 80

    def createProgram(self, text, name, headers, include_names):
        assert isinstance(text, str) and isinstance(name, str)
        return 7

    def compileProgram(self, program, options):
        assert "--gpu-architecture=sm_80" in options
        self.options = options
        if self.fails:
            raise self.NVRTCError("NVRTC_ERROR_COMPILATION (6)")

    def getProgramLog(self, program):
        return 'x.cu(3): error: identifier "a" is undefined\n' if self.fails else ""

    def getCUBIN(self, program):
        return b"\x7fELF code"

    def getPTX(self, program):
        return b".version 9.0"

    def destroyProgram(self, program):
        self.destroyed.append(program)


@pytest.fixture
def through_cupy(monkeypatch):
    """A function that leaves only a CuPyNvrtc, without cuda-bindings, and returns it."""

    def install(**options):
        fake = CuPyNvrtc(**options)
        monkeypatch.setitem(sys.modules, "cuda.bindings", None)
        for name, module in (
            ("cupy", types.ModuleType("cupy")),
            ("cupy.cuda", types.SimpleNamespace(nvrtc=fake)),
        ):
            monkeypatch.setitem(sys.modules, name, module)
        return fake

    nvrtc._nvrtc.cache_clear()
    yield install
    nvrtc._nvrtc.cache_clear()


def test_where_only_cupy_brings_nvrtc_that_compiles(through_cupy, tmp_path):
    fake = through_cupy()
    (tmp_path / "x.cu").write_text("")
    compiled = nvrtc.compile_file(tmp_path / "x.cu", "sm_80")
    assert compiled.cubin == b"\x7fELF code\0" and nvrtc.version() == (13, 0)
    assert fake.destroyed == [7]


def test_an_error_reads_the_same_through_cupy(through_cupy, tmp_path):
    fake = through_cupy(fails=True)
    (tmp_path / "x.cu").write_text("")
    with pytest.raises(
        UserError, match=r'^x\.cu:3: identifier "a" is undefined \(compiling for sm_80\)$'
    ):
        nvrtc.compile_file(tmp_path / "x.cu", "sm_80")
    assert fake.destroyed == [7]


@pytest.mark.parametrize("version, asked", [((12, 8), False), ((12, 9), True), ((13, 0), True)])
def test_a_compiled_kernel_is_compiled_again_for_the_report_of_its_registers(
    through_cupy, tmp_path, version, asked
):
    """On an H200 the second process with an empty cache of the program got machine code from
    NVRTC's own, without a report.
    """
    fake = through_cupy(version=version)
    (tmp_path / "x.cu").write_text("")
    nvrtc.compile_file(tmp_path / "x.cu", "sm_80")
    assert ("--no-cache" in fake.options) == asked
