"""Faults of a launch: what the runtime found, in the words of the source."""

import ctypes
import dataclasses
import functools
import pathlib
import re
import subprocess

import numpy as np

from cuda_emulator import declared, source

HERE = pathlib.Path(__file__).resolve().parent
SEVERITIES = ("error", "note")
MOST = 100  # different faults of a launch that are kept
_SHARED, _VARIABLE, _NOWHERE = -1, -2, -3
_UNINITIALISED = re.compile(r"(.+?):(\d+):\d+: warning: .(\w+). (?:may be|is) used uninitialized")
_ALLOWED = re.compile(r"cuda-emulator: allow ([a-z -]+)")


@dataclasses.dataclass(frozen=True)
class Fault:
    """A fault that a launch had.

    severity    one of SEVERITIES
    file, line  "" and 0 where they are not known
    other       (file, line) of the other access of a race, or None
    times       how often it was, in the order where it was most often
    orders      in which it was
    """

    kernel: str
    kind: str
    message: str
    file: str = ""
    line: int = 0
    other: tuple | None = None
    severity: str = "error"
    times: int = 1
    orders: tuple = ()

    def __str__(self):
        other = f"; the other access: {_short(*self.other)}" if self.other else ""
        place = f" ({_short(self.file, self.line)})" if self.line else ""
        times = f" ({self.times} times)" if self.times > 1 else ""
        return f"{self.kernel}: {self.kind}: {self.message}{other}{place}{times}"

    @property
    def places(self):
        """Its place and that of the other access: of a race either comes first."""
        return frozenset([(self.file, self.line), self.other or (self.file, self.line)])

    def allowed(self, patterns):
        """Whether one of the patterns, "KIND", "FILE:LINE" or "KIND at FILE:LINE", or a comment in
        the line of either access, `cuda-emulator: allow KIND`, allows it.
        """
        place = _short(self.file, self.line)
        names = {self.kind, place, f"{self.kind} at {place}"}
        lines = [source_line(*at) for at in ((self.file, self.line), self.other) if at]
        comments = [comment[1] for comment in map(_ALLOWED.search, lines) if comment]
        return not names.isdisjoint(patterns) or any(self.kind in text for text in comments)


class KernelFault(Exception):
    """What is wrong with a kernel. `kind`, `file` and `line` (0 if unknown) are those of the first
    error, `faults` has all, notes too.
    """

    def __init__(self, kernel, kind, message, file="", line=0, faults=()):
        first = Fault(kernel, kind, message, file, line)
        self.kernel, self.kind, self.file, self.line = kernel, kind, file, line
        self.faults = tuple(faults) or (first,)
        errors = [fault for fault in self.faults if fault.severity == "error"]
        super().__init__("\n".join(map(str, errors or self.faults)))

    __module__ = "cuda_emulator"  # as a traceback names it

    @classmethod
    def of_all(cls, faults):
        """The exception for faults, one of them an error."""
        first = next(fault for fault in faults if fault.severity == "error")
        return cls(first.kernel, first.kind, first.message, first.file, first.line, faults)


def _short(file, line):
    return f"{pathlib.Path(file).name}:{line}"


# ---- what the runtime fills (cuda_emulator.h)


class Raw(ctypes.Structure):
    """One fault as the runtime has it."""

    _fields_ = [
        ("kind", ctypes.c_char * 40),
        ("message", ctypes.c_char * 400),
        ("file", ctypes.c_char * 300),
        ("line", ctypes.c_int32),
        ("column", ctypes.c_int32),
        ("severity", ctypes.c_int32),
        ("argument", ctypes.c_int32),
        ("address", ctypes.c_uint64),
        ("other_address", ctypes.c_uint64),
        ("times", ctypes.c_uint64),
        ("offset", ctypes.c_int64),
        ("bytes", ctypes.c_uint64),
        ("name", ctypes.c_char * 64),
    ]


def _list_of(most):
    names = "most", "count", "lost", "accesses", "ended", "atomics"
    fields = [*((name, ctypes.c_uint64) for name in names), ("list", Raw * most)]
    return type("Faults", (ctypes.Structure,), {"_fields_": fields})


First, All = _list_of(1), _list_of(MOST)  # the first error alone, or all faults


def named(raw, library, function, args, order=""):
    """The Fault of a Raw one; args: of the launch, whose arrays give elements their index."""
    file, line = raw.file.decode(), raw.line
    other = source_place(library, raw.other_address) if raw.other_address else None
    if raw.address:
        file, line = source_place(library, raw.address)
    if not line and other:  # in the emulator's own code
        (file, line), other = other, None
    file, other = _own(function, file), other and (_own(function, other[0]), other[1])
    names = _Names(raw, function, args, source_line(file, line))
    message = raw.message.decode(errors="replace")
    message = message.replace("{element}", names.element).replace("{array}", names.array)
    return Fault(
        function.name,
        raw.kind.decode(),
        message,
        file,
        line,
        other if other and other[1] else None,
        SEVERITIES[raw.severity],
        raw.times,
        (order,) if order else (),
    )


def _own(function, file):
    """The kernel's file of that name: copies of a file in other folders share what is compiled."""
    paths = {path.name: str(path) for path in function.module.paths}
    return file if file in paths.values() else paths.get(pathlib.Path(file).name, file)


class _Names:
    """array, element: what a fault touches, in the words of the source."""

    def __init__(self, raw, function, args, line):
        self.raw = raw
        if raw.argument == _NOWHERE:
            self.array = self.element = declared.indexed_at(line, raw.column)
        elif raw.argument == _SHARED:
            self._of_shared(declarations(function.module))
        elif raw.argument == _VARIABLE:
            self.array = raw.name.decode()
            self.element = f"byte {raw.offset} of {self.array}"
        else:
            names = parameter_names(function)
            given = names[raw.argument] if len(names) == len(args) else ""
            self._of_argument(given or f"argument {raw.argument}", args[raw.argument])

    def _of_shared(self, texts):
        name = self.raw.name.decode()
        array = texts.shared(name) or (texts.dynamic_shared() if " " in name else None)
        self.array = array.name if array else name
        self.element = (
            array.element(self.raw.offset) if array else f"byte {self.raw.offset} of {name}"
        )

    def _of_argument(self, name, arg):
        if not isinstance(arg, np.ndarray):  # of a Table
            self.array = f"an array of {name}"
            self.element = f"byte {self.raw.offset} of {self.array}"
            return
        size = f"{arg.size} x {arg.dtype}"
        self.array = f"{name} ({size})"
        index, inside = divmod(self.raw.offset, arg.itemsize)
        self.element = f"{name}[{index}]" if not inside else f"byte {inside} of {name}[{index}]"
        if arg.ndim > 1 and 0 <= index < arg.size:
            place = ", ".join(map(str, np.unravel_index(index, arg.shape)))
            self.element += f" at ({place})"


def uninitialised(library, function):
    """(file, line, name) of a variable that g++ takes for read before it is written, by a kernel of
    a library that was compiled for `check`; None without one.
    """
    name = re.escape(function.name.partition("<")[0].rpartition("::")[2])
    within, warnings = "", pathlib.Path(library._name).with_suffix(".txt")
    for line in warnings.read_text("utf-8").splitlines():
        within = line if re.search(r"In (?:function|instantiation)", line) else within
        match = _UNINITIALISED.match(line)
        if match and re.search(rf"\b{name}\b", within):
            return _own(function, match[1]), int(match[2]), match[3]
    return None


@functools.lru_cache(maxsize=64)
def declarations(module):
    """The Declarations of a Module's file and its headers."""
    return declared.Declarations(module.text, module.options)


def parameter_names(function):
    """Those of the source; "" for one without a name."""
    return list(source.find(function.module.kernels, function.name).parameters)


def source_line(file, line):
    """A line of a file, or "" where there is none."""
    try:
        lines = pathlib.Path(file).read_text("utf-8", "replace").splitlines()
    except OSError:
        return ""
    return lines[line - 1] if 0 < line <= len(lines) else ""


@functools.cache
def source_place(library, address):
    """(file, line) of the call that returns to `address`, an offset into the library; of what the
    emulator's own headers are inlined in. The library may have been compiled by an emulator in
    another folder, as equal ones share a cache.
    """
    command = ["addr2line", "-i", "-e", library._name, hex(address - 1)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    places = [line.rpartition(":") for line in text.splitlines()]
    file, _, line = next(
        (place for place in places if pathlib.Path(place[0]).parent.name != HERE.name), places[0]
    )
    digits = re.match(r"\d+", line)
    return file, int(digits[0]) if digits else 0
