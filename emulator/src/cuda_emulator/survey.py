"""Which kernels of a folder the emulator loads from unchanged files, and why not the others.

    rows = survey("some/repository")
    print(table(rows))

A template is loaded with the arguments that the file's host code gives it; where it gives none,
with a default for each parameter (DEFAULTS). Headers that a file includes are looked for in the
whole folder, the nearest first.
"""

import collections
import dataclasses
import os
import pathlib
import re
import subprocess
import tempfile

import cuda_emulator

from . import source as _source

SUFFIXES = (".cu", ".cuh", ".h", ".hpp", ".inl")
# by a part of a parameter's name; the last one fits all
DEFAULTS = {"bool": "false", "warp": "32", "stage": "2", "thread": "256", "block": "256", "": "32"}
# (kind, what g++ or the emulator says of it)
REASONS = (
    (
        "textures and surfaces",
        r"texture|surface|tex[123]D|surf[123]D|cudaTextureObject|cudaSurface",
    ),
    ("random numbers of cuRAND", r"curand"),
    ("kernels that launch kernels", r"<<<|cudaDeviceSynchronize|cudaStream"),
    ("Thrust, CUB, CuTe or CUTLASS", r"thrust|cub::|cub\b|cute|cutlass|TiledMMA|TiledCopy"),
    ("inline PTX without a model", r"inline PTX"),
    ("float8", r"fp8|float8|e4m3|e5m2"),
)


@dataclasses.dataclass(frozen=True)
class Row:
    """One kernel. arguments: of its template, None without one; reason: "" if it loads."""

    file: str
    kernel: str
    arguments: str | None
    reason: str
    message: str

    @property
    def loads(self):
        return not self.reason


def survey(folder, options=()):
    """The Rows of all kernels below a folder, by file."""
    folder = pathlib.Path(folder).resolve()
    files = sorted(path for path in folder.rglob("*") if path.suffix in SUFFIXES and path.is_file())
    headers, seen = by_name(files), set()
    files.sort(key=lambda path: path.suffix != ".cu")  # a header's kernels are loaded by its file
    for path in files:
        if path.suffix == ".cu" or "__global__" in path.read_text("utf-8", "replace"):
            yield from _of_file(folder, path, headers, options, seen)


def by_name(files):
    """{name of a file: the files of that name}."""
    by_names = collections.defaultdict(list)
    for path in files:
        by_names[path.name].append(path)
    return by_names


def _of_file(folder, path, headers, options, seen):
    module = cuda_emulator.Module(path, tuple(options), include_folders(path, headers))
    name = str(path.relative_to(folder))
    try:
        kernels = module.parsed.kernels
    except cuda_emulator.CompileError as error:
        yield Row(name, "", None, "cannot be read", str(error))
        return
    mine = [
        kernel
        for kernel in kernels
        if pathlib.Path(kernel.file).is_relative_to(folder)
        and (kernel.file, kernel.name) not in seen
    ]
    entries = {kernel.name: entry_of(module.parsed, kernel) for kernel in mine}
    seen.update((kernel.file, kernel.name) for kernel in mine)
    errors = compile_errors(module, tuple(entries.values()))
    for kernel in mine:
        entry = entries[kernel.name]
        message = errors and compile_errors(module, (entry,))
        arguments = entry.partition("<")[2].rpartition(">")[0] if "<" in entry else None
        where = str(pathlib.Path(kernel.file).relative_to(folder))
        yield Row(where, kernel.name, arguments, reason_of(message), message)


def entry_of(parsed, kernel):
    """A kernel's name, of a template with arguments."""
    if kernel.template is None:
        return kernel.name
    parts = _source.split_text(kernel.template)
    if all("=" in part for part in parts) and not parsed.launched(kernel):
        return f"{kernel.name}<>"
    given = next(iter(parsed.launched(kernel)), "")
    filled = _source.split_text(given)
    filled += [default_argument(part) for part in parts[len(filled) :] if "=" not in part]
    return f"{kernel.name}<{', '.join(filled)}>"


def default_argument(parameter):
    """What stands for a template's parameter that nobody names."""
    if re.match(r"\s*(typename|class)\b", parameter):
        return "float"
    lower = parameter.lower()
    return next(value for part, value in DEFAULTS.items() if part in lower)


def include_folders(path, headers):
    """The folders of headers that a file and what it includes name and that lie elsewhere."""
    folders, todo, seen = [], [path], set()
    while todo:
        file = todo.pop()
        if file in seen:
            continue
        seen.add(file)
        for name in _source.INCLUDE.findall(file.read_text("utf-8", "replace")):
            beside = file.parent / name
            place = beside if beside.is_file() else nearest(name, path, headers)
            if place is None:
                continue
            todo.append(place.resolve())
            root = pathlib.Path(str(place).removesuffix(name))
            if not beside.is_file() and root not in folders:
                folders.append(root)
    return tuple(folders)


def nearest(name, path, headers):
    """The header of this name that lies nearest to a file; None without one."""
    fitting = [
        each for each in headers[pathlib.PurePosixPath(name).name] if str(each).endswith(f"/{name}")
    ]
    return max(fitting, key=lambda each: len(os.path.commonpath([each, path])), default=None)


def compile_errors(module, entries):
    """What g++ says of kernels of a module, "" if it takes them."""
    if not entries:
        return ""
    try:
        text = cuda_emulator.wrapper_text(module, entries)
    except cuda_emulator.CompileError as error:
        return str(error)
    with tempfile.NamedTemporaryFile("w", suffix=".cpp") as file:
        file.write(text)
        file.flush()
        command = ["g++", *cuda_emulator._COMMON_FLAGS, "-w", "-O0", "-fsyntax-only", file.name]
        run = subprocess.run(command, capture_output=True, text=True, check=False, errors="replace")
    return run.stderr if run.returncode else ""


def reason_of(message):
    """The kind of an error, "" without one."""
    if not message:
        return ""
    errors = "\n".join(re.findall(r"error: .*(?:\n.*\|.*)?", message)) or message
    return next(
        (kind for kind, pattern in REASONS if re.search(pattern, errors)), first_error(message)
    )


def first_error(message):
    match = re.search(r"error: (.*)", message)
    return re.sub(r"\d+", "N", match[1])[:80] if match else message.strip()[:80]


def table(rows):
    """The shares of a survey as text, and the reasons by how many kernels have them."""
    rows = list(rows)
    loaded = sum(row.loads for row in rows)
    reasons = collections.Counter(row.reason for row in rows if row.reason)
    lines = [f"{loaded} of {len(rows)} kernels load ({100 * loaded / max(len(rows), 1):.0f} %)"]
    return "\n".join([*lines, *(f"{count:5}  {kind}" for kind, count in reasons.most_common())])
