"""The project's Python files that a script imports, read from its import statements."""

import ast
import functools
import itertools
import os
import pathlib
import re
import sys
from collections.abc import Iterable

DOCSTRING = re.compile(r'"""[\s\S]*?"""')
IMPORT = re.compile(
    r"^[ \t]*(?:import [^\n;]+|from [\w.]+ import (?:\((?:[^)#]|#[^\n]*)*\)|[^\n;(]+))",
    re.MULTILINE,
)
SCRIPTS = pathlib.Path(__file__).resolve().parents[1]
ROOT = SCRIPTS.parents[1]

# The frame around the work: none of these files can change a byte of an artifact's data. A download
# is verified by its checksum; executors, the catalog of rungs and backends choose modules, which
# count themselves; a check before the first use decides only whether a rung runs; the record of
# scores and the page of a training are not part of an artifact; a training that goes on from a
# shorter one ends in the bytes of one that does not; a file that a user names is read whole or
# refused.
NEUTRAL = frozenset(
    f"workflow/scripts/ladder/{name}.py"
    for name in (
        "caller",
        "classifiers/backends",
        "stage/command",
        "data/download",
        "errors",
        "executors/create",
        "machine/requirements",
        "files",
        "machine/compiling",
        "machine/driver",
        "machine/gpu_errors",
        "machine/gpus",
        "machine/libraries",
        "machine/locks",
        "machine/processes",
        "machine/program",
        "machine/readers",
        "machine/runtime",
        "machine/worker",
        "progress",
        "rungs/catalog",
        "rungs/counted",
        "sources",
        "store/artifacts",
        "store/cache",
        "store/disk",
        "store/first_use",
        "store/manifests",
        "store/programs",
        "store/scores",
        "store/shorter",
        "verify/first_use",
        "training/live",
        "stage/stage_script",
    )
)


def that_count(files: Iterable[str]) -> set[str]:
    """Those of `files` that can change an artifact's data: neither the NEUTRAL ones nor an
    __init__.py (a docstring).
    """
    return {path for path in files if path not in NEUTRAL and not path.endswith("/__init__.py")}


def closure(script: str | pathlib.Path) -> set[str]:
    """The project's Python files that `script` imports, directly or not, itself included; paths
    relative to the root.

    Imports inside functions count, so that a module is found before the work that imports it
    begins.
    """
    paths, todo = set(), [pathlib.Path(script).resolve()]
    while todo:
        path = todo.pop()
        if path not in paths:
            paths.add(path)
            todo += _imported(path)
    return {path.relative_to(ROOT).as_posix() for path in paths}


def libraries(files: Iterable[str]) -> set[str]:
    """The modules outside the project that these files import, in functions too, by their first
    name: {'numpy', ...}.
    """
    return {
        name.partition(".")[0]
        for path in files
        if path.endswith(".py")
        for name in _absolute_imports(ROOT / path)
    }


def loaded() -> set[str]:
    """The project's Python files that this process has imported, relative to the root."""
    files = [
        pathlib.Path(path)
        for module in list(sys.modules.values())
        if (path := getattr(module, "__file__", None))
    ]
    # a tenth as many as files
    folders = {folder: folder.resolve() for folder in {file.parent for file in files}}
    return {
        (folders[file.parent] / file.name).relative_to(ROOT).as_posix()
        for file in files
        if folders[file.parent].is_relative_to(SCRIPTS)
    }


@functools.cache
def _imported(path):
    """The files that the import statements of `path` execute."""
    files = []
    for node in _statements(path):
        if isinstance(node, ast.Import):
            start, names = SCRIPTS, [alias.name.split(".") for alias in node.names]
        else:
            start = path.parents[node.level - 1] if node.level else SCRIPTS
            module = node.module.split(".") if node.module else []
            names = [module, *([*module, alias.name] for alias in node.names)]
        files += [file for name in names for file in _files(start, tuple(name))]
    return files


def _absolute_imports(path):
    for node in _statements(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif not node.level:
            yield node.module


@functools.cache
def _statements(path):
    return import_statements(path.read_text("utf-8"))


def import_statements(text):
    """The import statements of a program, in functions too, as ast nodes; those in a triple-quoted
    text do not count.

    Ten times as fast as parsing the whole program, which every command would wait for.
    """
    statements = (match[0].strip() for match in IMPORT.finditer(DOCSTRING.sub('""', text)))
    return ast.parse("\n".join(statements)).body


@functools.cache  # files import much that others do
def _files(start, names):
    """The files that `import names` executes, looked up from the folder `start`."""
    folders = itertools.accumulate(names, os.path.join, initial=str(start))
    return [
        pathlib.Path(file)
        for folder, name in zip(folders, names, strict=False)
        for file in (f"{folder}/{name}.py", f"{folder}/{name}/__init__.py")
        if os.path.isfile(file)
    ]
