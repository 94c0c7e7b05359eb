import pytest

import picture_folders
import planned
from ladder import sources
from ladder.data import listing
from ladder.errors import UserError
from ladder.machine import libraries
from ladder.rungs import variants
from ladder.store import cache
from ladder.workflow import reasons, runs, stages


def test_versions_of_libraries_count_only_if_strict(monkeypatch):
    here = {"numpy": "2.4.6", "scikit-learn": "1.9.1"}
    monkeypatch.setattr(libraries, "_version", here.get)
    usual, strict = (planned.chain(strict_versions=strict) for strict in (False, True))
    here["scikit-learn"] = "1.9.2"
    assert planned.chain()["svm"].version == usual["svm"].version
    later = planned.chain(strict_versions=True)
    assert later["initial"].version == strict["initial"].version   # drawn with NumPy alone
    assert later["svm"].version != strict["svm"].version != usual["svm"].version
    assert later["svm"].spec["libraries"] == {"numpy": "2.4.6", "scikit-learn": "1.9.2"}
    assert reasons._differences(strict["svm"].spec, later["svm"].spec, {}) == [
        "scikit-learn 1.9.1 -> 1.9.2", "parent data changed", "parent features changed"]


def test_the_sources_of_a_stage_are_the_imports_of_its_script():
    data = stages.stage_sources("data", {})
    assert "workflow/scripts/prepare_data.py" in data and "workflow/scripts/ladder/data/datasets.py" in data
    assert "workflow/scripts/ladder/classifiers/svm.py" not in data
    assert not sources.NEUTRAL & set(data) and not any(path.endswith("__init__.py") for path in data)
    assert "workflow/report/report.html" in stages.stage_sources("report", {})
    assert not any("workflow/report" in path for path in data)


def test_an_edited_gpu_rung_leaves_results_of_the_cpu_rungs_as_they_are():
    for variant in ("cpu", "cpu_sequential"):
        counted = stages.stage_sources("train", {"variant": variant})
        assert not [path for path in counted if "gpu_" in path or path.startswith("kernels/") or "cuda" in path], variant
    assert "kernels/gpu_basic/conv2d.cu" in stages.stage_sources("train", {"variant": "gpu_basic"})


def test_a_features_stage_depends_on_its_rung_and_the_pixels_do_not():
    chain = planned.chain()
    rung = "workflow/scripts/ladder/rungs/cpu.py"
    assert rung in chain["train"].spec["sources"] and rung in chain["features"].spec["sources"]
    assert rung not in chain["features_pixels"].spec["sources"]


def test_a_key_changes_the_stages_it_can_change_and_no_other():
    trained = {"train", "features", "svm", "map", "report"}
    assert planned.changed({}, learning_rate=0.5) == trained
    assert planned.changed({}, seed=2) == trained | {"initial", "features_random", "svm_random"}
    assert planned.changed({}, svm_C=1.0) == {"svm", "svm_random", "svm_pixels", "report"}
    assert planned.changed({}, controls=["random"]) == {"features_pixels", "svm_pixels", "report"}
    assert planned.changed({}, normalization="zca") == set(planned.chain()) - {"data", "initial"}
    assert planned.changed({}, train_limit=200) == set(planned.chain()) - {"initial"}


def test_a_hold_out_takes_the_place_of_the_test_images_in_the_version():
    held_out = {"holdout": 100}
    assert planned.changed({}, holdout=100) == set(planned.chain()) - {"initial"}
    assert "holdout" not in planned.chain()["data"].spec["params"]
    assert planned.chain(held_out)["data"].spec["params"].keys() == {"dataset", "train_limit", "holdout"}
    assert planned.changed(held_out, patience=3) == {"train", "features", "svm", "map", "report"}
    assert planned.changed(held_out, test_limit=20) == set() and "data" in planned.changed(held_out, holdout=101)


@pytest.mark.parametrize("keys", [
    {"threads": 7}, {"momentum": 0.1}, {"schedule_step_epochs": 3, "schedule_step_factor": 0.9},
    {"cifar10_sha256": None, "cifar10_urls": ["file:///elsewhere"]}, {"resnet_width": 8}, {"monitor": 100}, {"recompute": True},
])
def test_a_key_without_effect_changes_nothing(keys):
    assert planned.changed({}, **keys) == set()


def test_features_may_be_extracted_by_another_rung_than_the_trainings():
    extracted = {"features", "features_random"}
    assert planned.changed({}, features_variant="cpu_sequential") == extracted | {"svm", "svm_random", "map", "report"}
    chain = planned.chain({"features_variant": "cpu_sequential"})
    for role in extracted:
        assert chain[role].spec["params"]["variant"] == "cpu_sequential", role
        assert "workflow/scripts/ladder/executors/sequential.py" in chain[role].spec["sources"]
    assert chain["train"].spec["params"]["variant"] == "cpu"


def test_the_training_of_another_rung_is_a_parent_of_the_report_alone():
    one = planned.run(variant="cpu", reference_variant="cpu_sequential")
    chain, plain = stages.chain(one), planned.chain(variant="cpu")
    own, other = chain["train"].spec, chain["report"].parents["train_reference"].spec
    assert other["params"] == {**own["params"], "variant": "cpu_sequential"} and other["parents"] == own["parents"]
    assert {role for role in chain if chain[role].version != plain[role].version} == {"report"}
    assert other in [stages.chain(needed)["train"].spec for needed in runs.every(one)]   # so that there is a job for it
    assert not planned.chain(variant="cpu", reference_variant="cpu_sequential", epochs=0)["report"].parents.keys() & {
        "train_reference"}


def test_targets_and_figures_are_part_of_the_reports_version_alone():
    assert planned.changed({}, targets=[{"metric": "test_accuracy", "at_least": 0.6}]) == {"report"}
    assert planned.changed({}, figures=True) == {"report"}


def test_a_network_that_classifies_is_evaluated_and_has_an_svm_only_on_a_layer_that_is_named():
    lenet = {"network": "lenet_5"}
    first = ["data", "normalized", "initial", "train", "evaluate"]
    assert list(planned.chain(lenet)) == [*first, "features_pixels", "linear_pixels", "report"]
    assert list(planned.chain(lenet | {"controls": []})) == [*first, "report"]
    assert set(planned.chain(lenet)["train"].parents) == {"normalized", "initial", "data"}
    assert {"evaluate", "features", "svm", "svm_random"} <= planned.chain(lenet | {"features_layer": "fc1"}).keys()
    assert planned.changed(lenet, gradient_scale="batch") == set()
    assert planned.changed(lenet, steps=100) == planned.changed(lenet, augment_flip=True) == {"train", "evaluate", "report"}
    assert planned.changed(lenet | {"steps": 100}, epochs=3) == set()
    assert planned.changed(lenet, file_sha256="0" * 64) == {"initial", "train", "evaluate", "report"}


def test_an_option_of_the_features_is_in_a_version_only_where_it_is_on():
    params = {role: keyed.spec["params"] for role, keyed in planned.chain().items()}
    assert set(params["features"]) == {"encoder", "network", "autoencoder_filters", "autoencoder_norm", "image", "variant",
                                       "features_layer", "features_standardize", "features_pool", "features_flip"}
    assert params["features_pixels"] == {"encoder": "pixels"}
    features = {"features", "features_random", "svm", "svm_random", "map", "report"}
    assert planned.changed({}, features_two_polarity=0.5) == planned.changed({}, features_max_pool=2) == features
    assert planned.changed({}, features_fit_rows=500) == planned.changed({}, features_polarity_scale="channel") == set()
    polar = {"features_two_polarity": 0.5}
    assert planned.changed(polar, features_polarity_scale="channel") == features
    assert planned.changed(polar | {"features_polarity_scale": "channel"}, features_fit_rows=500) == features


def test_the_pixels_take_the_options_that_need_no_maps():
    pixels = {"features_pixels", "svm_pixels"}
    for on in ({"features_pca": 64}, {"features_flip": True}, {"features_standardize": True}):
        assert pixels < planned.changed({}, **on)
    assert not pixels & planned.changed({"dataset": "mnist"}, features_pca=1000), "as many pixels as that there are not"
    assert planned.changed({"features_pca": 64}, features_fit_rows=500) > pixels
    fitted = planned.chain({"features_pca": 64, "features_pool": 4})["features_pixels"].spec["params"]
    assert fitted == {"encoder": "pixels", "features_pca": 64, "features_fit_rows": 10000, "seed": 1,
                      "array_library": "numpy"}


def test_features_of_two_layers_of_one_network_are_joined_and_it_is_trained_once():
    alone = planned.versions()
    both = planned.versions(features_concatenate=[{"features_layer": "enc1_pool", "weight": 0.5}])
    assert {role for role in alone if alone[role] != both[role]} == {"svm", "svm_random", "map", "report"}
    assert both.keys() - alone.keys() == {"features_part2", "features_random_part2", "joined", "joined_random"}
    assert both["features_part2"] == planned.versions(features_layer="enc1_pool")["features"]
    assert [one.stage for one in planned.chain().values()].count("train") == 1


def test_features_of_two_networks_are_joined_with_all_ancestors_of_the_second():
    chain = planned.chain(features_concatenate=[{"seed": [5, 6], "normalization": "zca", "weight": 0.5}])
    assert chain.keys() >= {"normalized_part2", "initial_part2", "train_part2", "features_part2", "train_part3"}
    assert "normalized_part3" not in chain, "it is the same for both"
    joined = chain["joined"]
    assert joined.spec["params"] == {"weights": [1, 0.5, 0.5]}
    assert list(joined.parents) == ["part1", "part2", "part3"] and chain["svm"].parents["features"] is joined
    assert {"train_part2", "features_part3", "joined"} < chain["report"].parents.keys()
    assert {"initial", "initial_part2"} < chain["report"].parents.keys(), "the report says what each network started from"
    assert chain["svm_pixels"].parents["features"] is chain["features_pixels"], "pixels have no layers to join"


@pytest.mark.parametrize("entry, words", [
    ({"weight": 0}, "weight is 0, but must be a number above 0"), ({"sed": 1}, "there is no key 'sed'; did you mean seed?"),
    ({"features_layer": "enc3"}, "no such layer; did you mean enc2? (entry 1 of features_concatenate)"),
    ({"train_limit": 100}, "dataset and limits must stay"), ({"network": "lenet_5"}, "lenet_5 has no features unless"),
    ({"network": "patch_net", "training": "patches", "patch_net_kernel": [8, 21]},
     "patch_net_kernel is 21, with which network patch_net cannot read images of 32x32; at most 20 (entry 1 of features"),
    ({"features_pool": 2, "classify_shifts": 1}, "classify_shifts changes no feature, so it has no effect in what is appended"),
])
def test_a_wrong_part_is_one_line(entry, words):
    with pytest.raises(UserError) as caught:
        planned.run(features_concatenate=[entry])
    assert words in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("key, value", [
    ("svm_kernel", "poly"), ("svm_C", 3), ("svm_gamma", 0.1), ("evaluations", ["knn"]), ("knn_k", 3),
    ("knn_distance", "cosine"), ("classify_shifts", 1), ("feature_map", False), ("figures", True),
    ("controls", ["pixels"]), ("seeds", [2]), ("ablation", [{"epochs": 3}]),
    ("reference_variant", "cpu_sequential"), ("svm_backend", "sklearn"),
    ("targets", [{"metric": "test_accuracy", "at_least": 0.5}]),
])
def test_a_key_that_is_refused_in_a_part_changes_no_feature_and_outside_it_is_allowed(key, value):
    assert planned.versions(**{key: value})["features"] == planned.versions()["features"]
    with pytest.raises(UserError, match=f"{key} changes no feature"):
        planned.run(features_concatenate=[{key: value}])


def test_other_classifiers_read_what_the_svm_reads_and_so_do_their_controls():
    every = ["linear", "ridge", "knn"]
    chain = planned.chain(evaluations=every, features_concatenate=[{"features_layer": "enc1_pool"}])
    for kind in ("", "_random", "_pixels"):
        read = {chain[f"{name}{kind}"].parents["features"].version for name in ("svm", *every)}
        assert read == {chain[f"{'features' if kind == '_pixels' else 'joined'}{kind}"].version}
    both = {"evaluations": ["linear", "knn"]}
    knn = {"knn", "knn_random", "knn_pixels", "report"}
    assert planned.changed(both, knn_k=3) == planned.changed(both, knn_distance="euclidean") == knn
    assert planned.changed({}, knn_k=3) == set() and planned.changed({}, feature_map=False) == {"map", "report"}


def test_the_array_library_counts_where_it_computes():
    plain = {"array_library": "numpy", "evaluations": ["linear", "ridge", "knn"], "controls": ["pixels"]}
    used = {"ridge", "ridge_pixels", "knn", "knn_pixels", "report"}
    assert planned.changed(plain, array_library="cupy") == used
    after_pca = {name for name in planned.chain(plain) if name.partition("_")[0] in ("svm", "linear", "ridge", "knn", "map")}
    reduced = planned.changed(plain | {"features_pca": 20}, array_library="cupy")
    assert reduced == used | after_pca | {"features", "features_pixels"}
    fitted = planned.changed({"training": "patches", "array_library": "numpy"}, array_library="cupy")
    assert {"patches", "train", "features", "svm"} <= fitted and fitted.isdisjoint({"features_pixels", "svm_pixels"})


@pytest.mark.parametrize("params, on_gpu", [
    ({}, False), ({"variant": "cpu", "array_library": "numpy"}, False), ({"backend": "sklearn"}, False),
    ({"variant": "gpu_basic"}, True), ({"backend": "cuml"}, True), ({"variant": "cpu", "array_library": "cupy"}, True)])
def test_a_stage_that_computes_on_a_gpu_asks_for_one(params, on_gpu):
    assert variants.computes_on_gpu(params) == on_gpu


def test_the_run_is_repeated_with_every_other_seed_and_the_report_has_its_scores():
    chain = planned.chain(seeds=[0, 1, 2, 0], evaluations=["knn"])
    for seed in (0, 2):
        other = planned.versions(seed=seed, evaluations=["knn"])
        for role in ("svm", "svm_random", "svm_pixels", "knn", "knn_random"):
            assert chain["report"].parents[f"{role}_seed{seed}"].version == other[role], "as in a run with that seed alone"
    assert "svm_seed1" not in chain["report"].parents, "it is this run"
    assert {role: one.version for role, one in chain.items() if role != "report"} == {
        role: version for role, version in planned.versions(evaluations=["knn"]).items() if role != "report"}


def test_an_entry_of_the_ablation_is_the_score_of_that_run():
    one = planned.run(ablation=[{"features_flip": [False, True]}, {"variant": "gpu_basic"}], seeds=[2])
    report = stages.chain(one)["report"]
    listed = report.spec["params"]["ablation"]
    assert [one["overrides"] for one in listed] == [{"features_flip": False}, {"features_flip": True}, {"variant": "gpu_basic"}]
    assert report.parents["score_ablation2"].version == planned.versions(features_flip=True)["svm"]
    ridge = planned.chain(evaluations=["ridge"], ablation=[{"features_flip": True}])["report"]
    assert ridge.parents["score_ablation1"].version == planned.versions(features_flip=True, evaluations=["ridge"])["ridge"]
    lenet = planned.chain(network="lenet_5", ablation=[{"epochs": 2}])["report"]
    assert lenet.parents["score_ablation1"].version == planned.versions(network="lenet_5", epochs=2)["evaluate"]


def test_every_nested_run_is_listed_once_with_its_own_nested_runs():
    run = planned.run(seeds=[2], ablation=[{"epochs": 3}], features_concatenate=[{"normalization": "zca"}])
    found = [tuple(one.pick("seed", "epochs", "normalization").values()) for one in runs.every(run)]
    assert found == [(1, 10, "unit"), (1, 10, "zca"), (2, 10, "unit"), (2, 10, "zca"), (1, 3, "unit"), (1, 3, "zca")]


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
        assert planned.chain(fitted, patch_net_kernel=8)[role].spec["params"]["patch_net_kernel"] == 8


def test_noise_penalty_and_winners_count_where_they_are_used():
    assert {"train", "features"} <= planned.changed({}, input_noise=0.1) & planned.changed({}, latent_penalty=0.1)
    assert "input_noise" not in planned.chain()["train"].spec["params"]
    wta = {"network": "wta_autoencoder", "wta_kernels": [3, 3], "features_layer": "contrast"}
    own = {"wta_filters": 9, "wta_kernels": [2, 4], "wta_winners": 2, "wta_lifetime": 0.5}
    for key, value in own.items():
        assert {"train", "features"} <= planned.changed(wta, **{key: value}) and planned.changed({}, **{key: value}) == set()
    assert {"train", "features"} <= planned.changed(wta, input_noise=0.1)
    assert planned.changed(wta, latent_penalty=0.1) == planned.changed(wta, autoencoder_filters=[8]) == set()


def test_the_weight_of_the_divergence_counts_where_latent_values_are_drawn():
    assert planned.changed({}, variational_beta=0.5) == set()
    assert not {"variational", "variational_beta"} & planned.chain()["train"].spec["params"].keys()
    drawn = {"variational": True, "features_layer": "mean"}
    assert {"initial", "train", "features"} <= planned.changed({}, **drawn) & planned.changed(drawn, variational_beta=0.5)


@pytest.mark.parametrize("key", ["autoencoder_residual", "autoencoder_attention"])
def test_residual_blocks_and_attention_count_where_they_are_on(key):
    assert {"initial", "train", "features"} <= planned.changed({}, **{key: True})
    assert not any(key in stage.spec["params"] for stage in planned.chain().values())


def test_the_momentum_and_the_steps_count_where_they_are_used():
    assert "train" in planned.changed({"optimizer": "momentum"}, momentum=0.1)
    assert "train" in planned.changed({"schedule": "step"}, schedule_step_epochs=3)
    assert "svm" not in planned.changed({"svm_kernel": "linear"}, svm_gamma=0.1)


FILE = {"file_sha256": "5e" * 32}


def behind(chain, role):
    """The role of the weights behind a role's features."""
    weights = chain[role].parents["weights"]
    return next(name for name, keyed in chain.items() if keyed is weights)


@pytest.mark.parametrize("keys", [{}, {"training": "patches"}, {"training": "patches_then_gradient"}, {"epochs": 0}])
def test_the_random_control_is_a_random_draw_whatever_the_run_starts_from(keys):
    drawn, given = planned.chain(keys | {"epochs": 10}), planned.chain(keys | FILE)
    assert behind(given, "features_random") == "initial_random" and given["initial"].spec["params"]["file_sha256"]
    assert given["features_random"].version == drawn["features_random"].version, "that of the run without a file"
    start = given["patches" if "patches" in given else "train"].parents["initial"] if "epochs" not in keys else given["initial"]
    assert start is given["initial"] is not given["initial_random"]
    assert {"initial", "initial_random"} < given["report"].parents.keys()
    assert "initial_random" not in planned.chain(keys | FILE | {"controls": ["pixels"]})


def test_the_control_of_a_part_is_a_random_draw_too(tmp_path):
    from ladder.network import networks, weights

    network = networks.from_params({"network": "autoencoder", "autoencoder_filters": [256, 128], "autoencoder_norm": False,
                                    "image": [32, 32, 3]})
    weights.save(tmp_path / "weights.bin", network, weights.initialize(network, 7))
    part = {"initial_weights": str(tmp_path / "weights.bin"), "normalization": "zca"}
    joined = planned.chain(features_concatenate=[part])["joined_random"]
    assert all("seed" in part.parents["weights"].spec["params"] for part in joined.parents.values())


HEADED = {"network": "autoencoder_classifier", "features_layer": "latent"}


@pytest.mark.parametrize("keys, start", [(FILE, "initial"), ({"training": "patches_then_gradient"}, "patches")])
def test_an_encoder_with_a_head_is_beside_what_it_started_from(keys, start):
    chain = planned.chain(HEADED | keys)
    assert behind(chain, "features") == behind(chain, "evaluate") == "train"
    assert behind(chain, "features_start") == start and chain["svm_start"].parents["features"] is chain["features_start"]
    assert behind(chain, "features_random") == ("initial_random" if keys == FILE else "initial")
    frozen = planned.chain(HEADED | keys | {"freeze_encoder": True})
    assert behind(frozen, "features") == start and behind(frozen, "evaluate") == "train"
    assert frozen["features"].version == frozen["features_start"].version == chain["features_start"].version
    assert frozen["train"].version != chain["train"].version
    hidden = planned.chain(HEADED | keys | {"features_layer": "head_relu"})
    assert hidden["features_start"].version == chain["features_start"].version != hidden["features"].version


def test_a_head_is_drawn_by_the_seed_over_an_encoder_from_a_file():
    assert "initial" in planned.changed(HEADED | FILE, seed=2) and "initial" not in planned.changed(FILE, seed=2)
    assert "features_start" not in planned.chain(HEADED)
    assert planned.changed({}, head_units=7) == set()


def test_an_encoder_fitted_to_patches_gets_a_head_alone():
    chain = planned.chain(HEADED | {"training": "patches"})
    assert behind(chain, "features") == "patches" and behind(chain, "evaluate") == "train"


@pytest.mark.parametrize("none", [{"epochs": 0}, {"steps": 0}])
def test_without_a_step_the_weights_are_the_initial_ones(none):
    chain = planned.chain(none)
    assert "train" not in chain and behind(chain, "features") == "initial"
    assert "features_random" not in chain and "svm_pixels" in chain, "it is its own random control"
    given = planned.chain(none | FILE)
    assert behind(given, "features") == "initial" and behind(given, "features_random") == "initial_random"
    assert planned.changed(none, batch_size=32, learning_rate=0.5) == {"report"}
    lenet = planned.chain(none | {"network": "lenet_5"} | FILE)
    assert behind(lenet, "evaluate") == "initial" and "train" not in lenet
    assert stages.prediction_roles(given) == ["data", "normalized", "initial", "features", "svm"]
    assert "initial" not in stages.prediction_roles(planned.chain())
    entry = runs.Entry({}, planned.run(**none), "")
    assert stages.comparison([entry]).parents["train0"] is not None


def test_features_joined_to_random_ones_have_a_control_only_if_something_was_learned():
    learned = {"features_concatenate": [{"epochs": 3}]}
    chain = planned.chain(epochs=0, **learned)
    assert [one.parents["weights"].stage for one in chain["joined"].parents.values()] == ["initial", "train"]
    assert [one.parents["weights"].stage for one in chain["joined_random"].parents.values()] == ["initial", "initial"]
    assert "joined_random" not in planned.chain(epochs=0, features_concatenate=[{"seed": 5}])
    both = planned.chain(features_concatenate=[{"epochs": 0, "seed": 5}])
    assert both["joined_random"].parents["part2"].version == both["joined"].parents["part2"].version


def test_a_joint_training_without_a_step_is_one_line():
    with pytest.raises(UserError, match="epochs is 0, but training is patches_then_gradient; set training to patches"):
        planned.run(training="patches_then_gradient", epochs=0)


def test_a_multiplier_counts_where_it_makes_products():
    lenet = {"network": "lenet_5"}
    am32 = {"multiplier": "am32"}
    assert planned.changed(lenet, **am32) == {"train", "evaluate", "report"}   # evaluate by its parent
    for keys in (lenet | {"multiplier_in": []}, lenet | {"loss_scale": 2.0}):
        assert planned.versions(keys) == planned.versions(lenet)
    assert planned.changed(lenet | am32, loss_scale=2.0) == set()
    assert planned.changed(lenet | am32, multiplier_in=["forward"]) == {"train", "evaluate", "report"}
    assert "train" in planned.changed(lenet | {"multiplier": "fp16"}, loss_scale=2.0)
    assert planned.changed(lenet, test_multiplier="am32") == {"evaluate", "report"}
    assert planned.changed({}, test_multiplier="am32") == {
        "features", "svm", "map", "features_random", "svm_random", "report"}
    assert "multiplier" not in planned.chain(lenet)["train"].spec["params"]


def test_a_precision_counts_where_products_are_made():
    lenet = {"network": "lenet_5"}
    assert planned.changed(lenet, precision="tf32") == {"train", "evaluate", "report"}
    assert planned.changed({}, precision="bfloat16") == {
        "train", "features", "svm", "map", "features_random", "svm_random", "report"}
    made = planned.chain({"precision": "tf32"})
    assert made["train"].spec["params"]["precision"] == made["features"].spec["params"]["precision"] == "tf32"
    assert "precision" not in planned.chain()["train"].spec["params"]


def test_addresses_identify_the_archive_only_without_a_checksum():
    cifar10 = {"dataset": "cifar10"}
    assert planned.changed(cifar10, cifar10_urls=["file:///elsewhere"]) == set()
    assert "data" in planned.changed(cifar10 | {"cifar10_sha256": None}, cifar10_urls=["file:///elsewhere"])
    assert "data" in planned.changed(cifar10, cifar10_sha256="0" * 64)


@pytest.mark.parametrize("keys", [{}, {"features_concatenate": [{"features_layer": "enc1_pool", "weight": 0.5}]}])
def test_shifted_images_change_classifiers_alone(keys):
    plain = {"evaluations": ["linear", "ridge", "knn"], **keys}
    classifiers = {f"{name}{of}" for name in ("svm", "linear", "ridge", "knn") for of in ("", "_random", "_pixels")}
    parts = {"shifted_part2", "shifted_random_part2"} if keys else set()
    shifted = {"shifted", "shifted_random", "shifted_pixels"} | parts
    assert planned.changed(plain, classify_shifts=1) == classifiers | shifted | {"report"}
    assert not any("classify_shifts" in keyed.spec["params"] for keyed in planned.chain(plain).values())
    chain = planned.chain(plain | {"classify_shifts": 1})
    assert planned.changed(plain | {"classify_shifts": 1}, classify_shifts=2) == classifiers | shifted | {"report"}
    assert chain["ridge"].spec["params"] == {"seed": 1, "array_library": "numpy", "classify_shifts": 1}
    assert chain["shifted"].spec["params"] == {"variant": planned.run().settings.variant, "classify_shifts": 1}
    assert chain["shifted_pixels"].spec["params"] == {"classify_shifts": 1}
    assert [chain[role].parents["features"].role for role in sorted(shifted - parts)] == [
        "features", "features_pixels", "features_random"]
    copies = {name: one.role for name, one in chain["ridge_random"].parents.items() if one.stage == "shifted"}
    assert copies == {"shifted1": "shifted_random"} | ({"shifted2": "shifted_random_part2"} if keys else {})
    assert "shifted" not in {chain[role].stage for role in stages.prediction_roles(chain)}


def test_an_ablation_without_shifted_images_is_the_run_without_the_key():
    plain = {"evaluations": ["ridge"]}
    chain = planned.chain(evaluations=["ridge"], classify_shifts=1, ablation=[{"classify_shifts": "none"}])
    score = chain["report"].parents["score_ablation1"]
    assert score.version == planned.chain(plain)["ridge"].version != chain["ridge"].version


def test_a_part_that_controls_share_is_shifted_once():
    chain = planned.chain(classify_shifts=1, features_concatenate=[{"epochs": 0, "steps": "none"}])
    versions = [keyed.version for keyed in chain.values() if keyed.stage == "shifted"]
    assert len(versions) == len(set(versions)) == 3
    read = [chain[f"svm{kind}"].parents["shifted2"].version for kind in ("", "_random")]
    assert read == [chain["shifted_part2"].version] * 2


def test_the_raw_pixels_beside_a_network_are_classified_as_it_classifies():
    lenet = {"network": "lenet_5", "features_layer": "fc1", "classify_shifts": 1}
    assert "classify_shifts" not in planned.chain(lenet)["evaluate"].spec["params"]
    assert "classify_shifts" not in planned.chain(lenet)["linear_pixels"].spec["params"]
    both = planned.chain(lenet | {"evaluations": ["linear"]})
    assert both["linear_pixels"].spec["params"] == {"seed": 1, "classify_shifts": 1}


def test_a_picture_is_classified_by_ancestors_of_the_verdict_and_no_control():
    assert stages.prediction_roles(planned.chain()) == ["data", "normalized", "train", "features", "svm"]
    fitted = planned.chain(training="patches")
    assert stages.prediction_roles(fitted) == ["data", "normalized", "patches", "train", "features", "svm"]
    alone = planned.chain(training="patches", network="patch_net")
    assert stages.prediction_roles(alone) == ["data", "normalized", "patches", "features", "svm"]
    ridge = planned.chain(evaluations=["linear", "ridge"])
    assert stages.prediction_roles(ridge) == ["data", "normalized", "train", "features", "ridge"]
    lenet = {"network": "lenet_5"}
    assert stages.prediction_roles(planned.chain(lenet)) == ["data", "normalized", "train", "evaluate"]
    both = planned.chain(lenet | {"features_layer": "fc1", "evaluations": ["ridge"]})
    assert stages.prediction_roles(both) == ["data", "normalized", "train", "evaluate", "features"]


def test_a_picture_to_classify_changes_no_version():
    assert planned.changed({}, predict=["pictures"]) == set()


def test_the_images_of_pictures_depend_on_their_content_and_not_on_their_place(tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "folder", lambda name: tmp_path / "cache" / name)
    first, second = (str(picture_folders.write(tmp_path / name, {"a": 50, "b": 50})) for name in ("one", "two"))
    keys = {"dataset": "folder", "folder": first, "batch_size": 16}
    version = planned.chain(**keys)["data"].version
    assert planned.chain(**keys | {"folder": second})["data"].version == version
    others = [{"image_size": [16, 16]}, {"image_channels": 1}, {"test_share": 0.5}, {"test_limit": 4}]
    assert len({planned.chain(**keys | other)["data"].version for other in others} | {version}) == 5
    assert planned.chain(folder=first, test_share=0.5)["data"].version == planned.chain()["data"].version
    picture_folders.picture(5).save(tmp_path / "two/a/0000.png")
    listing.of.cache_clear()
    assert planned.chain(**keys | {"folder": second})["data"].version != version


def test_the_test_share_does_not_count_where_there_are_test_pictures(tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "folder", lambda name: tmp_path / "cache" / name)
    folder = picture_folders.write(tmp_path / "p", {"train/a": 40, "train/b": 40, "test/a": 2, "test/b": 2})
    versions = {planned.chain(dataset="folder", folder=str(folder), test_share=share)["data"].version
                for share in (0.1, 0.5)}
    assert len(versions) == 1
