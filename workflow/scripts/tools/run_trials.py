"""Make the runs of a search by TPE one after another, then best.yaml; by the rule `publish_search`.

    run_trials.py --config-file logs/search.json -- OPTIONS OF SNAKEMAKE

The configuration says which run is next, as soon as the one before it has a result. Each is made by
a command of its own with the same options, so that a command that is interrupted goes on where it
was.
"""

import json
import pathlib
import subprocess
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))

from ladder import caller
from ladder.stage import command
from ladder.workflow import config as configuration
from ladder.workflow import search

BEST = "results/best.yaml"


def main():
    arguments = parse()
    raw = json.loads(arguments.config_file.read_text("utf-8"))
    # each run is a command of its own; one that fails is a result
    caller.tell(started=None, damaged=None, keep_failed=True)
    while (plan := search.plan(configuration.load(raw))).next:
        print(
            f"search: run {len(plan.entries)} of {raw['search'].get('budget', search.BUDGET)}",
            flush=True,
        )
        snakemake(plan.next.manifest, arguments.options)
    snakemake(BEST, arguments.options)


def snakemake(target, options):
    """Make a target; ends this process with the status of the command if it fails."""
    process = subprocess.run([sys.executable, "-m", "snakemake", target, *options])
    if process.returncode:
        sys.exit(process.returncode)


def parse():
    parser = command.parser(__doc__, of_configuration=True)
    parser.add_argument("options", nargs="*", help="options of snakemake for every command")
    return parser.parse_args()


if __name__ == "__main__":
    command.run(main)
