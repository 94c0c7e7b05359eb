"""Text files are UTF-8 whatever the locale says: no call that reads or writes one leaves the
encoding to Python.
"""

import ast

import pytest

from ladder.sources import ROOT

BEFORE = {"read_text": 0, "write_text": 1}  # arguments before the encoding
PATHS = [
    path
    for folder in ("workflow", "benchmarks", "docs", "envs", "emulator/src")
    for path in sorted((ROOT / folder).rglob("*.py"))
]


def by_locale(text):
    """The lines of a program with a call that takes the locale's encoding."""
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    return [
        call.lineno
        for call in calls
        if not any(word.arg == "encoding" for word in call.keywords) and _is_text(call)
    ]


def _is_text(call):
    if isinstance(call.func, ast.Attribute):
        return len(call.args) <= BEFORE.get(call.func.attr, -1)
    mode = ast.unparse(call.args[1]) if len(call.args) > 1 else "'r'"
    return ast.unparse(call.func) == "open" and "b" not in mode


@pytest.mark.parametrize(
    "text, found",
    [
        ("path.read_text()", [1]),
        ("path.read_text('utf-8')", []),
        ("path.read_text(encoding='utf-8')", []),
        ("path.write_text(text)", [1]),
        ("path.write_text(text, 'utf-8')", []),
        ("\nopen(path)", [2]),
        ("open(path, 'w')", [1]),
        ("open(path, 'rb')", []),
        ("open(path, encoding='utf-8')", []),
        ("archive.open(name)", []),
    ],
)
def test_calls_by_the_locale_are_seen(text, found):
    assert by_locale(text) == found


def test_no_call_takes_the_encoding_of_the_locale():
    assert {
        str(path.relative_to(ROOT)): lines
        for path in PATHS
        if (lines := by_locale(path.read_text("utf-8")))
    } == {}
