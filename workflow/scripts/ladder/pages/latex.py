"""A comparison of runs as a table for LaTeX, with the texts of its page."""

from ladder.pages.templates import NARROW_SPACE

# Character -> what LaTeX prints as that character.
ESCAPED = str.maketrans(
    {
        **{character: f"\\{character}" for character in "&%$#_{}"},
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "\\": r"\textbackslash{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "−": "$-$",
        "×": r"$\times$",
        NARROW_SPACE: r"\,",
        "’": "'",
        "\n": " ",
    }
)
NUMBERS = {"control_accuracy": "untrained, %", "raw_pixel_accuracy": "raw pixels, %"}


def escaped(text):
    return text.translate(ESCAPED)


def comparison(page):
    """A tabular environment by booktabs with a line for each run that ran; page: the variables of
    compare.context.
    """
    ran, numbers = (
        [row for row in page["rows"] if not row["reason"]],
        [key for key in NUMBERS if page["has"][key]],
    )
    heads = [
        "run",
        *page["keys"],
        "accuracy, %",
        "95 % interval",
        *(NUMBERS[key] for key in numbers),
        "loss",
    ]
    aligned = [
        "r",
        *(
            "r" if all(row["settings"][at]["number"] for row in ran) else "l"
            for at in range(len(page["keys"]))
        ),
        "r",
        "c",
        *"r" * len(numbers),
        "r",
    ]
    lines = [
        f"% {page['count']} runs, on {page['scored_on'] or 'different kinds of'} images; intervals: Wilson. Put "
        r"\usepackage{booktabs} into the preamble."
    ]
    lines += [f"% Run {row['number']} has no result." for row in page["rows"] if row["reason"]]
    lines += [
        rf"\begin{{tabular}}{{{''.join(aligned)}}}",
        r"\toprule",
        _line(map(escaped, heads)),
        r"\midrule",
    ]
    lines += [_line(_cells(row, numbers)) for row in ran]
    lines += (
        _mean(page["mean"], len(heads) - len(page["keys"]) - 3, len(page["keys"]))
        if page["mean"]
        else []
    )
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def _cells(row, numbers):
    own = _plain(row["accuracies"]["test_accuracy"])
    return [
        str(row["number"]),
        *(escaped(cell["text"]) for cell in row["settings"]),
        rf"\textbf{{{own}}}" if row["best"] else own,
        row["interval"].replace(" to ", "--"),
        *(_plain(row["accuracies"][key]) for key in numbers),
        escaped(row["loss"]["text"]),
    ]


def _mean(mean, after, settings):
    """The lines of the mean of the runs' decisions, with so many empty cells after the interval and
    for the settings.
    """
    if mean["reason"]:
        return [f"% No mean of the decisions: {mean['reason']}."]
    cells = [
        "mean",
        *[""] * settings,
        _plain(mean),
        mean["interval_text"].replace(" to ", "--"),
        *[""] * after,
    ]
    return [r"\midrule", _line(cells), f"% The mean of the runs' decisions: {mean['against']}."]


def _plain(share):
    """'98.6 %' of the page -> '98.6'."""
    return share["text"].removesuffix("%").strip(NARROW_SPACE)


def _line(cells):
    return " & ".join(cells) + r" \\"
