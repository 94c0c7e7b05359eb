"""The project's Python files that a script imports, read from its import statements, and digests of their content."""

import ast
import functools
import hashlib
import pathlib
import sys

from ladder.errors import UserError

SCRIPTS = pathlib.Path(__file__).resolve().parents[1]
ROOT = SCRIPTS.parents[1]

# The frame around the work: none of these files can change a byte of an artifact's data. A download is verified by its
# checksum; executors and variants choose modules, which count themselves; the record of scores is not part of an artifact.
NEUTRAL = frozenset(f"workflow/scripts/ladder/{name}.py" for name in (
    "data/download", "errors", "executors/create", "machine/driver", "machine/gpus", "machine/runtime", "progress",
    "rungs/variants", "sources", "store/artifacts", "store/scores", "workflow/stage_script"))


def that_count(files):
    """Those of `files` that can change an artifact's data: neither the NEUTRAL ones nor an __init__.py (a docstring)."""
    return {path for path in files if path not in NEUTRAL and not path.endswith("/__init__.py")}


def closure(script):
    """The project's Python files that `script` imports, directly or not, itself included; paths relative to the root.

    Imports inside functions count, so that a module is found before the work that imports it begins.
    """
    found, todo = set(), [pathlib.Path(script).resolve()]
    while todo:
        path = todo.pop()
        if path not in found:
            found.add(path)
            todo += _imported(path)
    return {path.relative_to(ROOT).as_posix() for path in found}


def loaded():
    """The project's Python files that this process has imported, relative to the root."""
    files = {pathlib.Path(module.__file__).resolve() for module in list(sys.modules.values())
             if getattr(module, "__file__", None)}
    return {file.relative_to(ROOT).as_posix() for file in files if file.is_relative_to(SCRIPTS)}


@functools.cache
def digest(path):
    """16 hex digits of the sha256 of a source file; `path` is relative to the root. Raises UserError where it is missing."""
    try:
        return hashlib.sha256((ROOT / path).read_bytes()).hexdigest()[:16]
    except FileNotFoundError:
        raise UserError(f"{path} is missing, but a stage is made with it") from None


@functools.cache
def _imported(path):
    """The files that the import statements of `path` run."""
    return list(_imports(path))


def _imports(path):
    for node in ast.walk(ast.parse(path.read_text(), filename=str(path))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _files(SCRIPTS, alias.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            start = path.parents[node.level - 1] if node.level else SCRIPTS
            names = node.module.split(".") if node.module else []
            yield from _files(start, names)
            for alias in node.names:
                yield from _files(start, [*names, alias.name])


def _files(start, names):
    """The files that `import names` executes, looked up from the folder `start`."""
    folder = start
    for name in names:
        for candidate in (folder / f"{name}.py", folder / name / "__init__.py"):
            if candidate.is_file():
                yield candidate
        folder = folder / name
