"""The table of a comparison for LaTeX has the texts of its page, and nothing that LaTeX would read
as a command.
"""

import re

import pytest

from ladder.pages import latex

SHARE = {"value": 0.954, "text": "95.4\N{NARROW NO-BREAK SPACE}%"}
ROW = {
    "number": 1,
    "reason": "",
    "best": True,
    "settings": [{"text": "sgd", "number": False}, {"text": "0.01", "number": True}],
    "accuracies": {
        "test_accuracy": SHARE,
        "control_accuracy": {"value": None, "text": ""},
        "raw_pixel_accuracy": SHARE,
    },
    "interval": "92.8 to 97.1",
    "loss": {"text": "0.0316"},
}
PAGE = {
    "count": 3,
    "scored_on": "test",
    "keys": ["optimizer", "learning_rate"],
    "has": {"control_accuracy": False, "raw_pixel_accuracy": True},
    "mean": {
        "reason": "",
        "interval_text": "93.1 to 97.4",
        "against": "+0.3 points against run 1",
        **SHARE,
    },
    "rows": [ROW, {**ROW, "number": 2, "best": False}, {"number": 3, "reason": "it failed"}],
}


def test_a_line_has_the_texts_of_the_page_with_the_interval_and_the_best_is_bold():
    lines = latex.comparison(PAGE).splitlines()
    assert r"1 & sgd & 0.01 & \textbf{95.4} & 92.8--97.1 & 95.4 & 0.0316 \\" in lines
    assert r"2 & sgd & 0.01 & 95.4 & 92.8--97.1 & 95.4 & 0.0316 \\" in lines
    assert (
        r"run & optimizer & learning\_rate & accuracy, \% & 95 \% interval & raw pixels, \% & loss \\"
        in lines
    )
    assert r"mean &  &  & 95.4 & 93.1--97.4 &  &  \\" in lines
    assert "% The mean of the runs' decisions: +0.3 points against run 1." in lines
    assert "% Run 3 has no result." in lines and r"\usepackage{booktabs}" in lines[0]


def test_every_line_has_as_many_cells_as_columns_are_declared():
    text = latex.comparison(PAGE)
    columns = re.search(r"\\begin{tabular}{(\w+)}", text)[1]
    rows = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert len(rows) == 4 and {len(re.split(r"(?<!\\)&", row)) for row in rows} == {len(columns)}
    assert columns == "rlrrcrr"


def test_why_there_is_no_mean_is_a_comment():
    text = latex.comparison({**PAGE, "mean": {"reason": "they know different classes"}})
    assert (
        "\n% No mean of the decisions: they know different classes.\n" in text
        and "mean &" not in text
    )
    assert latex.comparison({**PAGE, "mean": None}) == "\n".join(
        line for line in text.split("\n") if "No mean" not in line
    )


@pytest.mark.parametrize(
    "text, written",
    [
        ("a_b & 5%", r"a\_b \& 5\%"),
        (r"\input{x}", r"\textbackslash{}input\{x\}"),
        ("#1 $x^2$ ~", r"\#1 \$x\textasciicircum{}2\$ \textasciitilde{}"),
        ("−1\n2", "$-$1 2"),
    ],
)
def test_what_latex_would_read_is_escaped(text, written):
    assert latex.escaped(text) == written
