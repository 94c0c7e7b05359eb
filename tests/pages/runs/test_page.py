"""The page of runs as it is without its script, its numbers, and the files of single runs."""

import base64
import csv
import dataclasses
import io
import json
import re
import shutil

import numpy as np
import pytest
from PIL import Image

import manifest_files
import synthetic_results
from ladder.network import networks, weights
from ladder.pages import intervals
from ladder.pages.runs import answers, best, costs, discovery, page, single, successors
from ladder.store import lineage
from page_text import text_of


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """(results, artifacts of runs by name), with the page and all that is beside it."""
    results = tmp_path_factory.mktemp("results")
    add = synthetic_results.add
    runs = {
        "first": add(results, epochs=2, made="2026-03-01T08:00:00Z"),
        "other": add(
            results, epochs=2, learning_rate=0.01, noise=0.1, made="2026-03-02T08:00:00Z", name="b <i>"
        ),
        "lenet": add(
            results, dataset="mnist", network="lenet_5", epochs=1, accuracy=0.96,
            made="2026-03-03T08:00:00Z",
        ),
        "longer": add(
            results, dataset="mnist", network="lenet_5", epochs=3, accuracy=0.98,
            made="2026-03-04T08:00:00Z",
        ),
    }  # fmt: skip
    page.write(discovery.runs(results), results, {"epochs": 1}, dict)
    return results, runs


def data_of(results):
    text = (results / "runs.html").read_text()
    return json.loads(
        re.search(r'<script type="application/json" id="data">(.*?)</script>', text)[1]
    )


def decoded(packed):
    return np.frombuffer(base64.b64decode(packed["data"]), f"<{packed['kind']}").reshape(
        packed["shape"]
    )


def script_of(results, name):
    """The kind and the data of a script in results/runs/."""
    text = (results / "runs" / f"{name}{single.mark()}.js").read_text()
    kind, data = re.fullmatch(r'kernelLadder\("(\w+)",(.*)\);\n', text, re.S).groups()
    return kind, json.loads(data)


# The best.


def test_the_best_run_of_each_data_set_has_its_interval_and_what_sets_it_apart(made):
    results, runs = made
    found = discovery.runs(results)
    digits, mnist = best.leaders(found)
    first, second = (runs[name]["report"].version for name in ("longer", "lenet"))
    assert (mnist["run"].version, mnist["second"].version, mnist["count"]) == (first, second, 2)
    assert mnist["text"] == intervals.accuracy(mnist["run"].summary)
    assert mnist["apart"] == {"epochs": ("3", "1")} and mnist["what"] == "test accuracy"
    assert digits["alike"] == 1 and "second" not in digits
    text = text_of((results / "runs.html").read_text())
    assert f"{mnist['lead']['points']} points against {second}, the next" in text
    assert f"{mnist['text']} test accuracy".replace("\u202f", " ") in text
    assert "Differs from config.yaml: epochs 3 +" in text and "epochs 3 against 1" in text


def test_validation_counts_only_where_nothing_was_scored_on_test_images(tmp_path):
    synthetic_results.add(tmp_path, epochs=2, validation=180)
    (only,) = best.leaders(discovery.runs(tmp_path))
    assert only["what"] == "validation accuracy"
    tested = synthetic_results.add(tmp_path, epochs=2, noise=0.1)["report"]
    (leader,) = best.leaders(discovery.runs(tmp_path))
    assert (leader["run"].version, leader["count"]) == (tested.version, 1)


def test_a_run_with_two_reports_counts_once_and_another_one_of_its_score_is_alike(made):
    *_, mnist = best.leaders(discovery.runs(made[0]))
    first = mnist["run"]

    def again(**changed):
        settings = {**first.settings, **changed}
        return dataclasses.replace(first, about={**first.about, "run": "r2"}, settings=settings)

    (shown,) = best.leaders([first, again(runs=[{"seed": 2}], feature_map=False)])
    assert (shown["count"], shown["alike"]) == (1, 0)
    (shown,) = best.leaders([first, again(svm_C=3)])
    assert (shown["count"], shown["alike"]) == (2, 1)


def test_a_difference_is_paired_where_both_keep_their_answers_for_the_same_images(made):
    found = {run.version: run for run in discovery.runs(made[0])}
    first, other = (found[made[1][name]["report"].version] for name in ("longer", "lenet"))
    a, b = answers.answers(first), answers.answers(other)
    difference = answers.difference(first, other, "test_accuracy")
    assert difference == intervals.counted(a.labels, a.predictions, b.predictions)
    digits = found[made[1]["first"]["report"].version]
    unpaired = answers.difference(first, digits, "test_accuracy")
    scores = [one.numbers[key] for one in (first, digits) for key in ("test_accuracy", "images")]
    assert unpaired == intervals.unpaired(*scores) and not unpaired.paired


def test_what_two_runs_have_differently_comes_before_what_only_one_of_them_has():
    a = {"augment_flip": True, "epochs": 2, "network": "autoencoder"}
    b = {"epochs": 3, "network": "patch_net", "patches": 9}
    assert list(best.apart(a, b)) == ["network", "epochs", "augment_flip", "patches"]
    assert best.apart(a, b)["patches"] == ("–", "9")


# The page and its numbers.


def test_a_folder_without_runs_has_a_page_that_says_how_to_begin(tmp_path):
    page.write(discovery.runs(tmp_path), tmp_path, {}, dict)
    text = text_of((tmp_path / "runs.html").read_text())
    assert "No runs yet" in text and ".venv/bin/snakemake report" in text
    assert "not made yet: .venv/bin/snakemake results/network.html" in text
    assert json.loads((tmp_path / "runs.json").read_text())["runs"] == []


def test_without_a_script_the_newest_runs_are_a_table_with_intervals(made):
    results, _ = made
    plain = re.search(r"<noscript>(.*)</noscript>", (results / "runs.html").read_text(), re.S)[1]
    rows = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in plain.split("<tr>")[1:]]
    heads, *rows = [list(map(text_of, row)) for row in rows]
    for run, row in zip(discovery.runs(results), rows, strict=True):
        shown = intervals.within(run.numbers["test_accuracy"], run.ends["test_accuracy"])
        accuracy = f"{shown['text']} {shown['interval_text']}".replace("\u202f", " ")
        told = dict(zip(heads, row, strict=True))
        assert told["run"] == (run.about.get("name") or run.version)
        assert told["test accuracy"] == accuracy
        assert int(told["epochs"]) == run.settings["epochs"]
        assert f'<a href="report/{run.version}/report.html">' in plain


def test_columns_that_differ_come_first_and_equal_ones_are_written_once(made):
    columns = {column["key"]: column for column in data_of(made[0])["columns"]}
    settings = [key for key, column in columns.items() if column["kind"] == "setting"]
    coded = [columns[key]["values"] for key in settings]
    texts = [one if isinstance(one, list) else one["values"] for one in coded]
    several = [len({*found} - {None}) > 1 for found in texts]
    assert several == sorted(several, reverse=True) and settings[:2] == ["dataset", "network"]
    assert columns["variant"]["values"] == {"values": ["cpu"], "of": 0}


def test_csv_and_json_have_every_run_with_one_schema(made):
    results, runs = made
    found = json.loads((results / "runs.json").read_text())
    lines = {
        line["run"]: line
        for line in csv.DictReader(io.StringIO((results / "runs.csv").read_text()))
    }
    for run in found["runs"]:
        line = lines[run["run"]]
        names = {*run, *run["settings"], *run["numbers"]} - {"settings", "numbers"}
        assert names <= line.keys()
        assert {key.removesuffix("_low").removesuffix("_high") for key in names} <= found[
            "columns"
        ].keys()
        for key, value in run["numbers"].items():
            assert float(line[key]) == value
    longest = found["runs"][0]
    assert longest["numbers"]["test_accuracy"] == pytest.approx(0.98, abs=0.005)
    assert longest["settings"]["epochs"] == 3 and len(lines) == len(runs)


def test_five_thousand_runs_are_at_most_two_and_a_half_megabytes(made):
    runs = discovery.runs(made[0])
    many = []
    for number in range(5000):
        run = runs[number % len(runs)]
        numbers = {key: value * (1 + number / 7919) for key, value in run.numbers.items()}
        about = run.about | {
            "state": "trained",
            "run": f"r{number:011x}",
            "made": f"2026-03-01T08:{number % 60:02}:00Z",
        }
        settings = run.settings | {"learning_rate": number / 7919, "seed": number % 10}
        ends = {key: [numbers[key] - 0.012345, numbers[key] + 0.012345] for key in run.ends}
        many.append(
            discovery.Run(
                about,
                settings,
                numbers,
                ends,
                {**run.written, "seed": number % 10},
                results=run.results,
            )
        )
    assert len(page.page(many, {}, dict, {})) < 2_500_000


# The files of single runs.


def test_a_runs_script_has_its_answers_and_only_data(made):
    results, runs = made
    report, svm = runs["other"]["report"], runs["other"]["svm"]
    kind, data = script_of(results, report.version)
    assert kind == "run" and data["run"] == report.version
    predictions = decoded(data["answers"]["predictions"])
    assert np.array_equal(predictions, svm.array("predictions.npy"))
    assert np.array_equal(
        decoded(data["answers"]["labels"]), runs["other"]["data"].array("test_labels.npy")
    )
    assert data["curves"]["loss"] == report.json("summary.json")["curves"]["loss"]
    stages = {stage["role"]: stage for stage in data["stages"]}
    assert list(stages)[:3] == ["data", "normalized", "initial weights"]
    assert stages["train"]["settings"]["learning_rate"] == 0.01
    name = f"{report.version}{single.mark()}.js"
    assert "</" not in (results / "runs" / name).read_text()


def test_pictures_of_the_errors_are_in_the_order_of_their_rows(made):
    results, runs = made
    _, data = script_of(results, runs["lenet"]["report"].version)
    found, errors = data["answers"], data["answers"]["errors"]
    wrong = np.flatnonzero(decoded(found["labels"]) != decoded(found["predictions"]))
    assert errors["rows"] == wrong.tolist() and 0 < len(wrong) < single.ERRORS
    name = f"{runs['lenet']['report'].version}-errors{single.mark()}.webp"
    sheet = Image.open(results / "runs" / name)
    assert sheet.size[0] == errors["columns"] * errors["width"]
    images = runs["lenet"]["data"].array("test_images.npy")
    place = len(wrong) - 1
    left, top = (
        place % errors["columns"] * errors["width"],
        place // errors["columns"] * errors["height"],
    )
    shown = np.asarray(
        sheet.convert("L").crop((left, top, left + errors["width"], top + errors["height"]))
    )
    assert np.abs(shown.astype(int) - images[wrong[place]][..., 0]).mean() < 12


def test_decisions_are_those_of_the_classifier(made):
    results, runs = made
    kind, data = script_of(results, f"{runs['first']['report'].version}-decisions")
    assert (kind, data["kind"], data["classes"]) == ("decisions", "svm", list(range(10)))
    assert np.array_equal(decoded(data["values"]), runs["first"]["svm"].array("decisions.npy"))


def test_a_sketch_gives_the_distance_of_large_tensors_and_small_ones_as_they_are():
    random = np.random.default_rng(1)
    first = random.standard_normal((300, 400)).astype(np.float32)
    small = first[0]
    assert np.array_equal(single.sketch(small), small)
    for noise in (0.01, 1):
        other = first + noise * random.standard_normal(first.shape).astype(np.float32)
        distance = np.linalg.norm(single.sketch(other) - single.sketch(first))
        assert distance == pytest.approx(np.linalg.norm(other - first), rel=0.08)
    assert not np.any(single.sketch(first.copy()) - single.sketch(first))


def test_weights_of_a_run_are_those_of_its_training(made):
    results, runs = made
    _, data = script_of(results, runs["lenet"]["report"].version)
    train = runs["lenet"]["train"]
    network = networks.from_params(train.manifest["spec"]["params"])
    tensors = weights.of_artifact(train, network)
    assert {name: one["count"] for name, one in data["weights"].items()} == {
        name: value.size for name, value in tensors.items()
    }
    bias = next(name for name in tensors if name.endswith("bias"))
    assert np.array_equal(decoded(data["weights"][bias]["values"]), tensors[bias].ravel())


def test_files_of_runs_are_made_once_and_go_with_them(made, tmp_path):
    results = shutil.copytree(made[0], tmp_path / "results")
    before = {path.name: path.stat().st_mtime_ns for path in (results / "runs").iterdir()}
    gone = made[1]["first"]["report"].version
    shutil.rmtree(results / "report" / gone)
    page.write(discovery.runs(results), results, {}, dict)
    after = {path.name: path.stat().st_mtime_ns for path in (results / "runs").iterdir()}
    del before["rows.json"], after["rows.json"]
    assert {name for name in before if name not in after} == {
        name for name in before if name.startswith(gone)
    }
    alone = made[1]["first"]["train"].version  # a training without a report now
    assert {name: before.get(name) for name in after if alone not in name} == {
        name: time for name, time in after.items() if alone not in name
    }


def test_files_that_another_release_or_user_has_made_are_made_anew(made, tmp_path, monkeypatch):
    results = shutil.copytree(made[0], tmp_path / "results")
    before = {path.name.partition("-")[0] for path in (results / "runs").glob("r*.js")}
    monkeypatch.setattr(single, "mark", lambda: "-5eec0de5")
    page.write(discovery.runs(results), results, {}, dict)
    after = [path.name.partition("-") for path in (results / "runs").glob("r*.js")]
    assert {version for version, _, _ in after} == before
    assert all(end in ("5eec0de5.js", "decisions-5eec0de5.js") for _, _, end in after)
    assert data_of(results)["mark"] == "-5eec0de5"


def test_an_inexact_multiplier_has_a_picture_of_its_errors(tmp_path):
    add = synthetic_results.add
    add(tmp_path, dataset="mnist", network="lenet_5", epochs=1, multiplier="mit32")
    runs = discovery.runs(tmp_path)
    page.write(runs, tmp_path, {}, dict, most=0)
    assert data_of(tmp_path)["multipliers"] == []  # trained with it alone
    tested, odd = (
        dataclasses.replace(runs[0], settings=runs[0].settings | {"test_multiplier": name})
        for name in ("mit32", ["../mine"])
    )
    page.write([tested, odd], tmp_path, {}, dict, most=0)
    assert data_of(tmp_path)["multipliers"] == ["mit32"]
    (path,) = (tmp_path / "runs").glob("*.png")
    pixels = np.asarray(Image.open(path))
    # Mitchell's products are too small by a ninth at most, at x = y = 1/2, and exact at x = 0
    assert (
        tuple(pixels[62, 62, :3]) == costs.BLUE and pixels[62, 62, 3] > 250 > 10 > pixels[0, 60, 3]
    )


def test_a_command_makes_the_files_of_the_newest_runs_first(made, tmp_path):
    results = shutil.copytree(made[0], tmp_path / "results")
    shutil.rmtree(results / "runs")
    page.write(discovery.runs(results), results, {}, dict, most=1)
    (script,) = [path.stem for path in (results / "runs").glob("r???????????-????????????.js")]
    assert script.removesuffix(single.mark()) == made[1]["longer"]["report"].version


def test_the_folders_are_listed_once_for_all_runs(made, tmp_path, monkeypatch):
    results, listed = shutil.copytree(made[0], tmp_path / "results"), []
    shutil.rmtree(results / "runs")
    runs, below = discovery.runs(results), lineage._below
    monkeypatch.setattr(lineage, "_below", lambda folder: listed.append(folder) or below(folder))
    page.write(runs, results, {}, dict)
    assert len(listed) == len({*listed}) > 1


def test_a_damaged_artifact_takes_the_files_of_its_runs_alone(made, tmp_path, caplog):
    results = shutil.copytree(made[0], tmp_path / "results")
    shutil.rmtree(results / "runs")
    (results / "data" / made[1]["lenet"]["data"].version / "test_images.npy").write_bytes(b"")
    with caplog.at_level("INFO", "ladder"):
        page.write(discovery.runs(results), results, {}, dict)
    there = {path.stem.partition("-")[0] for path in (results / "runs").glob("r*.js")}
    own, other = (made[1][name]["report"].version for name in ("lenet", "first"))
    assert other in there and own not in there
    assert f"{own} has no file" in caplog.text and "test_images.npy is damaged" in caplog.text


def test_pictures_that_may_not_be_shared_have_no_file(tmp_path):
    report = synthetic_results.add(tmp_path, epochs=2)["report"]
    summary = report.json("summary.json") | {"share": False}
    (report.folder / "summary.json").write_text(json.dumps(summary))
    manifest_files.rewrite(report.folder)
    page.write(discovery.runs(tmp_path), tmp_path, {}, dict)
    assert (tmp_path / f"runs/{report.version}{single.mark()}.js").exists()
    assert not [*(tmp_path / "runs").glob("*.webp")]


def test_pages_that_an_earlier_release_left_lead_here_and_no_others_are_made(tmp_path):
    left, own = tmp_path / "search.html", tmp_path / "index.html"
    left.write_text("<title>Search · Kernel Ladder</title>")
    own.write_text("mine")
    successors.write(tmp_path)
    assert {*tmp_path.iterdir()} == {left, own} and own.read_text() == "mine"
    assert 'url=runs.html#q=tag:search&amp;x=trial"' in left.read_text()
