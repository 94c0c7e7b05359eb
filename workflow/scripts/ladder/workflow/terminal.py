"""Snakemake as `make report` and `kernel-ladder` run it: a line for each stage, and at the end the
verdict and the pages.

With -v, and where nothing runs, the words are Snakemake's own. What stages log is in logs/, and
Snakemake's words in .snakemake/log, either way.
"""

import json
import pathlib
import sys
from collections.abc import Iterable
from typing import NoReturn

from ladder import caller
from ladder.errors import UserError
from ladder.stage import command
from ladder.workflow import config
from ladder.workflow.commands import KNOWN, Command
from ladder.workflow.stages import COPIES, LISTED

OWN = "-v"  # Snakemake's own words
CONFIG = "--config", "-C"
DEFAULT = "report"  # the target where none is named


def run(words: list[str]) -> int:
    """Run Snakemake in this process with these words, a folder of pictures among them; returns its
    exit status, 2 if they or a file of settings cannot be read.
    """
    words, own, quiet = [word for word in words if word != OWN], OWN in words, False
    try:
        from snakemake import cli  # here, because it takes a second

        check_options(words)
        for file in Command(tuple(words)).options.configfile:
            config.read_file(file)
        given = Command(tuple(with_pictures(words)))
        sys.argv = ["snakemake", *given.words]
        command.interrupt_once()
        quiet = not (own or given.dry)
        caller.tell(quiet=quiet)
        cli.main(
            [*given.words, *(["--logger", "ladder", "--quiet", "host", "reason"] if quiet else [])]
        )
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
            return 1
        if not end.code and quiet:
            sys.stdout.writelines(f"{line}\n" for line in page_lines(given.options.targets))
        return end.code or 0
    return 0


def check_options(words: Iterable[str]) -> None:
    """Raise UserError where Snakemake would answer with a traceback, or with all its options."""
    from snakemake import cli, exceptions

    parser = cli.get_argument_parser()
    parser.error = _refuse
    try:
        read = parser.parse_args(list(words))
        cli.parse_config(read.config)
        pathlib.Path(read.directory or ".").mkdir(parents=True, exist_ok=True)
    except (exceptions.CliException, OSError, ValueError) as error:
        _refuse(error)


def _refuse(fault: object) -> NoReturn:
    raise UserError(f"the command cannot be read: {fault}; --help lists all options")


def with_pictures(words: list[str]) -> list[str]:
    """The words with the first of the targets that is a folder or a .npz file of pictures as
    settings.

    A target is pictures if it names one, or has a slash and lies below neither results/ nor logs/;
    a KNOWN target is none.
    """
    targets = (word for word in Command(tuple(words)).options.targets if word not in KNOWN)
    pictures = next(filter(_is_pictures, targets), None)
    if pictures is None:
        return words
    settings = ["dataset=folder", f"folder={json.dumps(pictures, ensure_ascii=False)}"]
    others = list(words)
    others.remove(pictures)
    others = [part for word in others for part in _with_option_apart(word)]
    option = next((at for at, other in enumerate(others) if other in CONFIG), None)
    if option is None:
        return [*others, CONFIG[0], *settings]
    return [*others[: option + 1], *settings, *others[option + 1 :]]


def _with_option_apart(word: str) -> list[str]:
    """--config=batch_size=32 as two words: settings follow the first of them."""
    option, _, value = word.partition("=")
    return [option, value] if option in CONFIG and value else [word]


def _is_pictures(word: str) -> bool:
    path = pathlib.Path(word).expanduser()
    if path.is_dir() or (path.suffix == ".npz" and path.is_file()):
        return True
    return "/" in word and path.parts[0] not in ("results", "logs")


def page_lines(named: Iterable[str]) -> list[str]:
    """The verdict of the run whose report was asked for, and the address of each page; named: the
    targets of the command.
    """
    targets, lines = set(named) or {DEFAULT}, []
    for role, (page, *_) in COPIES.items():
        path = pathlib.Path(page)
        if targets & {role, *COPIES[role]} and path.exists():
            lines += ["", *(_verdict(path) if role == "report" else []), path.absolute().as_uri()]
    pages = {"results/runs.html"} if targets & LISTED else set()
    others = (pathlib.Path(page) for page in sorted(targets - KNOWN | pages) if _is_page(page))
    return [*lines, *(path.absolute().as_uri() for path in others)]


def _is_page(target: str) -> bool:
    return target.endswith(".html") and pathlib.Path(target).exists()


def _verdict(page: pathlib.Path) -> list[str]:
    """The verdict of a report, and the command that most likely helps it."""
    summary = json.loads(page.with_name("summary.json").read_text("utf-8"))
    verdict, advised = summary.get("verdict"), summary.get("next")
    return [verdict] * bool(verdict) + (
        [f"What most likely helps, as {advised['reason']}:", advised["command"]] if advised else []
    )
