import ast

from ladder.sources import ROOT, SCRIPTS

# they say nothing of what they hold
EMPTY = {"found", "kept", "made", "of", "one", "some", "told"}


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
        if bound(node, owner) in EMPTY:
            places.append((node.lineno, bound(node, owner)))
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.Lambda | ast.comprehension):
            owner = node
        waiting += [(child, owner) for child in ast.iter_child_nodes(node)]
    return sorted(places)


def test_variables_are_named_for_what_they_hold():
    programs = [*SCRIPTS.rglob("*.py"), *(ROOT / "benchmarks").glob("*.py")]
    assert len(programs) > 200
    assert [
        f"{path.relative_to(ROOT)}:{line} {name}"
        for path in programs
        for line, name in badly_named(path.read_text("utf-8"))
    ] == []


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
