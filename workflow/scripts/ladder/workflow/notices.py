"""A notice at the top of a page in results/ that shows something else than the latest command was
configured for.

A page in results/ is a copy of an artifact's file (copies.py). The notice stands between two marks,
in the copy alone: without it the copy is what was published, byte for byte. Publishing the page
removes it. Standard library only.
"""

import contextlib
import html
import os
import pathlib
import time

from ladder.store import disk
from ladder.workflow import copies, reasons
from ladder.workflow.planning import PlannedArtifact
from ladder.workflow.stages import COPIES

TOP = b"<body>\n"
BEGIN, END = b"<!--of another configuration-->", b"<!--end-->\n"
STYLE = (
    "background:#fbf0d9;color:#1d1f23;border-bottom:2px solid #d9a441;padding:.8rem 1.25rem;"
    "font:1rem/1.5 system-ui,sans-serif;overflow-wrap:anywhere"
)
MOST = 4  # changes that are named, of LONG letters at most where there are so many
LONG = 60
PAGES = {
    role: copies_of_role[0]
    for role, copies_of_role in COPIES.items()
    if copies_of_role[0].endswith(".html")
}


def update(page: str | pathlib.Path, artifact: PlannedArtifact, options: bool) -> None:
    """Put the notice on `page`, the copy of a file of an artifact of this stage, unless it shows
    `artifact`; then take it off.

    artifact: that of the configuration; options: whether the command had options with settings. A
    page that cannot be read or written stays as it is.
    """
    page = pathlib.Path(page)
    with contextlib.suppress(OSError):
        planned = pathlib.Path(artifact.folder, page.name)
        if copies.is_published(artifact.folder, page):
            return
        before, text = page.stat(), page.read_bytes()
        plain = without(text)
        shown = (
            None
            if _holds(planned, plain)
            else notice(page, artifact, _version(artifact.stage, page.name, plain), options)
        )
        wanted = _with(plain, shown) if shown else plain
        if wanted != text and os.path.samestat(before, page.stat()):  # not published meanwhile
            disk.write_atomically(page, wanted)


def update_all(chain: dict[str, PlannedArtifact], has_settings: bool) -> None:
    """`update` every page in results/ but the comparison of rungs, which shows a machine and not a
    run.

    chain: role -> artifact of the active run; has_settings: whether the command had options with
    settings.
    """
    for role in PAGES.keys() - {"parity"}:
        if os.path.exists(PAGES[role]):
            update(PAGES[role], chain[role], has_settings)


def take_off(chain: dict[str, PlannedArtifact]) -> None:
    """Take the notice off every page that shows an artifact of this chain."""
    for role in PAGES.keys() - {"parity"}:
        page = pathlib.Path(PAGES[role])
        with contextlib.suppress(OSError):
            text = page.read_bytes()
            if BEGIN in text and _holds(pathlib.Path(chain[role].folder, page.name), without(text)):
                disk.write_atomically(page, without(text))


def without(text: bytes) -> bytes:
    """The bytes of a page without its notice."""
    start, mark, rest = text.partition(BEGIN)
    return start + rest.partition(END)[2] if mark else text


def _with(plain: bytes, words: str) -> bytes:
    head, top, rest = plain.partition(TOP)
    return head + top + BEGIN + words.encode() + END + rest if top else plain


def _holds(path: pathlib.Path, content: bytes) -> bool:
    return path.exists() and copies.published(path) == content


def _version(stage: str, name: str, content: bytes) -> str | None:
    """The version of the artifact whose file `name` has this content; None if there is none."""
    return next(
        (
            path.parent.name
            for path in pathlib.Path("results", stage).glob(f"*/{name}")
            if _holds(path, content)
        ),
        None,
    )


def notice(
    page: str | pathlib.Path, artifact: PlannedArtifact, version: str | None, options: bool
) -> str:
    """The notice as HTML; version: of what the page shows, None if that is unknown."""
    shows = f"<code>{version}</code>" if version else "an artifact that is no longer there"
    changes = reasons.changes(artifact, version) if version else []
    changes.sort(key=lambda change: len(change) > LONG)
    named = changes[:MOST] + ([f"{len(changes) - MOST} more"] if len(changes) > MOST else [])
    how = ": " + html.escape(", ".join(named).replace("->", "→")) if named else ""
    moment = time.strftime("%Y-%m-%d %H:%M", time.gmtime())
    return (
        f'<aside aria-label="Notice" style="{STYLE}"><strong>This page shows {shows}. The latest command ({moment} UTC) '
        f"was for another configuration{how}.</strong> <code>.venv/bin/snakemake {html.escape(str(page))}</code>"
        f"{', with the settings of that command line,' if options else ''} makes the page anew.</aside>"
    )
