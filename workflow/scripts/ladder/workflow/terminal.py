"""Snakemake as `make report` and `kernel-ladder` run it: a line for each stage, and at the end the
verdict and the pages.

With -v, and where nothing runs, the words are Snakemake's own. What stages log is in logs/, and
Snakemake's words in .snakemake/log, either way.
"""

import json
import pathlib
import shlex
import sys
from collections.abc import Iterable, Sequence
from typing import NoReturn

from ladder import caller
from ladder.errors import UserError
from ladder.stage import command
from ladder.workflow import commands, config
from ladder.workflow.commands import KNOWN, Command
from ladder.workflow.stages import COPIES, LISTED

OWN = "-v"  # Snakemake's own words
CONFIG = "--config", "-C"
DEFAULT = "report"  # the target where none is named


def run(words: list[str]) -> int:
    """Run Snakemake in this process with these words, a folder of pictures among them; returns its
    exit status.
    """
    words, own, quiet = [word for word in words if word != OWN], OWN in words, False
    try:
        from snakemake import cli  # here, because it takes a second

        check(words)
        given = Command(tuple(with_pictures(words)))
        sys.argv = ["snakemake", *given.words]
        command.interrupt_once()
        quiet = not (own or given.dry)
        caller.tell(quiet=quiet)
        cli.main(
            [*given.words, *(["--logger", "ladder", "--quiet", "host", "reason"] if quiet else [])]
        )
    except KeyboardInterrupt:
        return 130
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
            return 1
        if not end.code and quiet:
            sys.stdout.writelines(f"{line}\n" for line in page_lines(given.words))
        return end.code or 0
    return 0


def check(words: Sequence[str]) -> None:
    """Exit with one line where Snakemake would end with a traceback, or with all its options;
    profiles run this too, before Snakemake reads settings.
    """
    from snakemake import cli, exceptions

    parser = commands.parser()
    parser.error = _refuse
    try:
        read = parser.parse_args(words)
        cli.parse_config(read.config)
        pathlib.Path(read.directory or ".").mkdir(parents=True, exist_ok=True)
        for file in read.configfile:
            config.read_file(file)
    except UserError as error:
        sys.exit(str(error))
    except (exceptions.CliException, OSError, ValueError) as error:
        _refuse(error)


def _refuse(fault: object) -> NoReturn:
    sys.exit(f"the command cannot be read: {fault}; --help lists all options")


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
    others = list(words)
    others.remove(pictures)
    folder = f"folder={json.dumps(pictures, ensure_ascii=False)}"
    return _with_settings(others, ["dataset=folder", folder])


def _with_settings(words: Iterable[str], settings: list[str]) -> list[str]:
    others = [part for word in words for part in _with_option_apart(word)]
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


def page_lines(words: Sequence[str]) -> list[str]:
    """The verdict of the run whose report was asked for, and the address of each page; words: of
    the command.
    """
    targets, lines = set(Command(tuple(words)).options.targets) or {DEFAULT}, []
    for role, (page, *_) in COPIES.items():
        path = pathlib.Path(page)
        if targets & {role, *COPIES[role]} and path.exists():
            verdict = _verdict(path, words) if role == "report" else []
            lines += ["", *verdict, path.absolute().as_uri()]
    pages = {"results/runs.html"} if targets & LISTED else set()
    others = (pathlib.Path(page) for page in sorted(targets - KNOWN | pages) if _is_page(page))
    return [*lines, *(path.absolute().as_uri() for path in others)]


def _is_page(target: str) -> bool:
    return target.endswith(".html") and pathlib.Path(target).exists()


def _verdict(page: pathlib.Path, words: Sequence[str]) -> list[str]:
    """The verdict of a report, and the command that most likely helps it."""
    summary = json.loads(page.with_name("summary.json").read_text("utf-8"))
    verdict, advised = summary.get("verdict"), summary.get("next")
    lines = [verdict] * bool(verdict)
    if advised:
        lines += [f"What most likely helps, as {advised['reason']}:"]
        lines += [_changed(words, advised["command"])]
    return lines


def _changed(words: Sequence[str], advised: str) -> str:
    """The command of these words with the settings of the advised one, whose folder is only
    PATH.
    """
    settings = {word.partition("=")[0]: word for word in advised.split() if "=" in word}
    settings = {key: word for key, word in settings.items() if key not in ("dataset", "folder")}
    others = [word for word in words if word.partition("=")[0] not in settings]
    program = pathlib.Path(".venv/bin/snakemake")
    if not program.exists():
        program = pathlib.Path(sys.executable).with_name("snakemake")
    return shlex.join([str(program), *_with_settings(others, [*settings.values()])])
