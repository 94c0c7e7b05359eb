"""What to do about what g++ says of a kernel."""

import re

_OWN = "write it in a header of your own, and name that with -I, or include= of load"
# (what g++ says, what to do), the narrower ones first
_HINTS = (
    (
        r"fatal error: (\S+): No such file",
        "the header {0} is not found: name its folder (-I FOLDER, or include= of load)",
    ),
    (
        r"error: .*?\b(tex\dD\w*|surf\dD\w*|cudaTextureObject_t|cudaSurfaceObject_t|texture)\b",
        "the emulator has no textures and surfaces ({0}): read an array instead",
    ),
    (
        r"error: .*?\b(curand\w*)\b",
        "the emulator has no cuRAND ({0}): hand random numbers to the kernel in an array",
    ),
    (
        r"error: .*?\b(thrust|cub|cute|cutlass)\b",
        "the library {0} is not here: name the folder of its headers with -I; much of it needs nvcc",
    ),
    (
        r"error: .*?\b(__nv_fp8\w*|__nv_fp4\w*)\b",
        "the emulator has no numbers of 8 or 4 bits ({0}): "
        "leave that part out where CUDA_EMULATOR is defined",
    ),
    (
        r"error: \u2018(\w+)\u2019 (?:is not a member of|in namespace) "
        r"\u2018((?:cuda|nvcuda|cooperative_groups)(?:::\w+)*)\u2019",
        "the emulator has no {1}::{0}: " + _OWN,
    ),
    (
        r"error: \u2018(__\w+|cuda\w+|cu[A-Z]\w+)\u2019 was not declared",
        "the emulator has no {0}: " + _OWN,
    ),
    (
        r"error: expected .* before \u2018<\u2019 token|error: .*<<<",
        "a kernel that launches kernels cannot run here: check the inner kernel by itself",
    ),
    (
        r"error: \u2018(\w+)\u2019 (?:was not declared|does not name a type|has not been declared)",
        "{0} is not declared: a header of yours may have it (-I FOLDER), or a macro (-D {0}=...); "
        "the README lists what of CUDA is not modelled",
    ),
    (
        r"undefined reference to `emulator::(\w+)",
        "the host calls {0}, which is of the device: __CUDA_ARCH__ is defined for the host too",
    ),
    (
        r"undefined reference to `(.+)'",
        "{0} is declared, and the file and its headers have no body of it",
    ),
    (
        r"Error: .*(?:junk at end of line|no such instruction|bad register name)"
        r"|inline PTX without a model",
        "inline PTX that has no model: call what ptx.h has for it where CUDA_EMULATOR is defined",
    ),
)


def with_hint(text):
    """What g++ says, behind a sentence that says what to do where that is known."""
    for pattern, hint in _HINTS:
        if match := re.search(pattern, text):
            return f"{hint.format(*match.groups())}\n{text}"
    return text


def first_lines(text):
    """Of `with_hint`, the sentence and the first error with its line."""
    lines = text.splitlines()
    errors = [number for number, line in enumerate(lines) if "rror: " in line]
    if not errors:
        return text
    head = [] if "rror: " in lines[0] or lines[0].startswith("/") else lines[:1]
    return "\n".join([*head, *lines[errors[0] : errors[0] + 3]])
