#!/usr/bin/env bash
# A constant that no kernel reads stays in the module: NVRTC writes every constexpr of a namespace or a
# class, and every static const array, into PTX and cubin as a variable of global memory, read or not. So
# a table of 16 KB in a header that a kernel merely includes makes its cubin 16 KB larger, and the PTX
# of two sources differs where their instructions are the same: who compares PTX has to leave such
# declarations out.
#
# Seen with nvidia-cuda-nvrtc-cu12 12.9.86 and nvidia-cuda-nvrtc 13.5.37 (Linux, x86_64, no GPU needed):
#   constexpr unsigned A = 5;      .global .align 4 .u32 A = 5;
#   constexpr float T[4096] = {1}; .global .align 4 .b8 T[16384] = ..., and a cubin over 16,384 bytes larger
#   inside the kernel, either is nowhere
# Ends with 1 if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
for package in nvidia-cuda-nvrtc-cu12==12.9.86 nvidia-cuda-nvrtc==13.5.37; do
    "$folder/venv/bin/pip" install --quiet --disable-pip-version-check --no-deps --target "$folder/${package#*==}" "$package"
done
cat >"$folder/compile.py" <<'PYTHON'
import ctypes, pathlib, sys

for library in sorted(pathlib.Path(sys.argv[1]).glob("nvidia/*/lib/libnvrtc*.so.1*")):
    nvrtc = ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)
KERNEL = 'extern "C" __global__ void f(float* y) {{ {inside} y[0] = 1.0f; }}'


def compiled(outside, inside, architecture, what):
    program = ctypes.c_void_p()
    option = ctypes.c_char_p(f"--gpu-architecture={architecture}".encode())
    text = (outside + KERNEL.format(inside=inside)).encode()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), text, None, 0, None, None)
    assert nvrtc.nvrtcCompileProgram(program, 1, ctypes.byref(option)) == 0
    size = ctypes.c_size_t()
    getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
    made = ctypes.create_string_buffer(size.value)
    getattr(nvrtc, f"nvrtcGet{what}")(program, made)
    return made.raw


plain = len(compiled("", "", "sm_90", "CUBIN"))
for constant, stands in (("constexpr unsigned A = 5;", b".u32 A = 5;"),
                         ("constexpr float T[4096] = {1};", b".b8 T[16384] = {")):
    kept = [stands in compiled(*place, "compute_90", "PTX") for place in ((constant, ""), ("", constant))]
    larger = len(compiled(constant, "", "sm_90", "CUBIN")) - plain
    print(f"{constant} in PTX: outside {kept[0]}, inside {kept[1]}; cubin {larger} bytes larger")
    assert kept == [True, False] and larger > (16384 if "4096" in constant else 0), "this changed"
PYTHON
for version in 12.9.86 13.5.37; do
    echo "$version"
    "$folder/venv/bin/python" "$folder/compile.py" "$folder/$version"
done
