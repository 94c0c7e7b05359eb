"""Compiles the CUDA C++ of kernels/ with NVRTC to machine code for one GPU architecture; needs no
GPU and no driver.

The tests compile exactly the code that a GPU runs: all options are stated here, none is left to a
default that a caller or a library may change. In particular, denormals are kept (--ftz=false),
division and square root are rounded correctly, and a * b + c becomes one fused multiply-add unless
the source forbids it (--fmad=true).
"""

import dataclasses
import functools
import importlib.util
import pathlib
import re

from ladder.errors import UserError

KERNELS = pathlib.Path(__file__).resolve().parents[5] / "kernels"
ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_90")  # T4, A100, RTX 30, H100 and H200
# With this the machine code may have instructions that no other GPU has, newer ones included; it is
# for one GPU anyway.
SPECIFIC = {"sm_90": "a"}
# from this version on NVRTC has a cache; what comes from it comes without the assembler's report
OWN_CACHE = 12, 9
NEWER = (
    "a newer one is in the newest nvidia-cuda-nvrtc, with cupy-cuda13x and cuda-bindings for CUDA 13, or "
    "nvidia-cuda-nvrtc-cu12, with cupy-cuda12x"
)
OPTIONS = (
    "--std=c++17",
    "--fmad=true",
    "--ftz=false",
    "--prec-div=true",
    "--prec-sqrt=true",
    "--ptxas-options=-v",
)


@dataclasses.dataclass(frozen=True)
class Resources:
    """Resources of one kernel as reported by the compiler; bytes are per thread, shared memory per
    block.
    """

    registers: int
    spill_bytes: int  # spilled registers, stores plus loads
    stack_bytes: int
    static_shared_bytes: int
    most_threads: int | None  # per block, from __launch_bounds__


@dataclasses.dataclass(frozen=True)
class Compiled:
    """A compiled CUDA file: machine code `cubin`, assembly `ptx`, and the resources of its
    `kernels` by name.
    """

    architecture: str
    cubin: bytes
    ptx: str
    kernels: dict[str, Resources]


def compile_file(path, architecture, defines=(), more=()):
    """Compile the CUDA file `path` for `architecture` (such as "sm_80"); defines: texts NAME=VALUE;
    more: options.

    #include searches the file's folder and kernels/. Raises UserError if NVRTC is missing, does not
    know the architecture, or rejects the file (with file, line and message).
    """
    path = pathlib.Path(path)
    if architecture not in architectures():
        raise UserError(
            f"this NVRTC, of CUDA {'.'.join(map(str, version()))}, does not compile for {architecture}, only for "
            f"{', '.join(architectures())}; {NEWER}"
        )
    status, log, cubin, ptx = _nvrtc().compile(
        path.read_text("utf-8"), str(path), [*options(path, architecture, defines), *more]
    )
    if status:
        raise UserError(
            _compile_error(path, architecture, log)
            or f"{path}: NVRTC failed for {architecture}: {status}"
        )
    return Compiled(architecture, cubin, ptx, _resources(log, ptx))


def options(path, architecture, defines=()):
    """All compiler options for `path`."""
    return [
        f"--gpu-architecture={architecture}{SPECIFIC.get(architecture, '')}",
        *OPTIONS,
        *(["--no-cache"] if version() >= OWN_CACHE else []),
        *(f"-D{define}" for define in defines),
        *(f"-I{folder}" for folder in (path.parent, KERNELS, *_toolkit_headers())),
    ]


def version():
    """CUDA version of NVRTC as (major, minor); raises UserError if it is missing."""
    return _nvrtc().version()


def architectures():
    """All that NVRTC compiles for, oldest first; raises UserError if it is missing."""
    return [f"sm_{number}" for number in sorted(_nvrtc().architectures())]


def wide_accesses(ptx, kernel):
    """Number of (loads, stores) of 16 bytes from and to global memory in the PTX of a kernel."""
    body = _entries(ptx)[kernel]
    return tuple(
        len(
            re.findall(
                rf"\b{verb}(?:\.volatile)?\.global[.\w:]*\.(?:v4\.[bfsu]32|v2\.[bfsu]64)\b", body
            )
        )
        for verb in ("ld", "st")
    )


def installed():
    """True if NVRTC can be used here."""
    try:
        _nvrtc()
    except UserError:
        return False
    return True


@functools.cache
def _nvrtc():
    """NVRTC through the first of its two Python bindings that works here."""
    for binding in (_CudaBindings, _CuPy):
        try:
            library = binding()
            library.version()
            return library
        except (ImportError, RuntimeError):  # RuntimeError: the shared library is missing
            continue
    raise UserError(
        "NVRTC, which compiles the kernels, is not installed here; install it with: "
        "pip install -r envs/kernels.txt"
    )


class _CudaBindings:
    """NVRTC through cuda-bindings."""

    def __init__(self):
        from cuda.bindings import nvrtc

        self._nvrtc = nvrtc

    def version(self):
        return tuple(self._call("nvrtcVersion"))

    def architectures(self):
        """Numbers of the architectures it compiles for, such as 80."""
        (numbers,) = self._call("nvrtcGetSupportedArchs")
        return numbers

    def compile(self, text, name, options):
        """(error or '', log, cubin, ptx) of the CUDA source `text`, called `name` in messages."""
        (program,) = self._call("nvrtcCreateProgram", text.encode(), name.encode(), 0, [], [])
        try:
            (status,) = self._nvrtc.nvrtcCompileProgram(
                program, len(options), [option.encode() for option in options]
            )
            log = self._bytes("nvrtcGetProgramLog", program)
            if status.value != 0:
                return status.name, _text(log), b"", ""
            return (
                "",
                _text(log),
                self._bytes("nvrtcGetCUBIN", program),
                _text(self._bytes("nvrtcGetPTX", program)),
            )
        finally:
            self._nvrtc.nvrtcDestroyProgram(program)

    def _call(self, name, *arguments):
        """Return values of an NVRTC function after its status; a failure is a bug in this module,
        not a user error.
        """
        status, *values = getattr(self._nvrtc, name)(*arguments)
        if status.value != 0:
            raise RuntimeError(f"{name}: {status.name}")
        return values

    def _bytes(self, name, program):
        (size,) = self._call(f"{name}Size", program)
        buffer = bytearray(size)
        self._call(name, program, buffer)
        return bytes(buffer)


class _CuPy:
    """NVRTC through CuPy, with the same methods."""

    def __init__(self):
        from cupy.cuda import nvrtc

        self._nvrtc = nvrtc

    def version(self):
        return self._nvrtc.getVersion()

    def architectures(self):
        return self._nvrtc.getSupportedArchs()

    def compile(self, text, name, options):
        program = self._nvrtc.createProgram(text, name, (), ())
        try:
            self._nvrtc.compileProgram(program, tuple(options))
        except self._nvrtc.NVRTCError as error:
            return str(error), _text(self._nvrtc.getProgramLog(program).encode()), b"", ""
        else:
            # CuPy strips the last byte as a terminating zero, of text and machine code alike; a
            # cubin needs its own.
            cubin = self._nvrtc.getCUBIN(program) + b"\0"
            return (
                "",
                _text(self._nvrtc.getProgramLog(program).encode()),
                cubin,
                _text(self._nvrtc.getPTX(program)),
            )
        finally:
            self._nvrtc.destroyProgram(program)


def _toolkit_headers():
    """[Folder of the CUDA headers (cuda_fp16.h etc.)], empty if their package is not installed."""
    try:
        package = importlib.util.find_spec("nvidia.cuda_runtime")
    except ModuleNotFoundError:
        return []
    return (
        [pathlib.Path(folder) / "include" for folder in package.submodule_search_locations]
        if package
        else []
    )


def _text(data):
    return data.replace(b"\0", b"\n").decode()  # zeros terminate and separate its parts


def _compile_error(path, architecture, log):
    """First error in the compiler's log as one line, or None."""
    match = re.search(r"^(.+)\((\d+)\): (?:catastrophic )?error[^:]*: (.+)$", log, re.MULTILINE)
    if match:
        return f"{match[1]}:{match[2]}: {match[3]} (compiling for {architecture})"
    match = re.search(r"^ptxas.*?(?:error|fatal)\s*: (.+)$", log, re.MULTILINE)
    return f"{path}: {match[1]} (compiling for {architecture})" if match else None


def _entries(ptx):
    """{name: PTX} of each kernel."""
    parts = re.split(r"^\s*(?:\.visible )?\.entry (\w+)", ptx, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def _resources(log, ptx):
    """Each kernel's Resources, from the assembler's report."""
    entries = _entries(ptx)
    kernels = {}
    for name, report in re.findall(
        r"Compiling entry function '(\w+)'(.*?)(?=Compiling entry function|\Z)", log, re.DOTALL
    ):
        bounds = re.search(r"\.maxntid (\d+), (\d+), (\d+)", entries[name])
        kernels[name] = Resources(
            registers=_number(r"Used (\d+) registers", report),
            spill_bytes=_number(r"(\d+) bytes spill stores", report)
            + _number(r"(\d+) bytes spill loads", report),
            stack_bytes=_number(r"(\d+) bytes stack frame", report),
            static_shared_bytes=_number(r"(\d+) bytes smem", report, absent=0),
            most_threads=int(bounds[1]) * int(bounds[2]) * int(bounds[3]) if bounds else None,
        )
    if set(kernels) != set(entries):
        raise RuntimeError(
            f"the assembler reports on {sorted(kernels)}, the file holds {sorted(entries)}"
        )
    return kernels


def _number(pattern, text, absent=None):
    match = re.search(pattern, text)
    if not match and absent is None:
        raise RuntimeError(f"the assembler's report has no {pattern!r}: {text}")
    return int(match[1]) if match else absent
