"""Cells are grouped into groups and arms, and rows have the numbers of their runs, paired by
seed.
"""

import csv
import io

import numpy as np
import pytest

from ladder.arithmetic import multipliers
from ladder.pages import multiplier_runs
from ladder.pages.multiplier_runs import Arm
from synthetic_cells import REASON, Cells


@pytest.fixture
def cells(tmp_path):
    return Cells(tmp_path / "results")


def groups_of(cells):
    return multiplier_runs.groups(multiplier_runs.read(cells.inputs, cells.entries))


def rows_of(cells):
    return multiplier_runs.rows(groups_of(cells))


def test_numbers_of_a_row_are_means_over_its_seeds_paired_with_exacts(cells):
    for seed, exact, cheap in ((1, 0.95, 0.94), (2, 0.97, 0.95), (3, 0.96, 0.93)):
        cells.add("exact", seed, exact, loss=seed).add("am32", seed, cheap, slower=4)
    exact, cheap = rows_of(cells)
    assert (exact["multiplier"], cheap["multiplier"]) == ("exact", "am32") and cheap["seeds"] == [
        1,
        2,
        3,
    ]
    assert cheap["test_accuracy"] == pytest.approx(0.94) and cheap[
        "test_accuracy_deviation"
    ] == pytest.approx(0.01)
    assert cheap["difference"] == pytest.approx(-0.02) and cheap[
        "difference_deviation"
    ] == pytest.approx(0.01)
    assert (cheap["difference_low"], cheap["difference_high"]) == pytest.approx(
        (-0.02 - 0.02484, -0.02 + 0.02484), abs=1e-4
    )
    assert (
        cheap["train_seconds_ratio"] == pytest.approx(4, rel=0.01)
        and exact["train_seconds_ratio"] == 1
    )
    assert exact["difference"] is None and exact["difference_seeds"] == 0
    losses = [
        cells.inputs[f"report{number}"].json("summary.json")["loss"][-1] for number in (0, 2, 4)
    ]
    assert exact["final_loss"] == pytest.approx(np.mean(losses))
    assert exact["final_loss_deviation"] == pytest.approx(np.std(losses, ddof=1))


def test_a_row_has_the_costs_of_the_multiplier_of_its_test(cells):
    groups = groups_of(cells.add("exact").add("exact", test_multiplier="am32"))
    exact, tested = multiplier_runs.rows(groups, {"power in mW": {"am32": 0.3}})
    (published,) = multiplier_runs.PUBLISHED
    assert exact["costs"] == {published: 3.7} and tested["costs"] == {"power in mW": 0.3}
    assert "power in mW: 0.3" in multiplier_runs.csv_text([exact, tested]).splitlines()[2]


def test_only_common_seeds_are_paired_and_timed(cells):
    cells.add("exact", 1, 0.95).add("exact", 2, 0.5, slower=100).add(
        "mit16", 1, 0.94, slower=3
    ).add("mit16", 7, 0.1)
    cheap = rows_of(cells)[1]
    assert (
        cheap["seeds"] == [1, 7]
        and cheap["difference_seeds"] == 1
        and cheap["difference"] == pytest.approx(-0.01)
    )
    assert cheap["difference_low"] is None and cheap["train_seconds_ratio"] == pytest.approx(
        3, rel=0.01
    )


def test_other_settings_make_other_groups_and_names_do_not(cells):
    cells.add("exact", 1, batch_size=64, name="a").add("am32", 1, batch_size=64, name="b").add(
        "am32", 1, batch_size=32
    )
    cells.add("exact", 1, network="lenet_5", batch_size=64)
    assert [
        (group.settings["network"], group.settings["batch_size"], len(group.arms))
        for group in groups_of(cells)
    ] == [("lenet_300_100", 64, 2), ("lenet_300_100", 32, 1), ("lenet_5", 64, 1)]
    assert rows_of(cells)[2]["difference"] is None  # there is no exact run with that batch_size


def test_a_cell_that_is_there_twice_counts_once(cells):
    cells.add("am32", 1, 0.94).add("am32", 1, 0.94).add("am32", 2, 0.95)
    (only,) = rows_of(cells)
    assert only["seeds"] == [1, 2] and only["test_accuracy"] == pytest.approx(0.945)


def test_a_cell_that_cannot_run_has_its_reason_and_no_numbers(cells):
    cells.add("exact", 1, 0.95).add("fp16", 1, reason=REASON)
    missing = rows_of(cells)[1]
    assert missing["reason"] == REASON and missing["seeds"] == []
    numbers = ("test_accuracy", "difference", "train_seconds", "train_seconds_ratio", "final_loss")
    assert {missing[key] for key in numbers} == {None}


def test_arms_are_in_the_order_of_the_multipliers_with_tables_last(cells, tmp_path):
    np.save(tmp_path / "a_table.npy", multipliers.tabulated("mbm", 3))
    for multiplier in (str(tmp_path / "a_table.npy"), "fp16", "am16", "exact"):
        cells.add(multiplier)
    assert [row["multiplier"] for row in rows_of(cells)] == ["exact", "am16", "fp16", "a_table.npy"]


SETTINGS = {
    "multiplier": "fp16",
    "multiplier_in": ["forward", "input_grad", "weight_grad"],
    "test_multiplier": "fp16",
    "loss_scale": 1024,
}


@pytest.mark.parametrize(
    "change, expected",
    [
        ({}, ("fp16", ("forward", "input_grad", "weight_grad"), "fp16", 1024)),
        (
            {"multiplier_in": ["forward"]},
            ("fp16", ("forward",), "fp16", None),
        ),  # no gradient to scale
        (
            {"multiplier": "am32", "test_multiplier": "am32"},
            ("am32", ("forward", "input_grad", "weight_grad"), "am32", None),
        ),
        ({"multiplier_in": [], "test_multiplier": "exact"}, ("exact", (), "exact", None)),
        ({"multiplier": "exact"}, ("exact", (), "fp16", None)),
    ],
)
def test_an_arm_is_what_changes_the_products(change, expected):
    arm = Arm.from_settings(SETTINGS | change)
    assert (arm.trained, arm.directions, arm.tested, arm.loss_scale) == expected
    assert arm.exact == (expected[0] == expected[2] == "exact")


@pytest.mark.parametrize(
    "change, otherwise",
    [
        ({}, False),
        ({"test_multiplier": "exact"}, True),
        ({"multiplier": "exact"}, True),
        ({"multiplier_in": ["weight_grad"], "test_multiplier": "exact"}, False),
        ({"multiplier_in": ["weight_grad"]}, True),
    ],
)
def test_a_test_is_otherwise_where_it_is_not_the_forward_pass_of_the_training(change, otherwise):
    assert Arm.from_settings(SETTINGS | change).tested_otherwise == otherwise


def test_the_table_for_spreadsheets_has_a_line_for_each_row(cells):
    cells.add("exact", 1, 0.95, batch_size=32).add("exact", 2, 0.96, batch_size=32).add(
        "am32", 1, reason=REASON, batch_size=32
    )
    lines = list(csv.DictReader(io.StringIO(multiplier_runs.csv_text(rows_of(cells)))))
    assert [line["multiplier"] for line in lines] == ["exact", "am32"]
    assert lines[0]["seeds"] == "1 2" and float(lines[0]["test_accuracy"]) == pytest.approx(0.955)
    assert (
        lines[0]["settings"] == "batch_size 32"
        and lines[1]["reason"] == REASON
        and lines[1]["test_accuracy"] == ""
    )
    assert multiplier_runs.csv_text([]).splitlines() == [",".join(multiplier_runs.COLUMNS)]
