"""The page of multipliers: its verdicts, charts and colours."""

import itertools
import json
import re
import types

import numpy as np
import pytest
import yaml

import compare_multipliers
import manifest_files
import planned
import synthetic_results
from ladder.arithmetic import multipliers
from ladder.errors import UserError
from ladder.pages import intervals, multiplier_runs, templates
from ladder.pages import multipliers as multipliers_page
from ladder.sources import ROOT
from ladder.store import artifacts
from ladder.workflow import config, runs, stages
from ladder.workflow.runs import Entry
from ladder.workflow.stages import MULTIPLIER_CELL
from page_text import addresses, text_of
from synthetic_cells import REASON, Cells

STYLE = (templates.TEMPLATES / "style.css").read_text()


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("tables") / "my_table.npy"
    np.save(path, multipliers.tabulated("mbm", 4))
    return str(path)


@pytest.fixture(scope="module")
def full(tmp_path_factory, table):
    """Two networks with several multipliers; am32 is far below exact, acc16 is as good."""
    cells = Cells(tmp_path_factory.mktemp("results"))
    for network, seed in itertools.product(("lenet_300_100", "lenet_5"), (1, 2, 3)):
        exact = 0.95 + 0.01 * seed
        cells.add("exact", seed, exact, network=network)
        cells.add(
            "acc16", seed, exact + (0.002, -0.001, 0)[seed - 1], slower=3, loss=1.1, network=network
        )
        cells.add("am32", seed, exact - 0.02 - 0.001 * seed, slower=4, loss=2, network=network)
        cells.add(
            table,
            seed,
            exact - 0.03,
            slower=5,
            loss=3,
            network=network,
            reason=REASON if network == "lenet_5" else "",
        )
    return cells


def groups_of(cells):
    return multiplier_runs.groups(multiplier_runs.read(cells.inputs, cells.entries))


def context_of(cells):
    return multipliers_page.context(groups_of(cells))


@pytest.mark.parametrize(
    "width, said", [(1, "Each point is one step."), (2, "Each point is the mean over 2 steps.")]
)
def test_the_steps_of_a_point_are_told(full, monkeypatch, width, said):
    curves = multipliers_page._curves
    monkeypatch.setattr(
        multipliers_page, "_curves", lambda *arguments: {**curves(*arguments), "width": width}
    )
    assert said in text_of(multipliers_page.page(groups_of(full)))


def test_the_stage_writes_page_numbers_and_table(full, tmp_path):
    params = {"entries": full.entries}
    with artifacts.making(
        tmp_path / "m0123456789a", manifest_files.spec("multipliers", params)
    ) as work:
        compare_multipliers.make(work, full.inputs, params)
    folder = tmp_path / "m0123456789a"
    told = json.loads((folder / "multipliers.json").read_text())
    assert [cell["settings"] for cell in told["cells"]] == [
        entry["settings"] for entry in full.entries
    ]
    assert told["cells"][0]["summary"] == full.inputs["report0"].json("summary.json")
    assert told["cells"][0]["versions"]["report"] == full.inputs["report0"].version
    assert told["cells"][-1]["summary"] is None and told["cells"][-1]["reason"] == REASON
    assert [row["multiplier"] for row in told["rows"]] == [
        "exact",
        "acc16",
        "am32",
        "my_table.npy",
    ] * 2
    assert len((folder / "multipliers.csv").read_text().splitlines()) == 1 + len(told["rows"])
    assert (folder / "multipliers.html").read_text().startswith("<!doctype html>")


def test_the_page_brings_all_it_needs_and_says_no_none(full):
    page = multipliers_page.page(groups_of(full))
    links = addresses(page)
    assert len(links) == 21 and all(
        re.fullmatch(r"../../report/r[0-9a-f]{11}/report.html", address) for address in links
    )
    assert all(" scope=" in tag for tag in re.findall(r"<th\b[^>]*>", page))
    assert "None" not in text_of(page) and "nan" not in text_of(page)
    assert f"no result: {REASON}" in text_of(page)


def test_the_first_screen_has_exact_and_what_is_furthest_from_it(full, monkeypatch, tmp_path):
    first = context_of(full)["first"]
    assert first["of"] == 7 and first["series"][0]["y"] == [0, 3]
    lenet = next(row for row in first["y"]["rows"] if row["name"] == "LeNet-5, am32")
    assert lenet["note"] == "−2.20 points (−2.45 to −1.95, more than luck)"
    assert lenet["text"] == f"94.8{templates.NARROW_SPACE}%"
    alone = Cells(tmp_path).add("exact", 1, 0.9).add("acc16", 1, 0.8)
    rows = context_of(alone)["first"]["y"]["rows"]
    assert (
        rows[1]["interval"] == list(intervals.wilson(0.8, 1000))
        and rows[1]["note"] == "−10.00 points"
    )
    monkeypatch.setattr(multipliers_page, "CHARTED", 3)
    assert [row["name"] for row in context_of(full)["first"]["rows"]] == [
        "LeNet-300-100, exact",
        "LeNet-300-100, my_table.npy",
        "LeNet-5, exact",
    ]


def test_the_verdicts_are_summed_up(full):
    found = context_of(full)
    # the table has no spread
    assert found["verdicts"] == {"below": 2, "above": 0, "within": 2} and found["compared"] == 4
    assert (found["networks"], found["multipliers"], found["runs"], found["missing"]) == (
        2,
        3,
        21,
        1,
    )
    text = text_of(multipliers_page.page(groups_of(full)))
    assert "lower in 2, different by what could be luck in 2 of 4 comparisons" in text


def row(seeds=3, difference=-0.01, low=None, high=None):
    return {
        "seeds": list(range(seeds)),
        "difference": difference,
        "difference_low": low,
        "difference_high": high,
        "difference_seeds": seeds,
    }


@pytest.mark.parametrize(
    "of, kind, words",
    [
        (row(low=-0.03, high=0.01), "within", "could be luck: −3.0 to +1.0 with 3 seeds"),
        (row(low=-0.03, high=0.0), "within", "could be luck: −3.0 to 0.0 with 3 seeds"),
        (
            row(low=-0.03, high=-0.001),
            "below",
            "below exact, more than luck: −3.0 to −0.1 with 3 seeds",
        ),
        (
            row(low=0.001, high=0.02),
            "above",
            "above exact, more than luck: +0.1 to +2.0 with 3 seeds",
        ),
        (row(seeds=1), "", "one seed does not show the variation by chance"),
        (row(difference=0.0), "within", "equal to exact with each of 3 seeds"),
        (row(), "", "no confidence interval"),
    ],
)
def test_a_difference_is_no_more_than_its_interval_says(of, kind, words):
    found = multipliers_page.verdict(of, False, True)
    assert found["kind"] == kind and words in found["text"]


@pytest.mark.parametrize(
    "has_exact, words", [(True, "no seed in common with exact"), (False, "no exact run")]
)
def test_without_an_exact_run_of_that_seed_nothing_is_concluded(has_exact, words):
    found = multipliers_page.verdict({**row(), "difference_seeds": 0}, False, has_exact)
    assert found["kind"] == "" and words in found["text"]


def test_nothing_is_concluded_of_two_that_have_hardly_learned(tmp_path):
    cells = Cells(tmp_path)
    for seed, better in ((1, 0.0), (2, 0.001)):
        cells.add("exact", seed, 0.13 + better).add("acc16", seed, 0.12).add("am32", seed, 0.5)
    found = context_of(cells)
    said = {row["label"]: row["verdict"]["text"] for row in found["groups"][0]["rows"]}
    assert said["acc16"] == "both near chance: nothing is shown" and said["am32"].startswith(
        "above exact, more than luck"
    )
    assert found["verdicts"] == {"below": 0, "above": 1, "within": 0} and found["compared"] == 1
    assert [row["note"].endswith(", near chance") for row in found["first"]["y"]["rows"]] == [
        False,
        True,
        False,
    ]


def test_exact_is_not_judged():
    assert multipliers_page.verdict(row(), True, True) == {"kind": "", "text": ""}


@pytest.mark.parametrize(
    "spread, accuracy, difference",
    [
        (0.02, ("90.0", "± 2.0"), ("−1.0", "± 2.0")),
        (0.002, ("90.0", "± 0.2"), ("−1.0", "± 0.2")),
        (0.0, ("90.0", "± 0.0"), ("−1.00", "± 0.00")),
    ],
)
def test_a_number_has_the_digits_of_its_deviation_which_the_interval_carries(
    tmp_path, spread, accuracy, difference
):
    cells = Cells(tmp_path)
    for seed, off in ((1, -1), (2, 0), (3, 1)):
        cells.add("exact", seed, 0.91).add("acc16", seed, 0.9 + off * spread)
    row = context_of(cells)["groups"][0]["rows"][1]
    assert (row["accuracy"]["text"], row["accuracy"]["deviation"]) == accuracy
    assert (row["difference"]["text"], row["difference"]["deviation"]) == difference


@pytest.mark.parametrize(
    "error, text",
    [(-1 / 9, "−11.1 %"), (5.92e-8, "+5.9·10⁻⁶ %"), (0.0, "0 %"), (-2e-5, "−0.002 %")],
)
def test_an_error_is_written_with_its_size(error, text):
    assert multipliers_page.share(error).replace(templates.NARROW_SPACE, " ") == text


def test_dots_are_where_the_accuracies_are_and_the_better_is_further_right(full):
    dots = context_of(full)["groups"][0]["dots"]
    exact, _, worse, _ = dots["rows"]
    assert [dot["at"] for dot in exact["dots"]] == sorted(dot["at"] for dot in exact["dots"])
    assert all(a["at"] < b["at"] for a, b in zip(worse["dots"], exact["dots"], strict=True))
    assert dots["exact"] == exact["mean"] and "seed 2: 97.00" in exact["dots"][1]["text"]
    ends = [dot["at"] for of in dots["rows"] for dot in of["dots"]]
    assert (
        0 < min(ends) < max(ends) < 100
        and all(0 <= tick["at"] <= 100 for tick in dots["ticks"])
        and len(dots["ticks"]) > 1
    )


@pytest.mark.parametrize(
    "accuracies", [(1.0, 1.0), (0.1, 1.0), (0.1, 0.99), (0.5, 0.5), (0.981, 0.982)]
)
def test_any_accuracies_have_a_scale_with_ticks(tmp_path, accuracies):
    cells = Cells(tmp_path).add("exact", 1, accuracies[0]).add("am32", 1, accuracies[1])
    dots = context_of(cells)["groups"][0]["dots"]
    assert dots["ticks"] and all(0 <= dot["at"] <= 100 for of in dots["rows"] for dot in of["dots"])


def test_curves_are_means_over_the_seeds_of_the_history(tmp_path):
    cells = Cells(tmp_path).add("am32", 1, loss=1).add("am32", 2, loss=3)
    group = groups_of(cells)[0]
    points, width = multipliers_page._losses(list(group.runs[group.arms[0]].values()))
    losses = [
        cells.inputs[f"train{number}"].tensors("history.safetensors")["losses"] for number in (0, 1)
    ]
    mean = (losses[0] + losses[1]) / 2
    assert (
        points[0][1] == pytest.approx(mean[:width].mean())
        and points[-1][0] + width / 2 >= len(mean) - 1
    )
    assert multipliers_page.CURVE <= len(points) < 2 * multipliers_page.CURVE


def test_the_scale_of_losses_is_logarithmic_also_where_they_are_close(full):
    for group in context_of(full)["groups"]:
        assert group["curves"]["chart"]["y"]["scale"] == "log"


def test_times_are_beside_exacts(full):
    times = context_of(full)["groups"][0]["times"]
    assert [bar["name"] for bar in times] == ["exact", "acc16", "am32", "my_table.npy"] and times[
        0
    ]["note"] == ""
    ratios = [float(bar["note"].removesuffix("×")) for bar in times[1:]]
    # a synthetic run adds the time of writing it
    assert ratios == pytest.approx([3, 4, 5], rel=0.05)
    assert times[-1]["length"] == 100


def test_a_multiplier_has_its_colour_on_every_page_and_two_arms_never_share_one():
    def arm(trained, tested=None):
        return multiplier_runs.Arm(trained, ("forward",), tested or trained, None)

    known = [arm(name) for name in multipliers.MULTIPLIERS]
    assert list(multipliers_page.colours(known).values()) == [
        1,
        2,
        3,
        4,
        5,
        6,
        *["rest"] * (len(known) - 6),
    ]
    assert multipliers_page.colours([known[4]]) == {known[4]: 5}
    arms = [
        arm("am32"),
        arm("am32", "exact"),
        arm("a.npy"),
        arm("b.npy"),
        *(arm(f"{number}.npy") for number in range(9)),
    ]
    found = multipliers_page.colours(arms)
    assert found[arms[0]] == 3
    numbers = [number for number in found.values() if number != "rest"]
    assert sorted(numbers) == list(range(1, multipliers_page.COLOURS + 1)) and len(found) == len(
        arms
    )


def test_arms_of_one_multiplier_are_told_apart_by_name(tmp_path):
    cells = Cells(tmp_path).add("exact").add("exact", test_multiplier="am32").add("am32")
    cells.add("am32", multiplier_in=["forward"]).add("am32", test_multiplier="exact")
    labels = [of["label"] for of in context_of(cells)["groups"][0]["rows"]]
    assert labels == [
        "exact",
        "exact, tested with am32",
        "am32, forward and backward",
        "am32, forward only",
        "am32, forward and backward, tested with exact",
    ]


def test_accuracy_over_cost_has_an_axis_by_source_and_names_the_cheapest(tmp_path, table):
    given = {
        "power in mW": {"my_table.npy": 0.2, "am32": 0.3, "mit16": 0.4, "alone.npy": 9},
        "area": {"am32": 5},
    }
    cells = Cells(tmp_path)
    for multiplier, accuracy in {
        "exact": 0.95,
        "fp16": 0.94,
        table: 0.12,
        "am32": 0.93,
        "mit16": 0.92,
        "acc16": 0.9,
    }.items():
        cells.add(multiplier, 1, accuracy)
    costs = multipliers_page.context(groups_of(cells), given)["groups"][0]["costs"]
    energy, power = costs["charts"]  # no chart of the area, which only one has
    assert (
        "Horowitz" in energy["source"]
        and power["source"] == "power in mW"
        and costs["unknown"] == ["acc16"]
    )
    marks = [
        (x, y, text)
        for one in energy["chart"]["series"]
        if one["colour"] != "level"
        for x, y, text in zip(one["x"], one["y"], one["text"], strict=True)
    ]
    assert sorted(marks) == [
        (1.1, 0.94, "fp16: 94.0\u202f%, at 1.1"),
        (3.7, 0.95, "exact: 95.0\u202f%, at 3.7"),
    ]
    (own, level) = power["chart"]["series"]
    assert (
        own["x"] == [0.2, 0.3, 0.4]
        and own["look"] == ["ring", "", ""]
        and "near chance" in own["text"][0]
        and power["near"]
    )
    assert [name["name"] for name in energy["chart"]["names"]] == ["fp16", "exact"]  # once
    assert level["y"] == [0.95, 0.95] and [name["name"] for name in power["chart"]["names"]] == [
        "my_table",
        "am32",
        "exact",
    ]
    text = text_of(multipliers_page.page(groups_of(cells), costs=given))
    assert "No cost is known of acc16" in text and "A ring is a run near chance." in text
    assert "Accuracy and cost" not in text_of(
        multipliers_page.page(groups_of(Cells(tmp_path / "one").add("exact")))
    )


def test_the_stage_has_the_costs_of_the_configuration():
    given = {"power in mW": {"am32": "0.3"}}
    run = types.SimpleNamespace(settings=config.load({"multiplier_costs": given}))
    assert stages._multipliers(stages.Configuration(run, {"multipliers": []}, {}))["costs"] == {
        "power in mW": {"am32": 0.3}
    }
    for wrong in ({"power": {"am32": 0}}, {"power": 3}, [1]):
        with pytest.raises(
            UserError,
            match="multiplier_costs is .* but must be sources, each with the names of multipliers",
        ):
            config.load({"multiplier_costs": wrong})


def test_each_multiplier_that_ran_has_its_error_on_one_scale(full):
    found = context_of(full)
    assert [one["name"] for one in found["errors"]] == ["exact", "acc16", "am32", "my_table.npy"]
    assert found["errors"][2]["text"] == multipliers.MULTIPLIERS["am32"].text
    assert found["errors"][3]["text"] == "a table, 4 mantissa bits"
    assert found["errors"][1]["most"].startswith("−")  # truncated, so never too large
    assert found["errors"][2]["uses"][0]["text"] == "in training forward and backward"
    assert len({one["image"] for one in found["errors"]}) == 4


def test_a_table_that_changed_since_its_runs_were_planned_is_one_line(tmp_path):
    path = tmp_path / "table.npy"
    np.save(path, multipliers.tabulated("mbm", 3))
    cells = Cells(tmp_path / "results").add(str(path))
    np.save(path, multipliers.tabulated("mitchell", 3))
    with pytest.raises(
        UserError, match=r"table.npy changed after its runs were planned; run it again"
    ):
        context_of(cells)


def test_an_empty_list_says_how_to_fill_it():
    page = multipliers_page.page([])
    assert (
        "No multipliers to compare yet" in page
        and "snakemake results/multipliers.html" in text_of(page)
    )


def test_only_cells_that_cannot_run_make_a_page_too(tmp_path):
    text = text_of(multipliers_page.page(groups_of(Cells(tmp_path).add("am32", reason=REASON))))
    assert REASON in text and "Training loss" not in text and "The relative error" not in text


def test_a_list_of_the_configuration_becomes_arms_that_multiply_as_it_says():
    raw = yaml.safe_load((ROOT / "tests/support/experiment.yaml").read_text())
    listed = [
        {"network": "lenet_5", "multiplier": ["exact", "am32"]},
        {"multiplier": "mit16", "multiplier_in": [["forward"]]},
        {"test_multiplier": "acc16"},
    ]
    entries = runs.entries(config.load(raw | {"multipliers": listed}), "multipliers")
    told = [
        of["settings"]
        for of in planned.page("multipliers", multipliers=entries).spec["params"]["entries"]
    ]
    assert [
        (arm.trained, arm.directions, arm.tested)
        for arm in map(multiplier_runs.Arm.from_settings, told)
    ] == [
        ("exact", (), "exact"),
        ("am32", multipliers.DIRECTIONS, "am32"),
        ("mit16", ("forward",), "mit16"),
        ("exact", (), "acc16"),
    ]


def test_an_artifacts_settings_are_what_tells_its_cells_apart():
    def entry(**overrides):
        settings = dict.fromkeys(MULTIPLIER_CELL, "usual") | {"momentum": 0.9, "batch_size": 64}
        run = types.SimpleNamespace(
            pick=lambda *keys: {key: (settings | overrides)[key] for key in keys}
        )
        return Entry(overrides, run, REASON)

    page = planned.page("multipliers", multipliers=[entry(), entry(batch_size=32)])
    told = [of["settings"] for of in page.spec["params"]["entries"]]
    assert [of["batch_size"] for of in told] == [64, 32]
    assert all(set(of) == {*MULTIPLIER_CELL, "batch_size"} for of in told)


def test_arms_of_weights_as_they_are_have_accuracies_but_neither_times_nor_curves(
    tmp_path, monkeypatch
):
    def run(self, settings, accuracy, *_):
        made = synthetic_results.add(
            tmp_path,
            dataset="mnist",
            network="lenet_300_100",
            trained=False,
            start="their.weights",
            accuracy=accuracy,
            name=settings["test_multiplier"],
        )
        return {**made, "train": made["initial"]}

    monkeypatch.setattr(Cells, "_run", run)
    cells = Cells(tmp_path).add("exact", 1, 0.95).add("exact", 1, 0.91, test_multiplier="mit16")
    rows = multiplier_runs.rows(groups_of(cells))
    assert (
        [row["train_seconds"] for row in rows]
        == [row["final_loss"] for row in rows]
        == [None, None]
    )
    assert rows[1]["difference"] == pytest.approx(-0.04, abs=2e-3)
    page = multipliers_page.page(groups_of(cells))
    assert "Training loss" not in page and "Test accuracy" in page and "None" not in text_of(page)


@pytest.mark.parametrize(
    "value, deviation, text, error",
    [
        (1.4423, 0.070511, "1.442", "± 0.071"),
        (0.02, 0.5, "0.02", "± 0.50"),
        (0.012345, None, "0.01235", ""),
        (3.0, 0.0, "3", "± 0"),
    ],
)
def test_a_loss_has_as_many_decimals_as_its_deviation(value, deviation, text, error):
    of = {"final_loss": value, "final_loss_deviation": deviation}
    shown = multipliers_page._cell(of, "final_loss", multipliers_page._loss_text(deviation))
    assert (shown["text"], shown["deviation"]) == (text, error)
