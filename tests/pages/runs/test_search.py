"""The best run of a search, and its settings as a file."""

import pytest
import yaml

import planned
import search_runs
import synthetic_results
from ladder.pages.runs import search
from ladder.store import artifacts
from ladder.workflow import chains, config, runs
from ladder.workflow import search as workflow_search

SEARCH = {
    "strategy": "random",
    "metric": "auto",
    "validation": 180,
    "keys": {"learning_rate": {"min": 0.0001, "max": 0.1, "scale": "log"}},
    "settings": {},
}
ENTRIES = [
    {"overrides": {"learning_rate": rate, "autoencoder_filters": [256, 128]}, "reason": reason}
    for rate, reason in ((0.001, ""), (0.01, ""), (0.05, ""), (0.002, "they do not go together"))
]
CONFUSION = [[90, 0], [10, 80]]


def summary(accuracy, loss, svm=0.5):
    return {
        "test_accuracy": accuracy,
        "loss": loss,
        "svm": {"accuracy": svm},
        "confusion": CONFUSION,
    }


def outcome(summaries, **changes):
    return search.Outcome(SEARCH | changes, ENTRIES, summaries)


RESULTS = {
    1: summary(0.95, [3.0, 2.0], svm=0.8),
    2: summary(0.95, [3.0, 1.0]),
    3: summary(0.9, [0.1]),
}


@pytest.mark.parametrize(
    "summaries, metric, best",
    [
        (RESULTS, "auto", 2),  # of equal ones that of the smallest loss
        ({**RESULTS, 2: summary(0.95, [2.0])}, "auto", 1),  # and the first
        ({**RESULTS, 2: summary(0.95, [])}, "auto", 1),
        (RESULTS, "svm", 1),
        ({3: summary(None, [1.0])}, "auto", None),
        ({}, "auto", None),
    ],
)
def test_the_best_has_the_highest_score_then_the_smallest_loss(summaries, metric, best):
    assert outcome(summaries, metric=metric).best == best


def test_the_file_has_the_best_runs_keys_and_the_configuration_takes_it():
    text = search.best_yaml(outcome(RESULTS))
    assert (
        yaml.safe_load(text) == ENTRIES[1]["overrides"] == yaml.safe_load(text.partition("\n\n")[0])
    )
    assert "The best of 4 runs: validation accuracy 95.0 % on 180 images" in text
    config.load(planned.RAW | yaml.safe_load(text))
    assert yaml.safe_load(search.best_yaml(outcome({}))) == {}


OVERRIDES = {
    "batch_size": 32,
    "normalization": "zca",
    "features_concatenate": [{"features_layer": "enc1_pool", "weight": 0.5}],
    "cifar10_sha256": "0" * 64,
    "learning_rate": 0.3,
    "name": "of the search alone",
}


def test_the_printed_command_plans_the_best_run_whatever_files_the_search_had():
    searched = config.load(
        planned.RAW
        | OVERRIDES
        | {"search": {"keys": {"learning_rate": [0.001, 0.01]}, "validation": 180}}
    )
    best = next(
        entry
        for entry in workflow_search.plan(searched).entries
        if entry.overrides == {"learning_rate": 0.01}
    )
    settings = workflow_search.params(searched)["settings"]
    written = yaml.safe_load(search.best_yaml(outcome(RESULTS, settings=settings)))
    # config.yaml, changed after the search
    edited = planned.RAW | {"batch_size": 16, "seed": 9, "features_pool": 4}

    def versions(run):
        roles = chains.chain(run)
        # it has the name, and a search makes no map
        return {role: roles[role].version for role in roles if role not in ("report", "map")}

    again = runs.resolve(config.load(edited | written | {"validation": 180}))
    assert again.settings.autoencoder_filters == [256, 128]
    assert versions(again) == versions(best.run)
    assert written["validation"] == 0, "the command scores on the test images"


def test_the_stage_writes_the_file_of_the_runs_that_did_not_fail(tmp_path):
    made = synthetic_results.add(tmp_path, epochs=2, validation=180)
    with artifacts.making(tmp_path / "report/rfa11edfa11e", made["report"].manifest["spec"]) as one:
        one.failed = "the loss is nan"
    inputs = {"report0": artifacts.Artifact(tmp_path / "report/rfa11edfa11e")}
    inputs["report1"] = made["report"]
    spec = {"stage": "search", "params": {}, "sources": {}, "parents": {}}
    with artifacts.making(tmp_path / "search/s00000000001", spec) as work:
        entries = [ENTRIES[0], ENTRIES[1], ENTRIES[3]]
        search_runs.make(work, inputs, {"search": SEARCH, "entries": entries})
    written = (tmp_path / "search/s00000000001/best.yaml").read_text()
    assert yaml.safe_load(written) == ENTRIES[1]["overrides"]
