"""Parts of an SVG picture for docs/figures.py: text, boxes, grids, arrows and bars.

A function returns text of SVG elements. Lengths are in units of the viewBox, WIDTH across: the
width of a text column, and at 390 pixels a text of SMALL units has 12. Colours are classes: `a`,
`b` and `c` are the operands and the sums (blue, orange, green, which colour-blind readers tell
apart), `A`, `B` and `C` the same in full, `n` is anything else.
"""

from xml.sax.saxutils import escape

WIDTH, SMALL = 470, 16
LEAST = 4  # of a marked cell
LIGHT = {
    "paper": "#ffffff",
    "ink": "#1f2328",
    "grey": "#59636e",
    "line": "#8c959f",
    "n": "#e7ebef",
    "a": "#cfe3f5",
    "b": "#fbdcc6",
    "c": "#c8eadd",
    "A": "#0072b2",
    "B": "#b34700",
    "C": "#007a5e",
}
DARK = {
    "paper": "#161b22",
    "ink": "#e6edf3",
    "grey": "#9da7b3",
    "line": "#6e7681",
    "n": "#2d333b",
    "a": "#123f60",
    "b": "#5a2d0c",
    "c": "#0d4a3a",
    "A": "#56b4e9",
    "B": "#f08c3c",
    "C": "#2fc79c",
}


def style(colours):
    """The rules of a style sheet."""
    fills = "".join(f".{name}{{fill:{colours[name]}}}" for name in "nabcABC")
    return (
        f"text{{fill:{colours['ink']}}}.s{{fill:{colours['grey']}}}.on{{fill:{colours['paper']}}}"
        f".paper{{fill:{colours['paper']}}}{fills}"
        f".l{{stroke:{colours['line']};fill:none}}.arrow{{stroke:{colours['ink']};fill:none}}"
        f".tip{{fill:{colours['ink']}}}"
        + "".join(f".{name}{name}{{stroke:{colours[name]};fill:none}}" for name in "ABC")
    )


STYLE = (
    f"text{{font:{SMALL}px system-ui,sans-serif}}.t{{font-size:18px;font-weight:600}}"
    ".mid{text-anchor:middle}.end{text-anchor:end}.arrow{stroke-width:1.6}"
    ".AA,.BB,.CC{stroke-width:2.4}.dash{stroke-dasharray:4 4}"
    f"{style(LIGHT)}@media(prefers-color-scheme:dark){{{style(DARK)}}}"
)


def picture(title, description, height, parts):
    """The text of a file; title: also its first line."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" role="img" aria-labelledby="t d">\n'
        f'<title id="t">{escape(title)}</title>\n<desc id="d">{escape(description)}</desc>\n'
        f"<style>{STYLE}</style>\n"
        '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" '
        'orient="auto"><path class="tip" d="M0 0L8 4L0 8z"/></marker>\n'
        f'<rect class="paper" width="{WIDTH}" height="{height}" rx="8"/>\n'
        f"{text(14, 28, title, 't')}\n" + "\n".join(parts) + "\n</svg>\n"
    )


def number(value):
    return f"{value:.1f}".rstrip("0").rstrip(".")


def text(x, y, words, classes=""):
    """classes: s grey, t a title, mid or end what x is of the text, on: on a full colour."""
    kind = f' class="{classes}"' if classes else ""
    return f'<text{kind} x="{number(x)}" y="{number(y)}">{escape(str(words))}</text>'


def lines(x, y, *words, classes=""):
    """Lines of text below one another."""
    return "\n".join(text(x, y + 21 * row, line, classes) for row, line in enumerate(words))


def box(x, y, width, height, classes="n", label="", rx=3):
    """A rectangle, its label in the middle."""
    middle = "mid on" if classes in ("A", "B", "C") else "mid"
    return (
        f'<rect class="{classes}" x="{number(x)}" y="{number(y)}" width="{number(width)}" '
        f'height="{number(height)}" rx="{rx}"/>'
        + (text(x + width / 2, y + height / 2 + 5.5, label, middle) if label != "" else "")
    )


def mesh(x, y, rows, columns, size, height):
    """The lines of a grid."""
    across = "".join(
        f"M{number(x)} {number(y + row * height)}h{number(columns * size)}"
        for row in range(rows + 1)
    )
    down = "".join(
        f"M{number(x + column * size)} {number(y)}v{number(rows * height)}"
        for column in range(columns + 1)
    )
    return f'<path class="l" d="{across}{down}"/>'


def grid(x, y, rows, columns, size, classes="n", marks=(), full="", fine=False, height=None):
    """rows x columns cells. marks: (row, column) of those in the class `full`; fine: too many to
    draw their lines; height: of a cell that is no square.
    """
    height = height or size
    wide, high = (max(length, LEAST) if fine else length for length in (size, height))
    cells = "".join(
        f"M{number(x + column * size)} {number(y + row * height)}"
        f"h{number(wide)}v{number(high)}h{number(-wide)}z"
        for row, column in marks
    )
    across, down = (1, 1) if fine else (columns, rows)
    return "".join(
        [
            box(x, y, columns * size, rows * height, classes, rx=0),
            f'<path class="{full}" d="{cells}"/>' if cells else "",
            mesh(x, y, down, across, columns * size / across, rows * height / down),
        ]
    )


def arrow(x, y, to_x, to_y, classes="arrow"):
    return (
        f'<path class="{classes}" marker-end="url(#tip)" '
        f'd="M{number(x)} {number(y)}L{number(to_x)} {number(to_y)}"/>'
    )


def outline(x, y, width, height, classes):
    """A frame: AA, BB or CC, with dash if it is dashed."""
    return (
        f'<rect class="{classes}" x="{number(x)}" y="{number(y)}" width="{number(width)}" '
        f'height="{number(height)}"/>'
    )


def bars(x, y, unit, spans):
    """A row of a timeline; spans: (begin, end, class, label), in units of time."""
    return "\n".join(
        box(x + unit * begin, y, unit * (end - begin) - 2, 26, classes, label)
        for begin, end, classes, label in spans
    )
