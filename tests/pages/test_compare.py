"""The comparison of runs: the numbers are their reports', and the page shows the differences."""

import csv
import dataclasses
import io
import json
import math
import re

import numpy as np
import pytest

import compare_runs
import manifest_files
import synthetic_results
from ladder.executors import create
from ladder.pages import compare, curves, intervals, run_table
from ladder.store import artifacts
from page_text import addresses, text_of

DIFFERENT = "their classifiers are of different kinds"
REASON = "the rung gpu_gemm needs an NVIDIA GPU, and none answers on this machine"


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return tmp_path_factory.mktemp("results")


@pytest.fixture(scope="module")
def made(results):
    """Three runs of the autoencoder, one of a network that classifies."""
    return [
        synthetic_results.add(results, epochs=2),
        synthetic_results.add(results, epochs=2, learning_rate=0.01, noise=0.1, loss=2, faster=2),
        synthetic_results.add(results, epochs=2, batch=32, noise=0.5, svm_C=1),
        synthetic_results.add(results, dataset="mnist", network="lenet_5", epochs=1),
    ]


ENTRIES = [
    ({}, 0),
    ({"learning_rate": 0.01}, 1),
    ({"batch_size": 32, "svm_C": 1}, 2),
    ({"dataset": "mnist", "network": "lenet_5"}, 3),
    ({"variant": "gpu_gemm"}, None),
]


def asked(made, entries):
    """(inputs, params' entries) of a stage; entries: (overrides, which run or None)."""
    inputs = {}
    for number, (_, which) in enumerate(entries):
        if which is not None:
            inputs |= {f"{role}{number}": made[which][role] for role in ("report", "train")}
    return inputs, [
        {"overrides": overrides, "reason": "" if which is not None else REASON}
        for overrides, which in entries
    ]


def runs_of(made, entries=ENTRIES):
    return run_table.read(*asked(made, entries))


def test_the_stage_writes_page_numbers_and_table(made, tmp_path):
    inputs, entries = asked(made, ENTRIES)
    with artifacts.making(
        tmp_path / "c0123456789a", manifest_files.spec("compare", {"entries": entries})
    ) as work:
        compare_runs.make(work, inputs, {"entries": entries})
    folder = tmp_path / "c0123456789a"
    rows = json.loads((folder / "compare.json").read_text())["rows"]
    assert [row["settings"] for row in rows] == [overrides for overrides, _ in ENTRIES]
    for row, (_, which) in zip(rows, ENTRIES, strict=True):
        if which is None:
            assert row == {
                "settings": {"variant": "gpu_gemm"},
                "versions": None,
                "summary": None,
                "reason": REASON,
            }
        else:
            summary = made[which]["report"].json("summary.json")
            assert set(row) == {"settings", "versions", "summary"}
            assert (
                row["summary"] == summary
                and row["versions"]["report"] == made[which]["report"].version
            )
    assert (folder / "compare.html").read_text().startswith("<!doctype html>")
    *lines, last = csv.DictReader((folder / "compare.csv").open())
    assert len(lines) == len(ENTRIES) and (last["run"], last["reason"]) == ("mean", DIFFERENT)
    assert json.loads((folder / "compare.json").read_text())["ensemble"] == {
        "runs": [1, 2, 3, 4],
        "reason": DIFFERENT,
    }


def test_the_last_row_is_the_mean_of_the_decisions_or_says_why_there_is_none(made):
    context = compare.context(runs_of(made, ENTRIES[:3]))
    mean, page = context["mean"], text_of(compare.page(runs_of(made, ENTRIES[:3])))
    assert (
        f"mean {mean['text'][:-2]} % {mean['interval_text']} of the decisions of runs 1, 2 and 3: {mean['against']}"
        in page
    )
    assert (
        "it averages what the runs decide on (the decision values of the SVM’s pairs of classes)"
        in page
    )
    assert f"mean no mean of the decisions of runs 1, 2, 3 and 4: {DIFFERENT}" in text_of(
        compare.page(runs_of(made))
    )
    assert "no mean" not in text_of(compare.page(runs_of(made, ENTRIES[:1])))


def test_the_table_for_spreadsheets_has_every_number(made):
    lines = list(csv.DictReader(io.StringIO(run_table.csv_text(runs_of(made)))))
    summary = made[1]["report"].json("summary.json")
    line = lines[1]
    assert (
        float(line["test_accuracy"]) == summary["test_accuracy"]
        and float(line["loss"]) == summary["loss"][-1]
    )
    assert float(line["seconds"]) == pytest.approx(sum(summary["seconds"].values()))
    assert (
        float(line["seconds_train"]) == summary["seconds"]["train"]
        and line["version_train"] == made[1]["train"].version
    )
    # the first run's from its report
    assert line["learning_rate"] == "0.01" and lines[0]["learning_rate"] == "0.001"
    assert lines[2]["svm_C"] == "1" and lines[0]["svm_C"] == "10"
    assert (
        lines[3]["control_accuracy"] == ""
        and lines[4]["reason"] == REASON
        and lines[4]["loss"] == ""
    )


def test_every_line_of_the_table_for_spreadsheets_has_its_columns_once(made):
    head, *lines = csv.reader(io.StringIO(run_table.csv_text(runs_of(made))))
    assert len(head) == len(set(head)) and {len(line) for line in lines} == {len(head)}


def test_columns_are_the_settings_in_which_the_runs_differ(made):
    few = runs_of(
        made, [({"learning_rate": 0.001, "seed": 1}, 0), ({"learning_rate": 0.01, "seed": 1}, 1)]
    )
    context = compare.context(few)
    assert context["keys"] == ["learning_rate"] and context["same"]["seed"] == "1"
    assert context["labels"] == {1: "learning_rate 0.001", 2: "learning_rate 0.01"}


def test_an_entry_that_cannot_run_is_on_the_page_with_its_reason_beside_the_others(made):
    text = text_of(compare.page(runs_of(made)))
    assert (
        f"cannot run here: {REASON}" in text and "One of them cannot run on this machine." in text
    )
    assert "Comparison of 5 runs" in text


def test_only_what_cannot_run_makes_a_page_too(made):
    text = text_of(compare.page(runs_of(made, [({"variant": "gpu_gemm"}, None)])))
    assert REASON in text and "Speed-up" not in text


def test_speed_up_is_over_the_slowest(made):
    speed = compare.context(runs_of(made, ENTRIES[:3]))["speed"]
    assert [bar["text"] for bar in speed] == ["1.00×", "2.00×", "1.00×"] and speed[1][
        "length"
    ] == 100


def test_times_by_operation_stack_up_to_each_runs_own(made):
    context = compare.context(runs_of(made, ENTRIES[:2]))["operations"]
    assert [part["name"] for part in context["parts"]][:2] == [
        "convolution backward",
        "convolution forward",
    ]
    assert "upsampling" not in [part["name"] for part in context["parts"]]  # took no time
    first, second = context["rows"]
    assert (first["length"], second["length"]) == (100, 50)
    for row in context["rows"]:
        assert sum(part["length"] for part in row["parts"]) == pytest.approx(100, abs=0.1)


def test_more_operations_than_colours_fold_into_one_part(made):
    runs = runs_of(made, ENTRIES[:1])
    runs[0].train.metrics["seconds_by_operation"] = {
        f"operation {number}": 10.0 - number for number in range(10)
    }
    try:
        context = compare.context(runs)["operations"]
        assert context["parts"][-1] == {"name": "all other", "series": "rest"}
        assert len(context["parts"]) == compare.COLOURS
        assert sum(part["length"] for part in context["rows"][0]["parts"]) == pytest.approx(
            100, abs=0.1
        )
    finally:
        made[0]["train"] = artifacts.Artifact(made[0]["train"].folder)


def test_copies_that_run_beside_the_operations_are_in_no_stack(made, monkeypatch):
    runs = runs_of(made, ENTRIES[:1])
    seconds = {"loss": 1.0, "shortcuts and shapes": 0.7, create.COPIES: 5.0, create.WAITING: 0.5}
    monkeypatch.setitem(runs[0].train.metrics, "seconds_by_operation", seconds)
    shown = [part["name"] for part in compare.context(runs)["operations"]["parts"]]
    assert shown == ["loss", "padding and shapes", create.WAITING]


def test_weights_are_held_against_the_first_runs_where_the_networks_agree(made):
    weights = compare.context(runs_of(made))["weights"]
    assert [row["number"] for row in weights["rows"]] == [2, 3] and weights["others"] == [4]
    assert weights["layers"] == ["enc1", "enc2", "dec1", "dec2", "dec3"]
    assert [round(cell["value"], 1) for cell in weights["rows"][0]["cells"]] == [0.1] * 5


def test_the_same_weights_are_called_the_same(made):
    weights = compare.context(runs_of(made, [({}, 0), ({}, 0)]))["weights"]
    assert {cell["text"] for cell in weights["rows"][0]["cells"]} == {"same"}


def test_networks_that_all_differ_have_no_distances(made):
    runs = runs_of(made, [({}, 0), ({"network": "lenet_5"}, 3)])
    assert compare.context(runs)["weights"]["rows"] == []
    assert "the weights cannot be compared" in text_of(compare.page(runs))


def test_losses_of_two_kinds_have_two_scales_and_only_classifiers_an_accuracy(made):
    charts = compare.context(runs_of(made))["charts"]
    assert [
        (chart["title"].partition(",")[0], len(chart["chart"]["series"])) for chart in charts
    ] == [("Loss", 3), ("Loss", 1), ("Accuracy on the training images", 1)]


def test_curves_are_means_of_the_history(made):
    run = runs_of(made, ENTRIES[:1])[0]
    losses = run.train.tensors("history.safetensors")["losses"]
    points = compare._points(run, "losses")
    assert points[-1][0] == len(losses) - 0.5 and len(points) == len(losses)
    assert np.allclose([value for _, value in points], losses)


def test_hits_become_shares_of_each_batch_also_of_the_last(made):
    run = runs_of(made, [({}, 3)])[0]
    sizes = curves.batch_sizes(run.train, run.images)
    assert sizes.sum() == run.images and sizes[-1] < sizes[0]
    assert all(0 <= value <= 1 for _, value in compare._points(run, "hits"))


def test_a_run_that_diverged_has_no_curve_and_the_page_says_so(made, monkeypatch):
    first, second = runs_of(made, ENTRIES[:2])
    history = {"losses": np.full(second.train.metrics["steps"], math.nan)}
    monkeypatch.setattr(second.train, "tensors", lambda name: history)
    (chart,) = compare.context([first, second])["charts"]
    assert chart["lost"] == [2] and [line["key"] for line in chart["chart"]["series"]] == [1]
    assert "without a curve: run 2" in text_of(compare.page([first, second]))


def test_of_many_runs_the_most_accurate_have_a_colour(made):
    runs = runs_of(made, [({"seed": seed}, seed % 3) for seed in range(40)])
    context = compare.context(runs)
    series = [line["series"] for line in context["legend"]]
    assert series.count("rest") == 34 and {1, 2, 3, 4, 5, 6} <= set(series)
    (chart,) = context["charts"]
    assert [line["colour"] for line in chart["chart"]["series"]] == series
    assert len(compare.page(runs)) < 500_000


def test_a_curve_goes_by_step_epoch_and_time(made):
    run, faster = runs_of(made, ENTRIES[:2])
    (chart,) = compare.context([run, faster])["charts"]
    assert chart["chart"]["by"] == ["step", "epoch", "seconds"]
    for one, line in zip((run, faster), chart["chart"]["series"], strict=True):
        steps = one.train.metrics["steps"]
        step, epoch, seconds = line["by"]
        assert (steps * step, steps * epoch) == (steps, one.summary["epochs"])
        whole = one.images * one.summary["epochs"] / one.summary["images_per_second"]
        assert seconds == pytest.approx([x / steps * whole for x in line["x"]], rel=1e-3), (
            "its epochs take the same time"
        )


def test_chart_and_table_have_the_best_first_and_the_table_differences_from_it(
    made,
):
    runs = [
        dataclasses.replace(run, summary={**run.summary, "test_accuracy": accuracy})
        for run, accuracy in zip(runs_of(made, ENTRIES[:3]), (0.8, 0.95, 0.9), strict=True)
    ]
    context = compare.context(runs)
    first, *others = context["rows"]
    assert [row["name"] for row in context["accuracies"]["y"]["rows"]] == [
        "run 2",
        "run 3",
        "run 1",
    ] and first["against"] is None
    for row, run in zip(others, (runs[2], runs[0]), strict=True):
        difference = run_table.difference(run, runs[1])
        words = intervals.words(difference)
        assert row["number"] == run.number and words["formula"].startswith("Bonett")
        assert row["against"] == {**words, "value": difference.value}
        assert f"{words['points']} {words['interval_text']} {words['luck_text']}" in text_of(
            compare.page(runs).replace("<br>", " ")
        ).replace("\xa0", " ")


def test_which_is_best_is_only_said_on_the_same_images(made):
    assert compare.context(runs_of(made))["best"] is None
    assert compare.context(runs_of(made, ENTRIES[:2]))["best"]["tested"] == 360


REACHED = "90.0 % (95 % interval 86.5 to 92.7 %, 360 test images)"


@pytest.mark.parametrize(
    "accuracies, said",
    [
        (
            [0.5, 0.9, 0.4, 0.9],
            f"Runs 2 and 4 share the highest test accuracy, {REACHED}: +40 points against run 1, the next (+34 "
            "to +46, more than luck).",
        ),
        ([0.9, 0.9, 0.5, 0.9], f"Runs 1, 2 and 4 share the highest test accuracy, {REACHED}: "),
        ([0.9, 0.9, 0.9, 0.9], f"Runs 1, 2, 3 and 4 share the highest test accuracy, {REACHED}."),
        (
            [0.5, 0.5, 0.5, 0.9],
            f"Of 4 runs the most accurate is run 4 with a test accuracy of {REACHED}: +40 points against runs "
            "1, 2 and 3, the next",
        ),
    ],
)
def test_all_runs_that_share_a_place_are_named(made, monkeypatch, accuracies, said):
    # they belong to other accuracies
    monkeypatch.setattr(run_table, "answers", lambda run, role=None: None)
    runs = [
        dataclasses.replace(run, overrides={}, summary={**run.summary, "test_accuracy": accuracy})
        for run, accuracy in zip(
            runs_of([made[0]] * 4, [({}, number) for number in range(4)]), accuracies, strict=True
        )
    ]
    text = text_of(compare.page(runs)).replace("\xa0", " ")
    assert said in text
    assert "another seed may change an accuracy by more" in text


def test_runs_scored_on_a_validation_set_are_not_said_to_be_tested(results, made):
    validated = [
        synthetic_results.add(results, epochs=2, validation=180),
        synthetic_results.add(results, epochs=2, validation=180, learning_rate=0.01, noise=0.1),
    ]
    page = text_of(compare.page(runs_of(validated, ENTRIES[:2])))
    assert "validation accuracy" in page and "test accuracy" not in page
    mixed = runs_of([made[0], validated[0]], [({}, 0), ({"validation": 180}, 1)])
    context = compare.context(mixed)
    assert (
        context["best"] is None and context["scored_on"] == "" and context["keys"] == ["validation"]
    )
    table = list(csv.DictReader(io.StringIO(run_table.csv_text(mixed))))
    assert [line["validation"] for line in table] == ["0", "180"]


def test_an_empty_list_says_how_to_fill_it():
    page = compare.page([])
    assert (
        "Nothing to compare yet" in page
        and "compare:" in page
        and "snakemake results/compare.html" in text_of(page)
    )
    assert run_table.rows([]) == [] and len(run_table.csv_text([]).splitlines()) == 1


@pytest.mark.parametrize("entries", [ENTRIES, ENTRIES[:1], []])
def test_the_page_brings_all_it_needs_and_says_no_none(made, entries):
    page = compare.page(runs_of(made, entries))
    assert all(
        re.fullmatch(r"../../report/r[0-9a-f]{11}/report.html", address)
        for address in addresses(page)
    )
    assert all(" scope=" in tag for tag in re.findall(r"<th\b[^>]*>", page))
    assert "None" not in text_of(page) and "nan" not in text_of(page)


def test_runs_of_weights_as_they_are_stand_beside_trained_ones(results, made):
    given = synthetic_results.add(results, trained=False, start="theirs.bin")
    runs = runs_of(
        [made[0], {**given, "train": given["initial"]}],
        [({}, 0), ({"initial_weights": "theirs.bin"}, 1)],
    )
    page = compare.page(runs)
    assert "theirs.bin, sha256 5e5e5e5e5e5e" in text_of(page)
    assert math.isnan(runs[1].loss) and [
        row["name"] for row in compare.context(runs)["operations"]["rows"]
    ] == [1]
    assert (
        compare.context(runs)["has"]["images_per_second"]
        and len(compare.context(runs)["speed"]) == 1
    )
    alone = compare.page(
        runs_of([{**given, "train": given["initial"]}] * 2, [({}, 0), ({"epochs": 0}, 1)])
    )
    assert "Training, by operation" not in alone and "Speed-up" not in alone


def test_features_learned_with_labels_are_told_by_run(results, made):
    labelled = synthetic_results.add(results, epochs=2, parts=(0.5,), labelled=True)
    text = text_of(compare.page(runs_of([made[0], labelled], ENTRIES[:2])))
    assert (
        "The features of run 2 come, at least in part, from a network that was trained with labels."
        in text
    )
    assert "trained with labels" not in text_of(compare.page(runs_of(made, ENTRIES[:2])))
