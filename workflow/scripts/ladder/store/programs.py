"""Digests of source files by what they do, which is the part of a version that follows the program.

A Python file counts by its syntax tree without docstrings, in which the project's modules have
their names without their folders; a CUDA file by its tokens, any other file by its bytes. So a
comment, a docstring, a formatter or a module's move to another folder changes no version.
"""

import ast
import functools
import hashlib
import re
from typing import cast

from ladder.errors import UserError
from ladder.sources import ROOT, SCRIPTS
from ladder.store import cache

LENGTH = 16  # hex digits
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
# fields of a node that follow from the others, or do nothing
UNSAID = {"ctx", "kind", "type_comment"}
CUDA_COMMENT = re.compile(
    r"""//(?:\\\n|[^\n])*|/\*.*?\*/|("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')""", re.DOTALL
)
CUDA_TOKEN = re.compile(r"\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|\w+|[^\w\s]")
# Of the digests in the user's cache; another one where this module computes them otherwise.
CACHED = "programs-2"


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
        text = tokens(content.decode("utf-8", "surrogateescape"))
        return _hash(text.encode("utf-8", "surrogateescape"))
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
    if isinstance(node, ast.ImportFrom) and _is_ours(node.module):
        fields["module"] = _module_name(str(node.module))
    if isinstance(node, ast.alias) and _is_ours(node.name):
        fields["name"] = _module_name(node.name)
    return (
        f"{type(node).__name__}("
        + ",".join(f"{name}={_written(value)}" for name, value in fields.items())
        + ")"
    )


def _is_ours(module: str | None) -> bool:
    return str(module).partition(".")[0] == "ladder"


def _module_name(module: str) -> str:
    """The name of a module without its folders; '' of a package, from which modules are taken."""
    is_package = (SCRIPTS / module.replace(".", "/")).is_dir()
    return "" if is_package else module.rpartition(".")[2]


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


def tokens(text: str) -> str:
    """The tokens of CUDA C++ with a space between two, a directive of the preprocessor a line."""
    text = CUDA_COMMENT.sub(lambda match: match[1] or " ", text).replace("\\\n", " ")
    directives = re.split(r"^([ \t]*#.*)$", text, flags=re.MULTILINE)
    lines = (" ".join(CUDA_TOKEN.findall(part)) for part in directives)
    return "\n".join(line for line in lines if line)


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:LENGTH]
