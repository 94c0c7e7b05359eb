"""Runs a whole CUDA program: g++ compiles its host code, and every launch is checked as `check`
does, from what the device's memory holds at that moment.

The program runs in a process of its own. Its host code finds the functions of CUDA's runtime in
host/cuda_runtime.h, which calls `_Program.launch` for `kernel<<<grid, block>>>(...)`.
"""

import ctypes
import mmap
import os
import pathlib
import signal
import sys
import tempfile
import traceback

import numpy as np

import cuda_emulator
from cuda_emulator import faults, report, watched
from cuda_emulator.source import SourceError

HOST = cuda_emulator.HERE / "host"
INVALID_CONFIGURATION = 9  # cudaErrorInvalidConfiguration
LIBC = ctypes.CDLL(None)
DEATH_OF_PARENT = 1  # PR_SET_PDEATHSIG of prctl


class _Allocation(ctypes.Structure):
    """As in host/cuda_runtime.h."""

    _fields_ = cuda_emulator._fields("begin held bytes empty")


class _Totals(ctypes.Structure):
    """Of all launches, in memory that the program's process shares; unchecked: whether one could
    not be run.
    """

    _fields_ = cuda_emulator._fields("launches errors notes unchecked")


_LAUNCH = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_char_p,
    ctypes.POINTER(ctypes.c_uint32),
    ctypes.c_size_t,
    ctypes.POINTER(ctypes.c_void_p),
)
_VARIABLE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t)


def run(module, words, seconds=watched.SECONDS):
    """Run the program of a Module with these words behind its name; returns its exit status: 1 if a
    launch has an error, 2 if one could not be run or the program ended by a signal, else its own.

    Faults are printed to stderr. Raises CompileError for host code that g++ rejects.
    """
    library = host_library(module)
    totals = _Totals.from_buffer(mmap.mmap(-1, ctypes.sizeof(_Totals)))
    sys.stdout.flush()
    process = os.fork()
    if not process:
        _Program(module, library, totals, seconds).main(words)
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    ended = f"with status {status}"
    if status < 0:
        ended = f"by {signal.Signals(-status).name}"
        ended += ", as where the host reads what cudaMalloc returned" * (status == -signal.SIGSEGV)
    print(
        f"{module.source.name}: {report.totals(totals.errors, totals.notes, totals.launches)}; "
        f"the program ended {ended}",
        file=sys.stderr,
    )
    if totals.errors:
        return report.WRONG
    return report.UNCHECKED if totals.unchecked or status < 0 else status


def host_library(module):
    """The path of the shared library of a Module's host code, from the cache or compiled now."""
    files = [pathlib.Path(__file__), *cuda_emulator.HERE.glob("*.h"), *HOST.iterdir()]
    made_from = [path.read_text("utf-8") for path in sorted(files)]
    made_from += [*cuda_emulator._COMMON_FLAGS, cuda_emulator._compiler(), *module._read()]
    library = cuda_emulator._cache() / f"program-{cuda_emulator._hash(made_from)}.so"
    with cuda_emulator.missing(library) as absent:
        if absent:
            _compile(module, library)
    return library


def _compile(module, library):
    if "main" not in {name for item in module.parsed.leaves for name in item.names}:
        raise cuda_emulator.CompileError(f"{module.source.name} has no main; `check` runs a kernel")
    try:
        text = module.parsed.host_text()
    except SourceError as error:
        raise cuda_emulator.CompileError(f"{module.source.name}: {error}") from None
    lines = [f'#include "{cuda_emulator.HERE / "cuda_emulator.h"}"']
    lines += [f"#undef {name}" for name in ("printf", "assert", "clock", "clock64")]
    lines += ["#include <cassert>", f'#include "{HOST / "cuda_runtime.h"}"']
    for name in sorted(module.parsed.missing):
        lines += [f"#if __has_include(<{name}>)", f"#include <{name}>", "#endif"]
    # the program's own variables come before those of that name in Python's process
    flags = ["-O1", "-fvisibility=default", "-shared", "-Wl,-Bsymbolic,-z,defs", f"-I{HOST}"]
    with tempfile.TemporaryDirectory(dir=cuda_emulator._cache()) as folder:
        wrapper = pathlib.Path(folder, "host.cpp")
        wrapper.write_text("\n".join((*lines, text)), "utf-8")
        cuda_emulator._compile([*flags, str(wrapper)], library)


class _Program:
    """The program in its process."""

    def __init__(self, module, path, totals, seconds):
        self.module, self.totals, self.seconds = module, totals, seconds
        self.library = ctypes.CDLL(str(path))
        self.known = set()  # faults that were printed
        self.callbacks = {
            "emulator_launch": _LAUNCH(self._guarded_launch),
            "emulator_variable": _VARIABLE(self._variable),
        }
        for name, callback in self.callbacks.items():
            place = ctypes.c_void_p.in_dll(self.library, name)
            place.value = ctypes.cast(callback, ctypes.c_void_p).value
        self.library.emulator_allocation.restype = ctypes.POINTER(_Allocation)

    def main(self, words):
        """Never returns."""
        LIBC.prctl(DEATH_OF_PARENT, signal.SIGKILL)
        for number in (signal.SIGINT, signal.SIGPIPE):  # which Python handles, or ignores
            signal.signal(number, signal.SIG_DFL)
        given = [os.fsencode(word) for word in (self.module.source, *words)]
        LIBC.exit(self.library.main(len(given), (ctypes.c_char_p * (len(given) + 1))(*given)))

    def _guarded_launch(self, *launch):
        try:
            return self._launch(*launch)
        except report.ERRORS as error:
            report.print_error(error)
        except Exception:
            traceback.print_exc()  # ctypes would go on as after a launch without a fault
        self.totals.unchecked = 1
        LIBC.exit(report.UNCHECKED)

    def _launch(self, name, sizes, shared_bytes, addresses):
        """CUDA's error of a launch, 0 without."""
        function = self.module.get_function(name.decode())
        library = self.module.library("watched", function.name)
        args, written, empty = [], [], []
        for number, parameter in enumerate(cuda_emulator._parameters(library, function.name)):
            if parameter.is_array:
                pointer = ctypes.c_uint64.from_address(addresses[number]).value
                allocation = self._allocation(function, number, pointer)
                args.append(_array(pointer, allocation, parameter.dtype))
                empty += [number] if allocation.empty else []
                written += [allocation] if parameter.writable else []
            else:
                value = ctypes.string_at(addresses[number], parameter.dtype.itemsize)
                args.append(np.frombuffer(value, parameter.dtype)[0])
        grid, block = tuple(sizes[:3]), tuple(sizes[3:6])
        launch = function, grid, block, args, shared_bytes
        result = watched.examine(*launch, uninitialised=empty, seconds=self.seconds)
        for allocation in written:
            allocation.empty = 0
        self._count(result)
        impossible = any(fault.kind == "impossible launch" for fault in result.errors)
        return INVALID_CONFIGURATION if impossible else 0

    def _count(self, result):
        self.totals.launches += 1
        LIBC.fflush(None)
        for fault in result.faults:
            key = fault.kind, fault.places, "" if fault.line else fault.kernel
            if key not in self.known:
                self.known.add(key)
                self.totals.errors += fault.severity == "error"
                self.totals.notes += fault.severity == "note"
                print(*report.text([fault]), sep="\n", file=sys.stderr, flush=True)

    def _allocation(self, function, number, pointer):
        """The _Allocation that a pointer points into. Raises KernelFault without one."""
        allocation = self.library.emulator_allocation(ctypes.c_void_p(pointer))
        if not allocation:
            name = faults.parameter_names(function)[number] or f"argument {number}"
            what = "a pointer of the host" if pointer else "null"
            message = f"{name} is {what}, not memory of cudaMalloc"
            raise cuda_emulator.KernelFault(function.name, "wrong arguments", message)
        return allocation.contents

    def _variable(self, name, size):
        try:
            array = self.module.get_global(name.decode())
        except report.ERRORS as error:
            report.print_error(error)
            return None
        return array.ctypes.data if size <= array.nbytes else None


def _array(pointer, allocation, dtype):
    """What an allocation holds from a kernel's pointer on."""
    memory = (ctypes.c_ubyte * allocation.bytes).from_address(allocation.held)
    bytes_ = np.frombuffer(memory, np.uint8)[pointer - allocation.begin :]
    return bytes_[: bytes_.size // dtype.itemsize * dtype.itemsize].view(dtype)
