"""The command that writes the page of runs: its entries are the runs that it shows."""

import json
import re
import sys
import types

import pytest

import manifest_files
import processes
import synthetic_results
from ladder.pages import reproduce
from ladder.pages.runs import page
from ladder.sources import ROOT
from ladder.workflow import chains, config, copies, plans, runs
from planned import RAW
from tools import make_runs

SCRIPT = ROOT / "workflow/scripts/tools/make_runs.py"
COMPARED = [
    {"train_limit": 400, "seed": 3},
    {"train_limit": 400, "seed": 4},
    {"train_limit": 400, "name": "it's"},
    {"multiplier": "mit16", "multiplier_in": ["input_grad"]},
    {"multiplier": "mit16", "test_multiplier": "exact"},
    {"epochs": 3},
    {
        "steps": 12,
        "controls": [],
        "evaluations": ["knn"],
    },
    {
        "network": "lenet_5",
        "dataset": "mnist",
        "learning_rate": 1e-7,
        "validation": 50,
    },
]
HERE = [
    {},
    {"train_limit": 400, "epochs": 3, "name": "mine", "multiplier": "am32"},
    {"label_counts": [10], "evaluations": ["ridge"], "features_pca": 5, "precision": "bfloat16"},
]


@pytest.mark.parametrize("here", HERE)
def test_what_the_page_says_of_runs_plans_their_versions_whatever_is_configured(monkeypatch, here):
    planned = [chains.chain(runs.resolve(config.load(RAW | run)))["report"] for run in COMPARED]
    inputs = [
        {
            role: types.SimpleNamespace(manifest={"spec": parent.spec})
            for role, parent in report.parents.items()
        }
        for report in planned
    ]
    monkeypatch.setattr(make_runs.config, "base", lambda: RAW | here)
    make_runs.configured.cache_clear()
    entries = [
        make_runs.entry(reproduce.settings(roles, report.spec["params"]))
        for roles, report in zip(inputs, planned, strict=True)
    ]
    make_runs.configured.cache_clear()
    plan = plans.load(RAW | here | {"runs": json.loads(json.dumps(entries))})
    assert [run.report.version for run in plan.listed] == [report.version for report in planned]


def test_runs_of_release_0_1_0_are_on_the_page_with_commands_of_keys_that_there_are(tmp_path):
    report = synthetic_results.add(tmp_path / "results", epochs=2)["report"]
    summary = report.json("summary.json")
    old = {key: summary[key] for key in summary if key not in ("share", "passes", "verdict")}
    (report.folder / "summary.json").write_text(json.dumps(old))
    spec = report.manifest["spec"]
    listed = {"ablation": [{"overrides": {"features_flip": True}, "reason": ""}]}
    params = spec["params"] | listed | {"knn_distance": "euclidean", "seeds": [2, 3]}
    manifest_files.rewrite(report.folder, spec=spec | {"params": params})
    (tmp_path / "config.json").write_text("{}")
    command = [sys.executable, SCRIPT, "--config-file", "config.json"]
    done = processes.run(*command, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    text = (tmp_path / "results/runs.html").read_text()
    data = json.loads(re.search('id="data">(.*?)</script>', text)[1])
    assert data["unsaid"]["values"] == [["knn_distance", "seeds"]]
    assert data["entries"]["runs"]["values"] == [[[{"features_flip": True}]]]
    assert [*(tmp_path / "results/runs").glob(f"{report.version}-errors-*.webp")]
    assert not copies.is_runs_page_older(tmp_path / "results")
    (tmp_path / "results/network.html").write_text("")
    assert copies.is_runs_page_older(tmp_path / "results"), "it says that there is no network page"


def test_the_page_is_made_anew_for_every_page_in_results_that_it_links():
    assert {*copies.OTHERS} == {file for _, file, *_ in page.PAGES.values() if "/" not in file}


def test_where_it_cannot_write_one_line_says_so(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "results/runs.html/mine").mkdir(parents=True)
    command = [sys.executable, SCRIPT, "--config-file", tmp_path / "config.json", "--results"]
    done = processes.run(*command, tmp_path / "results")
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        done.stderr.splitlines()[-1].startswith("cannot write ") and "Traceback" not in done.stderr
    )
