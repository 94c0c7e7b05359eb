"""The pages of earlier releases that runs.html has taken the place of: each leads there."""

import pathlib

from ladder.pages import output, templates

# Page -> the part of the address of runs.html that shows what it showed.
PAGES = {
    "index": "",
    "compare": "",
    "history": "",
    "multipliers": "#group=network&group=multiplier&x=cost",
    "search": "#q=tag:search&x=trial",
    "diff": "",
}


def write(results: pathlib.Path) -> None:
    """Write the pages in place of the program's own that are in the folder `results`."""
    for name, state in PAGES.items():
        path = results / f"{name}.html"
        before = path.read_bytes() if path.is_file() else b""
        text = templates.render("successor.html", {"name": name, "state": state})
        if b"Kernel Ladder" in before and before != text.encode():
            output.write(path, text)
