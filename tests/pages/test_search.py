"""The page of a search: the best run first, its settings as a preset, and a plot for each
hyperparameter.
"""

import csv
import io
import json
import re

import pytest
import yaml

import manifest_files
import search_runs
import synthetic_results
from ladder.pages import compare, run_table, search
from ladder.sources import ROOT
from ladder.store import artifacts
from ladder.workflow import chains, config, runs
from ladder.workflow import search as workflow_search
from page_text import addresses, text_of

SEARCH = {
    "strategy": "random",
    "budget": 5,
    "seed": 1,
    "metric": "auto",
    "validation": 180,
    "keys": {
        "learning_rate": {"min": 0.0001, "max": 0.1, "scale": "log"},
        "autoencoder_filters": [[256, 128], [8]],
    },
    "settings": {},
}
FAILURE = "the loss is nan at step 3 (epoch 1) with learning rate 0.1; try a smaller learning_rate, or a gradient_clip"
ENTRIES = [
    ({"learning_rate": 0.001, "autoencoder_filters": [256, 128]}, ""),
    ({"learning_rate": 0.01, "autoencoder_filters": [256, 128]}, ""),
    ({"learning_rate": 0.05, "autoencoder_filters": [8]}, ""),
]
UNFIT = ({"learning_rate": 0.002, "autoencoder_filters": [8]}, "the values do not go together")


def visible(page):
    return text_of(page).replace("\xa0", " ")


def accurate(run, accuracy):
    """The run's report with another test accuracy, whose answers are no longer kept."""
    folder = run["report"].folder
    summary = json.loads((folder / "summary.json").read_text())
    (folder / "summary.json").write_text(
        json.dumps(
            {
                **summary,
                "test_accuracy": accuracy,
                "versions": summary["versions"] | {"svm": "s00000000000"},
            }
        )
    )
    manifest_files.rewrite(folder)
    return {"report": artifacts.Artifact(folder), "train": run["train"]}


def failed(results, reason):
    with artifacts.making(results / "report/rfa11edfa11e", manifest_files.spec("report")) as work:
        work.failed = reason
    return {
        role: artifacts.Artifact(results / "report/rfa11edfa11e") for role in ("report", "train")
    }


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return tmp_path_factory.mktemp("results")


@pytest.fixture(scope="module")
def inputs(results):
    """The inputs for ENTRIES: two runs, of which the second is better, and one that failed."""
    runs = [
        accurate(
            synthetic_results.add(results, epochs=2, validation=180, learning_rate=0.001), 0.9
        ),
        accurate(
            synthetic_results.add(results, epochs=2, validation=180, learning_rate=0.01, noise=0.1),
            0.95,
        ),
        failed(results, FAILURE),
    ]
    return {
        f"{role}{number}": run[role]
        for number, run in enumerate(runs)
        for role in ("report", "train")
    }


def found(inputs, entries=(*ENTRIES, UNFIT), **changes):
    entries = [{"overrides": overrides, "reason": reason} for overrides, reason in entries]
    return search.Outcome(inputs, {"search": SEARCH | changes, "entries": entries})


def test_the_best_is_first_and_what_has_no_result_last(inputs):
    of = found(inputs)
    assert [run.number for run in of.ranked] == [2, 1, 3, 4] and of.best.number == 2
    rows = search.context(of)["rows"]
    assert [row["reason"] for row in rows] == ["", "", FAILURE, UNFIT[1]]
    text = visible(search.page(of))
    assert (
        "The best is run 2 with a validation accuracy of 95.0 % (95 % interval 90.8 to 97.3 %, 180 images): +5 points "
        "against run 1, the next (−1 to +11, could be luck)." in text
    )
    assert f"failed: {FAILURE}" in text and f"could not run: {UNFIT[1]}" in text
    assert "One run failed. One could not run." in text


OVERRIDES = {
    "batch_size": 32,
    "normalization": "zca",
    "features_concatenate": [{"features_layer": "enc1_pool", "weight": 0.5}],
    "cifar10_sha256": "null",
    "learning_rate": 0.3,
    "name": "of the search alone",
}


def test_the_printed_command_plans_the_best_run_whatever_files_the_search_had(inputs):
    here = yaml.safe_load((ROOT / "tests/support/experiment.yaml").read_text())
    searched = config.load(
        here | OVERRIDES | {"search": {"keys": {"learning_rate": [0.001, 0.01]}, "validation": 180}}
    )
    best = next(
        entry
        for entry in workflow_search.plan(searched).entries
        if entry.overrides == {"learning_rate": 0.01}
    )
    written = yaml.safe_load(
        search.best_yaml(found(inputs, settings=workflow_search.params(searched)["settings"]))
    )
    # config.yaml, changed after the search
    edited = here | {"batch_size": 16, "seed": 9, "features_pool": 4}

    def versions(run):
        # it has the name
        return {
            role: artifact.version
            for role, artifact in chains.chain(run).items()
            if role != "report"
        }

    again = runs.resolve(config.load(edited | written | {"validation": 180}))
    assert again.settings.autoencoder_filters == [256, 128] and versions(again) == versions(
        best.run
    )
    assert written["validation"] == 0, "the command scores on the test images"


def test_runs_that_share_the_best_score_are_all_named(results, inputs):
    of = found({**inputs, "report0": inputs["report1"], "train0": inputs["train1"]}, ENTRIES)
    text = visible(search.page(of))
    assert (
        "The best is run 1 with a validation accuracy of 95.0 % (95 % interval 90.8 to 97.3 %, 180 images), which run 2 "
        "shares; it is the first of those" in text
    )
    worse = accurate(
        synthetic_results.add(results, epochs=2, validation=180, learning_rate=0.05), 0.9
    )
    entries = [*ENTRIES[:2], ({"learning_rate": 0.05, "autoencoder_filters": [256, 128]}, "")]
    text = visible(
        search.page(
            found({**inputs, "report2": worse["report"], "train2": worse["train"]}, entries)
        )
    )
    assert "+5 points against runs 1 and 3, the next (−1 to +11, could be luck)." in text


def test_the_preset_is_the_best_runs_keys_and_the_configuration_takes_it(inputs):
    text = search.best_yaml(found(inputs))
    assert yaml.safe_load(text) == ENTRIES[1][0] == yaml.safe_load(text.split("\n\n")[0])
    assert "validation accuracy 95.0 % on 180 images" in text
    config.load(
        yaml.safe_load((ROOT / "tests/support/experiment.yaml").read_text()) | yaml.safe_load(text)
    )
    assert search.preset(found(inputs)) in search.page(found(inputs))


def test_where_nothing_has_a_result_the_preset_changes_nothing(inputs):
    of = found(inputs, [UNFIT])
    assert of.best is None and yaml.safe_load(search.best_yaml(of)) == {}
    assert "No run has a result." in text_of(search.page(of))


def test_the_metric_says_what_is_ranked(inputs):
    assert (
        {run.number: found(inputs, metric="svm").score(run) for run in found(inputs).runs}[2]
        == found(inputs).runs[1].summary["svm"]["accuracy"]
        != 0.95
    )


def test_numbers_and_table_have_every_run(inputs):
    of = found(inputs)
    numbers = json.loads(json.dumps(search.numbers(of)))
    assert numbers["best"] == {
        "run": 2,
        "score": 0.95,
        "settings": ENTRIES[1][0],
        "versions": of.runs[1].summary["versions"],
    }
    assert [row["score"] for row in numbers["rows"]] == [0.9, 0.95, None, None] and numbers[
        "search"
    ] == SEARCH
    head, *lines = csv.reader(io.StringIO(search.csv_text(of)))
    assert len(set(head)) == len(head) and {len(line) for line in lines} == {len(head)}
    table = [dict(zip(head, line, strict=True)) for line in lines]
    assert [line["score"] for line in table] == ["0.9", "0.95", "", ""] and table[2][
        "reason"
    ] == FAILURE


def test_every_key_has_a_picture_with_a_point_for_each_run(inputs):
    rate, filters = search.context(found(inputs))["pictures"]
    (one,) = rate["chart"]["series"]
    places = dict(zip(one["id"], one["y"], strict=True))
    assert rate["chart"]["x"]["scale"] == "log"
    assert places["2"] > places["1"] >= places["3"], "the better the higher"
    assert dict(zip(one["id"], one["look"], strict=True)) == {"1": "", "2": "best", "3": "failed"}
    (one,) = filters["chart"]["series"]
    assert dict(zip(one["id"], one["x"], strict=True)) == {
        "1": "256, 128",
        "2": "256, 128",
        "3": "8",
    }
    assert filters["chart"]["x"]["names"] == ["256, 128", "8"]


def test_the_stage_writes_all_that_is_published(inputs, tmp_path):
    params = {
        "search": SEARCH,
        "entries": [{"overrides": overrides, "reason": reason} for overrides, reason in ENTRIES],
    }
    with artifacts.making(tmp_path / "s0123456789a", manifest_files.spec("search", params)) as work:
        search_runs.make(work, inputs, params)
    assert set(artifacts.Artifact(tmp_path / "s0123456789a").manifest["files"]) == {
        "search.html",
        "search.json",
        "search.csv",
        "best.yaml",
    }


def test_an_empty_search_says_how_to_fill_it():
    page = search.page(search.Outcome({}, {"search": SEARCH | {"keys": {}}, "entries": []}))
    assert "Nothing searched yet" in page and "snakemake results/search.html" in text_of(page)


def test_the_page_brings_all_it_needs_and_says_no_none(inputs):
    page = search.page(found(inputs))
    links = addresses(page)
    assert len(links) == 2 and all(
        re.fullmatch(r"../../report/r[0-9a-f]{11}/report.html", address) for address in links
    )
    assert "None" not in text_of(page) and "nan" not in text_of(page).replace(FAILURE, "")


def test_a_failed_run_is_on_the_compare_page_too(inputs):
    runs = run_table.read(
        inputs, [{"overrides": overrides, "reason": ""} for overrides, _ in ENTRIES]
    )
    assert [run.failed for run in runs] == [False, False, True] and run_table.rows(runs)[2][
        "reason"
    ] == FAILURE
    text = text_of(compare.page(runs))
    assert (
        f"failed: {FAILURE}" in text and "One run failed." in text and "cannot run here" not in text
    )
