import ast

from ladder.sources import ROOT, SCRIPTS

# Words that say nothing of what a name stands for, by what is named.
EMPTY = {
    "variable": {"found", "kept", "made", "of", "one", "some", "told"},
    "function": {"looking", "made", "of", "said", "there", "together", "told"},
}
# Classes of which there is one; any other has a name that says more.
SINGLE = {"Model", "Plan", "Settings", "Training"}
LONGEST = 80  # letters in the name of a test
PROGRAMS = [
    *SCRIPTS.rglob("*.py"),
    *(ROOT / "benchmarks").glob("*.py"),
    *(ROOT / "emulator/src").rglob("*.py"),
]
TESTS = sorted(
    path for folder in ("tests", "emulator/tests") for path in (ROOT / folder).rglob("*.py")
)


def bound(node, owner):
    """The variable that a node in `owner` binds, or None; a field of a class is none, a function in
    a function is one.
    """
    match node:
        case ast.Name(ctx=ast.Store()) if not isinstance(owner, ast.ClassDef):
            return node.id
        case ast.arg():
            return node.arg
        case ast.FunctionDef() if isinstance(owner, ast.FunctionDef):
            return node.name
        case ast.ExceptHandler() | ast.MatchAs() | ast.MatchStar():
            return node.name
        case ast.alias():
            return node.asname
    return None


def badly_named(text):
    """[(line, name)] of a program's variables with an empty name."""
    places, waiting = [], [(ast.parse(text), None)]
    while waiting:
        node, owner = waiting.pop()
        if bound(node, owner) in EMPTY["variable"]:
            places.append((node.lineno, bound(node, owner)))
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.Lambda | ast.comprehension):
            owner = node
        waiting += [(child, owner) for child in ast.iter_child_nodes(node)]
    return sorted(places)


def test_variables_are_named_for_what_they_hold():
    assert len(PROGRAMS) > 200
    assert [
        f"{path.relative_to(ROOT)}:{line} {name}"
        for path in PROGRAMS
        for line, name in badly_named(path.read_text("utf-8"))
    ] == []


def defined(kind, paths):
    """(path:line, name) of each function, method or class."""
    return [
        (f"{path.relative_to(ROOT)}:{node.lineno}", node.name)
        for path in paths
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, kind)
    ]


def test_functions_and_methods_are_named_for_what_they_return_or_do():
    functions = defined(ast.FunctionDef, PROGRAMS)
    assert len(functions) > 2000
    assert [place for place in functions if place[1] in EMPTY["function"]] == []


def test_a_word_for_a_class_is_used_once():
    classes = defined(ast.ClassDef, [*PROGRAMS, *TESTS])
    assert sorted(name for _, name in classes if name in SINGLE) == sorted(SINGLE - {"Model"})


def test_names_of_tests_are_short_enough_to_read():
    tests = [name for _, name in defined(ast.FunctionDef, TESTS) if name.startswith("test_")]
    assert len(tests) > 2000
    assert [name for name in tests if len(name) > LONGEST] == []


def test_every_kind_of_variable_is_seen_and_what_users_name_is_not():
    assert badly_named("""
import json as told
class Page:
    made: str
    rows = [some for some in range(2)]
    def one(self, of, *, kept=None):
        self.found, [one, (two, *some)] = of
        return lambda told: (found := told)
def found(rows):
    def made(row):
        return row.one(of=1)
    for kept in rows:
        with made(kept) as of:
            of["some"] += 1
    try:
        return {one: 1 for one in rows}
    except ValueError as told:
        raise
""") == [
        (2, "told"),
        (5, "some"),
        (6, "kept"),
        (6, "of"),
        (7, "one"),
        (7, "some"),
        (8, "found"),
        (8, "told"),
        (10, "made"),
        (12, "kept"),
        (13, "of"),
        (16, "one"),
        (17, "told"),
    ]
