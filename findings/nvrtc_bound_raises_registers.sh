#!/usr/bin/env bash
# A bound that asks for room for more blocks gives a kernel more registers, not fewer. Without
# launch bounds, or with those of the threads alone, NVRTC's compiler may stop a kernel at the
# registers with which a multiprocessor is full (32 of 65,536 for 2,048 threads).
# __launch_bounds__(256, 4) says that 4 blocks of 256 threads are enough, and the same kernel takes
# 48. So where a kernel spills a few bytes at 32 or 64 registers, the second number of the bound is
# the cure, not the cause.
#
# Seen with nvidia-cuda-nvrtc-cu12 12.9.86 and nvidia-cuda-nvrtc 13.5.37 (Linux, x86_64, no GPU
# needed), sm_80 and sm_90, a max-pooling with the place of the maximum, registers of a thread:
#   no bound 32, (256) 32, (256, 8) 32, (256, 6) 40, (256, 4) 48
# Ends with 1 if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
for package in nvidia-cuda-nvrtc-cu12==12.9.86 nvidia-cuda-nvrtc==13.5.37; do
    "$folder/venv/bin/pip" install --quiet --disable-pip-version-check --no-deps \
        --target "$folder/${package#*==}" "$package"
done
cat >"$folder/compile.py" <<'PYTHON'
import ctypes, pathlib, re, sys
for library in sorted(pathlib.Path(sys.argv[1]).glob("nvidia/*/lib/libnvrtc*.so.1*")):
    nvrtc = ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)
POOL = """extern "C" __global__ void BOUND pool(const float* __restrict__ x, float* __restrict__ y,
    unsigned char* __restrict__ place, int images, int h, int w, int c, int k, int s, int pad) {
    int oh = (h + 2 * pad - k) / s + 1, ow = (w + 2 * pad - k) / s + 1;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= images * oh * ow * c) return;
    int channel = i % c, p = i / c, q = p % ow, r = p / ow % oh, image = p / (ow * oh);
    int top = r * s - pad, left = q * s - pad;
    int r0 = max(top, 0), r1 = min(top + k, h), q0 = max(left, 0), q1 = min(left + k, w);
    const float* map = x + image * h * w * c + channel;
    float best = map[(r0 * w + q0) * c]; int at = (r0 - top) * k + q0 - left;
    for (int a = r0; a < r1; a++)
        for (int b = q0; b < q1; b++) {
            float value = map[(a * w + b) * c];
            if (value > best) { best = value; at = (a - top) * k + b - left; }
        }
    y[i] = best; place[i] = at; }"""


def registers(bound, architecture):
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    text = POOL.replace("BOUND", bound).encode()
    options = f"--gpu-architecture={architecture}".encode(), b"--ptxas-options=-v"
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), text, None, 0, None, None)
    assert nvrtc.nvrtcCompileProgram(program, 2, (ctypes.c_char_p * 2)(*options)) == 0
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, log)
    return int(re.search(r"Used (\d+) registers", log.value.decode())[1])


BOUNDS = "", *(f"__launch_bounds__({bound})" for bound in ("256", "256, 8", "256, 6", "256, 4"))
for architecture in ("sm_80", "sm_90"):
    used = [registers(bound, architecture) for bound in BOUNDS]
    print(sys.argv[1].rpartition("/")[2], architecture, used)
    assert used == [32, 32, 32, 40, 48], "this changed"
PYTHON
for version in 12.9.86 13.5.37; do
    "$folder/venv/bin/python" "$folder/compile.py" "$folder/$version"
done
