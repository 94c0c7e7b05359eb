"""Compiles the CUDA C++ of kernels/ with NVRTC to machine code for one GPU architecture; needs no GPU and no driver.

What the tests compile is what a GPU runs: the options are all stated here, none is left to a default that a caller or a
library may change. In particular denormals are kept (no --ftz=true), division and square root are rounded correctly,
and a * b + c becomes one fused multiply-add where the source does not forbid it (--fmad=true).
"""

import dataclasses
import functools
import importlib.util
import pathlib
import re

from .errors import UserError

KERNELS = pathlib.Path(__file__).resolve().parents[3] / "kernels"
ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_90")   # T4, A100, RTX 30, H100 and H200
OPTIONS = ("--std=c++17", "--fmad=true", "--ftz=false", "--prec-div=true", "--prec-sqrt=true", "--ptxas-options=-v")


@dataclasses.dataclass(frozen=True)
class Resources:
    """What one kernel takes of a multiprocessor, as the compiler reports it; bytes are per thread, shared ones per block."""

    registers: int
    spill_bytes: int           # registers written to memory, stores and loads together
    stack_bytes: int
    static_shared_bytes: int
    most_threads: int | None   # of a block, by __launch_bounds__


@dataclasses.dataclass(frozen=True)
class Compiled:
    """A CUDA file as machine code: `cubin` to load, `ptx` to look into, `kernels` by name."""

    architecture: str
    cubin: bytes
    ptx: str
    kernels: dict[str, Resources]


def compile_file(path, architecture, defines=()):
    """Compile the CUDA file `path` for `architecture` (such as "sm_80"); `defines` are texts NAME=VALUE.

    #include names are found beside the file and in kernels/. Raises UserError where NVRTC is missing, does not know the
    architecture, or does not accept the file (with its file, line and message).
    """
    nvrtc = _nvrtc()
    path = pathlib.Path(path)
    _check_architecture(nvrtc, architecture)
    options = [f"--gpu-architecture={architecture}", *OPTIONS, *(f"-D{define}" for define in defines),
               *(f"-I{folder}" for folder in (path.parent, KERNELS, *_toolkit_headers()))]
    program = _call(nvrtc.nvrtcCreateProgram, path.read_bytes(), str(path).encode(), 0, [], [])
    try:
        result, = nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])
        log = _text(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program)
        if result != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise UserError(_compile_error(path, architecture, log)
                            or f"{path}: NVRTC failed for {architecture}: {result.name}")
        cubin = _bytes(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program)
        ptx = _text(nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX, program)
    finally:
        nvrtc.nvrtcDestroyProgram(program)
    return Compiled(architecture, cubin, ptx, _resources(log, ptx))


def wide_accesses(ptx, kernel):
    """(loads, stores) of 16 bytes to global memory in the PTX of a kernel."""
    body = _entries(ptx)[kernel]
    return tuple(len(re.findall(rf"\b{verb}(?:\.volatile)?\.global[.\w:]*\.(?:v4\.[bfsu]32|v2\.[bfsu]64)\b", body))
                 for verb in ("ld", "st"))


def installed():
    """Whether NVRTC can be used here."""
    try:
        _nvrtc()
    except UserError:
        return False
    return True


@functools.cache
def _nvrtc():
    missing = "NVRTC, which compiles the kernels, is not installed here; install it with: pip install -r envs/kernels.txt"
    try:
        from cuda.bindings import nvrtc
    except ImportError as error:
        raise UserError(missing) from error
    try:
        _call(nvrtc.nvrtcVersion)
    except RuntimeError as error:   # the bindings are there, the library they load is not
        raise UserError(missing) from error
    return nvrtc


def _check_architecture(nvrtc, architecture):
    known = {f"sm_{number}" for number in _call(nvrtc.nvrtcGetSupportedArchs)}
    if architecture.removesuffix("a") not in known:
        raise UserError(f"this NVRTC does not compile for {architecture}; it knows {', '.join(sorted(known))}")


def _toolkit_headers():
    """Folder of the CUDA headers (cuda_fp16.h and its like) where the package that holds them is installed."""
    try:
        package = importlib.util.find_spec("nvidia.cuda_runtime")
    except ModuleNotFoundError:
        return []
    return [pathlib.Path(folder) / "include" for folder in package.submodule_search_locations] if package else []


def _call(function, *arguments):
    """The last value an NVRTC function returns after its status; a failure is a bug here, not the user's."""
    status, *values = function(*arguments)
    if status.value != 0:
        raise RuntimeError(f"{function.__name__}: {status.name}")
    return values[-1] if values else None


def _bytes(get_size, get, program):
    buffer = bytearray(_call(get_size, program))
    _call(get, program, buffer)
    return bytes(buffer)


def _text(get_size, get, program):
    return _bytes(get_size, get, program).replace(b"\0", b"\n").decode()   # zeros end it and separate its parts


def _compile_error(path, architecture, log):
    """The first error in the compiler's log as one line, None where it has none."""
    found = re.search(r"^(.+)\((\d+)\): (?:catastrophic )?error[^:]*: (.+)$", log, re.MULTILINE)
    if found:
        return f"{found[1]}:{found[2]}: {found[3]} (compiling for {architecture})"
    found = re.search(r"^ptxas.*?(?:error|fatal)\s*: (.+)$", log, re.MULTILINE)
    return f"{path}: {found[1]} (compiling for {architecture})" if found else None


def _entries(ptx):
    """The PTX of each kernel, by name."""
    parts = re.split(r"^\s*(?:\.visible )?\.entry (\w+)", ptx, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def _resources(log, ptx):
    """Each kernel's Resources, from the assembler's report."""
    entries = _entries(ptx)
    kernels = {}
    for name, report in re.findall(r"Compiling entry function '(\w+)'(.*?)(?=Compiling entry function|\Z)", log, re.DOTALL):
        bounds = re.search(r"\.maxntid (\d+), (\d+), (\d+)", entries[name])
        kernels[name] = Resources(
            registers=_number(r"Used (\d+) registers", report),
            spill_bytes=_number(r"(\d+) bytes spill stores", report) + _number(r"(\d+) bytes spill loads", report),
            stack_bytes=_number(r"(\d+) bytes stack frame", report),
            static_shared_bytes=_number(r"(\d+) bytes smem", report, absent=0),
            most_threads=int(bounds[1]) * int(bounds[2]) * int(bounds[3]) if bounds else None)
    if set(kernels) != set(entries):
        raise RuntimeError(f"the assembler reports on {sorted(kernels)}, the file holds {sorted(entries)}")
    return kernels


def _number(pattern, text, absent=None):
    found = re.search(pattern, text)
    if not found:
        if absent is None:
            raise RuntimeError(f"the assembler's report has no {pattern!r}: {text}")
        return absent
    return int(found[1])
