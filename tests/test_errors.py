"""Messages for the user are one line, and of the values they show only as much as a line holds."""

import collections

import pytest

from ladder.errors import MOST, RunFailed, UserError, excerpt


@pytest.mark.parametrize(
    "message, shown",
    [
        ("a\nb\tc\0", r"a\nb\tc\x00"),
        ("half \ud800", r"half \ud800"),
        ("a\u2028b\x85", r"a\u2028b\x85"),
        ("Größe – 5 µm", "Größe – 5 µm"),
        (
            "b" + 5000 * "x" + "end",
            "b" + (MOST // 2 - 4) * "x" + " ... " + (MOST // 2 - 5) * "x" + "end",
        ),
    ],
)
def test_a_message_is_one_printable_line_with_its_middle_cut_out_where_it_is_long(message, shown):
    for kind in (UserError, RunFailed):
        assert str(kind(message)) == shown and len(shown) <= MOST
    assert len(str(UserError(str(UserError(message))))) <= MOST


@pytest.mark.parametrize(
    "value, shown",
    [
        ("text", "'text'"),
        (5, "5"),
        ([1, "a"], '[1, "a"]'),
        (collections.OrderedDict(a=[None, {1}]), '{"a": [null, "{1}"]}'),
        ("a\nb", r"'a\nb'"),
        (10**99, "1" + 79 * "0" + "... (100 characters)"),
        ("\n" * 300, "'" + 39 * r"\n" + "\\... (302 characters)"),
    ],
)
def test_an_excerpt_is_the_value_or_its_beginning_and_length(value, shown):
    assert excerpt(value) == shown


def test_a_value_that_python_does_not_write_has_an_excerpt_too():
    value = []
    for _ in range(100_000):
        value = [value]
    assert excerpt(value) == excerpt(10**5000) == "too large to be shown"
