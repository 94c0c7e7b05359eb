"""Serve a page, on this machine only, where a run's model classifies pictures that are dropped,
chosen, pasted or drawn.

config.yaml, --configfile and --config select the run, as in Snakemake. Ctrl-C stops the server; the
exit status is 2, with a one-line message, if the run is not trained yet or the port is in use.
"""

import pathlib
import shlex
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))

from ladder import RELEASED, progress
from ladder.demo import local
from ladder.errors import UserError
from ladder.machine import runtime
from ladder.progress import log
from ladder.stage import command
from ladder.store import artifacts
from ladder.workflow import config, runs
from ladder.workflow.chains import chain, prediction_roles


def main():
    arguments = parse()
    progress.start_logging()
    if RELEASED:
        log.info(RELEASED)
    try:
        serve(arguments)
    except UserError as error:
        log.error("%s", error)
        return 2
    except KeyboardInterrupt:  # before the server runs, which handles it itself
        pass
    return 0


def serve(arguments):
    run = read_run(arguments.configfile, arguments.config)
    inputs = open_run(chain(run), options(arguments.configfile, arguments.config))
    try:
        from ladder.demo import server
    except ModuleNotFoundError as error:
        raise UserError(
            f"{error.name} is not installed here; type: make demo, or .venv/bin/python -m pip install -r "
            "envs/demo.txt"
        ) from error
    from ladder.demo.predictor import Predictor

    settings = run.settings
    runtime.set_threads(settings.threads)
    # before the model is loaded, which can take long
    with local.listen(arguments.port) as listening:
        app = server.create_app(
            Predictor(inputs, settings.threads, settings.data_residency, settings.test_multiplier)
        )
        site = server.create_server(app, listening)
        log.info(
            "open http://%s:%d/ on this machine; Ctrl-C ends the demo", *listening.getsockname()
        )
        site.run()


def read_run(paths, overrides):
    """The run of config.yaml, overridden by the files `paths` and then by the KEY=VALUE texts."""
    raw = config.base()
    for path in paths:
        raw |= config.read_file(path)
    for text in overrides:
        key, equals, value = text.partition("=")
        if not equals:
            raise UserError(f"--config {text}: write KEY=VALUE")
        raw[key] = config.read_yaml(
            value, f"--config {key}", f"--config {key}: the value is not YAML"
        )
    return runs.resolve(config.load(raw))


def open_run(chain, given):
    """Role -> Artifact of the model; raises UserError with the command to type if the run is not
    finished.

    given: the options of this chain as text.
    """
    roles = prediction_roles(chain)
    missing = [role for role in roles if not pathlib.Path(chain[role].manifest).exists()]
    if missing:
        made_on_the_way = {
            parent.role for role in missing for parent in chain[role].parents.values()
        }
        targets = [role for role in missing if role not in made_on_the_way]
        raise UserError(
            f"this run is not trained yet ({chain[targets[-1]].folder} does not exist); type: "
            f".venv/bin/snakemake {' '.join(targets)}{given}"
        )
    return {role: artifacts.Artifact(chain[role].folder) for role in roles}


def options(files, overrides):
    """The options that select the run, as typed on the command line."""
    return "".join(
        f" {name} {shlex.join(values)}"
        for name, values in (("--configfile", files), ("--config", overrides))
        if values
    )


def parse():
    parser = command.parser(__doc__)
    parser.add_argument(
        "--port", type=local.port, default=8000, help="0: any free port (default: %(default)s)"
    )
    parser.add_argument(
        "--configfile",
        nargs="+",
        default=[],
        metavar="FILE",
        help="overrides, such as presets/*.yaml",
    )
    parser.add_argument("--config", nargs="+", default=[], metavar="KEY=VALUE")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
