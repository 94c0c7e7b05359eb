"""The rules for pictures of one's own: each at its limits, and that what a person wrote wins."""

import pytest
import yaml

import picture_folders
from ladder.classifiers.looks import Looks
from ladder.errors import UserError
from ladder.sources import ROOT
from ladder.workflow import chains, config, plans, recipe, runs

MACHINE = {"variant": "cpu", "svm_backend": "sklearn", "array_library": "numpy"}


@pytest.fixture
def pets(tmp_path, monkeypatch):
    picture_folders.forget(monkeypatch, tmp_path)
    return {"dataset": "folder", "folder": str(picture_folders.write(tmp_path / "pets", PETS))}


PETS = {"a": 25, "b": 25}


def run(*given, **keys):
    merged = config.base() | MACHINE
    for each in (*given, keys):
        merged |= each
    return runs.resolve(config.load(merged))


@pytest.mark.parametrize(
    "choice, keys",
    [
        (recipe.image_size(47), {"image_size": [32, 32]}),
        (recipe.image_size(48), {"image_size": [64, 64]}),
        (recipe.mirror_images(Looks(32, 150, 300)), {"features_flip": True}),
        (recipe.mirror_images(Looks(32, 179, 300)), {"features_flip": True}),
        (recipe.mirror_images(Looks(32, 181, 300)), {"features_flip": False}),
        # told from them in 58 %, beyond luck
        (recipe.mirror_images(Looks(32, 1740, 3000)), {"features_flip": False}),
        (recipe.mirror_images(Looks(32, 0, 0)), {"features_flip": False}),
        (recipe.components(5000), None),
        (recipe.components(5001), {"features_pca": 256}),
        (recipe.classifiers(19), {"evaluations": []}),
        (recipe.classifiers(20), {"evaluations": ["ridge"], "svm_C": "validated"}),
        (
            recipe.classifiers(recipe.MOST_FOR_SVM + 1),
            {"evaluations": ["ridge"], "svm_kernel": "none"},
        ),
        (recipe.test_share(50_000, 0.2), None),
        (recipe.test_share(200_000, 0.2), {"test_share": 0.05}),
        (recipe.classified(20_000), None),
        (recipe.classified(20_001), {"classify_rows": 20_000}),
        (recipe.batch(64, 64), None),
        (recipe.batch(64, 63), {"batch_size": 63}),
        (recipe.most_components(63, 64), None),
        (recipe.most_components(64, 64), {"features_pca": 63}),
        (recipe.most_components("none", 2), None),
    ],
)
def test_a_rule_at_its_limits(choice, keys):
    assert (choice and choice.keys) == keys


@pytest.mark.parametrize(
    "shape, pool, encoder, weight",
    [
        ((32, 32, 3), "none", 4, 2),
        ((32, 32, 1), "none", 4, 2),
        # 4x4 cells of 800 values
        ((64, 64, 3), 4, 4, round(2 * (12_800 / 7_200) ** 0.5, 3)),
        ((48, 32, 3), "none", 4, 2),
    ],
)
def test_the_networks_go_by_the_size_of_the_images(shape, pool, encoder, weight):
    fitted, appended = recipe.features(shape)
    (part,) = appended.keys["features_concatenate"]
    assert fitted.keys["features_pool"] == pool
    # large images answer for four times as many pixels
    first = fitted.keys["patch_net_filters"][0], part["autoencoder_filters"][0]
    assert first == ((100, 64) if shape[0] == 64 else (200, 128))
    if shape[0] == shape[1]:
        assert (part["features_pool"], part["weight"]) == (encoder, weight)


@pytest.mark.parametrize(
    "counts, steps, words",
    [
        ([32, 32], None, []),
        ([32, 31], None, ["63 training pictures are few"]),
        ([100, 9], 1000, ["a class has 9 training pictures"]),
        ([100, 100], 999, ["999 steps of training are few"]),
    ],
)
def test_few_pictures_and_few_steps_are_warned_of(counts, steps, words):
    warned = recipe.warnings(sum(counts), counts, steps)
    assert len(warned) == len(words) and all(map(str.startswith, warned, words))


def test_pictures_without_a_network_of_ones_own_take_the_recipe(pets):
    taken = run(pets)
    own, chain = taken.settings, chains.chain(taken)
    assert (own.network, own.training, own.normalization) == ("patch_net", "patches", "standardize")
    assert (own.evaluations, own.controls) == (["ridge"], ["random", "strong", "pixels"])
    assert own.batch_size == 40 and own.features_pool == "none" and own.svm_C == "validated"
    params = {role: artifact.spec["params"] for role, artifact in chain.items()}
    assert {params[role]["C"] for role in ("svm", "svm_strong", "svm_pixels")} == {"validated"}
    assert {"ridge", "svm", "ridge_strong", "ridge_pixels", "patches_part2"} < chain.keys()
    strong = chain["features_strong"].spec["params"]
    assert strong["autoencoder_filters"] == [128, 128] and strong["features_two_polarity"] == 0.5
    assert chain["features_strong"].parents["weights"].stage == "initial"
    shown = chain["report"].spec["params"]
    assert {"network", "batch_size"} <= {key for each in shown["choices"] for key in each["keys"]}
    assert shown["warnings"] == ["40 training pictures are few: 64 and more are better"]


@pytest.mark.parametrize(
    "keys",
    [
        {"image_size": [48, 48]},
        {"features_flip": "apart"},
        {"patch_net_filters": [50, 20, 30, 40]},
        {"evaluations": ["ridge", "knn"]},
        {"svm_kernel": "linear"},
        {"svm_C": 10.0},
        {"features_standardize": False},
        {"features_concatenate": []},
        {"batch_size": 16},
        {"features_pca": 20},
    ],
)
def test_what_a_person_wrote_wins(pets, keys):
    ((key, value),) = keys.items()
    taken = run(pets, keys)
    assert getattr(taken.settings, key) == value and taken.settings.network == "patch_net"
    assert all(key not in choice.keys for choice in taken.choices)


def test_a_network_that_is_named_takes_nothing_of_the_recipe(pets):
    own = run(pets, network="autoencoder").settings
    assert (own.training, own.normalization, own.features_pool) == ("gradient", "unit", "none")
    assert (own.evaluations, own.controls, own.image_size) == ([], ["random", "pixels"], [32, 32])


def test_a_list_of_runs_chooses_anew_for_each(pets):
    compared = [{"network": "wta_autoencoder"}, {"svm_C": 3}]
    loaded = config.load(config.base() | MACHINE | pets | {"runs": compared})
    named, fitted = (entry.run.settings for entry in runs.resolve(loaded).listed)
    assert (named.training, named.normalization) == ("gradient", "unit")
    assert (fitted.network, fitted.svm_C) == ("patch_net", 3)


def test_raw_pixels_of_ones_own_pictures_are_as_they_are_and_always_there(pets):
    plain = chains.chain(run(pets, network="autoencoder"))["svm_pixels"]
    given = {"normalization": "standardize", "features_standardize": True, "features_flip": True}
    other = chains.chain(run(pets, given, network="autoencoder", controls=["random"]))
    assert other["svm_pixels"].version == plain.version
    assert other["features"].version != other["features_pixels"].version
    assert "svm_pixels" not in chains.chain(run(pets, network="autoencoder", controls=[]))


def test_whitening_with_too_few_pictures_is_refused(pets):
    with pytest.raises(UserError, match="whitening needs more; take standardize"):
        run(pets, controls=[{"random": {"normalization": "zca"}}])


def test_what_was_chosen_is_said_a_line_each_with_its_reason(pets):
    lines = plans.notes(plans.load(config.base() | MACHINE | pets))
    assert "batch_size 40 (there are no more training images than 40)" in lines
    assert any(line.startswith("network patch_net, training patches") for line in lines)
    assert any(
        line.startswith("features_concatenate [{network: autoencoder, ... (") for line in lines
    )
    assert "40 training pictures are few: 64 and more are better" in lines
    other = plans.notes(plans.load(config.base() | MACHINE | pets | {"dataset": "digits"}))
    assert f"folder {pets['folder']} is not read: dataset is digits, not folder" in other
    assert not [line for line in lines if "is not read" in line]


def test_auto_is_for_any_other_data_set_what_config_yaml_used_to_say():
    was = yaml.safe_load(
        "{normalization: unit, network: wta_autoencoder, wta_filters: 8, wta_kernels: [11, 7],"
        " features_pool: none, svm_kernel: rbf, evaluations: [], controls: [random, pixels]}"
    )
    for dataset in ("mnist_small", "digits", "cifar10"):
        auto = run({"dataset": dataset})
        assert auto.choices == () and auto.settings.by_key().items() >= was.items()
        written = chains.chain(run(was, dataset=dataset))
        assert {role: made.version for role, made in chains.chain(auto).items()} == {
            role: made.version for role, made in written.items()
        }


def test_config_yaml_keeps_the_rung_and_the_batch():
    text = yaml.safe_load((ROOT / "config.yaml").read_text())
    auto = {"network", "normalization", "features_pool", "variant"}
    assert {key for key, value in text.items() if value == "auto"} == auto
    assert text["batch_size"] == 64
