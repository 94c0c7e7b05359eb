"""Tokens of Python: what a change adds, whatever its lines look like.

    .venv/bin/python tests/support/count_tokens.py [PART ...]   of every part, and of PART's files

A token is a name, a number, an operator or a string; docstrings and comments are none. An f-string
is one, on every version of Python.
"""

import ast
import collections
import io
import pathlib
import sys
import tokenize

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "workflow/scripts"
FOLDERS = "workflow", "package", "benchmarks", "tests", "emulator"
COUNTED = {tokenize.NAME, tokenize.NUMBER, tokenize.OP, tokenize.STRING}
OPENS, CLOSES = getattr(tokenize, "FSTRING_START", None), getattr(tokenize, "FSTRING_END", None)


def count(text):
    """Tokens of a module, without those of docstrings."""
    total = depth = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == OPENS:
            total, depth = total + (depth == 0), depth + 1
        elif token.type == CLOSES:
            depth -= 1
        elif depth == 0:
            total += token.type in COUNTED
    return total - docstrings(ast.parse(text))


def docstrings(tree):
    """Statements that are a string alone, those of attributes too."""
    return sum(
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for node in ast.walk(tree)
    )


def by_file(*folders):
    """{part: {file: tokens}} of folders; a part is a package of the library, the scripts, or a
    folder that is none of these.
    """
    parts = collections.defaultdict(dict)
    for path in (path for folder in folders for path in (ROOT / folder).rglob("*.py")):
        parts[part(path)][path.relative_to(ROOT)] = count(path.read_text("utf-8"))
    return parts


def part(path):
    if not path.is_relative_to(SCRIPTS):
        return path.relative_to(ROOT).parts[0]
    folders = path.relative_to(SCRIPTS).parts[:-1] or ("scripts",)
    return folders[1] if folders[0] == "ladder" and len(folders) > 1 else folders[0]


def main():
    for name, files in sorted(by_file(*FOLDERS).items()):
        print(f"{sum(files.values()):7} {name}")
        if name in sys.argv[1:]:
            for path, tokens in sorted(files.items(), key=lambda item: -item[1]):
                print(f"{tokens:15} {path}")


if __name__ == "__main__":
    main()
