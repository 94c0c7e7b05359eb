"""Runs in MLflow have the numbers of their reports, each once; MLflow is a client here that keeps
what it is given.
"""

import sys
import types

import pytest

import synthetic_results
import to_mlflow
from ladder.errors import UserError


class Client:
    """What mlflow.MlflowClient does with runs, and nothing of its checks."""

    runs = {}

    def __init__(self, uri):
        self.uri = uri

    def get_experiment_by_name(self, name):
        return None

    def create_experiment(self, name, place=None):
        return "1"

    def search_runs(self, experiments, query):
        return [
            run
            for run in self.runs.values()
            if query == f"tags.`kernel_ladder.report` = '{run.tags[to_mlflow.TAG]}'"
        ]

    def create_run(self, experiment, start, tags, name):
        info = types.SimpleNamespace(run_id=max(self.runs, default=0) + 1, status="RUNNING")
        self.runs[info.run_id] = types.SimpleNamespace(
            info=info, tags=tags, name=name, start=start, params={}, metrics={}, artifacts=[]
        )
        return self.runs[info.run_id]

    def delete_run(self, run):
        del self.runs[run]

    def log_batch(self, run, metrics, params):
        assert len(metrics) <= 1000 and len(params) <= 100  # what a server takes at once
        self.runs[run].params |= dict(params)
        for key, value, _, step in metrics:
            self.runs[run].metrics.setdefault(key, []).append((step, value))

    def log_artifact(self, run, path):
        self.runs[run].artifacts.append(path.rpartition("/")[2])

    def set_terminated(self, run, status, end):
        self.runs[run].info.status, self.runs[run].end = status, end


@pytest.fixture
def mlflow(monkeypatch):
    monkeypatch.setattr(Client, "runs", {})
    monkeypatch.setitem(
        sys.modules,
        "mlflow",
        types.SimpleNamespace(
            MlflowClient=Client,
            exceptions=types.SimpleNamespace(MlflowException=OSError),
            entities=types.SimpleNamespace(Param=lambda *facts: facts, Metric=lambda *facts: facts),
        ),
    )


@pytest.fixture
def send(tmp_path, monkeypatch, capsys):
    def call():
        monkeypatch.setattr(
            sys, "argv", ["to_mlflow.py", "--runs", str(tmp_path), "--to", "http://server"]
        )
        to_mlflow.main()
        return capsys.readouterr().out.strip()

    return call


def test_a_run_has_the_numbers_settings_curves_and_files_of_its_report(mlflow, send, tmp_path):
    run = synthetic_results.add(tmp_path, epochs=2, name="first", tags=["a"])
    assert send() == "http://server: 1 run written to kernel-ladder, 0 there already"
    (sent,) = Client.runs.values()
    summary = run["report"].json("summary.json")
    assert sent.metrics["test_accuracy"] == [(summary["steps"], summary["test_accuracy"])]
    assert sent.metrics["seconds.train"][0][1] == summary["seconds"]["train"]
    assert [value for _, value in sent.metrics["training.loss"]] == summary["curves"]["loss"]
    assert (sent.params["learning_rate"], sent.params["dataset"], sent.name) == (
        "0.001",
        "digits",
        "first",
    )
    assert sent.artifacts == ["report.html", "summary.json"] and sent.info.status == "FINISHED"
    assert sent.end - sent.start == round(1000 * sum(summary["seconds"].values()))


def test_a_second_call_adds_new_runs_alone_and_replaces_what_was_interrupted(
    mlflow, send, tmp_path
):
    synthetic_results.add(tmp_path, epochs=1)
    send()
    synthetic_results.add(tmp_path, epochs=1, learning_rate=0.01)
    assert send() == "http://server: 1 run written to kernel-ladder, 1 there already"
    assert send() == "http://server: 0 runs written to kernel-ladder, 2 there already"
    next(iter(Client.runs.values())).info.status = "RUNNING"
    assert send() == "http://server: 1 run written to kernel-ladder, 1 there already"
    assert [run.info.status for run in Client.runs.values()] == ["FINISHED"] * 2


def test_a_folder_is_a_store_with_its_artifacts_in_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert to_mlflow.store("runs") == (
        f"sqlite:///{tmp_path}/runs/mlflow.db",
        f"file://{tmp_path}/runs/artifacts",
    )
    assert to_mlflow.store("http://server") == ("http://server", None)


def test_without_mlflow_and_without_runs_one_line_says_what_to_do(send, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(UserError, match="^this needs MLflow, .*: .venv/bin/pip install mlflow$"):
        send()
    monkeypatch.setattr(
        sys, "argv", ["to_mlflow.py", "--runs", str(tmp_path / "none"), "--to", "x"]
    )
    with pytest.raises(UserError, match="^there is no folder .*: --runs FOLDER$"):
        to_mlflow.main()
