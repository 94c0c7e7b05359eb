"""Write results/runs.html, runs.csv and runs.json: every run of the folder and of the lists of a
configuration. Nothing is run for it.

The exit status is 0, also if there are no runs yet, or 2 with a one-line message if a file cannot
be written.
"""

import dataclasses
import functools
import json
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))

from ladder import progress
from ladder.errors import UserError
from ladder.pages.runs import discovery, page, successors
from ladder.stage import command
from ladder.workflow import config, listed, lists, plans, recipe, search
from ladder.workflow.settings import Settings


def main():
    arguments = parse()
    progress.start_logging()
    plan = plans.load(json.loads(arguments.config_file.read_text("utf-8")))
    count = write(plan, arguments.results, every=True)
    print(f"results/runs.html: {count} run{'s' if count != 1 else ''}")


def write(plan, results, every=False):
    """Write the pages of a plan's runs into the folder `results`; returns how many runs there are.
    every: with files of each run, not of the newest alone. Raises UserError for a file that cannot
    be written.
    """
    rows = listed.rows(plan.listed)
    runs = [*map(as_keys, discovery.runs(results, rows, plan.run.settings.multiplier_costs))]
    try:
        page.write(runs, results, defaults(), entry, len(runs) if every else page.NEW)
        successors.write(results)
    except OSError as error:
        raise UserError(f"cannot write {error.filename}: {error.strerror}") from error
    return len(runs)


def defaults():
    """The settings of a run in config.yaml, as they are committed or edited, and in place of `auto`
    what that is for a data set that comes with the program.
    """
    auto = {key: value for key, value in recipe.PLAIN.items() if configured()[key] == "auto"}
    return {
        key: value
        for key, value in (configured() | auto).items()
        if key not in search.NOT_OF_A_RUN and not key.startswith("cifar10_")
    }


def as_keys(run):
    """The run with its settings that were keys of an earlier release among those that a command
    cannot name.
    """
    gone = sorted(run.written.keys() - configured().keys())
    written = {key: value for key, value in run.written.items() if key not in gone}
    return dataclasses.replace(run, written=written, unsaid=[*run.unsaid, *gone])


@functools.cache
def configured():
    """Key -> value of config.yaml, and the defaults of what it leaves out."""
    return config.load(config.base()).by_key()


def entry(written):
    """The overrides by which an entry of the list `runs` in config.yaml is the run with these
    settings.

    A setting that is not among them has the program's default, which config.yaml may have changed,
    and a list leaves out what is not named.
    """
    base, usual = {**configured(), **lists.ALONE}, Settings().by_key()
    wanted = {key: usual[key] for key in (*defaults(), "name")} | written
    wanted.pop("tags", None)  # an entry has none; they are no part of what a run computes
    return {key: value for key, value in wanted.items() if key in lists.LEAN or value != base[key]}


def parse():
    parser = command.parser(__doc__, of_configuration=True)
    parser.add_argument("--results", type=pathlib.Path, default=pathlib.Path("results"))
    return parser.parse_args()


if __name__ == "__main__":
    command.run(main)
