"""Digests of source files by what they do, which is the part of a version that follows the program.

A Python file counts by its syntax tree without docstrings, a CUDA file by its text without
comments, trailing spaces and empty lines, any other file by its bytes. So a comment, a docstring or
a formatter changes no version.
"""

import ast
import functools
import hashlib
import re
from typing import cast

from ladder.errors import UserError
from ladder.sources import ROOT
from ladder.store import cache

LENGTH = 16  # hex digits
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
# fields of a node that follow from the others, or do nothing
UNSAID = {"ctx", "kind", "type_comment"}
CUDA_COMMENT = re.compile(
    r"""//(?:\\\n|[^\n])*|/\*.*?\*/|("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')""", re.DOTALL
)
# Of the digests in the user's cache; another one where this module computes them otherwise.
CACHED = "programs-1"


@functools.cache
def digest(path: str) -> str:
    """16 hex digits of the sha256 of what the source file `path`, relative to the root, does; the
    same for every Python.

    Raises UserError where the file is missing or is no Python.
    """
    try:
        content = (ROOT / path).read_bytes()
    except FileNotFoundError:
        raise UserError(f"{path} is missing, but a stage is made with it") from None
    if path.endswith((".cu", ".cuh")):
        return _hash(
            without_comments(content.decode("utf-8", "surrogateescape")).encode(
                "utf-8", "surrogateescape"
            )
        )
    if not path.endswith(".py"):
        return _hash(content)
    # Reading a syntax tree takes milliseconds, which every command would wait for, a hundred times.
    cached = cache.folder(CACHED) / _hash(content)
    if (place := cache.find(cached)) and len(text := place.read_text("utf-8")) == LENGTH:
        return text
    try:
        text = _hash(tree(content).encode())
    except (SyntaxError, ValueError) as error:
        raise UserError(f"{path} is no Python: {error}") from None
    cache.keep(cached, text.encode())
    return text


def tree(program: str | bytes) -> str:
    """Text of a Python program's syntax tree without docstrings, as ast.dump writes one but the
    same for every Python.

    program: str or bytes; raises SyntaxError or ValueError.
    """
    return _written(ast.parse(program))


def _written(node: object) -> str:
    if isinstance(node, list):
        return "[" + ",".join(map(_written, node)) + "]"
    if not isinstance(node, ast.AST):
        return ascii(node)
    fields = {
        name: value
        for name, value in ast.iter_fields(node)
        if name not in UNSAID and value not in (None, [])
    }
    if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
        fields["body"] = fields["body"][1:]
    if isinstance(node, ast.JoinedStr):
        fields["values"] = _joined(node.values)
    return (
        f"{type(node).__name__}("
        + ",".join(f"{name}={_written(value)}" for name, value in fields.items())
        + ")"
    )


def _joined(values: list[ast.expr]) -> list[ast.expr]:
    """The parts of an f-string with consecutive texts as one and none empty; Python 3.12.1 cuts
    them at doubled braces.
    """
    joined: list[ast.expr] = []
    for part in values:
        if isinstance(part, ast.Constant) and joined and isinstance(joined[-1], ast.Constant):
            joined[-1] = ast.Constant(cast(str, joined[-1].value) + cast(str, part.value))
        elif not isinstance(part, ast.Constant) or part.value:
            joined.append(part)
    return joined


def without_comments(text: str) -> str:
    """CUDA C++ without comments, trailing spaces and empty lines."""
    lines = CUDA_COMMENT.sub(lambda match: match[1] or " ", text).splitlines()
    return "\n".join(line.rstrip() for line in lines if line.strip())


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:LENGTH]
