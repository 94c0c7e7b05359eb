"""Write the finished runs of a results folder to an MLflow tracking server, or to a folder.

    to_mlflow.py --runs results --to http://127.0.0.1:5000
    to_mlflow.py --runs results --to tracking       # then: mlflow ui --backend-store-uri
                                                    sqlite:///tracking/mlflow.db

A run has its settings as parameters, its numbers as metrics, the curves by step, and its report,
summary.json and figures as artifacts. Its tag kernel_ladder.report is the version of the report: a
run that is there is not written again, and what an interrupted call has left of one is replaced.
The exit status is 0, or 2 with one line if MLflow is missing or refuses.
"""

import argparse
import datetime
import os
import pathlib
import re

from ladder import command
from ladder.errors import UserError, one_line
from ladder.pages import history, templates
from ladder.store import targets

EXPERIMENT, TAG = "kernel-ladder", "kernel_ladder.report"
LONGEST = 6000  # characters of a parameter that MLflow takes
BATCH = 100  # parameters, and metrics, in one request
UNNAMED = re.compile(r"[^\w\-./ ]", re.ASCII)  # characters that the name of a metric may not have
# MLflow reports its use to its makers and waits minutes for a server that is not there, unless it
# is told otherwise.
QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--runs",
        type=pathlib.Path,
        default=pathlib.Path("results"),
        metavar="FOLDER",
        help="a results folder",
    )
    parser.add_argument(
        "--to", required=True, metavar="URI", help="of a tracking server, or a folder"
    )
    parser.add_argument(
        "--experiment", default=EXPERIMENT, help="the experiment in MLflow; default: %(default)s"
    )
    arguments = parser.parse_args()
    if not arguments.runs.is_dir():
        raise UserError(
            f"there is no folder {arguments.runs}; name a results folder: --runs FOLDER"
        )
    rows = [row for row in reversed(history.rows(arguments.runs)) if row.summary]
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    try:
        import mlflow

        written = write(mlflow, rows, arguments)
    except ImportError as error:
        raise UserError(
            f"this needs MLflow, which is not installed here ({error}): .venv/bin/pip install mlflow"
        ) from error
    except mlflow.exceptions.MlflowException as error:
        raise UserError(f"MLflow at {arguments.to}: {one_line(error)}") from error
    print(
        f"{arguments.to}: {written} run{'s' if written != 1 else ''} written to {arguments.experiment}, "
        f"{len(rows) - written} there already"
    )


def write(mlflow, rows, arguments):
    """Write the history.Rows that are not there; returns their number."""
    uri, place = store(arguments.to)
    client = mlflow.MlflowClient(uri)
    experiment = client.get_experiment_by_name(arguments.experiment)
    number = (
        experiment.experiment_id
        if experiment
        else client.create_experiment(arguments.experiment, place)
    )
    written = 0
    for row in rows:
        earlier = client.search_runs([number], f"tags.`{TAG}` = '{row.version}'")
        if not any(run.info.status == "FINISHED" for run in earlier):
            for run in earlier:
                client.delete_run(run.info.run_id)
            write_run(mlflow.entities, client, number, row, arguments.runs / "report" / row.version)
            written += 1
    return written


def store(to):
    """(the address of a tracking server or store, that of its artifacts or None where the server
    knows it)
    """
    if "://" in to:
        return to, None
    folder = pathlib.Path(to).absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot write {to}: {error.strerror}") from error
    return f"sqlite:///{folder}/mlflow.db", f"{folder.as_uri()}/artifacts"


def write_run(entities, client, experiment, row, folder):
    ended = int(datetime.datetime.fromisoformat(row.made).timestamp() * 1000)
    title = templates.run_title(row.summary)
    spent = round(1000 * sum(row.summary["seconds"].values()))
    tags = {TAG: row.version, **{f"tag.{tag}": "true" for tag in row.tags}}
    run = client.create_run(experiment, ended - spent, tags, row.name or title).info.run_id
    params = [
        entities.Param(key, templates.setting(value)[:LONGEST])
        for key, value in row.settings.items()
    ]
    metrics = [
        entities.Metric(UNNAMED.sub("_", name), value, ended, step)
        for name, value, step in metrics_of(row.summary)
    ]
    for start in range(0, max(len(params), len(metrics)), BATCH):
        client.log_batch(run, metrics[start : start + BATCH], params[start : start + BATCH])
    for name in (
        "report.html",
        "summary.json",
        *sorted(path.name for path in folder.glob("*.pdf")),
    ):
        client.log_artifact(run, str(folder / name))
    client.set_terminated(run, "FINISHED", ended)


def metrics_of(summary):
    """(name, value, step) of every number that a target may name, and of the points of the
    curves.
    """
    last = summary["steps"] or 0
    for metric in targets.METRICS:
        names = (
            [f"{metric}.{part}" for part in summary[metric]]
            if isinstance(summary[metric], dict)
            else [metric]
        )
        numbers = {name: targets.number(summary, name) for name in names}
        yield from ((name, value, last) for name, value in numbers.items() if value is not None)
    for curve, prefix in (("curves", "training"), ("validation_curve", "validation")):
        points = summary[curve] or {"step": []}
        for name in points.keys() & {"loss", "accuracy", "divergence"}:
            yield from (
                (f"{prefix}.{name}", value, round(step))
                for step, value in zip(points["step"], points[name] or [], strict=False)
            )


if __name__ == "__main__":
    command.run(main)
