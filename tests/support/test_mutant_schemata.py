"""Many mutants in one text: what is written twice, and what is not."""

import re

import pytest

from mutant_schemata import with_all


def written(text, *mutations):
    """The text with mutations (old, new), each of the one place of `old`; numbers from 1 on."""
    numbered = {}
    for number, (old, new) in enumerate(mutations, 1):
        (found,) = re.finditer(re.escape(old), text)
        numbered[number] = found.start(), found.end(), new
    return with_all(text, numbered)


@pytest.mark.parametrize(
    "text, old, new, wanted",
    [
        (
            "int a = b + c * d, e;",
            " * ",
            " + ",
            "int a = (mutant(1) ? (b + c + d) : (b + c * d)), e;",
        ),
        ("return f(a, b - 1);", " - ", " + ", "return f(a, (mutant(1) ? (b + 1) : (b - 1)));"),
        (
            "if (a) b += c ? d : e;",
            " += ",
            " -= ",
            "if (a) (mutant(1) ? (b -= c ? d : e) : (b += c ? d : e));",
        ),
        (
            "x = min(a, b) + 1;",
            "min(",
            "max(",
            "x = (mutant(1) ? (max(a, b) + 1) : (min(a, b) + 1));",
        ),
        ("f<g - 2>(0);", "0", "1", "f<g - 2>((mutant(1) ? (1) : (0)));"),
        ("f<g - 2>(h);", " - ", " + ", "(mutant(1) ? (f<g + 2>(h)) : (f<g - 2>(h)));"),
        (
            "if (a) __syncthreads(); else b();",
            "__syncthreads();",
            "",
            "if (a) { if (!mutant(1)) __syncthreads(); } else b();",
        ),
        (
            "for (;;) a = b[i + 1] < c;",
            " < ",
            " <= ",
            "for (;;) a = (mutant(1) ? (b[i + 1] <= c) : (b[i + 1] < c));",
        ),
        (
            "a = b +   // of c, d\n    c;",
            "b +",
            "b -",
            "a = (mutant(1) ? (b -                  c) : (b +   // of c, d\n    c));",
        ),
        (
            "a = static_cast<long long>(b) * c;",
            " * ",
            " + ",
            "a = (mutant(1) ? (static_cast<long long>(b) + c) : (static_cast<long long>(b) * c));",
        ),
        ("int width;", "width", "height", "int width;"),
        ("constexpr int A = 3 + B;", " + ", " - ", "constexpr int A = 3 + B;"),
    ],
    ids=str,
)
def test_the_smallest_expression_is_written_twice(text, old, new, wanted):
    assert written(text, (old, new)) == wanted


def test_mutants_of_one_expression_and_within_it():
    assert written("a = (b + 1) * c;", (" * ", " + "), (" + ", " - ")) == (
        "a = (mutant(1) ? ((b + 1) + c) : (((mutant(2) ? (b - 1) : (b + 1))) * c));"
    )
    assert written("a = b * c + d;", (" * ", " + "), (" + ", " - ")) == (
        "a = (mutant(1) ? (b + c + d) : mutant(2) ? (b * c - d) : (b * c + d));"
    )
