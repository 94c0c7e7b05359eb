"""Which settings are parameters of which stages, by the versions that they change."""

import numpy as np
import pytest

import picture_folders
import planned
from ladder.arithmetic import multipliers
from ladder.data import listing


def test_a_key_changes_the_stages_it_can_change_and_no_other():
    trained = {"train", "features", "svm", "map", "report"}
    assert planned.changed({}, learning_rate=0.5) == trained
    assert planned.changed({}, seed=2) == trained | {"initial", "features_random", "svm_random"}
    assert planned.changed({}, svm_C=1.0) == {"svm", "svm_random", "svm_pixels", "report"}
    assert planned.changed({}, controls=["random"]) == {"features_pixels", "svm_pixels", "report"}
    classified = {"svm", "svm_random", "svm_pixels", "report"}
    controls = {"features_random", "features_pixels"}  # of the images that classifiers see
    assert planned.changed({}, classify_rows=100) == classified | controls
    assert planned.changed({}, normalization="zca") == set(planned.chain()) - {"data", "initial"}
    assert planned.changed({}, train_limit=200) == set(planned.chain()) - {"initial"}


def test_a_validation_set_takes_the_place_of_the_test_images_in_the_version():
    validation = {"validation": 100}
    assert planned.changed({}, validation=100) == set(planned.chain()) - {"initial"}
    assert "validation" not in planned.chain()["data"].spec["params"]
    assert planned.chain(validation)["data"].spec["params"].keys() == {
        "dataset",
        "train_limit",
        "validation",
    }
    assert planned.changed(validation, patience=3) == {"train", "features", "svm", "map", "report"}
    assert planned.changed(validation, test_limit=20) == set() and "data" in planned.changed(
        validation, validation=101
    )


@pytest.mark.parametrize(
    "keys",
    [
        {"threads": 7},
        {"momentum": 0.1},
        {"schedule_step_epochs": 3, "schedule_step_factor": 0.9},
        {"cifar10_sha256": "0" * 64, "cifar10_urls": ["file:///elsewhere"]},
        {"resnet_width": 8},
        {"monitor": 100},
    ],
)
def test_a_key_without_effect_changes_nothing(keys):
    assert planned.changed({}, **keys) == set()


def test_features_may_be_extracted_by_another_rung_than_the_trainings():
    extracted = {"features", "features_random"}
    assert planned.changed({}, features_variant="cpu_sequential") == extracted | {
        "svm",
        "svm_random",
        "map",
        "report",
    }
    chain = planned.chain({"features_variant": "cpu_sequential"})
    for role in extracted:
        assert chain[role].spec["params"]["variant"] == "cpu_sequential", role
        assert "workflow/scripts/ladder/executors/sequential.py" in chain[role].spec["sources"]
    assert chain["train"].spec["params"]["variant"] == "cpu"


def test_targets_are_part_of_the_reports_version_alone():
    assert planned.changed({}, targets=[{"metric": "test_accuracy", "at_least": 0.6}]) == {"report"}


def test_an_option_of_the_features_is_in_a_version_only_where_it_is_on():
    params = {role: artifact.spec["params"] for role, artifact in planned.chain().items()}
    assert set(params["features"]) == {
        "encoder",
        "network",
        "autoencoder_filters",
        "autoencoder_norm",
        "image",
        "variant",
        "features_layer",
        "features_standardize",
        "features_pool",
        "features_flip",
    }
    assert params["features_pixels"] == {"encoder": "pixels"}
    features = {"features", "features_random", "svm", "svm_random", "map", "report"}
    assert (
        planned.changed({}, features_two_polarity=0.5)
        == planned.changed({}, features_max_pool=2)
        == features
    )
    assert (
        planned.changed({}, features_fit_rows=500)
        == planned.changed({}, features_polarity_scale="channel")
        == set()
    )
    polar = {"features_two_polarity": 0.5}
    assert planned.changed(polar, features_polarity_scale="channel") == features
    assert (
        planned.changed(polar | {"features_polarity_scale": "channel"}, features_fit_rows=500)
        == features
    )


def test_the_pixels_take_the_options_that_need_no_maps():
    pixels = {"features_pixels", "svm_pixels"}
    for on in ({"features_pca": 64}, {"features_flip": True}, {"features_standardize": True}):
        assert pixels < planned.changed({}, **on)
    assert not pixels & planned.changed({"dataset": "mnist"}, features_pca=1000), (
        "as many pixels as that there are not"
    )
    assert planned.changed({"features_pca": 64}, features_fit_rows=500) > pixels
    fitted = planned.chain({"features_pca": 64, "features_pool": 4})["features_pixels"].spec[
        "params"
    ]
    assert fitted == {
        "encoder": "pixels",
        "features_pca": 64,
        "features_fit_rows": 10000,
        "seed": 1,
        "array_library": "numpy",
    }


def test_the_array_library_counts_where_it_computes():
    plain = {
        "array_library": "numpy",
        "evaluations": ["linear", "ridge", "knn"],
        "controls": ["pixels"],
    }
    used = {"ridge", "ridge_pixels", "knn", "knn_pixels", "report"}
    assert planned.changed(plain, array_library="cupy") == used
    after_pca = {
        name
        for name in planned.chain(plain)
        if name.partition("_")[0] in ("svm", "linear", "ridge", "knn", "map")
    }
    reduced = planned.changed(plain | {"features_pca": 20}, array_library="cupy")
    assert reduced == used | after_pca | {"features", "features_pixels"}
    fitted = planned.changed(
        {"training": "patches", "array_library": "numpy"}, array_library="cupy"
    )
    assert {"patches", "train", "features", "svm"} <= fitted and fitted.isdisjoint(
        {"features_pixels", "svm_pixels"}
    )


def test_the_size_of_a_network_counts_where_it_has_one():
    resnet = {"network": "resnet18"}
    assert planned.changed(resnet, resnet_width=8) == {"initial", "train", "evaluate", "report"}
    assert "initial" in planned.changed({}, autoencoder_filters=[8, 4])


def test_the_side_of_the_patch_networks_filters_counts_where_it_is_not_6():
    fitted = {"network": "patch_net", "training": "patches"}
    assert {"initial", "patches", "features"} <= planned.changed(fitted, patch_net_kernel=8)
    assert planned.changed({}, patch_net_kernel=8) == set()
    for role in ("initial", "patches", "features"):
        assert "patch_net_kernel" not in planned.chain(fitted)[role].spec["params"]
        assert (
            planned.chain(fitted, patch_net_kernel=8)[role].spec["params"]["patch_net_kernel"] == 8
        )


def test_noise_penalty_and_winners_count_where_they_are_used():
    assert {"train", "features"} <= planned.changed({}, input_noise=0.1) & planned.changed(
        {}, latent_penalty=0.1
    )
    assert "input_noise" not in planned.chain()["train"].spec["params"]
    wta = {"network": "wta_autoencoder", "wta_kernels": [3, 3], "features_layer": "contrast"}
    own = {"wta_filters": 9, "wta_kernels": [2, 4], "wta_winners": 2, "wta_lifetime": 0.5}
    for key, value in own.items():
        assert {"train", "features"} <= planned.changed(wta, **{key: value}) and planned.changed(
            {}, **{key: value}
        ) == set()
    assert {"train", "features"} <= planned.changed(wta, input_noise=0.1)
    assert (
        planned.changed(wta, latent_penalty=0.1)
        == planned.changed(wta, autoencoder_filters=[8])
        == set()
    )


def test_the_weight_of_the_divergence_counts_where_latent_values_are_drawn():
    assert planned.changed({}, variational_beta=0.5) == set()
    assert not {"variational", "variational_beta"} & planned.chain()["train"].spec["params"].keys()
    drawn = {"variational": True, "features_layer": "mean"}
    assert {"initial", "train", "features"} <= planned.changed({}, **drawn) & planned.changed(
        drawn, variational_beta=0.5
    )


@pytest.mark.parametrize("key", ["autoencoder_residual", "autoencoder_attention"])
def test_residual_blocks_and_attention_count_where_they_are_on(key):
    assert {"initial", "train", "features"} <= planned.changed({}, **{key: True})
    assert not any(key in stage.spec["params"] for stage in planned.chain().values())


def test_the_momentum_and_the_steps_count_where_they_are_used():
    assert "train" in planned.changed({"optimizer": "momentum"}, momentum=0.1)
    assert "train" in planned.changed({"schedule": "step"}, schedule_step_epochs=3)
    assert "svm" not in planned.changed({"svm_kernel": "linear"}, svm_gamma=0.1)


def test_a_multiplier_counts_where_it_makes_products():
    lenet = {"network": "lenet_5"}
    am32 = {"multiplier": "am32"}
    # evaluate by its parent
    assert planned.changed(lenet, **am32) == {"train", "evaluate", "report"}
    for keys in (lenet | {"multiplier_in": []}, lenet | {"loss_scale": 2.0}):
        assert planned.versions(keys) == planned.versions(lenet)
    assert planned.changed(lenet | am32, loss_scale=2.0) == set()
    assert planned.changed(lenet | am32, multiplier_in=["forward"]) == {
        "train",
        "evaluate",
        "report",
    }
    assert "train" in planned.changed(lenet | {"multiplier": "fp16"}, loss_scale=2.0)
    assert planned.changed(lenet, test_multiplier="am32") == {"evaluate", "report"}
    assert planned.changed({}, test_multiplier="am32") == {
        "features",
        "svm",
        "map",
        "features_random",
        "svm_random",
        "report",
    }
    assert "multiplier" not in planned.chain(lenet)["train"].spec["params"]


def test_a_report_has_the_file_of_a_table_and_its_training_what_it_holds(tmp_path):
    np.save(tmp_path / "mine.npy", multipliers.tabulated("mbm", 3))
    path = str(tmp_path / "mine.npy")
    chain = planned.chain({"network": "lenet_5", "multiplier": path, "multiplier_in": ["forward"]})
    params = chain["report"].spec["params"]
    assert (params["multiplier"], params["test_multiplier"]) == ("mine.npy", "mine.npy")
    assert chain["train"].spec["params"]["multiplier"] == multipliers.identity(path)


def test_a_precision_counts_where_products_are_made():
    lenet = {"network": "lenet_5"}
    assert planned.changed(lenet, precision="tf32") == {"train", "evaluate", "report"}
    assert planned.changed({}, precision="bfloat16") == {
        "train",
        "features",
        "svm",
        "map",
        "features_random",
        "svm_random",
        "report",
    }
    made = planned.chain({"precision": "tf32"})
    assert (
        made["train"].spec["params"]["precision"]
        == made["features"].spec["params"]["precision"]
        == "tf32"
    )
    assert "precision" not in planned.chain()["train"].spec["params"]


def test_an_archive_is_known_by_its_checksum_not_by_its_address():
    cifar10 = {"dataset": "cifar10"}
    assert planned.changed(cifar10, cifar10_urls=["file:///elsewhere"]) == set()
    assert "data" in planned.changed(cifar10, cifar10_sha256="0" * 64)


def test_a_picture_to_classify_changes_no_version():
    assert planned.changed({}, predict=["pictures"]) == set()


def test_the_images_of_pictures_depend_on_their_content_and_not_on_their_place(
    tmp_path, monkeypatch
):
    picture_folders.forget(monkeypatch, tmp_path)
    first, second = (
        str(picture_folders.write(tmp_path / name, {"a": 50, "b": 50})) for name in ("one", "two")
    )
    keys = {"dataset": "folder", "folder": first, "batch_size": 16}
    version = planned.chain(**keys)["data"].version
    assert planned.chain(**keys | {"folder": second})["data"].version == version
    others = [
        {"image_size": [16, 16]},
        {"image_channels": 1},
        {"test_share": 0.5},
        {"test_limit": 4},
    ]
    assert len({planned.chain(**keys | other)["data"].version for other in others} | {version}) == 5
    assert (
        planned.chain(folder=first, test_share=0.5)["data"].version
        == planned.chain()["data"].version
    )
    picture_folders.picture(5).save(tmp_path / "two/a/0000.png")
    listing.source.cache_clear()
    assert planned.chain(**keys | {"folder": second})["data"].version != version


def test_the_test_share_does_not_count_where_there_are_test_pictures(tmp_path, monkeypatch):
    picture_folders.forget(monkeypatch, tmp_path)
    folder = picture_folders.write(
        tmp_path / "p", {"train/a": 40, "train/b": 40, "test/a": 2, "test/b": 2}
    )
    versions = {
        planned.chain(dataset="folder", folder=str(folder), test_share=share)["data"].version
        for share in (0.1, 0.5)
    }
    assert len(versions) == 1
