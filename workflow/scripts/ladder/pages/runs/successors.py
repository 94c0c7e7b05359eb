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
}


def write(results: pathlib.Path, chosen: list[str]) -> None:
    """Write the pages into the folder `results`, where they are not there as they are; chosen: the
    versions of runs that diff.html shows.
    """
    runs = "&".join(f"chosen={version}" for version in chosen)
    for name, state in {**PAGES, "diff": runs and f"#{runs}"}.items():
        path, text = results / f"{name}.html", page(name, state)
        if not path.is_file() or path.read_bytes() != text.encode():
            output.write(path, text)


def page(name, state):
    """The page as one HTML text."""
    return templates.render("successor.html", {"name": name, "state": state})
