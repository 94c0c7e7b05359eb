"""What of a source file is part of a version."""

import ast

import pytest

from ladder.errors import UserError
from ladder.store import cache, programs

PROGRAM = '''"""A module."""

import math


class Area:
    """Of a circle."""

    unit: str = "m"

    def of(self, radius, *, times=2):
        """Square metres."""
        # The formula.
        return times * math.pi * radius ** 2, f"{{{radius!r:>{times}}}} {self.unit}" "2"
'''
FORMATTED = """import math
class Area:
    unit : str = 'm'   # metre
    def of(
        self, radius, *, times = 2,
    ):
        return (
            times * math.pi * radius**2,
            f"{{{radius!r:>{times}}}} {self.unit}2",
        )
"""
KERNEL = """\
// y = a x
__global__ void scale(float *x, float a) {   /* one thread
                                                each */
    printf("%f // not a comment\\"", '"', x[0]);  // a comment: don't

    x[threadIdx.x] *= a;
}
"""


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    monkeypatch.setattr(programs, "ROOT", tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def digest(root, name, text):
    """Of a file with this text, in the version of a new command."""
    programs.digest.cache_clear()
    (root / name).write_text(text, "utf-8")
    return programs.digest(name)


def test_comments_docstrings_and_format_change_no_digest(root):
    assert digest(root, "a.py", PROGRAM) == digest(root, "a.py", FORMATTED)
    assert digest(root, "a.py", PROGRAM) == digest(root, "a.py", ast.unparse(ast.parse(PROGRAM)))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("times=2", "times=3"),
        ("radius ** 2", "radius * 2"),
        ("math.pi", "math.e"),
        ("!r", "!s"),
        ("{{{", "{"),
        ("}}}}", "}}"),
        ('"m"', '"n"'),
        ("*, ", ""),
        ("unit:", "units:"),
        (": str", ": int"),
        ("return ", "yield "),
        ("Area:", "Area(int):"),
        ("import math", "import numpy as math"),
        ("        # The formula.\n", "        None\n"),
        ("        # The formula.\n", '        "no docstring"\n'),
    ],
)
def test_what_a_program_does_changes_the_digest(root, old, new):
    assert old in PROGRAM
    assert digest(root, "a.py", PROGRAM) != digest(root, "a.py", PROGRAM.replace(old, new, 1))


def test_the_tree_is_the_same_for_every_python():
    assert programs.tree(
        "def f(x):\n  'Doc.'\n  return f'{{{x!r}}} is' ' it', None, -1.5, x[1:, ...]"
    ) == (
        "Module(body=[FunctionDef(name='f',args=arguments(args=[arg(arg='x')]),body=[Return(value=Tuple(elts=[JoinedStr(values=["
        "Constant(value='{'),FormattedValue(value=Name(id='x'),conversion=114),Constant(value='} is it')]),Constant(),"
        "UnaryOp(op=USub(),operand=Constant(value=1.5)),Subscript(value=Name(id='x'),slice=Tuple(elts=["
        "Slice(lower=Constant(value=1)),Constant(value=Ellipsis)]))]))])])"
    )


def test_a_digest_is_read_from_the_cache_and_made_again_where_that_is_damaged(root, monkeypatch):
    first = digest(root, "a.py", PROGRAM)
    (kept,) = cache.folder(programs.CACHED).iterdir()
    with monkeypatch.context() as patch:
        patch.setattr(programs, "tree", None)  # not callable: nothing is parsed
        assert digest(root, "a.py", PROGRAM) == first
    kept.write_text("")
    assert digest(root, "a.py", PROGRAM) == first


def test_comments_of_a_kernel_change_no_digest(root):
    text = programs.tokens(KERNEL)
    assert text == (
        "__global__ void scale ( float * x , float a ) { printf ( "
        '"%f // not a comment\\"" , \'"\' , x [ 0 ] ) ; x [ threadIdx . x ] * = a ; }'
    )
    assert (
        digest(root, "a.cu", KERNEL)
        == digest(root, "a.cuh", text)
        != digest(root, "a.cu", KERNEL.replace("*= a", "+= a"))
    )
    assert programs.tokens("a/**/b // c \\\n c\nd") == "a b d"


def test_a_directive_keeps_its_line_whatever_a_formatter_does():
    text = "int a;\n# define B(x) \\\n  (x+1)\nint c = B( 2 );"
    assert programs.tokens(text) == "int a ;\n# define B ( x ) ( x + 1 )\nint c = B ( 2 ) ;"


def test_a_module_that_moves_to_another_folder_changes_no_digest_another_module_does(
    root, monkeypatch
):
    monkeypatch.setattr(programs, "SCRIPTS", root)
    for folder in ("ladder/training", "ladder/plan"):
        (root / folder).mkdir(parents=True)
    texts = [
        f"from ladder.{folder} import plan\nfrom ladder.{folder}.plan import Plan as Made\n"
        f"import ladder.{folder}.plan\n"
        for folder in ("training", "plan")
    ]
    assert digest(root, "a.py", texts[0]) == digest(root, "a.py", texts[1])
    for old, new in (
        ("import plan", "import gone"),
        ("Plan as", "Gone as"),
        (".plan import", ".x import"),
    ):
        assert digest(root, "a.py", texts[0].replace(old, new)) != digest(root, "a.py", texts[0])


def test_every_byte_of_another_file_counts(root):
    assert digest(root, "a.html", "<p> <!-- a -->") != digest(root, "a.html", "<p> <!-- b -->")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [("missing.py", None, "missing.py is missing"), ("a.py", "x = (", "a.py is no Python: ")],
)
def test_a_file_that_cannot_be_read_is_named(root, name, text, message):
    with pytest.raises(UserError, match=message):
        programs.digest(name) if text is None else digest(root, name, text)
