"""The numbers of a report are those of the manifests, and its page has all sections."""

import csv
import html.parser
import io
import json
import math
import re
import tracemalloc
import types

import numpy as np
import pytest
import sklearn.metrics

import ladder
import make_report
import manifest_files
import synthetic_run
from ladder import sources
from ladder.data import names
from ladder.errors import RunFailed
from ladder.executors import create
from ladder.network import networks, weights
from ladder.pages import curves, facts, intervals, report, roles, summary_keys, templates, verdicts
from ladder.pages.sections import accuracy, layers, timing, training
from ladder.store import artifacts, targets
from page_text import addresses, joined_sentences, text_of

PARAMS = {"variant": "cpu", "seed": 1}  # of a report
SECTIONS = [
    "result",
    "run",
    "data",
    "training",
    "filters",
    "classes",
    "time",
    "network",
    "reproduce",
]


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    return synthetic_run.make(tmp_path_factory.mktemp("digits"))


@pytest.fixture(scope="module")
def digits_page(digits):
    return page_of(digits)


@pytest.fixture(scope="module")
def lenet(tmp_path_factory):
    """A network that classifies, with an SVM on its last features."""
    return synthetic_run.make(
        tmp_path_factory.mktemp("lenet"), "mnist", network="lenet_5", features_layer="fc2_relu"
    )


@pytest.fixture(scope="module")
def resnet(tmp_path_factory):
    """A training of a fraction of an epoch."""
    return synthetic_run.make(
        tmp_path_factory.mktemp("resnet"), "mnist", network="resnet50", steps=13
    )


def test_every_scored_image_is_a_line_of_the_csv_with_what_is_said_of_it(
    lenet, digits, monkeypatch
):
    for run, role, decisions in (
        (lenet, "evaluate", lenet["evaluate"].array("probabilities.npy").max(axis=1)),
        (digits, "svm", digits["svm"].array("margins.npy")),
    ):
        lines = list(csv.DictReader(io.StringIO(report.csv_text(run))))
        assert [line["label"] for line in lines] == [
            str(label) for label in run["data"].array("test_labels.npy")
        ]
        assert [line["prediction"] for line in lines] == [
            str(label) for label in run[role].array("predictions.npy")
        ]
        assert [line["row"] for line in lines] == [str(row) for row in range(len(lines))]
        assert {line["file"] for line in lines} == {""}
        np.testing.assert_allclose(
            [float(line["decision"]) for line in lines], decisions, rtol=1e-8
        )
    assert report.csv_text({"data": digits["data"]}) == "row,file,label,prediction,decision\n"


def test_of_one_of_a_kind_the_report_has_no_plural(tmp_path):
    run = synthetic_run.make(
        tmp_path, "mnist", network="lenet_5", train=1, test=1, epochs=1, batch=1, controls=()
    )
    plural = r"(?<![\d.,])1 (?:[a-z]+ )?(?:images|epochs|steps|features|filters|classes|layers|times)\b(?!:)"
    assert re.findall(plural, shown_text(run)) == []


def test_the_lines_of_many_images_are_not_in_memory_at_once(digits, monkeypatch):
    many, array = 20_000, artifacts.Artifact.array
    monkeypatch.setattr(
        artifacts.Artifact, "array", lambda artifact, name: np.resize(array(artifact, name), many)
    )
    tracemalloc.start()
    text = report.csv_text(digits)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert text.count("\n") == many + 1 and peak < 10 * len(text)


def test_own_pictures_are_named_in_the_csv_and_beside_errors_whatever_their_names(
    digits, monkeypatch
):
    hostile = '7/<script>"\n,;=1.png'
    monkeypatch.setattr(
        names, "read", lambda data, part: [f"{hostile}{row}" for row in range(data.metrics["test"])]
    )
    lines = list(csv.DictReader(io.StringIO(report.csv_text(digits))))
    assert [line["file"] for line in lines] == [f"{hostile}{row}" for row in range(len(lines))]
    page, (first, *_) = (
        page_of(digits),
        np.flatnonzero([line["label"] != line["prediction"] for line in lines]),
    )
    assert (
        f'title="7/&lt;script&gt;&#34;\\n,;=1.png{first}, margin ' in page
        and '<script>"' not in page
    )
    assert f"<small>&lt;script&gt;&#34;\\n,;=1.png{first}</small>" in page
    assert "<code>scored_images.csv</code></a> has all with their files" in page


def test_what_folders_were_taken_for_and_copies_are_in_the_report_and_in_its_numbers(
    digits, monkeypatch
):
    counts = {"pictures": 7, "in_both_parts": 3, "with_different_labels": 2}
    monkeypatch.setitem(digits["data"].metrics, "copies", counts)
    monkeypatch.setitem(
        digits["data"].metrics, "remarks", ["The folder <b>/ is taken to train on, x/ to test on"]
    )
    assert summary_of(digits)["images"]["copies"] == counts
    page = page_of(digits)
    assert "<p>The folder &lt;b&gt;/ is taken to train on, x/ to test on.</p>" in page
    assert (
        "<p>7 pictures are there more than once, equal when scaled; test pictures that are training pictures too: 3; "
        "pictures with different labels: 2.</p>"
    ) in page


def summary_of(run, **params):
    return report.summary(run, "r0123456789e", PARAMS | params)


def page_of(run):
    return report.page(run, summary_of(run))


def shown_text(run, numbers=None):
    """The text of a run's page; numbers: in place of its summary."""
    return text_of(report.page(run, numbers or summary_of(run)))


def without(run, *roles):
    return {role: one for role, one in run.items() if role not in roles}


@pytest.mark.parametrize(
    "state, said",
    [
        (None, ""),
        (
            {"commit": "abc", "clean": True},
            ", git commit <code>abc</code>, and no file of it was changed,",
        ),
    ],
)
def test_the_page_says_which_program_made_it_also_outside_of_a_repository(
    digits, monkeypatch, state, said
):
    monkeypatch.setattr(report.program, "state", lambda root: state)
    page = page_of(digits)
    assert f"<p>Kernel Ladder {ladder.__version__}{said} made this report." in page
    assert "  author = {{The Kernel Ladder authors}},\n  title = {Kernel Ladder},\n" in page
    assert f"  version = {{{ladder.__version__}}}," in page


def test_the_summary_is_plain_json_and_repeats_the_manifests(digits):
    numbers = json.loads(json.dumps(summary_of(digits), allow_nan=False))
    assert numbers["test_accuracy"] == digits["svm"].metrics["accuracy"]
    assert numbers["control_accuracy"] == digits["svm_random"].metrics["accuracy"]
    assert numbers["raw_pixel_accuracy"] == digits["svm_pixels"].metrics["accuracy"]
    assert numbers["loss"] == digits["train"].metrics["loss"]
    assert numbers["steps"] == digits["train"].metrics["steps"] and numbers["epochs"] == 10
    assert numbers["accuracy"] is None and numbers["test_loss"] is None
    assert numbers["seconds"]["train"] == digits["train"].manifest["seconds"]
    assert numbers["peak_memory_bytes"]["svm"] == digits["svm"].manifest["peak_memory_bytes"]
    assert numbers["svm"] == {
        "backend": "sklearn",
        "kernel": "rbf",
        "C": 10,
        "gamma": 0.000481,
        "support_vectors": 1022,
        "accuracy": digits["svm"].metrics["accuracy"],
    }
    assert set(numbers["versions"]) == {*digits, "report"}
    assert numbers["versions"]["initial"] == digits["train"].manifest["spec"]["parents"]["initial"]
    assert numbers["weights"].endswith(f"train/{digits['train'].version}/weights.bin")


def test_rows_of_the_confusion_matrix_are_the_true_classes(digits):
    labels = digits["data"].array("test_labels.npy")
    confusion = summary_of(digits)["confusion"]
    assert [sum(row) for row in confusion] == np.bincount(labels).tolist()


@pytest.mark.parametrize("launching", ["as CUDA graphs", "one by one (cudaErrorNotSupported)"])
def test_the_page_says_how_kernels_were_launched(digits, monkeypatch, launching):
    device = digits["train"].metrics["device"]
    assert "kernels launched" not in shown_text(digits)
    monkeypatch.setitem(digits["train"].metrics, "launching", launching)
    assert f"{device}; kernels launched {launching}" in shown_text(digits)


def test_the_weights_path_is_relative_to_the_repository():
    path = sources.ROOT / "results/train/t0/weights.bin"
    assert facts.from_root(path) == "results/train/t0/weights.bin"


def test_controls_left_out_are_null_and_not_on_the_page(digits):
    run = without(digits, "features_random", "svm_random", "features_pixels", "svm_pixels")
    numbers = summary_of(run)
    assert numbers["control_accuracy"] is None and numbers["raw_pixel_accuracy"] is None
    text = shown_text(run, numbers)
    assert "without controls, which this run left out" in text
    assert "Untrained encoder" not in text and "None" not in text


@pytest.mark.parametrize(
    "left_out, said, unsaid",
    [
        ("random", "Against raw pixels", "untrained"),
        ("pixels", "Against the untrained encoder", "raw pixels"),
    ],
)
def test_the_page_speaks_of_the_controls_that_there_are(digits, left_out, said, unsaid):
    run = without(digits, f"features_{left_out}", f"svm_{left_out}")
    result = page_of(run).partition('id="result"')[2].partition("</section>")[0]
    text = text_of(result)
    assert said in text and unsaid not in text.lower()


def test_a_network_without_an_svm_has_null_and_no_sections_for_it(digits):
    run = {role: digits[role] for role in ("data", "normalized", "initial", "train")}
    numbers = summary_of(run)
    assert (
        numbers["svm"] is None and numbers["test_accuracy"] is None and numbers["confusion"] is None
    )
    page = report.page(run, numbers)
    assert 'id="result"' not in page and 'id="classes"' not in page and "None" not in text_of(page)


def test_the_numbers_of_a_network_that_classifies_are_its_own(lenet):
    numbers = json.loads(json.dumps(summary_of(lenet), allow_nan=False))
    evaluated, svm = lenet["evaluate"].metrics, lenet["svm"].metrics
    assert evaluated["accuracy"] != svm["accuracy"]
    assert (
        numbers["test_accuracy"] == evaluated["accuracy"]
        and numbers["test_loss"] == evaluated["loss"]
    )
    assert (
        numbers["confusion"] == evaluated["confusion"]
        and numbers["per_class"] == evaluated["per_class"]
    )
    assert numbers["svm"]["accuracy"] == svm["accuracy"]
    assert numbers["control_accuracy"] == lenet["svm_random"].metrics["accuracy"]
    assert numbers["accuracy"] == lenet["train"].metrics["accuracy"]
    assert set(numbers["versions"]) == {*lenet, "report"}
    assert numbers["weights"].endswith("/weights.safetensors")


def test_the_page_of_a_network_that_classifies_begins_with_its_accuracy(lenet):
    text = shown_text(lenet)
    accuracy = lenet["evaluate"].metrics["accuracy"]
    low, high = (100 * end for end in intervals.wilson(accuracy, 360))
    assert text.partition("LeNet-5 on MNIST")[2].startswith(
        f"LeNet-5, trained on 1,437 labelled images, classifies {100 * accuracy:.1f} % of 360 test images of MNIST correctly "
        f"(95 % interval {low:.1f} to {high:.1f} %): ",
        text.partition("LeNet-5 on MNIST")[2].index("LeNet-5, "),
    )
    wrong = np.count_nonzero(
        lenet["evaluate"].array("predictions.npy") != lenet["data"].array("test_labels.npy")
    )
    assert f"Misclassified{wrong} of 360" in text and "images of 28 × 28 pixels" in text
    assert "prediction of the network; of each pair the most confident error first" in text


def test_an_svm_beside_a_network_that_classifies_has_a_section_of_its_own(lenet):
    page = page_of(lenet)
    head, svm = page.split('<section id="classifier"')
    assert "SVM" not in text_of(head).partition("The run")[0]
    text = text_of(svm)
    for role, who in (
        ("evaluate", "The network itself"),
        ("svm", "SVM, trained network"),
        ("svm_random", "SVM, untrained network"),
        ("svm_pixels", "SVM, raw pixels"),
    ):
        assert re.search(rf"{who}.*?{100 * lenet[role].metrics['accuracy']:.1f} %", text), who
    assert "by the output of layer fc2_relu" in text and "the SVM" in text


def test_without_an_svm_a_page_does_not_speak_of_one(lenet):
    page = page_of(
        {role: lenet[role] for role in ("data", "normalized", "initial", "train", "evaluate")}
    )
    text = text_of(page)
    assert "SVM" not in text and "reconstruct" not in text and "None" not in text
    for section in SECTIONS:
        assert f'<section id="{section}"' in page and f'href="#{section}"' in page
    assert 'id="classifier"' not in page and 'id="reconstructions"' not in page


def test_a_part_of_an_epoch_is_called_that(resnet):
    text = shown_text(resnet)
    assert (
        "labelled images for 13 steps, 0.57 epochs" in text
        and "13 steps, batch 640.57 epochs, seed 1" in text
    )
    assert "Each point is one step." in text


@pytest.mark.parametrize(
    "network, images, mapped", [("autoencoder", 1, 1), ("autoencoder", 10, 10), ("lenet_5", 1, 0)]
)
def test_a_run_of_one_image_and_of_ten_has_a_page_with_places_for_all_that_is_drawn(
    tmp_path, network, images, mapped
):
    run = synthetic_run.make(
        tmp_path, "mnist", network=network, train=images, test=images, epochs=1, mapped=mapped
    )
    page = page_of(run)
    json.dumps(summary_of(run), allow_nan=False)
    assert f"{images} test image" in text_of(page)
    assert not re.search(r"\b(nan|inf|None)\b", text_of(page))
    shapes = re.findall(
        r'\b(?:d|x|y|x1|x2|y1|y2|cx|cy|width|height|transform|style)="([^"]*)"', page
    )
    assert shapes and not any(re.search(r"nan|inf\b", shape) for shape in shapes)
    charts_of = [
        json.loads(text)
        for text in re.findall(r'<script type="application/json">(.*?)</script>', page, re.DOTALL)
    ]
    assert (
        {chart["title"] for chart in charts_of} >= {"Map of the features"} if mapped else charts_of
    )
    nearest = [chart["nearest"] for chart in charts_of if "nearest" in chart]
    assert [len(near_of) for near_of in nearest] == [images] * bool(mapped)
    assert all(at not in near for near_of in nearest for at, near in enumerate(near_of)), (
        "an image is no neighbour of its own"
    )


def test_the_layers_of_a_long_network_are_folded_and_all_there(resnet):
    page = page_of(resnet)
    for layer in resnet["train"].metrics["network"]:
        # and its filters
        assert page.count(f"<code>{layer['layer']}</code>") == 1 + (layer["layer"] == "stem"), layer
    parts = layers.layers(resnet["train"].metrics)["parts"]
    assert [part["name"] for part in parts] == [
        "stem to stem_pool",
        "stage1",
        "stage2",
        "stage3",
        "stage4",
        "average to scores",
    ]
    assert [part["blocks"] for part in parts[1:5]] == [3, 4, 6, 3]
    assert sum(part["parameters"] for part in parts) == resnet["train"].metrics["parameters"]


@pytest.mark.parametrize("network", ["autoencoder", "lenet_5"])
def test_a_run_scored_on_a_validation_set_says_so_wherever_it_would_say_test(tmp_path, network):
    run = synthetic_run.make(
        tmp_path,
        "mnist",
        network=network,
        features_layer="fc1" if network == "lenet_5" else None,
        validation=180,
        epochs=2,
    )
    whole = page_of(run).replace(str(tmp_path), "")
    # which has names of files
    page = re.sub(r'<section id="reproduce".*?</section>', "", whole, flags=re.S)
    text = text_of(page)
    assert summary_of(run)["validation"] == 180
    assert "180 validation images" in text
    parts = [part.strip() for part in re.split(r"[.;]", text)]
    assert [part for part in parts if re.search(r"\btest", part, re.I)] == [
        "the data set’s test images were not used"
    ]
    assert not re.search(r'(alt|aria-label|title)="[^"]*[Tt]est', page)


def test_presets_that_a_page_advises_are_there(digits, lenet, monkeypatch):
    monkeypatch.setattr(templates, "DATASETS", {})
    for run in (digits, {**lenet, "data": digits["data"]}):
        advised = re.search(r"--configfile (presets/\S+)", shown_text(run))
        assert (sources.ROOT / advised[1]).is_file()


def test_the_page_has_every_section_and_a_link_to_each(digits_page):
    for section in (*SECTIONS, "reconstructions"):
        assert f'<section id="{section}"' in digits_page and f'href="#{section}"' in digits_page


def test_the_accuracy_stands_beside_both_controls_with_intervals(digits, digits_page):
    text = text_of(digits_page)
    for role, who in (
        ("svm", "Trained encoder"),
        ("svm_random", "Untrained encoder"),
        ("svm_pixels", "Raw pixels"),
    ):
        accuracy = digits[role].metrics["accuracy"]
        low, high = (100 * end for end in intervals.wilson(accuracy, 360))
        assert re.search(
            rf"{who}[^:]*: {100 * accuracy:.1f} % \({low:.1f} to {high:.1f}\)", text
        ), who


def test_digits_are_called_a_smoke_test_with_this_runs_raw_pixel_accuracy(digits, digits_page):
    text = text_of(digits_page)
    assert "A smoke test, not a benchmark." in text
    assert (
        f"SVM on raw pixels reaches {100 * digits['svm_pixels'].metrics['accuracy']:.1f} %. To"
        in text
    )


def test_every_setting_and_version_is_on_the_page(digits, digits_page):
    text = text_of(digits_page)
    for one in digits.values():
        assert one.version in text
    for key, value in summary_of(digits)["reproduce"]["settings"].items():
        assert re.search(rf"\b{key}: \S", text), (key, value)


def test_every_artifact_links_to_its_manifest_which_is_there(digits, digits_page):
    linked = re.findall(r'href="../../(\w+/\w+)/manifest.json"', digits_page)
    results = digits["data"].folder.parents[1]
    assert {results / one for one in linked} == {one.folder for one in digits.values()}
    assert all((results / one / "manifest.json").is_file() for one in linked)


def test_work_without_a_time_of_its_own_is_said_to_be_inside_the_convolution(digits_page):
    assert "This rung computes upsampling inside the convolution" in text_of(digits_page)


def test_the_page_says_threads_machine_and_libraries(digits, digits_page):
    machine = digits["train"].manifest["machine"]
    text = text_of(digits_page)
    assert (
        machine["processor"] in text
        and "numpy 2.0.1, " in text
        and "scipy 1.9.0" in text
        and "2 threads used" in text
    )


def test_the_page_does_not_tell_the_hosts_name(digits, monkeypatch):
    monkeypatch.setitem(digits["train"].manifest["machine"], "host", "somebodys-laptop")
    assert "somebodys-laptop" not in report.page(digits, summary_of(digits))


def test_text_from_the_artifacts_is_escaped(tmp_path, monkeypatch):
    monkeypatch.setattr(
        synthetic_run, "DIGITS", ["<script>alert(1)</script>", *synthetic_run.DIGITS[1:]]
    )
    run = synthetic_run.make(tmp_path, mapped=50)  # whose classes are data of a chart too
    assert "<script>alert" not in report.page(run, summary_of(run))


def test_the_page_is_one_small_file_and_each_file_that_it_names_is_a_link(digits, digits_page):
    assert len(digits_page.encode()) < 1_000_000
    links = {
        address for address in addresses(digits_page) if not address.endswith("/manifest.json")
    }
    weights = digits["train"].folder / "weights.bin"
    assert links == {
        "summary.json",
        "scored_images.csv",
        "../../test_scores.csv",
        "../../" + "/".join(weights.parts[-3:]),
    }


def test_every_picture_has_a_text_and_every_table_header_a_scope(digits_page):
    class Check(html.parser.HTMLParser):
        def handle_starttag(self, tag, attributes):
            attributes = dict(attributes)
            assert tag != "img" or attributes.get("alt"), attributes
            assert tag != "th" or attributes.get("scope"), attributes

    Check().feed(digits_page)


def test_the_stage_writes_the_page_and_the_summary(digits, tmp_path):
    folder = tmp_path / "report/r0123456789e"
    with artifacts.making(folder, manifest_files.spec("report")) as work:
        make_report.make(work, digits, {})
    made = artifacts.Artifact(folder)
    assert made.json("summary.json") == json.loads(json.dumps(summary_of(digits)))
    assert made.path("report.html").read_text().startswith("<!doctype html>")


def test_a_listed_run_that_failed_is_a_row_and_a_stage_that_failed_a_failure(digits, tmp_path):
    failed = types.SimpleNamespace(failed="diverged")
    params = {"runs": [{"overrides": {"learning_rate": 666}, "reason": ""}]}
    with artifacts.making(tmp_path / "report/r0123456789e", manifest_files.spec("report")) as work:
        make_report.make(work, digits | {"score_run1": failed, "svm_seed2": failed}, params)
        with pytest.raises(RunFailed, match="diverged"):
            make_report.make(work, digits | {"svm": failed}, {})
    (row,) = artifacts.Artifact(work.folder).json("summary.json")["runs"]
    assert (row["reason"], row["mean"]) == ("diverged", None)


def test_the_confusion_matrix_says_what_its_sides_and_its_colours_are(digits_page):
    text = text_of(digits_page)
    assert "classified as →" in text and "true class ↓" in text
    worst = re.search(r"errors: 0 ([\d.]+)\s% of a class", text)
    assert worst and 0 < float(worst[1]) < 100


@pytest.mark.parametrize(
    "won, lost, says",
    [
        (
            30,
            10,
            "Compared with random weights, training the network changed the accuracy of the SVM by +5.6 points (+2.1 to "
            "+9.0, more than luck).",
        ),
        (
            12,
            10,
            "The features of the trained network against the raw pixels: +0.6 points (−2.1 to +3.2, could be luck).",
        ),
        (10, 30, "changed the accuracy of the SVM by −5.6 points (−9.0 to −2.1, more than luck)"),
        (7, 7, "changed the accuracy of the SVM by 0.0 points"),
    ],
)
def test_the_verdict_on_the_features_of_a_classifier_follows_the_numbers(
    lenet, monkeypatch, won, lost, says
):
    gain = {"won": won, "lost": lost, **intervals.words(intervals.paired(won, lost, 360))}
    monkeypatch.setattr(accuracy, "_gain", lambda *_: gain)
    assert says in shown_text(lenet)


def test_the_result_stands_once_beside_how_many_images_only_one_of_two_has_right(
    digits, digits_page
):
    text = text_of(digits_page)
    for control in summary_of(digits)["controls"]:
        points = intervals.words(verdicts.difference(control))["points"]
        assert text.count(f"{points} points") == (control["fault"] is None)
        assert f"{control['won']} right only here{control['lost']} only there" in text


def test_a_run_with_kernel_ridge_is_answered_by_it(tmp_path):
    run = synthetic_run.make(tmp_path, evaluations=("linear", "ridge"))
    numbers = summary_of(run)
    assert numbers["answered_by"] == "ridge"
    assert [
        numbers[key]
        for key in ("test_accuracy", "control_accuracy", "raw_pixel_accuracy", "confusion")
    ] == [
        run["ridge"].metrics["accuracy"],
        run["ridge_random"].metrics["accuracy"],
        run["ridge_pixels"].metrics["accuracy"],
        run["ridge"].metrics["confusion"],
    ]
    assert [one["control"] for one in numbers["controls"]] == ["ridge_random", "ridge_pixels"]
    assert numbers["verdict"].startswith(
        "Kernel ridge regression on features of an autoencoder, trained without labels"
    )
    assert numbers["test_accuracy"] != run["svm"].metrics["accuracy"] == numbers["svm"]["accuracy"]
    text = shown_text(run, numbers)
    assert "Kernel ridge regression was then fitted to the 8,192 features of each image." in text
    assert "Only the classifiers use the labels" in text
    assert "An SVM" not in text and "the accuracy of the SVM" not in text


@pytest.mark.parametrize(
    "settings, says",
    [
        (
            {"shifts": 1},
            "The SVM decides by the mean of its decisions for 5 images: each test image and its copies shifted by 1 pixel along both "
            "diagonals, with the values at the edges repeated. The controls are classified in the same way. The training images are "
            "not shifted.",
        ),
        (
            {"shifts": 2, "evaluations": ("ridge",), "controls": (), "validation": 360},
            "Every classifier decides by the mean of its decisions for 5 images: each validation image and its copies shifted by 2 "
            "pixels along both diagonals, with the values at the edges repeated. The training images are not shifted.",
        ),
        (
            {"shifts": 1, "dataset": "mnist", "network": "lenet_5", "features_layer": "fc2_relu"},
            "The training images are not shifted, and the network itself classifies each image alone.",
        ),
    ],
)
def test_decisions_over_shifted_copies_are_told(tmp_path, settings, says):
    run = synthetic_run.make(tmp_path, **settings)
    numbers = summary_of(run)
    text = shown_text(run, numbers)
    assert (
        numbers["images_per_decision"] == 5
        and numbers["reproduce"]["settings"]["classify_shifts"] == settings["shifts"]
    )
    assert says in text
    assert (
        "its decisions are means over 5 images, each image and its shifted copies." in text
    ) == ("network" not in settings)


def test_a_training_better_than_the_test_is_said_to_overfit(lenet):
    text = shown_text(lenet)
    assert "far below the dashed test line, the network overfits" in text


@pytest.mark.parametrize(
    "patience, most, said",
    [
        (0, 5, "The loss was smallest after epoch 3 of 5; the weights are those of the last."),
        (
            2,
            5,
            "It made all 5 epochs; the weights are those of epoch 3, where that loss was smallest. As the same images have "
            "chosen the epoch, their scores are slightly optimistic.",
        ),
        (
            2,
            9,
            "The training stopped after epoch 5 of 9, because that loss had not fallen for 2 epochs; the weights are those of "
            "epoch 3, where that loss was smallest. As the same images",
        ),
    ],
)
def test_what_was_measured_on_the_validation_images_is_told(
    tmp_path, monkeypatch, patience, most, said
):
    run = synthetic_run.make(
        tmp_path, network="lenet_5", validation=180, patience=patience, epochs=5
    )
    monkeypatch.setitem(run["train"].metrics, "epochs_at_most", most)
    text = shown_text(run)
    assert (
        "After every epoch the loss and the accuracy were measured on the 180 validation images, which the training does "
        "not read, in 4.2 s altogether. " + said in text
    )
    assert "Dashed: the network on the validation images after each epoch." in text
    assert (
        "validation loss" in text
        and f"{run['train'].metrics['validation_curve']['loss'][0]:.6g}" in text
    )


@pytest.mark.parametrize(
    "losses, said", [([0.2, 0.05], "it fell by 75.0 %"), ([0.2, 0.25], "it rose by 25.0 %")]
)
def test_the_change_of_the_loss_is_told_beside_the_reconstructions_of_test_images(
    digits, monkeypatch, losses, said
):
    monkeypatch.setitem(digits["train"].metrics, "loss", losses)
    numbers = summary_of(digits)
    fell = 1 - losses[1] / losses[0]
    assert numbers["loss_change"] == {"first": 0.2, "last": losses[1], "fell": pytest.approx(fell)}
    assert numbers["reconstruction_loss"] == {"training": losses[1], "test": 0.0123}
    text = shown_text(digits, numbers)
    assert f"The loss was 0.2 in the first epoch and {losses[1]} in the last: {said}." in text
    assert "On the test images it is 0.0123." in text


def test_divergence_and_pictures_from_the_prior_are_shown_where_values_are_drawn(
    tmp_path, digits, digits_page
):
    run = synthetic_run.make(tmp_path, drawn=0.25)
    numbers = summary_of(run)
    by_step, images = (
        run["train"].tensors("history.safetensors")["divergences"],
        run["data"].metrics["train"],
    )
    sizes = curves.batch_sizes(run["train"], images)
    per_epoch = -(-images // 64)
    assert numbers["divergence"][0] == pytest.approx(
        np.average(by_step[:per_epoch], weights=sizes[:per_epoch])
    )
    assert (
        len(numbers["curves"]["divergence"]) == len(numbers["curves"]["step"])
        and targets.number(numbers, "divergence") > 30
    )
    page = report.page(run, numbers)
    text = text_of(page)
    assert (
        f"with the weight 0.25. It was {numbers['divergence'][-1]:.4g} nats per image in the last epoch"
        in text
    )
    assert "KL divergence, nats per image" in page and f"{numbers['divergence'][0]:.6g}" in text
    assert (
        '<section id="samples"' in page
        and 'href="#samples"' in page
        and "32 pictures that no image went into" in text
    )
    assert summary_of(digits)["divergence"] is None
    assert 'id="samples"' not in digits_page and "divergence" not in digits_page


def test_targets_may_name_what_the_summary_has():
    assert set(targets.METRICS) <= summary_keys.KEYS.keys()


def test_the_targets_are_told_with_what_was_reached(digits):
    bounds = [
        {"metric": "test_accuracy", "at_least": 0.9},
        {"metric": "seconds.train", "at_most": 60},
        {"metric": "reference.largest", "at_most": 1e-4},
        {"metric": "loss_change.fell", "at_least": 0.5},
    ]
    numbers = summary_of(digits, targets=bounds)
    assert [(one["reached"], one["met"]) for one in numbers["targets"]] == [
        (digits["svm"].metrics["accuracy"], True),
        (digits["train"].manifest["seconds"], False),
        (None, False),
        (numbers["loss_change"]["fell"], True),
    ]
    text = shown_text(digits, numbers)
    assert "2 of 4 met." in text
    accuracy = 100 * digits["svm"].metrics["accuracy"]
    assert f"test_accuracyat least 90.0 %{accuracy:.1f} %met" in text
    took = templates.duration(digits["train"].manifest["seconds"]).replace("\u202f", " ")
    assert f"seconds.trainat most 1 min 0 s{took}not met" in text
    assert "reference.largestat most 0.0001not measurednot met" in text
    without_any = summary_of(digits)
    assert without_any["targets"] == [] and "Targets" not in shown_text(digits, without_any)


def test_compiling_is_told_beside_the_times_where_it_took_a_second(digits, monkeypatch):
    numbers = summary_of(digits)
    assert numbers["seconds_compiling"] < 1 and "Compiling took" not in shown_text(digits, numbers)
    monkeypatch.setitem(digits["train"].manifest, "seconds_compiling", 38.2)
    numbers = summary_of(digits)
    assert numbers["seconds_compiling"] == 38.2
    assert "Compiling took 38 s more" in shown_text(digits, numbers)


def test_another_rungs_training_is_compared_weight_by_weight(digits, tmp_path):
    other = synthetic_run.make(tmp_path)["train"]
    network = facts.network(digits)
    values = weights.of_artifact(other, network)
    values["dec1.weight"][3, 1, 2, 5] += np.float32(0.5)
    weights.save(other.folder / "weights.bin", network, values)
    manifest_files.rewrite(
        other.folder,
        spec={
            **other.manifest["spec"],
            "params": {**other.manifest["spec"]["params"], "variant": "cpu_sequential"},
        },
    )
    run = {**digits, "train_reference": artifacts.Artifact(other.folder)}
    numbers = summary_of(run)
    found = numbers["reference"]
    assert (found["variant"], found["tensor"]) == ("cpu_sequential", "dec1.weight")
    assert found["largest"] == pytest.approx(0.5, rel=1e-6) and found["mean"] == pytest.approx(
        0.5 / 751_875, rel=1e-6
    )
    assert "Of all weights one of dec1.weight differs most, by 0.5;" in shown_text(run, numbers)
    assert summary_of(digits)["reference"] is None


def test_a_training_that_went_on_from_a_shorter_one_names_it(digits, monkeypatch):
    assert "Went on" not in shown_text(digits)
    monkeypatch.setitem(
        digits["train"].manifest, "notes", {"goes_on_from": "t0", "after_step": 1234}
    )
    assert (
        "Went onafter step 1,234from t0, whose steps are the first of this training"
        in shown_text(digits)
    )


def test_a_schedule_that_did_not_fit_is_named(digits, monkeypatch):
    assert "schedule does not fit" not in shown_text(digits)
    monkeypatch.setitem(
        digits["train"].metrics, "misfits", ["warmup_steps 150 is too many; the rate rises"]
    )
    assert "The schedule does not fit: warmup_steps 150 is too many; the rate rises." in shown_text(
        digits
    )


@pytest.mark.parametrize(
    "code, said",
    [
        (
            ("latent", 1024, None),
            "encodes the 3,072 values of an image in 1,024 (latent) and reconstructs it from there. The",
        ),
        (
            ("winners", 1024, 64),
            "in 1,024 (winners), at most 64 of which are not zero, and reconstructs it from there.",
        ),
        (None, "Training The loss is its mean squared error"),
    ],
)
def test_the_page_says_in_how_many_values_an_image_is_encoded(digits, monkeypatch, code, said):
    network = facts.network(digits)
    assert network.code[0] == "latent" and network.code[1] == math.prod(
        network.layer("latent").output_shape
    )
    monkeypatch.setattr(networks.Network, "code", code)
    assert said in shown_text(digits)


def test_a_variational_network_is_called_one(tmp_path):
    text, numbers = text_and_numbers(tmp_path, drawn=0.5, epochs=1)
    assert "An SVM on features of a variational autoencoder, trained" in numbers["verdict"]
    assert text.startswith(" A variational autoencoder on handwritten digits")
    assert "The output of layer mean of a variational autoencoder" in text
    assert "That of this run, without the draws, is 0.0123 on the test images." in text


def test_only_a_network_that_has_learned_to_reconstruct_is_said_to_soften_edges(
    digits, monkeypatch
):
    soft, bad = "Soft edges are normal", "The network has not learned to reconstruct yet"
    text = shown_text(digits)
    assert soft in text and bad not in text
    reached = training.average_image_loss(digits)
    # of a training with draws or noise, which tests do without
    monkeypatch.setitem(digits["train"].metrics, "loss", [0.5])
    assert soft in shown_text(digits)
    monkeypatch.setitem(digits["train"].metrics, "reconstruction_loss", 0.9 * reached)
    text = shown_text(digits)
    assert (
        soft not in text
        and bad not in text
        and "the error is 90 % of that of the average image" in text
    )
    monkeypatch.setitem(digits["train"].metrics, "reconstruction_loss", 0.5)
    text = shown_text(digits)
    assert (
        soft not in text
        and bad in text
        and "This run’s error on the test images is still larger: 0.5." in text
    )


@pytest.mark.parametrize(
    "scores, said",
    [
        (
            {"rows": "test", "run": 1, "all": 3},
            "scored 1 time with these weights when this page was made, 3 times in this",
        ),
        (
            {"rows": "test", "run": 2, "all": 3},
            "scored 2 times with these weights when this page was made, 3 times in this",
        ),
    ],
)
def test_the_number_of_test_scores_is_told(digits, scores, said):
    assert said in text_of(report.page(digits, summary_of(digits) | {"test_scores": scores}))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"dataset": "mnist", "network": "lenet_5", "features_layer": "fc1"},
        {"dataset": "mnist", "validation": 180},
        {"fitted": True, "epochs": 1},
        {"start": "theirs.bin"},
        {"start": "theirs.bin", "trained": False},
        {"trained": False},
        {"parts": (0.5,), "labelled": True},
        {"start": "theirs.bin", "fitted": True, "epochs": 1},
    ],
)
def test_sentences_are_separated_by_blanks(tmp_path, options):
    assert joined_sentences(page_of(synthetic_run.make(tmp_path, **options))) == []


# ---- layers fitted to patches


def test_a_fitted_encoder_is_told_layer_by_layer_beside_its_decoders_training(tmp_path):
    text, numbers = text_and_numbers(tmp_path, fitted=True, epochs=1)
    assert "The encoder of a network of 751,875 parameters was fitted to patches" in text
    assert "Only the decoder was trained for 1 epoch; no feature depends on it." in text
    assert (
        "enc1120,00027ZCA256k\u2011means2.19 to 2.31 in 3" in text
        and "enc2120,0002,304PCA25695.0 %" in text
    )
    assert "Fitted encoder" in text and "filters of enc1" in text
    assert (
        numbers["versions"]["initial"] == synthetic_run.version("initial")
        and numbers["seconds"]["patches"] > 31
    )


def test_a_network_that_is_only_fitted_has_a_report_without_training(tmp_path):
    run = synthetic_run.make(tmp_path, network="patch_net", fitted=True)
    page, numbers = page_of(run), summary_of(run)
    text = text_of(page)
    assert (
        "The 4 layers with weights of a network" in text and "divided by its own contrast" in text
    )
    assert 'id="training"' not in page and 'id="reconstructions"' not in page and "None" not in text
    assert (
        numbers["training"] == "patches"
        and numbers["loss"] is numbers["epochs"] is numbers["images_per_second"] is None
    )
    assert numbers["weights"].endswith("weights.safetensors")


# ---- what the run started from

START = {"file": "results/train/t0123456789a/weights.bin", "sha256": "5e" * 6}


def text_and_numbers(results, *dataset, **settings):
    run = synthetic_run.make(results, *dataset, **settings)
    return shown_text(run), summary_of(run)


def test_a_run_from_a_file_names_it_and_calls_only_the_random_draw_untrained(tmp_path):
    text, numbers = text_and_numbers(tmp_path, start=START["file"])
    assert (
        numbers["start"] == START
        and numbers["versions"]["initial"] != numbers["versions"]["initial_random"]
    )
    lead = text.rpartition("The run")[2].partition("Datasetdigits")[0]
    assert f"It started from the weights of {START['file']} (sha256 {START['sha256']})." in lead
    assert f"Well under 1 % is still practically as in {START['file']}." in text
    assert (
        f"The run trained on no test image; what {START['file']} had been trained on is not known here."
        in text
    )
    assert "practically random" not in text and "No training used" not in text
    assert f"Initial weights{START['file']}sha256 {START['sha256']}" in text


def test_weights_as_they_are_in_a_file_are_not_said_to_be_trained(tmp_path):
    text, numbers = text_and_numbers(tmp_path, start="theirs.bin", trained=False)
    assert (
        "An SVM on features of an autoencoder, with the weights of theirs.bin, classifies" in text
    )
    assert (
        f"751,875 parameters was not trained: its weights are those of theirs.bin (sha256 {START['sha256']})."
        in text
    )
    assert "Given encoder, this run:" in text and "Untrained encoder" in text
    assert "The given weights are" in text
    assert (
        numbers["training"] == "none"
        and numbers["loss"] is numbers["device"] is numbers["layer_movement"] is None
    )
    assert numbers["features"] == [
        {
            "network": "autoencoder",
            "layer": "latent",
            "weight": None,
            "learned": "nothing",
            "file": {**START, "file": "theirs.bin"},
        }
    ]
    assert "None" not in text and not re.search(r"\btrained encoder", text, re.I)


def test_the_reconstruction_error_of_weights_as_they_are_in_a_file_is_told(tmp_path):
    run = synthetic_run.make(tmp_path, start="theirs.bin", trained=False)
    run["features"].metrics["reconstruction_loss"] = 0.04567
    assert summary_of(run)["reconstruction_loss"] == {
        "training": None,
        "test": 0.04567,
    }
    assert "It rebuilds the 360 test images with a mean squared error of 0.04567." in shown_text(
        run
    )


def test_random_weights_are_their_own_control(tmp_path):
    text, numbers = text_and_numbers(tmp_path, trained=False, controls=("pixels",))
    assert (
        "was not trained: its weights are random, drawn with seed 1." in text
        and "Untrained encoder, this run:" in text
    )
    assert (
        numbers["control_accuracy"] is None
        and numbers["seed"] == 1
        and not re.search(r"\btrained encoder", text, re.I)
    )
    alone, _ = text_and_numbers(tmp_path / "alone", trained=False, controls=())
    assert "These random weights are what other runs have as their control." in alone


def test_a_network_that_classifies_is_scored_as_it_is_in_a_file(tmp_path):
    text, numbers = text_and_numbers(
        tmp_path, "mnist", network="lenet_5", start="theirs.safetensors", trained=False
    )
    assert "its weights are those of theirs.safetensors" in text
    assert (
        "LeNet-5, with the weights of theirs.safetensors, classifies" in text and "None" not in text
    )
    assert "Training accuracy" not in text and "is trained with the labels" not in text
    assert (
        numbers["test_accuracy"]
        and numbers["weights"].endswith("weights.safetensors")
        and "/initial/" in numbers["weights"]
    )


def test_networks_of_a_kind_are_counted(tmp_path):
    text = shown_text(synthetic_run.make(tmp_path, parts=(0.5, 1.25)))
    assert (
        "3 autoencoders on handwritten digits" in text
        and "An SVM on features of 3 autoencoders, trained without" in text
    )
    mixed = shown_text(synthetic_run.make(tmp_path / "mixed", parts=(0.5, 1.25), labelled=True))
    assert "2 autoencoders and LeNet-5 on handwritten digits" in mixed
    assert "features of 2 autoencoders and LeNet-5, trained partly with labels" in mixed


def test_an_untrained_network_beside_the_trained_one_is_not_said_to_be_trained(tmp_path):
    run = synthetic_run.make(tmp_path, parts=(0.5, 1.25))
    for number in (2, 3):
        run[f"features_part{number}"].manifest["spec"]["parents"]["weights"] = run[
            "initial"
        ].version
    text = shown_text(run)
    assert "An autoencoder and 2 untrained autoencoders on handwritten digits" in text
    assert (
        "An SVM on features of an autoencoder, trained without labels on 1,437 images, and on those of 2 untrained "
        "autoencoders classifies"
    ) in text


def test_features_learned_with_labels_are_said_to_be(tmp_path):
    text, numbers = text_and_numbers(tmp_path, parts=(0.5,), labelled=True)
    assert "An autoencoder and LeNet-5 on handwritten digits" in text
    assert (
        "features of an autoencoder and LeNet-5, trained partly with labels on 1,437 images, classifies"
        in text
    )
    lead = text.rpartition("The run")[2].partition("Datasetdigits")[0]
    assert (
        "Labels were also used for the features: the output of fc2_relu of LeNet-5, which was trained with labels"
        in lead
    )
    assert (
        "The labels are used by the SVM, and by the training of LeNet-5, whose output is part of the features."
        in text
    )
    assert "multiplied by 0.5: the output of layer fc2_relu of LeNet-5, trained with labels" in text
    assert "the output of layer latent of an autoencoder, trained without labels" in text
    assert [
        (part["network"], part["layer"], part["weight"], part["learned"])
        for part in numbers["features"]
    ] == [
        ("autoencoder", "latent", 1, "without labels"),
        ("lenet_5", "fc2_relu", 0.5, "with labels"),
    ]


def test_features_of_the_network_that_classifies_are_said_to_be_learned_with_labels(
    lenet, digits_page
):
    assert (
        "the output of layer fc2_relu, which saw labels in training: 8,192 features"
        in shown_text(lenet)
    )
    assert summary_of(lenet)["features"][0]["learned"] == "with labels"
    plain = text_of(digits_page)
    assert (
        "Labels were also used" not in plain
        and "Only the SVM uses the labels; the network does not." in plain
    )


# ---- what a GPU computed


def test_classifiers_that_a_gpu_computed_are_named_with_it(digits, digits_page, monkeypatch):
    assert "computed on" not in text_of(digits_page)
    for role in ("svm", "svm_pixels"):
        monkeypatch.setitem(
            digits[role].metrics, "gpu", "NVIDIA H200, driver 580.95.05, CuPy 14.2.0"
        )
    named = ", ".join(roles.title(role) for role in ("svm", "svm_pixels"))
    assert f"{named}: computed on NVIDIA H200, driver 580.95.05, CuPy 14.2.0." in shown_text(digits)


def test_the_verdict_holds_the_run_against_each_control_image_by_image(digits):
    numbers = summary_of(digits)
    labels = np.asarray(digits["data"].array("test_labels.npy"))
    right = {
        role: np.asarray(digits[role].array("predictions.npy")) == labels
        for role in ("svm", "svm_random", "svm_pixels")
    }
    assert [control["control"] for control in numbers["controls"]] == ["svm_random", "svm_pixels"]
    for control in numbers["controls"]:
        won, lost = (
            (right["svm"] & ~right[control["control"]]).sum(),
            (right[control["control"]] & ~right["svm"]).sum(),
        )
        middle = (won - lost) / 362
        reach = 1.959963984540054 * math.sqrt(((won + lost + 2) / 362 - middle**2) / 362)
        assert (control["won"], control["lost"]) == (won, lost) and control["difference"] == (
            won - lost
        ) / 360
        assert control["difference_interval"] == pytest.approx([middle - reach, middle + reach])
        told = intervals.words(verdicts.difference(control))
        luck = "could be luck" if abs(middle) <= reach else "more than luck"
        counts = control["fault"] is None
        assert (f"{told['points']} points against" in numbers["verdict"]) == counts
        assert (f"({told['interval_text']}, {luck})" in numbers["verdict"]) == counts
    assert [control["fault"] for control in numbers["controls"]] == ["pixels", None]
    assert (
        "the untrained encoder, 92.5\u202f%, is no control (below raw pixels)" in numbers["verdict"]
    )


@pytest.mark.parametrize(
    "name, accuracy, pixels, fault",
    [
        ("ridge_random", 0.6, 0.5, None),
        ("ridge_random", 0.6, 0.61, "pixels"),
        ("ridge_strong", 0.35, None, "chance"),
        ("ridge_pixels", 0.35, 0.35, None),
        ("majority", 0.33, None, None),
    ],
)
def test_an_untrained_encoder_near_chance_or_below_raw_pixels_is_no_control(
    name, accuracy, pixels, fault
):
    control = {
        "control": name,
        "accuracy": accuracy,
        "interval": list(intervals.wilson(accuracy, 200)),
    }
    assert verdicts.fault(control, 1 / 3, pixels) == fault


def test_the_better_of_two_untrained_encoders_is_what_a_verdict_ends_with(digits):
    def control(name, accuracy, low, high, fault=None):
        score = {"control": f"svm_{name}", "accuracy": accuracy, "fault": fault}
        return score | {
            "difference": (low + high) / 2,
            "difference_interval": [low, high],
            "paired": True,
            "won": 1,
            "lost": 1,
        }

    random, strong = control("random", 0.5, 0.2, 0.3), control("strong", 0.7, -0.1, 0.05)
    nothing = "nothing shows that the trained encoder is better"
    assert verdicts.conclusion(digits, [random, strong]) == nothing
    assert verdicts.conclusion(digits, [random]) == "training helped"
    assert verdicts.conclusion(digits, [random, strong | {"fault": "chance"}]) == "training helped"


@pytest.mark.parametrize(
    "role, words",
    [
        ("train", " with multiplier mine.npy (01234567) and tested with exact, classifies"),
        ("evaluate", " with multiplier exact and tested with mine.npy (01234567), classifies"),
    ],
)
def test_a_table_of_products_is_named(lenet, role, words, monkeypatch):
    params = lenet[role].manifest["spec"]["params"]
    monkeypatch.setitem(params, "multiplier", "integers 0123456789abcdef")
    files = dict.fromkeys(("multiplier", "test_multiplier"), "mine.npy")
    numbers = summary_of(lenet, **files)
    assert f"1,437 labelled images{words}" in numbers["verdict"]
    named = {"train": "multiplier", "evaluate": "test_multiplier"}[role]
    assert numbers["reproduce"]["not_in_settings"] == [named]
    assert "0123" not in str(numbers["reproduce"]["settings"])


def test_few_images_are_said_to_be_few(tmp_path):
    numbers = summary_of(synthetic_run.make(tmp_path, test=60))
    assert " of only 60 test images of " in numbers["verdict"]


def test_of_unbalanced_classes_the_largest_is_a_control_and_the_mean_stands_beside(tmp_path):
    run = synthetic_run.make(tmp_path, of_the_first=200)
    numbers = summary_of(run)
    labels, predictions = (
        np.asarray(array)
        for array in (
            run["data"].array("test_labels.npy"),
            run["svm"].array("predictions.npy"),
        )
    )
    mean = sklearn.metrics.balanced_accuracy_score(labels, predictions)
    assert numbers["balanced_accuracy"] == pytest.approx(mean) != numbers["test_accuracy"]
    assert numbers["controls"][-1]["control"] == "majority"
    assert numbers["controls"][-1]["accuracy"] == np.mean(labels == 0) > 0.5
    words = f"mean of the classes {100 * mean:.1f}\u202f%"
    assert words in numbers["verdict"] and words in intervals.accuracy(numbers)
    assert "Mean of the classes" in shown_text(run, numbers)
    assert intervals.balanced({"confusion": [[5, 1], [0, 6]]}) == "", "the classes are balanced"


@pytest.mark.parametrize(
    "network, controls, conclusion",
    [
        ("autoencoder", ("random",), "training helped"),
        ("autoencoder", (), ""),
        ("lenet_5", ("pixels",), "the network is better than logistic regression"),
    ],
)
def test_a_verdict_ends_with_what_follows(tmp_path, network, controls, conclusion):
    run = synthetic_run.make(
        tmp_path, "mnist", network=network, controls=controls, epochs=1, accuracy=0.99
    )
    numbers = summary_of(run)
    assert (
        numbers["verdict"].endswith(f"; {conclusion}." if conclusion else ").")
        and numbers["verdict"].count(".") > 2
    )
    assert f"{conclusion}" in shown_text(run, numbers)


def test_a_classifier_is_held_against_the_most_frequent_class_and_a_linear_one(
    tmp_path,
):
    run = synthetic_run.make(tmp_path, "mnist", network="lenet_5", epochs=1)
    linear, majority = summary_of(run)["controls"]
    labels, training = (
        np.asarray(run["data"].array(f"{part}_labels.npy")) for part in ("test", "train")
    )
    assert (
        linear["control"] == "linear_pixels"
        and linear["accuracy"] == run["linear_pixels"].metrics["accuracy"]
    )
    assert majority["control"] == "majority"
    assert majority["accuracy"] == np.mean(labels == np.argmax(np.bincount(training))) < 0.2
    numbers = summary_of(run)
    chart = verdicts.first_screen(run, numbers)["chart"]
    assert [row["name"] for row in chart["y"]["rows"]][1:] == [
        "Logistic regression, raw pixels",
        "Most frequent class",
    ]
    assert chart["series"][1]["floor"] == [False, True], "the other is far below"


def test_the_page_says_how_a_rung_and_cuml_were_checked_before_their_first_use(digits, digits_page):
    def noted(role, name, summary):
        one = artifacts.Artifact(digits[role].folder)
        note = {"name": name, "made": "2026-01-31T12:34:56Z", "seconds": 12.3, "summary": summary}
        one.manifest = {**one.manifest, "notes": {"first_use": note}}
        return one

    run = {
        **digits,
        "train": noted("train", "gpu_opt_v2", "sgd 1.9e-07 in a.bias"),
        "features": noted("features", "gpu_opt_v2", "sgd 1.9e-07 in a.bias"),
        "svm": noted("svm", "cuml", "rbf within 1e-4"),
    }
    text = shown_text(run)
    assert text.count("Check of gpu_opt_v2") == 1 and "Check of" not in text_of(digits_page)
    assert (
        "passed 2026-01-31 12:34 UTCbefore its first use on this GPU, beside the cpu rung, in 12 s: sgd 1.9e-07 in "
        "a.bias"
    ) in text
    assert "before its first use on this GPU, beside scikit-learn, in 12 s: rbf within 1e-4" in text


# ---- streamed images


def streamed(digits, monkeypatch, **copies):
    """The page's text of a training with these further seconds by operation."""
    metrics = digits["train"].metrics
    monkeypatch.setitem(metrics, "seconds_by_operation", metrics["seconds_by_operation"] | copies)
    return shown_text(digits)


def test_the_report_says_how_much_of_the_copies_of_streamed_images_was_hidden(digits, monkeypatch):
    total = sum(digits["train"].metrics["seconds_by_operation"].values())
    text = streamed(digits, monkeypatch, **{create.COPIES: 4.0, create.WAITING: 0.5})
    assert (
        "The images were streamed from main memory: copying them to the GPU took 4.0 s, of which 87.5 % was hidden "
        "behind the computation; the GPU waited 0.5 s for them."
    ) in text
    rows = timing.operations(digits["train"])
    names = [row["name"] for row in rows["rows"]]
    assert (
        create.WAITING in names
        and create.COPIES not in names
        and rows["total"] == pytest.approx(total + 0.5)
    )


def test_only_a_network_with_shortcuts_spends_time_on_them(lenet, resnet, monkeypatch):
    for run, words in ((lenet, "padding and shapes"), (resnet, "shortcuts and shapes")):
        monkeypatch.setitem(
            run["train"].metrics, "seconds_by_operation", {"shortcuts and shapes": 2.0}
        )
        assert [row["name"] for row in timing.operations(run["train"])["rows"]] == [words]


def test_images_that_were_not_streamed_are_not_spoken_of(digits_page):
    assert "streamed" not in text_of(digits_page)


def test_a_control_with_settings_of_its_own_is_described_by_them(digits):
    settings = {"wta_kernels": [8, 8], "svm_C": 3.0}
    numbers = summary_of(digits, control_settings=settings)
    assert numbers["control_settings"] == settings
    assert (
        "The untrained encoder has settings of its own: wta_kernels 8, 8, svm_C 3."
        in shown_text(digits, numbers)
    )
    assert "an untrained encoder with settings of its own, 92.5\u202f%, is no" in numbers["verdict"]
    assert "Untrained encoder, other settings" in shown_text(digits, numbers)
    assert "settings of its own" not in shown_text(digits)


@pytest.mark.parametrize(
    "low, high, words",
    [
        (0.01, 0.02, "the trained encoder is better"),
        (-0.02, -0.01, "the untrained one is better"),
        (-0.01, 0.01, "nothing shows that the trained encoder is better"),
    ],
)
def test_beside_an_encoder_with_other_settings_nothing_is_said_of_training(
    digits, low, high, words
):
    control = {
        "control": "svm_random",
        "accuracy": 0.9,
        "fault": None,
        "difference": (low + high) / 2,
        "difference_interval": [low, high],
        "paired": True,
        "won": 1,
        "lost": 1,
    }
    assert verdicts.conclusion(digits, [control], {"svm_C": 3.0}) == words
