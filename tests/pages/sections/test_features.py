"""The processing of the features in words, and their map."""

import base64
import io

import numpy as np
import pytest
from PIL import Image

import synthetic_run
from ladder.pages import charts
from ladder.pages.sections import features

OPTIONS = {
    "features_two_polarity": 0.25,
    "features_polarity_scale": "channel",
    "features_max_pool": 2,
    "features_pool": 4,
    "features_flip": True,
    "features_standardize": True,
    "features_pca": 512,
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return synthetic_run.make(
        tmp_path_factory.mktemp("run"), options=OPTIONS, parts=(0.5,), mapped=100
    )


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return synthetic_run.make(
        tmp_path_factory.mktemp("plain"), options={"features_pool": "none", "features_flip": False}
    )


def test_every_option_that_is_on_is_a_step_in_the_order_of_the_work(run):
    first, second = features.parts(run)
    assert (first["weight"], second["weight"], first["layer"]) == (1, 0.5, "latent")
    words = (
        "relu(z − 0.25)",
        "2 × 2 window",
        "4 × 4 grid",
        "mirror",
        "deviation 1",
        "PCA: 512 components of 8,192",
    )
    assert len(first["steps"]) == len(words) and all(
        word in step for word, step in zip(words, first["steps"], strict=True)
    )


def test_the_difference_of_mirror_images_is_told_of_where_it_is_kept(tmp_path):
    (part,) = features.parts(
        synthetic_run.make(tmp_path, options={"features_pool": "none", "features_flip": "apart"})
    )
    assert part["steps"] == [
        "averaged with the features of the mirrored image; half their difference is kept apart, for "
        "kernel ridge"
    ]


def test_features_as_a_layer_puts_them_out_have_no_steps(plain):
    (part,) = features.parts(plain)
    assert part == {
        "network": "An autoencoder",
        "layer": "latent",
        "how": "trained without labels",
        "weight": None,
        "steps": [],
        "dimensions": 8192,
    }
    assert features.parts({role: plain[role] for role in ("data", "train")}) == []


def test_what_the_pixels_take_of_it_and_what_not_is_said(run, plain):
    taken = features.pixels(run)
    assert len(taken["steps"]) == 2 and taken["not_for_them"]
    assert features.pixels(plain) == {"steps": [], "not_for_them": False}
    assert features.pixels({"features": run["features"]}) is None


def test_a_point_of_the_map_is_a_test_image_with_its_class_and_what_it_was_taken_for(run):
    shown = features.feature_map(run)
    labels, named = (
        run["data"].array("test_labels.npy")[:100],
        run["svm"].array("predictions.npy")[:100],
    )
    order = np.argsort(labels, kind="stable")  # one series for each class
    told = [
        (one["name"], text, look, x, y)
        for one in shown["chart"]["series"]
        for text, look, x, y in zip(
            one["text"], one.get("look") or [""] * len(one["x"]), one["x"], one["y"], strict=True
        )
    ]
    assert [name for name, *_ in told] == [str(label) for label in labels[order]]
    assert [look == "ring" for _, _, look, _, _ in told] == (labels != named)[order].tolist()
    assert shown["wrong"] == (labels != named).sum() and (shown["count"], shown["of"]) == (100, 360)
    texts = [
        f"true class {label}, classified as {other}"
        for label, other in zip(labels, named, strict=True)
    ]
    assert [text for _, text, *_ in told] == [texts[at] for at in order]
    places = run["map"].array("places.npy")[order]
    assert np.allclose([(x, 1 - y) for *_, x, y in told], places, atol=1e-5)
    assert [one["colour"] for one in shown["chart"]["series"]] == list(range(1, 11)), (
        "each class has a mark of its own"
    )
    assert [at for one in shown["chart"]["series"] for at in one["picture"]] == order.tolist()
    sheet = shown["chart"]["sheet"]
    picture = np.asarray(
        Image.open(io.BytesIO(base64.b64decode(sheet["image"].partition(",")[2]))), int
    )
    for at in (0, 57, 99):  # of the sheet, whose losses are small
        top, left = at // sheet["columns"] * sheet["height"], at % sheet["columns"] * sheet["width"]
        cut = picture[top : top + sheet["height"], left : left + sheet["width"]]
        assert np.abs(cut - run["data"].array("test_images.npy")[at]).mean() < 10


def test_the_neighbours_of_a_point_are_the_nearest_by_features_not_by_places(run):
    vectors = run["joined"].array("test.npy")[:100].astype(np.float64)
    shown = features.feature_map(run)["chart"]["nearest"]
    for at, nearest in enumerate(shown):
        away = np.linalg.norm(vectors - vectors[at], axis=1)
        assert len(nearest) == features.NEAREST and at not in nearest
        assert np.allclose(away[nearest], np.sort(away)[1 : 1 + features.NEAREST], rtol=1e-4)


def test_of_more_classes_than_there_are_marks_those_with_the_most_errors_have_one(run, monkeypatch):
    monkeypatch.setattr(charts, "COLOURS", 6)
    shown = features.feature_map(run)["chart"]["series"]
    labels, named = (
        run["data"].array("test_labels.npy")[:100],
        run["svm"].array("predictions.npy")[:100],
    )
    coloured = {one["name"] for one in shown if one["colour"] != "rest"}
    errors = {str(label): int((named[labels == label] != label).sum()) for label in range(10)}
    assert len(coloured) == 6 and min(errors[name] for name in coloured) >= max(
        count for name, count in errors.items() if name not in coloured
    ), "those with the most errors"
    assert [one["name"] for one in shown] == synthetic_run.DIGITS


def test_there_may_be_no_map(plain):
    assert features.feature_map(plain) is None
