import ast
import re

from ladder.sources import ROOT, SCRIPTS

# Words that say nothing of what a name stands for, by what is named.
EMPTY = {
    "variable": {"found", "kept", "made", "of", "one", "some", "told"},
    "function": {"looking", "made", "more", "of", "others", "said", "there", "together", "told"},
}
# Classes of which there is one; any other has a name that says more.
SINGLE = {"Dataset", "Model", "Plan", "Settings", "Training"}
# The word for a thing, in CUDA and in the Python that launches it -> words that it does not have.
ONE_WORD = {
    "accumulators": {"acc", "accs"},
    "channels": {"in_channels", "input_channels"},
    "epilogue": {"result_of", "Result"},
    "filters": {"out_channels", "output_channels", "units_out"},
    "full, empty (barriers)": {"came", "is_read_barrier"},
    "padding": {"border", "margin"},
    "setmaxnreg": {"give_registers", "take_registers"},
    "side of a window (kernel)": {"kernel_size", "filter_size", "ksize"},
    "splits": {"slices", "slice_k"},
}
LONGEST = 80  # letters in the name of a test
PROGRAMS = [
    *SCRIPTS.rglob("*.py"),
    *(ROOT / "benchmarks").glob("*.py"),
    *(ROOT / "emulator/src").rglob("*.py"),
]
KERNELS = sorted((ROOT / "kernels").rglob("*.cu*"))
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


def variables(text):
    """[(line, name)] of a program's variables."""
    places, waiting = [], [(ast.parse(text), None)]
    while waiting:
        node, owner = waiting.pop()
        if bound(node, owner):
            places.append((node.lineno, bound(node, owner)))
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.Lambda | ast.comprehension):
            owner = node
        waiting += [(child, owner) for child in ast.iter_child_nodes(node)]
    return sorted(places)


def badly_named(text):
    return [place for place in variables(text) if place[1] in EMPTY["variable"]]


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
    assert [place for place in functions if empty(place[1])] == []


def empty(name):
    """Whether the name of a function, a private one too, says nothing of it."""
    return name.strip("_") in EMPTY["function"]


def names_in_cuda(text):
    """[(line, name)] of the functions, kernels and types that a CUDA file defines."""
    code = re.sub(r"//[^\n]*|__launch_bounds__\([^)]*\)", "", text)
    definitions = re.finditer(
        r"__(?:global|device|host)__[^;{()]*?\b(\w+)\s*\(|\b(?:struct|class|enum class)\s+(\w+)",
        code,
    )
    return [
        (code.count("\n", 0, each.start(each.lastindex)) + 1, each[each.lastindex])
        for each in definitions
    ]


def test_functions_kernels_and_types_of_cuda_are_named_as_those_of_python():
    names = [
        (f"{path.relative_to(ROOT)}:{line}", name)
        for path in KERNELS
        for line, name in names_in_cuda(path.read_text("utf-8"))
    ]
    assert len(names) > 400
    assert [place for place in names if empty(place[1])] == []


def test_a_thing_has_one_word_in_cuda_and_in_the_python_that_launches_it():
    wrong = set().union(*ONE_WORD.values())
    launching = [path for path in PROGRAMS if path.parent.name in ("plan", "rungs")]
    words = [
        *defined(ast.FunctionDef | ast.ClassDef, launching),
        *(
            (f"{path.relative_to(ROOT)}:{line}", name)
            for path in launching
            for line, name in variables(path.read_text("utf-8"))
        ),
        *(
            (path.relative_to(ROOT), name)
            for path in KERNELS
            for name in re.findall(r"[A-Za-z_]\w*", re.sub(r"//[^\n]*", "", path.read_text()))
        ),
    ]
    assert [place for place in words if place[1] in wrong] == []


def test_what_a_cuda_file_defines_is_seen():
    assert names_in_cuda("""// __device__ int no(int)
extern "C" __global__ void __launch_bounds__(256, 2)
    of(const float* x, int told) {}
template <class Number> struct Held {
    __device__ __forceinline__ float said(int i) const { return other(i); }
};
""") == [(3, "of"), (4, "Number"), (4, "Held"), (5, "said")]


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
