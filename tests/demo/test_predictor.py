"""A predictor gives the same predictions as the run's own stages for their images, with all
settings of the run.
"""

import numpy as np
import pytest

import answering_run
from ladder.classifiers import ridge
from ladder.data.normalization import Statistics
from ladder.demo import predictor
from ladder.demo.predictor import Neighbours, Predictor
from ladder.errors import UserError
from ladder.features import shifts
from ladder.network import networks, weights
from ladder.rungs import catalog
from ladder.store import artifacts
from ladder.training.inference import Inference

RUNS = {
    "autoencoder": {},
    "standardised": {"features_standardize": True},
    "pooled, both ways": {"features_pool": 4, "features_flip": True},
    "projected": {
        "features_layer": "enc2",
        "features_two_polarity": 0.25,
        "features_polarity_scale": "channel",
        "features_max_pool": 2,
        "features_flip": True,
        "features_standardize": True,
        "features_pca": 20,
        "features_fit_rows": 80,
        "seed": 1,
    },
    "joined": {"joined": "enc1_pool", "features_pca": 20, "features_fit_rows": 80, "seed": 1},
    "whitened": {"normalization": "zca"},
    "by channel": {"normalization": "standardize"},
    "cheap products": {"multiplier": "mit16"},
    "classifier with cheap products": {"network": "lenet_5", "multiplier": "mit16"},
    "ridge": {"primary_classifier": "ridge"},
    "ridge of joined": {"primary_classifier": "ridge", "joined": "enc1_pool"},
    "ridge of both halves": {
        "primary_classifier": "ridge",
        "joined": "enc1_pool",
        "features_flip": "apart",
        "features_standardize": True,
        "features_pca": 20,
        "features_fit_rows": 80,
        "seed": 1,
    },
    "average of both halves": {"features_flip": "apart", "features_standardize": True},
    "shifted": {"shifted": 1},
    "shifted and whitened": {"shifted": 3, "normalization": "zca", "features_pool": 4},
    "ridge of shifted halves": {
        "primary_classifier": "ridge",
        "shifted": 2,
        "joined": "enc1_pool",
        "features_flip": "apart",
        "features_standardize": True,
    },
    "classifier": {"network": "lenet_5"},
    "classifier with features": {"network": "lenet_5", "features_layer": "fc1"},
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Name -> (artifacts by role, Predictor), made on demand."""
    made = {}

    def of(name):
        if name not in made:
            inputs = answering_run.make(tmp_path_factory.mktemp("results"), side=16, **RUNS[name])
            made[name] = (
                inputs,
                Predictor(inputs, threads=2, multiplier=RUNS[name].get("multiplier", "exact")),
            )
        return made[name]

    return of


def images(inputs, part):
    return np.asarray(inputs["data"].array(f"{part}_images.npy"))


@pytest.mark.parametrize("name", RUNS)
def test_test_images_get_the_class_that_the_run_gave_them(runs, name):
    inputs, of = runs(name)
    expected = of.answering.array("predictions.npy")
    assert len(set(expected.tolist())) > 1
    np.testing.assert_array_equal(of.answer(images(inputs, "test")).classes, expected)


def test_the_multiplier_has_to_be_that_of_the_runs_test(runs):
    with pytest.raises(UserError, match="exact changed after this run was planned"):
        Predictor(runs("cheap products")[0], threads=1)


@pytest.mark.parametrize("name", ["autoencoder", "classifier"])
def test_one_image_is_answered_as_among_others(runs, name):
    inputs, of = runs(name)
    together, alone = of.answer(images(inputs, "test")), of.answer(images(inputs, "test")[7:8])
    assert alone.classes[0] == together.classes[7] and len(alone) == 1
    np.testing.assert_allclose(alone.scores[0], together.scores[7], rtol=1e-5)
    np.testing.assert_array_equal(alone.nearest[0], together.nearest[7])


def test_an_image_and_its_mirror_image_have_the_same_scores_where_both_are_compared(runs):
    inputs, of = runs("ridge of both halves")
    here = images(inputs, "test")
    one, other = of.answer(here), of.answer(np.ascontiguousarray(here[:, :, ::-1]))
    np.testing.assert_allclose(one.scores, other.scores, atol=2e-3)
    assert np.ptp(one.scores) > 0.5


def test_scores_of_shifted_images_are_those_of_the_test_to_the_bit(runs):
    inputs, of = runs("ridge of shifted halves")
    train, test = (
        np.concatenate(
            [inputs["joined"].array(f"{part}{half}.npy") for half in ("", "_odd")], axis=1
        )
        for part in ("train", "test")
    )
    model = ridge.load(inputs["ridge"].path("model.safetensors"), train)
    copies = shifts.of_test({**inputs, "features": inputs["joined"]}, with_odd=True)
    found = of.answer(images(inputs, "test")).scores
    assert of.images_per_decision == 5
    np.testing.assert_array_equal(found, ridge.scores(model, test, shifted=copies))
    assert np.abs(found - ridge.scores(model, test)).max() > 0.01


@pytest.mark.parametrize("name", ["classifier", "classifier with cheap products"])
def test_a_networks_scores_are_its_probabilities(runs, name):
    inputs, of = runs(name)
    found = of.answer(images(inputs, "test"))
    np.testing.assert_allclose(
        found.scores, inputs["evaluate"].array("probabilities.npy"), rtol=1e-5
    )
    assert of.votes is None and found.rebuilt is None and found.margins is None


def test_an_svms_scores_are_votes_and_its_margins_say_against_whom(runs):
    inputs, of = runs("autoencoder")
    found = of.answer(images(inputs, "test"))
    assert (found.scores.sum(axis=1) == 45).all() and of.votes == 9
    rows = np.arange(len(found))
    assert (found.scores[rows, found.classes] == found.scores.max(axis=1)).all()
    won = np.nansum(found.margins > 0, axis=1)
    np.testing.assert_array_equal(won, found.scores[rows, found.classes])
    assert np.isnan(found.margins[rows, found.classes]).all() and np.isnan(
        found.margins
    ).sum() == len(found)


def test_kernel_ridges_margins_are_the_leads_of_its_highest_score(runs):
    inputs, of = runs("ridge")
    found = of.answer(images(inputs, "test"))
    assert of.votes is None and of.answered_by == "ridge"
    rows = np.arange(len(found))
    best = found.scores.max(axis=1)
    np.testing.assert_array_equal(found.scores[rows, found.classes], best)
    assert np.isnan(found.margins[rows, found.classes]).all() and np.isnan(
        found.margins
    ).sum() == len(found)
    others = ~np.isnan(found.margins)
    np.testing.assert_allclose(
        found.margins[others], (best[:, None] - found.scores)[others], atol=1e-6
    )
    assert np.ptp(found.margins[others]) > 0.1


@pytest.mark.parametrize("name", RUNS)
def test_a_training_image_is_its_own_nearest_neighbour(runs, name):
    inputs, of = runs(name)
    found = of.answer(images(inputs, "train")[:20])
    np.testing.assert_array_equal(found.nearest[:, 0], np.arange(20))
    assert found.distances[:, 0].max() < 1e-3 * found.distances[:, 1].min()
    assert (np.diff(found.distances, axis=1) >= 0).all()


@pytest.mark.parametrize(
    "name, layer",
    [("autoencoder", "latent"), ("classifier", "fc2_relu"), ("classifier with features", "fc1")],
)
def test_neighbours_are_by_the_runs_features_else_by_the_layer_before_the_scores(runs, name, layer):
    _, of = runs(name)
    assert of.layer == layer and of.compared == answering_run.TRAIN


def test_no_more_training_images_are_compared_than_can_be_computed_soon(runs, monkeypatch):
    monkeypatch.setattr(predictor, "COMPARED", 40)
    inputs, _ = runs("classifier")
    of = Predictor(inputs, threads=1)
    assert of.compared == 40 and of.answer(images(inputs, "train")[60:]).nearest.max() < 40


@pytest.mark.parametrize("name", ["autoencoder", "whitened", "by channel"])
def test_an_autoencoder_gives_the_image_back_in_pixels(runs, name):
    inputs, of = runs(name)
    given = images(inputs, "test")
    rebuilt = of.answer(given).rebuilt
    assert rebuilt.shape == given.shape and rebuilt.dtype == np.uint8 and rebuilt.std() > 1
    statistics = Statistics.load(inputs["normalized"])
    rows = predictor.stored(given, statistics)
    np.testing.assert_array_equal(rows, inputs["normalized"].array("test.npy"))
    network = networks.from_params(inputs["train"].manifest["spec"]["params"])
    values = weights.load(inputs["train"].path("weights.bin"), network)
    whole = Inference(network, "cpu", values, statistics, threads=1)
    expected = np.concatenate([statistics.to_pixels(values) for _, values in whole.batches(rows)])
    np.testing.assert_array_equal(rebuilt, expected)


def test_a_damaged_artifact_is_named(tmp_path):
    inputs = answering_run.make(tmp_path)
    path = inputs["svm"].folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    with pytest.raises(UserError, match="model.safetensors is damaged"):
        Predictor({role: artifacts.Artifact(one.folder) for role, one in inputs.items()}, threads=1)


def test_a_rung_that_cannot_run_here_is_refused(runs, monkeypatch):
    monkeypatch.setattr(
        catalog, "unavailable", lambda rung: f"variant {rung} needs another machine"
    )
    with pytest.raises(UserError, match="variant cpu needs another machine"):
        Predictor(runs("autoencoder")[0], threads=1)


# Neighbours


def test_neighbours_are_those_of_a_full_search_in_float64():
    random = np.random.default_rng(0)
    rows, queries = (random.normal(3, 1, (count, 40)).astype(np.float32) for count in (4500, 70))
    found, distances = Neighbours(rows).nearest(queries, 6)
    exact = np.sqrt(np.square(rows[None].astype(np.float64) - queries[:, None]).sum(axis=2))
    np.testing.assert_array_equal(found, np.argsort(exact, axis=1, kind="stable")[:, :6])
    np.testing.assert_allclose(distances, np.sort(exact, axis=1)[:, :6])


def test_equally_near_ones_come_in_their_order_and_there_may_be_few():
    rows = np.zeros((100, 3), np.float32)
    rows[:, 0] = np.arange(100) % 3
    found, distances = Neighbours(rows).nearest(np.zeros((1, 3), np.float32), 40)
    assert found.tolist() == [[*range(0, 100, 3), *range(1, 18, 3)]] and distances.tolist() == [
        [0] * 34 + [1] * 6
    ]
    assert Neighbours(rows[:3]).nearest(np.ones((1, 3), np.float32), 6)[0].tolist() == [[1, 0, 2]]


def test_near_ones_far_from_the_origin_are_told_apart():
    rows = (1000 + np.arange(50, dtype=np.float32)[:, None] / 100) * np.ones((1, 64), np.float32)
    found, _ = Neighbours(rows).nearest(rows[[17]], 3)
    assert found[0, 0] == 17
