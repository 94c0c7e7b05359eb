#!/usr/bin/env bash
# One chip, two names: NVRTC of CUDA 12.9 compiles for Jetson Thor as sm_101 and knows no sm_110; that of CUDA 13 compiles for it
# as sm_110 and knows no sm_101. So a program that asks the driver for the architecture, and gives NVRTC that name, works or
# fails by the version of the wheel, and a list of names, or a number taken as a minimum, is right for one of the two only.
#
# Seen with nvidia-cuda-nvrtc-cu12 12.9.86, nvidia-cuda-nvrtc 13.0.88 and 13.5.37 (Linux, x86_64, no GPU needed):
#   12.9.86: knows sm_101, not sm_110; compute_101 compiles, compute_110 is an "invalid value"
#   13.0.88: knows sm_110, not sm_101; compute_110 compiles, compute_101 is an "invalid value"
#   13.5.37: the same
# Ends with 1 if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
for package in nvidia-cuda-nvrtc-cu12==12.9.86 nvidia-cuda-nvrtc==13.0.88 nvidia-cuda-nvrtc==13.5.37; do
    "$folder/venv/bin/pip" install --quiet --disable-pip-version-check --no-deps --target "$folder/${package#*==}" "$package"
done
cat >"$folder/ask.py" <<'PYTHON'
import ctypes, pathlib, sys

folder = pathlib.Path(sys.argv[1])
for library in sorted(folder.glob("nvidia/*/lib/libnvrtc*.so.1*")):   # its built-in functions before it
    nvrtc = ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)


def supported():
    count = ctypes.c_int()
    nvrtc.nvrtcGetNumSupportedArchs(ctypes.byref(count))
    names = (ctypes.c_int * count.value)()
    nvrtc.nvrtcGetSupportedArchs(names)
    return list(names)


def compiled(name):
    program, option = ctypes.c_void_p(), ctypes.c_char_p(f"--gpu-architecture=compute_{name}".encode())
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), b'extern "C" __global__ void f() {}', None, 0, None, None)
    status = nvrtc.nvrtcCompileProgram(program, 1, ctypes.byref(option))
    if status == 0:
        return "compiles"
    size = ctypes.c_size_t()
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, log)
    return "invalid value" if b"invalid value" in log.value else log.value.decode()


print(folder.name, {name: (name in supported(), compiled(name)) for name in (101, 110)})
PYTHON
for version in 12.9.86 13.0.88 13.5.37; do python3 "$folder/ask.py" "$folder/$version"; done | tee "$folder/seen"
diff "$folder/seen" - <<'SEEN'
12.9.86 {101: (True, 'compiles'), 110: (False, 'invalid value')}
13.0.88 {101: (False, 'invalid value'), 110: (True, 'compiles')}
13.5.37 {101: (False, 'invalid value'), 110: (True, 'compiles')}
SEEN
