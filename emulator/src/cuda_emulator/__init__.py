"""Runs CUDA C++ kernels on the CPU and checks their memory accesses, with g++ only: no GPU, no CUDA
(README.md).

    function = load("relu.cu").get_function("relu")
    function((blocks,), (256,), (x, y, np.int32(x.size)))          # as CuPy's RawModule launches
    check(function, (blocks,), (256,), (x, y, np.int32(x.size)))   # the same in several orders

Both watch every access to memory, in a process of their own, so that nothing a kernel does harms
this one. While `isolated` is False a call of a function runs here and unwatched, which is fast, and
`check` here as well, up to the first error.

A kernel is compiled at most twice: plain (fast) and, for `check`, with a call before each of its
memory accesses. Compiled kernels are cached in the user's cache folder, in a folder named `cache`,
under a hash of sources and options.

A product that is added is rounded on its own when watched, and fused with the addition wherever g++
does that when plain: on a GPU it may be either. While `arithmetic` is "fused", `check` runs the
plain kernel instead: a test that passes with both values holds for both compilers.
"""

import collections
import concurrent.futures
import contextlib
import ctypes
import dataclasses
import fcntl
import functools
import hashlib
import json
import mmap
import os
import pathlib
import platform
import re
import shutil
import subprocess
import tempfile
import threading
import time

import numpy as np

from cuda_emulator import faults, hints, watched
from cuda_emulator import source as _source
from cuda_emulator.faults import Fault, KernelFault
from cuda_emulator.source import Kernel, SourceError
from cuda_emulator.watched import SECONDS, Report

__all__ = [
    "CompileError",
    "Fault",
    "Function",
    "KernelFault",
    "Module",
    "Parameter",
    "Report",
    "Table",
    "check",
    "load",
]
__version__ = "0.1.0"
HERE = pathlib.Path(__file__).resolve().parent
# of threads and blocks; a number above 1 seeds a random order
ORDERS = {"forward": 0, "reverse": 1, "random": 7}
ARITHMETIC = ("rounded", "fused")
arithmetic = "rounded"  # one of ARITHMETIC
TENSOR_SUMS = ("rounded", "truncated")
tensor_sums = "rounded"  # one of TENSOR_SUMS: how tensor cores add (tensor_cores.cpp)
BEFORE = (None, "reads", "writes")  # what the launch before does with an array
cache = "cuda-emulator"
isolated = True  # whether launches are watched, in a process of their own
KEPT_DAYS, KEPT_BYTES = 30, 4 << 30  # of the cache

_INCLUDE = re.compile(r'^\s*#include\s+"(.+?)"', re.MULTILINE)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_COMMON_FLAGS = (
    "-std=gnu++17",
    "-g1",
    "-gdwarf-4",
    "-fPIC",
    "-fvisibility=hidden",
    "-fno-strict-aliasing",
    "-fstack-clash-protection",  # so that a stack that is too small is touched where it ends
    "-Wno-attributes",
    "-Wno-unknown-pragmas",
)
_PLAIN_FLAGS = ("-O2", "-march=native", "-ffp-contract=fast")
# Loads must not be hoisted out of their branch: `check` would report accesses that no GPU makes.
_CHECKS = (
    "-ffp-contract=off",
    "-fno-tree-vectorize",
    "-fno-tree-loop-im",
    "-fno-tree-pre",
    "-fno-code-hoisting",
    "-fsanitize=thread,alignment,bounds-strict,integer-divide-by-zero",
    "--param=tsan-instrument-func-entry-exit=0",
)
# g++ takes longer for -O2 than the threads that run one after another gain
_WATCHED_FLAGS = ("-O1", *_CHECKS, "-fsanitize=shift-exponent", "-Wmaybe-uninitialized")
if platform.machine() == "x86_64":
    # for _with_shifts: what a kernel shifts by is in a register as it is, without an omitted `& 31`
    _WATCHED_FLAGS += ("-mtune-ctrl=^use_bt", "-fdisable-rtl-combine")
# A structure is copied whole, not by its members, so that 16 bytes are one access; the head of a
# loop is one block, not copied.
_COUNTED_FLAGS = ("-O2", *_CHECKS, "-fno-tree-sra", "-fno-tree-ch", "-fsanitize-coverage=trace-pc")
# by name, because tests change the flags
_FLAGS = {
    "plain": lambda: _PLAIN_FLAGS,
    "watched": lambda: _WATCHED_FLAGS,
    "counted": lambda: _COUNTED_FLAGS,
}
_RUNTIME_FLAGS = ("-O3", "-march=native", "-ffp-contract=off", "-g0")
_RED_ZONE = 1 << 20
_ALIGNMENT = 256  # of an allocation on a GPU


class CompileError(Exception):
    """g++ rejects a kernel; the text is g++'s, behind what to do where that is known."""


def file_of(text):
    """A file in the cache with this text of CUDA C++."""
    path = _cache() / f"text-{_hash([text])}.cu"
    with missing(path) as absent:
        if absent:
            _write(path, text)
    return path


def load(source, options=(), include=()):
    """The Module of the CUDA file `source`. options: a tuple for g++, such as ("-DTILE=8",).

    include: a tuple of folders, in which #include "..." looks after the file's own, and of headers
    to include before the file. A file that has changed since is loaded anew, while `isolated`.
    """
    path, include = pathlib.Path(source).resolve(), tuple(map(pathlib.Path, include))
    if shutil.which("g++") is None:
        raise CompileError("g++ is not here; install it (Debian package: g++)")
    digest = _digest(path, include) if isolated else ""
    return _loaded(path, tuple(options), include, digest)


@functools.cache
def _loaded(source, options, include, digest):
    return Module(source, options, include)


def _digest(source, include):
    return _hash(
        path.read_text("utf-8", "replace") for path in sorted(with_headers(source, include))
    )


class Module:
    """One compiled CUDA file."""

    def __init__(self, source, options, include):
        self.source, self.options, self.include = source, options, include
        self.libraries, self._globals = {}, {}

    @functools.cached_property
    def text(self):
        """The file and its headers without comments."""
        return "\n".join(
            without_comments(path.read_text("utf-8", "replace")) for path in self.paths
        )

    @property
    def paths(self):
        """The file and its headers."""
        return sorted(with_headers(self.source, self.include))

    @functools.cached_property
    def kernels(self):
        """The Kernels of the file and its headers."""
        path = _cache() / f"{self.source.stem}-{_hash(self._read())}.json"
        with missing(path) as absent:
            if absent:
                rows = [dataclasses.asdict(kernel) for kernel in self.parsed.kernels]
                _write(path, json.dumps(rows))
        return [Kernel(**row) for row in json.loads(path.read_text("utf-8"))]

    @functools.cached_property
    def parsed(self):
        """The source.Source of the file. Raises CompileError if it cannot be read."""
        folders, _ = _folders_and_headers(self.include)
        macros = [flag.removeprefix("-D") for flag in self.options if flag.startswith("-D")]
        macros = tuple(macro if "=" in macro else f"{macro}=1" for macro in macros)
        try:
            return _source.Source(self.source, tuple(folders), macros)
        except SourceError as error:
            raise CompileError(f"{self.source.name}: {error}") from None

    def _read(self):
        texts = [
            *self.options,
            (HERE / "source.py").read_text("utf-8"),
            (HERE / "ptx.py").read_text("utf-8"),
        ]
        for path in sorted(with_headers(self.source, self.include)):
            texts += [path.name, path.read_text("utf-8", "replace")]
        return texts

    @property
    def names(self):
        """The names of its kernels that are no templates."""
        return [kernel.name for kernel in self.kernels if kernel.template is None]

    def get_function(self, name):
        """The kernel `name`, a template with its arguments: "softmax<256>".

        Raises KeyError if the file and its headers have no such kernel.
        """
        return Function(self, self._entry(name))

    def _entry(self, name):
        kernel = _source.find(self.kernels, name)
        if kernel is None:
            others = ", ".join(kernel.name for kernel in self.kernels) or "none"
            raise KeyError(f"{self.source.name} has no kernel {name}; it has {others}")
        given = name.partition("<")[2]
        if kernel.template is None:
            return kernel.name
        if given:
            return f"{kernel.name}<{given}"
        if all("=" in part for part in _source.split_text(kernel.template)):
            return f"{kernel.name}<>"
        launched = self.parsed.launched(kernel)
        example = f"{kernel.name}<{launched[0] if launched else '...'}>"
        raise KeyError(
            f"{kernel.name} of {self.source.name} is a template of <{kernel.template}>: "
            f"name its arguments, as in {example}"
        )

    def get_global(self, name):
        """A NumPy array of a __device__ or __constant__ variable, which launches read and write."""
        if name not in self._globals:
            self._add_globals(_build(self, _FLAGS["plain"](), (name,)))
        if name not in self._globals:
            raise KeyError(f"{self.source.name} has no __device__ or __constant__ variable {name}")
        return self._globals[name]

    def library(self, kind, name):
        """The library that has a kernel. kind: "plain", "watched" or "counted".

        All kernels that are no templates share one, unless g++ rejects another one of them.
        """
        if (kind, name) not in self.libraries:
            group = self.names
            alone = name not in group or len(group) == 1
            try:
                library = _build(self, _FLAGS[kind](), (name,)) if alone else getattr(self, kind)
            except CompileError:
                if alone:
                    raise
                library = _build(self, _FLAGS[kind](), (name,))
            self.libraries[kind, name] = library
        return self.libraries[kind, name]

    @functools.cached_property
    def plain(self):
        return _build(self, _FLAGS["plain"](), tuple(self.names))

    @functools.cached_property
    def watched(self):
        return _build(self, _FLAGS["watched"](), tuple(self.names))

    @functools.cached_property
    def counted(self):
        return _build(self, _FLAGS["counted"](), tuple(self.names))

    @contextlib.contextmanager
    def globals_of(self, library):
        """The variables have this module's values in a library, and then those that it leaves."""
        self._add_globals(library)
        for variable in library.globals:
            ctypes.memmove(variable.address, *_memory(self._globals[variable.name]))
        yield
        for variable in library.globals:
            array, size = _memory(self._globals[variable.name])
            if variable.writable:
                ctypes.memmove(array, variable.address, size)

    def variables(self, name):
        """The arrays of get_global of the library that has this kernel."""
        library = self.library("watched", name)
        self._add_globals(library)
        return [self._globals[variable.name] for variable in library.globals]

    def _add_globals(self, library):
        for variable in library.globals:
            if variable.name not in self._globals:
                self._globals[variable.name] = variable.value()


class Function:
    """One kernel, launched like CuPy's RawKernel."""

    def __init__(self, module, name):
        self.module, self.name = module, name

    @property
    def parameters(self):
        """The kernel's Parameters in order."""
        return _parameters(self.module.library("plain", self.name), self.name)

    @functools.cached_property
    def cluster_dims(self):
        """The blocks of a cluster, by axis, by its __cluster_dims__."""
        declared = "__cluster_dims__" in self.module.text and faults.declarations(self.module)
        return declared and declared.cluster_dims(self.name) or (1,)

    def __call__(self, grid, block, args, shared_mem=0, order="forward", first_block=0):
        """Run the kernel. Arrays must be C-contiguous and are changed in place; scalars are NumPy
        scalars.

        order: a name in ORDERS or the seed (above 1) of a random one; first_block: the blocks
        before it, along x, do not run, where it is not watched. Raises KernelFault, where
        `isolated` for all faults.
        """
        if isolated and not first_block:
            return watched.check(self, grid, block, args, shared_mem, (order,))
        library = self.module.library("plain", self.name)
        launch = watched.Launch(self, grid, block, args, shared_mem)
        _launch(library, launch, _fitting(library, launch), order, first_block=first_block)

    def watched(self, grid, block, args, shared_mem=0, order="forward"):
        """As a call while not `isolated`, with every memory access watched, up to the first
        error.
        """
        library = self.module.library("watched", self.name)
        launch = watched.Launch(self, grid, block, args, shared_mem)
        with _Allocations(library, launch) as memory:
            _launch(library, launch, memory.args, order, memory.buffers)

    def count(
        self,
        grid,
        block,
        args,
        shared_mem=0,
        sample=(0,),
        cache_lines=0,
        enough=2**63,
        seconds=SECONDS,
    ):
        """What warps ask of the memories: {"warps": their number, "loads": {"requests", ...}}, as
        Counts in cuda_emulator.h.

        "threads": [{(stack, loads, iterations): times}] of threads unlike one another: how often
        the innermost loop around a load from global memory had a run with so many loads from new
        addresses and so many iterations; stack: ((file, line), ...) of the load and of what it is
        inlined in, from the inside.

        sample: numbers of the blocks that run, one after another until `enough` accesses of single
        threads were counted; cache_lines: lines of 128 bytes of the level-1 cache that a block has.
        Arrays are changed; accesses are not checked. While `isolated` it may take so many seconds
        of the processor. Raises KernelFault for what ends a kernel.
        """
        library = self.module.library("counted", self.name)
        launch = watched.Launch(self, grid, block, args, shared_mem, seconds)
        blocks = (ctypes.c_uint32 * len(sample))(*sample)
        counts = _Counts.from_buffer(mmap.mmap(-1, ctypes.sizeof(_Counts)))  # its process fills it
        counts.cache_lines, counts.enough = cache_lines, enough
        fields = {
            "sample_count": len(blocks),
            "sample": ctypes.addressof(blocks),
            "counts": ctypes.addressof(counts),
        }
        if isolated:
            runs = watched.counted(launch, counts, fields)
        else:
            given = _fitting(library, launch)
            args = [_aligned(arg) for arg in given]
            _launch(library, launch, args, **fields)
            for arg, copy in zip(given, args, strict=True):
                if arg is not copy and arg.flags.writeable:
                    arg[...] = copy
            runs = counts.runs[: counts.run_words]
        numbers = _as_dict(counts)
        for name in ("file", "learns", "runs", "run_words"):
            del numbers[name]
        return {**numbers, "threads": _threads(library, runs)}


def check(function, grid, block, args, shared_mem=0, orders=tuple(ORDERS), **options):
    """Run a kernel in several orders of its threads and blocks, watched; its arrays then hold the
    results.

    Returns a Report with the notes, or raises KernelFault with all faults, one of them an error; a
    result that depends on the order is one. options: of watched.check. While not `isolated`, and
    without options, it ends at the first error and returns nothing. While `arithmetic` is "fused",
    the kernel runs once instead, plain.
    """
    if isolated or options:
        return watched.check(function, grid, block, args, shared_mem, orders, **options)
    if arithmetic == "fused":
        function(grid, block, args, shared_mem)
        return
    arrays = [array for arg in args for array in _arrays_of(arg)]
    constant = _read_only(args)
    before, unchanged = [array.copy() for array in arrays], [array.tobytes() for array in constant]
    variables = function.module.variables(function.name)
    arrays += variables
    before += [array.copy() for array in variables]
    first = None
    for order in orders:
        for array, value in zip(arrays, before, strict=True):
            if array.flags.writeable:
                array[...] = value
        function.watched(grid, block, args, shared_mem, order)
        results = [array.tobytes() for array in arrays]
        if [array.tobytes() for array in constant] != unchanged:
            raise KernelFault(
                function.name,
                "write to a constant",
                "an array of a table that is only to be read was changed",
            )
        if first is None:
            first = results
        elif results != first:
            number = next(i for i, (a, b) in enumerate(zip(results, first, strict=True)) if a != b)
            raise KernelFault(
                function.name,
                "order dependence",
                f"array {number} of its arguments differs between the "
                f"orders {orders[0]} and {order} of threads and blocks",
            )


# ---- arguments


class Table:
    """An int64 argument whose words are numbers and the addresses of arrays; written: the arrays
    that the kernel may write.
    """

    def __init__(self, entries, written):
        self.entries, written = entries, {id(array) for array in written}
        self.arrays = list(
            {id(entry): entry for entry in entries if isinstance(entry, np.ndarray)}.values()
        )
        self.read_only = [array for array in self.arrays if id(array) not in written]

    def words(self, address):
        return np.array(
            [address(entry) if isinstance(entry, np.ndarray) else entry for entry in self.entries],
            np.int64,
        )


def _arrays_of(arg):
    return arg.arrays if isinstance(arg, Table) else [arg] if isinstance(arg, np.ndarray) else []


def _read_only(args):
    """The arrays of tables that are only to be read."""
    return [array for arg in args if isinstance(arg, Table) for array in arg.read_only]


@dataclasses.dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel: a number, or an array, writable or read-only."""

    dtype: np.dtype
    is_array: bool
    writable: bool
    type: str


def _fitting(library, launch):
    """The arguments of a launch with Python's numbers as NumPy's, structures as bytes, and the
    addresses of arrays in the place of tables.

    Raises KernelFault where one does not fit the kernel's parameter.
    """
    name, args = launch.function.name, launch.args
    parameters = _parameters(library, name)
    if len(args) != len(parameters):
        raise KernelFault(
            name, "wrong arguments", f"takes {len(parameters)} arguments, got {len(args)}"
        )
    fitting = []
    for i, (arg, parameter) in enumerate(zip(args, parameters, strict=True)):
        if isinstance(arg, Table):
            arg = arg.words(lambda array: array.ctypes.data)
        arg = _number(arg, parameter)
        if not _fits(arg, parameter):
            wanted = f"{parameter.type} array" if parameter.is_array else parameter.type
            raise KernelFault(
                name, "wrong arguments", f"argument {i} is a {wanted}, got a {_given(arg)}"
            )
        fitting.append(arg)
    return fitting


def _given(arg):
    if not isinstance(arg, np.ndarray):
        return type(arg).__name__
    return f"{arg.dtype}{'' if arg.flags.c_contiguous else ', not contiguous'} array"


def _number(arg, parameter):
    """As CuPy: a Python number takes the type of an integer, bool, double or complex128."""
    if parameter.is_array:
        return arg
    kind = parameter.dtype.kind
    if (
        isinstance(arg, np.ndarray | np.void)
        and kind == "V"
        and arg.nbytes == parameter.dtype.itemsize
    ):
        return np.frombuffer(arg.tobytes(), parameter.dtype)[0]
    if isinstance(arg, bool) and kind == "b" or type(arg) is int and kind in "iu":
        limits = np.iinfo(parameter.dtype) if kind != "b" else None
        if limits is None or limits.min <= arg <= limits.max:
            return parameter.dtype.type(arg)
    if (
        isinstance(arg, float)
        and parameter.type == "float64"
        or (isinstance(arg, complex) and parameter.type == "complex128")
    ):
        return parameter.dtype.type(arg)
    return arg


def _fits(arg, parameter):
    if not isinstance(arg, np.ndarray):
        return (
            not parameter.is_array and isinstance(arg, np.generic) and arg.dtype == parameter.dtype
        )
    return parameter.is_array and arg.flags.c_contiguous and _holds(arg, parameter)


def _holds(array, parameter):
    """Whether an array has the elements that a pointer points to; a complex number is two."""
    dtype, wanted = array.dtype, parameter.dtype
    if dtype.kind == "c" and wanted.kind == "f":
        return dtype.itemsize == 2 * wanted.itemsize
    if parameter.type == "void" or dtype == wanted:
        return True
    if wanted.kind == "V":
        sizes = {dtype.itemsize, *(array.shape[-1:] and [dtype.itemsize * array.shape[-1]])}
        return wanted.itemsize in sizes
    if parameter.type == "bfloat16":
        return dtype.name in ("bfloat16", "uint16")
    return parameter.type == "int8" and dtype.kind == "S"


def _parameters(library, name):
    text = ctypes.create_string_buffer(4096)
    library[f"signature_{_symbol(name)}"](text)
    return [
        Parameter(
            _dtype(word.removeprefix("const-").rstrip("*")),
            word.endswith("*"),
            word.endswith("*") and not word.startswith("const-"),
            word.removeprefix("const-").rstrip("*"),
        )
        for word in text.value.decode().split()
    ]


def _dtype(name):
    """The dtype of a type of C++ by its name in a signature (append_name in cuda_emulator.h)."""
    if name.startswith("struct"):
        return np.dtype(f"V{name.removeprefix('struct')}")
    if name == "bfloat16":  # which NumPy has with the package ml_dtypes alone
        return np.dtype(np.uint16)
    return np.dtype("V" if name == "void" else name)


def _symbol(name):
    """The name of a kernel as a part of a name in C."""
    return re.sub(r"\W", lambda match: f"_{ord(match[0]):x}_", name)


class _Allocations:
    """A copy of each array of a launch, exactly as large, far from the others and aligned as on a
    GPU; copied back at the end.

    args: with the addresses of the copies; buffers: their description for the emulator. An array
    that is passed twice has one copy. shared: with processes that begin from now on; empty: numbers
    of the arguments that hold nothing at first; before: {number: a word of BEFORE}. Raises
    KernelFault as _fitting, and for arrays that overlap.
    """

    def __init__(self, library, launch, shared=False, empty=(), before=None):
        name, self.args = launch.function.name, _fitting(library, launch)
        self.empty, self.before = empty, before or {}
        tables = {i: arg for i, arg in enumerate(launch.args) if isinstance(arg, Table)}
        passed = [
            (i, arg)
            for i, arg in enumerate(self.args)
            if isinstance(arg, np.ndarray) and i not in tables
        ]
        entries = [(i, array) for i, table in tables.items() for array in table.arrays]
        words = [(i, self.args[i]) for i in tables]  # follow from the addresses of the entries
        arrays = passed + entries + words
        read_only, parameters = set(map(id, _read_only(launch.args))), _parameters(library, name)
        written = {_place(array) for _, array in entries if id(array) not in read_only}
        written |= {_place(array) for i, array in passed + words if parameters[i].writable}
        gap = _RED_ZONE + max((array.nbytes for _, array in arrays), default=0)
        size = (len(arrays) + 1) * (2 * gap + 2 * _ALIGNMENT)
        self.memory = (
            np.frombuffer(mmap.mmap(-1, size), np.uint8) if shared else np.empty(size, np.uint8)
        )
        self.copies = []
        self.buffers = [_Buffer()]  # of no bytes: what has no arrays is watched too
        address = self.memory.ctypes.data
        copied = {}  # (start, end) of an array -> address of its copy
        for number, array in arrays:
            place = start, end = _place(array)
            is_words = number in tables and array is self.args[number]
            if is_words:  # of copies, and so no result
                array[...] = tables[number].words(lambda entry: copied[_place(entry)])
            if place not in copied:
                if any(start < other_end and other < end for other, other_end in copied):
                    raise KernelFault(
                        name, "wrong arguments", f"argument {number} overlaps another array"
                    )
                address = _round_up(address + gap, _ALIGNMENT)
                copied[place] = address + _offset(array)
                copy = self._copy(number, array, copied[place], place not in written)
                self.copies += [] if is_words else [(number, array, copy)]
                address += array.nbytes + _ALIGNMENT
            if array is self.args[number]:
                self.args[number] = np.uint64(copied[place])

    def _copy(self, number, array, address, constant):
        start, empty = address - self.memory.ctypes.data, number in self.empty
        copy = self.memory[start : start + array.nbytes]
        copy[...] = 0xFF if empty else array.reshape(-1).view(np.uint8)
        granule = min(array.itemsize, 4)
        before = BEFORE.index(self.before.get(number))
        self.buffers.append(
            _Buffer(address, array.nbytes, granule, number, empty, constant, before)
        )
        return copy

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for _, array, copy in self.copies:
            if array.flags.writeable:
                array[...] = copy.view(array.dtype).reshape(array.shape)


def _place(array):
    """(start, end) of the array's memory."""
    return array.ctypes.data, array.ctypes.data + array.nbytes


def _aligned(arg):
    """A whole array as it lies on a GPU, at a multiple of 256 bytes, a copy if it does not; a view
    and a number as they are.
    """
    if not isinstance(arg, np.ndarray) or arg.base is not None or arg.ctypes.data % _ALIGNMENT == 0:
        return arg
    memory = np.empty(arg.nbytes + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    copy = memory[start : start + arg.nbytes].view(arg.dtype).reshape(arg.shape)
    copy[...] = arg
    return copy


def _round_up(number, multiple):
    return -(-number // multiple) * multiple


def _offset(array):
    """Offset of a view from its allocation in bytes, modulo the alignment: its misalignment on a
    GPU.
    """
    owner = array
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    return (array.ctypes.data - owner.ctypes.data) % _ALIGNMENT


# ---- launching (the structures mirror cuda_emulator.h)


class _Buffer(ctypes.Structure):
    _fields_ = [
        ("begin", ctypes.c_uint64),
        ("bytes", ctypes.c_uint64),
        ("granule", ctypes.c_uint32),
        ("argument", ctypes.c_uint32),
        ("empty", ctypes.c_uint64),
        ("constant", ctypes.c_uint64),
        ("before", ctypes.c_uint64),
    ]


class _SharedArray(ctypes.Structure):
    _fields_ = [
        ("offset", ctypes.c_int64),
        ("bytes", ctypes.c_uint64),
        ("name", ctypes.c_char * 64),
    ]


def _fields(names):
    return [(name, ctypes.c_uint64) for name in names.split()]


class _Traffic(ctypes.Structure):
    _fields_ = _fields("requests sectors lines bytes")


class _SharedTraffic(ctypes.Structure):
    _fields_ = _fields("requests wavefronts least")


class _BulkTraffic(ctypes.Structure):
    _fields_ = _fields("requests bytes")


class _Counts(ctypes.Structure):
    _fields_ = [
        *_fields("cache_lines enough file learns warps accesses barriers missed"),
        ("loads", _Traffic),
        ("stores", _Traffic),
        ("shared_loads", _SharedTraffic),
        ("shared_stores", _SharedTraffic),
        ("bulk_copies", _BulkTraffic),
        ("operands", _BulkTraffic),
        ("runs", ctypes.POINTER(ctypes.c_uint64)),
        ("run_words", ctypes.c_uint64),
    ]


def _as_dict(structure):
    return {
        name: _as_dict(value)
        if isinstance(value := getattr(structure, name), ctypes.Structure)
        else value
        for name, _ in structure._fields_
    }


class _Launch(ctypes.Structure):
    _fields_ = [
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("shared_bytes", ctypes.c_uint64),
        ("arguments", ctypes.c_void_p),
        ("order", ctypes.c_uint32),
        ("buffer_count", ctypes.c_uint32),
        ("truncates", ctypes.c_uint32),
        ("dependent", ctypes.c_uint32),
        ("cluster", ctypes.c_uint32 * 3),
        ("first_block", ctypes.c_uint64),
        ("buffers", ctypes.c_void_p),
        ("shared_array_count", ctypes.c_uint64),
        ("shared_arrays", ctypes.c_void_p),
        ("faults", ctypes.c_void_p),
        ("sample_count", ctypes.c_uint64),
        ("sample", ctypes.c_void_p),
        ("counts", ctypes.c_void_p),
        ("stacks", ctypes.c_void_p),
        ("guards_begin", ctypes.c_uint64),
        ("guards_end", ctypes.c_uint64),
        ("seconds", ctypes.c_uint64),
        ("variables", ctypes.c_void_p),
    ]


_stacks = ctypes.c_void_p()  # a process may have only so many mappings, two for each stack


def _launch(library, launch, args, order="forward", buffers=(), **fields):
    """Run a kernel and raise KernelFault for its first error; with `seconds` in the fields of
    _Launch, begin its process and return its number.

    args: as they are passed, of which arrays are their addresses.
    """
    memory, places = _packed(
        [np.uint64(arg.ctypes.data) if isinstance(arg, np.ndarray) else arg for arg in args]
    )
    addresses = (ctypes.c_void_p * len(places))(*places)
    regions = (_Buffer * len(buffers))(*buffers)
    shared, first = library.shared_arrays, faults.First(most=1)
    given = {
        "grid": _three(launch.grid),
        "block": _three(launch.block),
        "cluster": _three(launch.cluster or launch.function.cluster_dims),
        "shared_bytes": launch.shared_mem,
        "arguments": ctypes.addressof(addresses),
        "order": ORDERS.get(order, order),
        "buffer_count": len(buffers),
        "truncates": TENSOR_SUMS.index(tensor_sums),
        "buffers": ctypes.addressof(regions),
        "shared_array_count": len(shared),
        "shared_arrays": ctypes.addressof(shared),
        "faults": ctypes.addressof(first),
        "stacks": ctypes.addressof(_stacks),
    }
    function = launch.function
    with function.module.globals_of(library):
        result = library[f"launch_{_symbol(function.name)}"](
            ctypes.byref(_Launch(**given | fields))
        )
    if result and "seconds" not in fields:
        raise KernelFault.of_all([faults.named(first.list[0], library, function, launch.args)])
    return result


def _packed(values):
    """Memory that holds NumPy scalars, each aligned to 16 bytes, and their addresses."""
    starts, size = [], 16
    for value in values:
        starts.append(size)
        size += _round_up(value.nbytes, 16)
    memory = np.zeros(size, np.uint8)
    first = memory.ctypes.data % 16
    for start, value in zip(starts, values, strict=True):
        memory[start - first : start - first + value.nbytes] = np.frombuffer(
            value.tobytes(), np.uint8
        )
    return memory, [memory.ctypes.data + start - first for start in starts]


def _three(sizes):
    within = (min(max(int(size), 0), 2**32 - 1) for size in (*sizes, 1, 1, 1)[:3])
    return (ctypes.c_uint32 * 3)(*within)


def _threads(library, words):
    """Function.count's "threads" of the words of Counts."""
    threads, thread = [], {}
    rows = list(zip(*[iter(words)] * 4, strict=True))
    stacks = _stacks_of(library, sorted({row[0] for row in rows} - {0}))
    for place, loads, iterations, times in rows:
        if place:
            run = stacks[place], loads, iterations
            thread[run] = thread.get(run, 0) + times
        else:
            threads.append(thread)
            thread = {}
    return threads


def _stacks_of(library, addresses):
    """{address: ((name of a file, line), ...)} of calls that return to these offsets, and of what
    they are inlined in.
    """
    command = [
        "addr2line",
        "-a",
        "-i",
        "-e",
        library._name,
        *(hex(address - 1) for address in addresses),
    ]
    text = (
        subprocess.run(command, capture_output=True, text=True, check=True).stdout
        if addresses
        else ""
    )
    parts = re.split(r"^0x[0-9a-f]+$", text, flags=re.M)[1:]
    return {
        address: tuple(
            (pathlib.Path(file).name, int(line))
            for file, line in re.findall(r"^(.*):(\d+)", part, flags=re.M)
        )
        for address, part in zip(addresses, parts, strict=True)
    }


# ---- compiling


class _Global(ctypes.Structure):
    _fields_ = [
        ("c_name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
        ("bytes", ctypes.c_uint64),
        ("type", ctypes.c_char * 32),
        ("writable", ctypes.c_uint64),
    ]

    @property
    def name(self):
        return self.c_name.decode()

    def value(self):
        """Its value as a NumPy array of one dimension."""
        dtype = _dtype(self.type.decode())
        return np.frombuffer(ctypes.string_at(self.address, self.bytes), dtype).copy()


def _memory(array):
    return array.ctypes.data, array.nbytes


def _build(module, flags, entries):
    """The shared library of kernels of a Module, from the cache or compiled now."""
    sources = [*sorted(HERE.glob("*.cpp")), HERE / "runtime.h"]
    headers = sorted({*HERE.glob("*.h")} - {*sources})
    flags = (*flags, *module.options)
    # no folder: copies of a project share it
    read = [*flags, *_COMMON_FLAGS, _compiler(), *_texts(headers), *module._read(), *entries]
    kernels = _cache() / f"{module.source.stem}-{_hash(read)}.o"
    made_from = [*read, *_RUNTIME_FLAGS, *_texts(sources)]
    library = _cache() / f"{module.source.stem}-{_hash(made_from)}.so"
    with missing(library) as absent:
        if absent:
            with missing(kernels) as none:  # where the runtime changed they are there
                if none:
                    _compile_kernels(kernels, module, flags, headers, entries)
            # Linked without the sanitizers' flags: the functions that their calls need are in
            # checks.cpp.
            objects = [kernels, *_runtime_objects([*headers, *sources])]
            _compile(["-shared", "-Wl,-z,defs", *map(str, objects)], library)
            shutil.copyfile(kernels.with_suffix(".txt"), library.with_suffix(".txt"))
            _forget_unused()
    # PyDLL: one launch at a time, the runtime's state is the library's
    loaded = ctypes.PyDLL(str(library))
    loaded.shared_arrays = _shared_arrays(library)
    count = ctypes.c_uint64.in_dll(loaded, "emulator_global_count").value
    table = (_Global * count).in_dll(loaded, "emulator_globals") if count else ()
    loaded.globals = [variable for variable in table if variable.bytes]
    return loaded


@contextlib.contextmanager
def missing(path):
    """Context manager: whether a file of the cache is missing, which no other process makes
    meanwhile.
    """
    if path.exists():
        with contextlib.suppress(OSError):  # as of a cache that is only to be read
            os.utime(path)  # it is in use (_forget_unused)
        yield False
        return
    with open(path.with_suffix(".lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield not path.exists()


def _texts(paths):
    return [text for path in paths for text in (path.name, path.read_text("utf-8"))]


def _compile_kernels(target, module, flags, headers, entries):
    folders, _ = _folders_and_headers(module.include)
    with tempfile.TemporaryDirectory(dir=_cache()) as folder:
        wrapper, kernels = pathlib.Path(folder, "wrapper.cpp"), pathlib.Path(folder, "kernels.s")
        # In the file: a macro with a table is longer than an argument may be.
        macros = [flag.removeprefix("-D").partition("=") for flag in flags if flag.startswith("-D")]
        flags = [flag for flag in flags if not flag.startswith("-D")]
        header = _precompiled(flags, headers)
        wrapper.write_text(wrapper_text(module, entries, header, macros), "utf-8")
        command = [*flags, *(f"-I{path}" for path in folders), "-S", str(wrapper)]
        try:
            warnings = _compile(command, kernels)
        except CompileError as error:
            if "always_inline" not in str(error):
                raise
            # a function that is always inlined has no address that a kernel could pass on
            text = wrapper.read_text("utf-8")
            wrapper.write_text(re.sub(r"\b__forceinline__\b", "inline", text), "utf-8")
            warnings = _compile(command, kernels)
        _write(target.with_suffix(".txt"), warnings)
        text = _with_red_zones(kernels.read_text("utf-8"))
        kernels.write_text(_with_shifts(text) if "shift-exponent" in str(flags) else text, "utf-8")
        _compile(["-c", str(kernels)], target)


def wrapper_text(module, entries, header=HERE / "cuda_emulator.h", macros=()):
    """What g++ compiles for kernels of a module. header: stands for CUDA's headers; macros: (name,
    "=", value) for the headers of load(include=...).
    """
    _, headers = _folders_and_headers(module.include)
    text, variables = module.parsed.cut(entries)
    lines = [
        f'#include "{header}"',
        *([] if module.parsed.declares("half") else [f'#include "{HERE / "half_names.h"}"']),
        *(
            [f'#include "{HERE / "complex.h"}"']
            if re.search(r"\bcomplex\b", " ".join((text, *entries)))
            else ()
        ),
        *(f"#define {name} {value if equals else 1}" for name, equals, value in macros),
        *(f'#include "{path}"' for path in headers),
        text,
        f'# 1 "{module.source}"',
        *(
            f"EMULATOR_EXPORT({_symbol(entry)}, {entry})"
            for entry in entries
            if _source.find(module.kernels, entry)
        ),
        *_table_of(variables),
        "",
    ]
    return "\n".join(lines)


def _table_of(variables):
    """The emulator_globals of cuda_emulator.h."""
    yield f"EMULATOR_GLOBAL_COUNT({len(variables)})"
    yield "EMULATOR_GLOBALS = {"
    for name, writable in variables:
        yield f'emulator::global("{name}", ::{name}, {int(writable)}),'
    yield "{}};"


def _precompiled(flags, headers):
    """A header that is cuda_emulator.h, and compiled beside it, which is all that g++ then reads;
    flags: without macros.
    """
    read = [path.read_text("utf-8") for path in headers]
    header = _cache() / f"cuda_emulator-{_hash([*flags, *_COMMON_FLAGS, _compiler(), *read])}.h"
    compiled = header.with_name(f"{header.name}.gch")
    with missing(compiled) as absent:
        if absent:
            header.write_text(f'#include "{HERE / "cuda_emulator.h"}"\n', "utf-8")
            _compile([*flags, "-x", "c++-header", str(header)], compiled)
    return header


def without_comments(text):
    return _COMMENT.sub("", text)


def with_headers(source, include=()):
    """A CUDA file and all that it includes, from its own folder or by `include`, as of load."""
    folders, headers = _folders_and_headers(include)
    files, new = set(), {source, *headers}
    while new:
        files |= new
        new = {
            (folder / name).resolve()  # files that include each other by ".." have one path each
            for file in new
            for name in _INCLUDE.findall(file.read_text("utf-8", "replace"))
            for folder in (file.parent, *folders)
            if (folder / name).is_file()
        } - files
    return files


def _folders_and_headers(include):
    return [path for path in include if path.is_dir()], [
        path.resolve() for path in include if not path.is_dir()
    ]


def _with_red_zones(assembly):
    """Padding after every zero-initialised object, so that shared arrays are not adjacent."""
    return re.sub(r"^(\w+:\n\t\.zero\t\d+\n)", r"\1\t.zero\t1024\n", assembly, flags=re.MULTILINE)


def _with_shifts(assembly):
    """A shift by as many bits as a number has or more gives 0 or copies of the sign, as a GPU's: an
    x86 takes the lowest bits of the count.
    """
    return re.sub(r"^\t(sa[lr]|shr)([lq])\t%cl, (.+)$", _whole_shift, assembly, flags=re.MULTILINE)


def _whole_shift(match):
    shift, size, number = match.groups()
    bits = 64 if size == "q" else 32
    whole = f"sar{size} ${bits - 1}" if shift == "sar" else f"mov{size} $0"
    return f"\tcmpb ${bits}, %cl\n\tjb 7771f\n\t{whole}, {number}\n7771:\n{match[0]}"


def _shared_arrays(library):
    """The __shared__ arrays of a library, from the thread-local symbols in its symbol table."""
    command = ["readelf", "--symbols", "--wide", "--demangle", str(library)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    # number, value, size, type, ..., name
    rows = (line.split(None, 7) for line in run.stdout.splitlines())
    symbols = [
        # g++ guards arrays of some types in templates, which need no construction
        (
            "" if row[7].startswith("guard variable") else row[7].rpartition("::")[2],
            int(row[1], 16),
            int(row[2], 0),  # from 100,000 on in hexadecimal
        )
        for row in rows
        if len(row) == 8 and row[3] == "TLS"
    ]
    anchor = next(offset for name, offset, _ in symbols if name == "emulator_shared_anchor")
    arrays = [
        _SharedArray(offset - anchor, size, name.encode())
        for name, offset, size in symbols
        if offset != anchor
    ]
    return (_SharedArray * len(arrays))(*arrays)


def compiled():
    """Whether a launch finds the runtime compiled, in whatever version."""
    return any(_cache().glob("runtime-*.o"))


def _runtime_objects(files):
    """The runtime's object files, compiled on all cores where they are not in the cache."""
    made_from = [path.read_text("utf-8") for path in files] + [
        _compiler(),
        *_COMMON_FLAGS,
        *_RUNTIME_FLAGS,
    ]

    def compiled(source):
        target = _cache() / f"{source.stem}-{_hash(made_from)}.o"
        with missing(target) as absent:
            if absent:
                _compile([*_RUNTIME_FLAGS, "-c", str(source)], target)
        return target

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(compiled, [path for path in files if path.suffix == ".cpp"]))


def _write(path, text):
    temporary = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}.tmp")
    temporary.write_text(text, "utf-8")
    os.replace(temporary, path)


def _compile(arguments, target):
    """g++'s warnings."""
    temporary = target.with_name(f"{target.name}.{os.getpid()}.{threading.get_ident()}.tmp")
    command = ["g++", *_COMMON_FLAGS, *arguments, "-o", str(temporary)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    said = re.sub(r"^cc1plus: note: disable pass .*\n", "", run.stderr, flags=re.MULTILINE)
    if run.returncode:
        raise CompileError(hints.with_hint(said))
    os.replace(temporary, target)
    return said


@functools.cache
def _compiler():
    """What g++ defines for this machine's processor, its own version included."""
    command = ["g++", "-march=native", "-dM", "-E", "-x", "c++", "/dev/null"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _cache():
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    folder = pathlib.Path(base) / cache
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@functools.cache  # once in a process
def _forget_unused():
    """Delete what was last used more than KEPT_DAYS ago, and then what was longest ago until
    KEPT_BYTES are left.
    """
    parts = collections.defaultdict(list)  # of one hash, as a library and its warnings
    for path in _cache().iterdir():
        with contextlib.suppress(FileNotFoundError):  # another process is faster
            if path.is_file():
                used, size = path.stat().st_mtime, path.stat().st_size
                parts[path.name.rpartition("-")[2].partition(".")[0]].append((used, size, path))
    groups = sorted(
        (max(used for used, _, _ in files), sum(size for _, size, _ in files), files)
        for files in parts.values()
    )
    left, oldest = sum(size for _, size, _ in groups), time.time() - KEPT_DAYS * 24 * 3600
    for used, size, files in groups:
        if used > oldest and left <= KEPT_BYTES:
            break
        for _, _, path in files:
            path.unlink(missing_ok=True)
        left -= size


def _hash(parts):
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
