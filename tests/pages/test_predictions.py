"""The page, the JSON and the CSV of predictions."""

import csv
import html
import io
import json

import numpy as np
import pytest
from PIL import Image

import answering_run
import synthetic_run
from ladder.data import names
from ladder.demo.predictor import Predictor
from ladder.pages import predictions, templates
from ladder.pages.predictions import Skipped
from tools import make_predictions

RUNS = {"svm": {}, "network": {"network": "lenet_5"}}
SKIPPED = [Skipped("my pictures/<torn>.png", "damaged or cut short")]


@pytest.fixture(scope="module")
def predictors(tmp_path_factory):
    return {
        name: Predictor(
            answering_run.make(tmp_path_factory.mktemp("results"), **settings), threads=1
        )
        for name, settings in RUNS.items()
    }


@pytest.fixture(scope="module")
def files(predictors, tmp_path_factory):
    """Training images 0 to 4 of both runs as files."""
    paths = {}
    for name, predictor in predictors.items():
        folder = tmp_path_factory.mktemp(name)
        images = np.asarray(predictor.inputs["data"].array("train_images.npy")[:5])
        paths[name] = [folder / f"{row} & co.png" for row in range(5)]
        for image, path in zip(images, paths[name], strict=True):
            Image.fromarray(image.squeeze()).save(path)
    return paths


@pytest.fixture(params=RUNS)
def answered(request, predictors, files):
    """(Predictor, answers)"""
    predictor = predictors[request.param]
    taken, skipped = make_predictions.take(files[request.param], predictor.inputs["data"])
    assert not skipped
    return predictor, predictions.answers(predictor, taken)


@pytest.mark.parametrize("shifted, images", [(None, 1), (1, 5)])
def test_shifted_copies_are_told_in_the_page_and_the_json(tmp_path, shifted, images):
    predictor = Predictor(answering_run.make(tmp_path, side=16, shifted=shifted), threads=1)
    assert predictions.summary(predictor, [], [])["model"]["images_per_decision"] == images
    told = "decisions are means over 5 images, the picture and its copies shifted along both diagonals, in the test too"
    assert (told in predictions.page(predictor, [], [], [])) == (images == 5)


def test_an_answer_names_its_class_score_and_neighbours(answered):
    predictor, found = answered
    labels = predictor.inputs["data"].array("train_labels.npy")
    for row, one in enumerate(found):
        assert (
            one["class"] == max(one["scores"], key=one["scores"].get)
            and one["score"] == one["scores"][one["class"]]
        )
        assert one["nearest"][0]["row"] == row and one["nearest"][0]["class"] == str(labels[row])
        assert list(one["scores"]) == list("0123456789") and one["done"] == []
        if predictor.votes:
            assert list(one["margins"].values()) == sorted(one["margins"].values())
            assert one["margins"].keys() == set("0123456789") - {one["class"]}
        else:
            assert one["margins"] is None and sum(one["scores"].values()) == pytest.approx(1)


def test_the_json_says_what_answered_and_what_was_skipped(answered):
    predictor, found = answered
    summary = json.loads(
        json.dumps(predictions.summary(predictor, found, SKIPPED), allow_nan=False)
    )
    assert summary["model"]["versions"] == {
        role: one.version for role, one in predictor.inputs.items()
    }
    assert summary["model"]["test_accuracy"] == predictor.answering.metrics["accuracy"]
    assert len(summary["pictures"]) == 5 and not [
        key for key in summary["pictures"][0] if key.startswith("_")
    ]
    assert summary["skipped"] == [
        {"name": "my pictures/<torn>.png", "reason": "damaged or cut short"}
    ]


def test_the_csv_has_a_line_for_each_file(answered):
    predictor, found = answered
    rows = list(csv.DictReader(io.StringIO(predictions.csv_text(predictor, found, SKIPPED))))
    assert [row["class"] for row in rows] == [one["class"] for one in found] + [""]
    assert float(rows[2]["score_7"]) == found[2]["scores"]["7"] and rows[2]["nearest_row"] == "2"
    assert (
        rows[-1]["file"] == "my pictures/<torn>.png"
        and rows[-1]["skipped"] == "damaged or cut short"
    )


def test_the_nearest_picture_of_ones_own_is_named(predictors, files, monkeypatch):
    predictor = predictors["svm"]
    monkeypatch.setattr(
        names, "read", lambda data, part: [f"{part}/<{row}>.png" for row in range(100)]
    )
    named = predictions.answers(
        predictor, make_predictions.take(files["svm"], predictor.inputs["data"])[0]
    )
    assert all(
        near["file"] == f"train/<{near['row']}>.png"
        for answer in named
        for near in answer["nearest"]
    )
    rows = csv.DictReader(io.StringIO(predictions.csv_text(predictor, named, [])))
    assert [row["nearest_file"] for row in rows] == [f"train/<{row}>.png" for row in range(5)]
    page = predictions.page(predictor, named, [], [])
    assert 'title="train/&lt;0&gt;.png, distance' in page and "<0>" not in page


def test_the_page_shows_every_picture_below_its_folder_and_why_others_are_not_there(answered):
    predictor, found = answered
    folder = str(found[0]["_picture"].name).rpartition("/")[0]
    page = predictions.page(
        predictor, found, [Skipped(f"{folder}/<torn>.png", "cut short")], [f"{folder}/notes.txt"]
    )
    text = html.unescape(page)
    assert (
        page.count('<article class="answer"') == 5 and f"<code>{html.escape(folder)}</code>" in page
    )
    assert (
        ">3 & co.png<" in text
        and "&lt;torn&gt;.png" in page
        and "<torn>" not in page
        and "notes.txt" in page
    )
    images = 5 * (2 + (predictor.votes is not None) + 6 + 1)  # the last one is of the maps
    assert page.count("<img") == page.count('src="data:image/') == images
    assert ("Reconstruction" in page) == (predictor.votes is not None)


def test_the_overview_has_every_picture_by_class_and_the_closest_calls_in_full(
    answered, monkeypatch
):
    predictor, found = answered[:2]
    monkeypatch.setattr(predictions, "CARDS", 2)
    page = predictions.page(predictor, found, [], [])
    cards = set(sorted(range(5), key=lambda at: predictions._lead(found[at]))[:2])
    for there in ('id="picture-{}"', 'href="#picture-{}"'):
        assert {at for at in range(5) if there.format(at) in page} == cards
    assert page.count('<i role="img"') == 5 and "The 2 closest calls of 5" in page
    overview = predictions._overview(predictor, found, cards, str)
    assert sorted(
        (one["name"], group["name"]) for group in overview["classes"] for one in group["pictures"]
    ) == sorted((answer["file"], answer["class"]) for answer in found)
    assert [len(group["pictures"]) for group in overview["classes"]] == sorted(
        (len(group["pictures"]) for group in overview["classes"]), reverse=True
    )


def test_names_with_no_folder_in_common_are_shown_whole():
    assert predictions._common_folder(["/a/b/1.png", "/a/c/2.png"]) == "/a"
    assert predictions._common_folder(["/a/b/1.png", "c/2.png"]) == ""
    assert predictions._common_folder(["1.png"]) == ""


def test_bars_of_an_svm_are_its_votes_answer_first_with_its_margins_beside_them():
    answer = {
        "class": "5",
        "margins": {"8": -0.25, "3": 0.5, "1": 2.0},
        "scores": {"1": 0, "3": 1, "5": 2, "8": 2},
    }
    rows = predictions._bars(answer, 3)
    assert [(row["name"], row["length"], row["text"], row["note"]) for row in rows] == [
        ("5", 66.67, "2 of 3", ""),
        ("8", 66.67, "2 of 3", "behind by -0.25"),
        ("3", 33.33, "1 of 3", "behind by 0.50"),
        ("1", 0, "0 of 3", "behind by 2.00"),
    ]


@pytest.mark.parametrize(
    "margins, scores, votes, close",
    [
        ({"8": 0.4, "3": 2.0}, {}, 9, True),
        ({"8": 0.6, "3": 2.0}, {}, 9, False),
        ({"8": 0.15}, {}, None, True),
        (None, {"1": 0.5, "2": 0.35, "3": 0.15}, None, True),
        (None, {"1": 0.7, "2": 0.2, "3": 0.1}, None, False),
    ],
)
def test_an_answer_that_only_just_leads_is_a_close_call(margins, scores, votes, close):
    assert predictions._is_close({"margins": margins, "scores": scores}, votes) is close


def test_the_strongest_maps_are_shown_each_white_at_its_largest_value():
    maps = np.zeros((4, 4, 20), np.float32)
    maps[1, 2, 7], maps[3, 3, 2] = 5.0, 0.5
    shown = predictions.maps_picture(maps)
    assert shown.shape == (4 * 2 + 1, 4 * 6 + 5, 4)
    assert shown[1, 2, 0] == 255 and shown[3, 5 + 3, 0] == 255 and (shown[..., 0] > 0).sum() == 2


@pytest.mark.parametrize(
    "probability, text",
    [
        (1.0, "> 99.9 %"),
        (0.9994, "99.9 %"),
        (0.25, "25.0 %"),
        (0.0006, "0.1 %"),
        (0.00001, "< 0.1 %"),
        (0.0, "< 0.1 %"),
    ],
)
def test_no_probability_is_written_as_certain_or_impossible(probability, text):
    assert templates.sure(probability).replace(templates.NARROW_SPACE, " ") == text


def test_bars_of_a_network_are_its_largest_probabilities():
    scores = {
        name: share
        for name, share in zip("abcdefg", [0.01, 0.6, 0.02, 0.3, 0.04, 0.02, 0.01], strict=True)
    }
    rows = predictions._bars({"class": "b", "margins": None, "scores": scores}, None)
    assert [row["name"] for row in rows] == ["b", "d", "e", "c", "f"] and rows[0]["length"] == 60


@pytest.mark.parametrize(
    "settings, said",
    [
        ({}, "trained on handwritten digits"),
        ({"fitted": True}, "trained on handwritten digits"),
        ({"network": "patch_net", "fitted": True}, "fitted to patches of handwritten digits"),
        ({"trained": False}, "not trained, with random weights"),
        ({"trained": False, "start": "theirs.bin"}, "not trained, with the weights of theirs.bin"),
    ],
)
def test_where_the_weights_come_from_is_told(tmp_path, settings, said):
    assert predictions._weights(synthetic_run.make(tmp_path, **settings), "digits") == said
