"""The artifacts that a run has, and what each is made from."""

import pytest

import planned
from ladder.errors import UserError
from ladder.network import networks, weights
from ladder.rungs import catalog
from ladder.workflow import chains, runs

FILE = {"file_sha256": "5e" * 32}
HEADED = {"network": "autoencoder_classifier", "features_layer": "latent"}


def test_the_training_of_another_rung_is_a_parent_of_the_report_alone():
    other_rung = {"variant": "cpu", "runs": [{"variant": "cpu_sequential"}]}
    one = planned.run(**other_rung)
    chain, plain = chains.chain(one), planned.chain(variant="cpu")
    own, other = chain["train"].spec, chain["report"].parents["train_reference"].spec
    assert (
        other["params"] == {**own["params"], "variant": "cpu_sequential"}
        and other["parents"] == own["parents"]
    )
    assert {role for role in chain if chain[role].version != plain[role].version} == {"report"}
    # so that there is a job for it
    assert other in [chains.chain(needed)["train"].spec for needed in runs.every(one)]
    untrained = planned.chain(other_rung, epochs=0)["report"].parents
    assert "train_reference" not in untrained and "score_run1" in untrained


def test_a_classifier_is_evaluated_and_has_an_svm_only_on_a_layer_that_is_named():
    lenet = {"network": "lenet_5"}
    first = ["data", "normalized", "initial", "train", "evaluate"]
    assert list(planned.chain(lenet)) == [*first, "features_pixels", "linear_pixels", "report"]
    assert list(planned.chain(lenet | {"controls": []})) == [*first, "report"]
    assert set(planned.chain(lenet)["train"].parents) == {"normalized", "initial", "data"}
    assert {"evaluate", "features", "svm", "svm_random"} <= planned.chain(
        lenet | {"features_layer": "fc1"}
    ).keys()
    assert planned.changed(lenet, gradient_scale="batch") == set()
    assert (
        planned.changed(lenet, steps=100)
        == planned.changed(lenet, augment_flip=True)
        == {"train", "evaluate", "report"}
    )
    assert planned.changed(lenet | {"steps": 100}, epochs=3) == set()
    assert planned.changed(lenet, file_sha256="0" * 64) == {
        "initial",
        "train",
        "evaluate",
        "report",
    }


def test_features_that_saw_no_labels_are_measured_with_few_beside_the_controls():
    chain = planned.chain(label_counts=[300, 10, 1433, 9], features_concatenate=[{"seed": 5}])
    roles = [role for role in chain if chain[role].stage == "labels"]
    assert roles == ["labels", "labels_random", "labels_pixels"]
    assert chain["labels"].spec["params"] == {"label_counts": [10, 300], "seed": 1}, (
        "of 1,433 digits in 10 classes"
    )
    assert [chain[role].parents["features"] for role in roles] == [
        chain["joined"],
        chain["joined_random"],
        chain["features_pixels"],
    ]
    assert set(roles) < chain["report"].parents.keys() and planned.changed(
        {}, label_counts=[10]
    ) == {*roles, "report"}


@pytest.mark.parametrize(
    "keys",
    [
        {"label_counts": [9]},
        {"network": "lenet_5", "features_layer": "fc1"},
        HEADED,
        {"features_concatenate": [{"network": "lenet_5", "features_layer": "fc1"}]},
    ],
    ids=["too few", "a network that classifies", "a head", "a part that labels trained"],
)
def test_without_a_number_that_suffices_or_where_labels_trained_there_is_no_curve(keys):
    assert "labels" not in planned.chain({"label_counts": [10]} | keys)


def test_a_control_with_own_settings_is_the_untrained_network_of_a_run_with_them():
    other = {"normalization": "standardize", "features_pool": 4, "svm_C": 3.0}
    chain, plain = planned.chain(controls=[{"random": other}, "pixels"]), planned.versions()
    control = {
        role: version
        for role, version in planned.versions(**other).items()
        if role.endswith("_random")
    }
    assert control.keys() >= {"features_random", "svm_random"}
    assert {role: chain[role].version for role in control} == control, "and the same seed"
    assert (
        chain["features_random"].parents["normalized"].version
        == chain["normalized_random"].version
        != chain["normalized"].version
    )
    assert {role for role in plain if chain[role].version != plain[role]} == {*control, "report"}
    assert chain["report"].spec["params"]["control_settings"] == other
    as_text = planned.chain(
        controls=[{"random": {key: str(value) for key, value in other.items()}}, "pixels"]
    )
    assert as_text["report"].version == chain["report"].version, "--config gives numbers as text"
    idle = planned.versions(controls=[{"random": {"learning_rate": 9}}, "pixels"])
    assert {role for role in plain if idle[role] != plain[role]} == {"report"}, "nothing trains it"


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"features_pol": 4}, "did you mean features_pool? (controls)"),
        *(
            (
                {key: value},
                f"{key} cannot differ in the untrained control; leave it out (controls)",
            )
            for key, value in (
                ("seed", 2),
                ("epochs", 0),
                ("steps", 9),
                ("label_counts", [20]),
                ("evaluations", ["ridge"]),
            )
        ),
        (
            {"network": "lenet_5"},
            "lenet_5 has no features unless features_layer names a layer (controls)",
        ),
        ({"train_limit": 100}, "must stay as they are, for the same images (controls)"),
    ],
)
def test_a_control_classifies_the_same_images_from_the_same_seed(settings, message):
    with pytest.raises(UserError) as raised:
        planned.chain(controls=[{"random": settings}])
    assert message in str(raised.value)


def test_features_of_two_layers_of_one_network_are_joined_and_it_is_trained_once():
    alone = planned.versions()
    both = planned.versions(features_concatenate=[{"features_layer": "enc1_pool", "weight": 0.5}])
    assert {role for role in alone if alone[role] != both[role]} == {
        "svm",
        "svm_random",
        "map",
        "report",
    }
    assert both.keys() - alone.keys() == {
        "features_part2",
        "features_random_part2",
        "joined",
        "joined_random",
    }
    assert both["features_part2"] == planned.versions(features_layer="enc1_pool")["features"]
    assert [one.stage for one in planned.chain().values()].count("train") == 1


def test_features_of_two_networks_are_joined_with_all_ancestors_of_the_second():
    chain = planned.chain(
        features_concatenate=[{"seed": [5, 6], "normalization": "zca", "weight": 0.5}]
    )
    assert chain.keys() >= {
        "normalized_part2",
        "initial_part2",
        "train_part2",
        "features_part2",
        "train_part3",
    }
    assert "normalized_part3" not in chain, "it is the same for both"
    joined = chain["joined"]
    assert joined.spec["params"] == {"weights": [1, 0.5, 0.5]}
    assert (
        list(joined.parents) == ["part1", "part2", "part3"]
        and chain["svm"].parents["features"] is joined
    )
    assert {"train_part2", "features_part3", "joined"} < chain["report"].parents.keys()
    assert {"initial", "initial_part2"} < chain["report"].parents.keys(), (
        "the report says what each network started from"
    )
    assert chain["svm_pixels"].parents["features"] is chain["features_pixels"], (
        "pixels have no layers to join"
    )


@pytest.mark.parametrize(
    "entry, words",
    [
        ({"weight": 0}, "weight is 0, but must be a number above 0"),
        ({"sed": 1}, "there is no key 'sed'; did you mean seed?"),
        (
            {"features_layer": "enc3"},
            "no such layer; did you mean enc2? (entry 1 of features_concatenate)",
        ),
        ({"train_limit": 100}, "dataset and limits must stay"),
        ({"network": "lenet_5"}, "lenet_5 has no features unless"),
        (
            {"network": "patch_net", "training": "patches", "patch_net_kernel": [8, 21]},
            "patch_net_kernel is 21, with which network patch_net cannot read images of 32x32; at most 20 (entry 1 of features",
        ),
        (
            {"features_pool": 2, "classify_shifts": 1},
            "classify_shifts changes no feature, so it has no effect in what is appended",
        ),
    ],
)
def test_a_wrong_part_is_one_line(entry, words):
    with pytest.raises(UserError) as caught:
        planned.run(features_concatenate=[entry])
    assert words in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "key, value",
    [
        ("svm_kernel", "poly"),
        ("svm_C", 3),
        ("svm_gamma", 0.1),
        ("evaluations", ["knn"]),
        ("knn_k", 3),
        ("classify_shifts", 1),
        ("feature_map", False),
        ("controls", ["pixels"]),
        ("svm_backend", "sklearn"),
        ("targets", [{"metric": "test_accuracy", "at_least": 0.5}]),
    ],
)
def test_a_key_refused_in_a_part_changes_no_feature_and_is_allowed_outside_it(key, value):
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
    assert planned.changed(both, knn_k=3) == knn
    assert planned.changed({}, knn_k=3) == set() and planned.changed({}, feature_map=False) == {
        "map",
        "report",
    }


def test_the_run_is_repeated_with_every_other_seed_and_the_report_has_its_scores():
    chain = planned.chain(runs=[{"seed": [0, 1, 2, 0]}], evaluations=["knn"])
    for seed in (0, 2):
        other = planned.versions(seed=seed, evaluations=["knn"])
        for role in ("svm", "svm_random", "svm_pixels", "knn", "knn_random"):
            assert chain["report"].parents[f"{role}_seed{seed}"].version == other[role], (
                "as in a run with that seed alone"
            )
    assert "svm_seed1" not in chain["report"].parents, "it is this run"
    assert {role: one.version for role, one in chain.items() if role != "report"} == {
        role: version
        for role, version in planned.versions(evaluations=["knn"]).items()
        if role != "report"
    }


def test_an_entry_of_the_list_is_the_score_of_that_run():
    entries = [
        {"features_flip": [False, True], "tag": "flip"},
        {"variant": "gpu_basic"},
        {"test_limit": 100, "name": "few"},
    ]
    report = planned.chain(runs=entries)["report"]
    listed = report.spec["params"]["runs"]
    assert [(one["overrides"], one.get("name"), one.get("tags")) for one in listed] == [
        ({}, None, ["flip"]),
        ({"features_flip": True}, None, ["flip"]),
        ({"variant": "gpu_basic"}, None, None),
        ({"test_limit": 100}, "few", None),
    ]
    beside = {name for name in report.parents if name.startswith("score")}
    assert beside == {"score_run2"} | ({"score_run3"} if not catalog.no_gpu() else set())
    assert report.parents["score_run2"].version == planned.versions(features_flip=True)["svm"]
    ridge = planned.chain(evaluations=["ridge"], runs=[{"features_flip": True}])["report"]
    assert (
        ridge.parents["score_run1"].version
        == planned.versions(features_flip=True, evaluations=["ridge"])["ridge"]
    )
    lenet = planned.chain(network="lenet_5", runs=[{"epochs": 2}])["report"]
    assert (
        lenet.parents["score_run1"].version
        == planned.versions(network="lenet_5", epochs=2)["evaluate"]
    )


def test_every_nested_run_is_listed_once_with_its_own_nested_runs():
    run = planned.run(
        runs=[{"seed": 2}, {"epochs": 3}], features_concatenate=[{"normalization": "zca"}]
    )
    found = [tuple(one.pick("seed", "epochs", "normalization").values()) for one in runs.every(run)]
    assert found == [
        (1, 10, "unit"),
        (1, 10, "zca"),
        (2, 10, "unit"),
        (2, 10, "zca"),
        (1, 3, "unit"),
        (1, 3, "zca"),
    ]


def behind(chain, role):
    """The role of the weights behind a role's features."""
    weights = chain[role].parents["weights"]
    return next(name for name, artifact in chain.items() if artifact is weights)


@pytest.mark.parametrize(
    "keys", [{}, {"training": "patches"}, {"training": "patches_then_gradient"}, {"epochs": 0}]
)
def test_the_random_control_is_a_random_draw_whatever_the_run_starts_from(keys):
    drawn, given = planned.chain(keys | {"epochs": 10}), planned.chain(keys | FILE)
    assert (
        behind(given, "features_random") == "initial_random"
        and given["initial"].spec["params"]["file_sha256"]
    )
    assert given["features_random"].version == drawn["features_random"].version, (
        "that of the run without a file"
    )
    start = (
        given["patches" if "patches" in given else "train"].parents["initial"]
        if "epochs" not in keys
        else given["initial"]
    )
    assert start is given["initial"] is not given["initial_random"]
    assert {"initial", "initial_random"} < given["report"].parents.keys()
    assert "initial_random" not in planned.chain(keys | FILE | {"controls": ["pixels"]})


def test_the_control_of_a_part_is_a_random_draw_too(tmp_path):
    network = networks.from_params(
        {
            "network": "autoencoder",
            "autoencoder_filters": [256, 128],
            "autoencoder_norm": False,
            "image": [32, 32, 3],
        }
    )
    weights.save(tmp_path / "weights.bin", network, weights.initialize(network, 7))
    part = {"initial_weights": str(tmp_path / "weights.bin"), "normalization": "zca"}
    joined = planned.chain(features_concatenate=[part])["joined_random"]
    assert all("seed" in part.parents["weights"].spec["params"] for part in joined.parents.values())


@pytest.mark.parametrize(
    "keys, start", [(FILE, "initial"), ({"training": "patches_then_gradient"}, "patches")]
)
def test_an_encoder_with_a_head_is_beside_what_it_started_from(keys, start):
    chain = planned.chain(HEADED | keys)
    assert behind(chain, "features") == behind(chain, "evaluate") == "train"
    assert (
        behind(chain, "features_start") == start
        and chain["svm_start"].parents["features"] is chain["features_start"]
    )
    assert behind(chain, "features_random") == ("initial_random" if keys == FILE else "initial")
    frozen = planned.chain(HEADED | keys | {"freeze_encoder": True})
    assert behind(frozen, "features") == start and behind(frozen, "evaluate") == "train"
    assert (
        frozen["features"].version
        == frozen["features_start"].version
        == chain["features_start"].version
    )
    assert frozen["train"].version != chain["train"].version
    hidden = planned.chain(HEADED | keys | {"features_layer": "head_relu"})
    assert (
        hidden["features_start"].version
        == chain["features_start"].version
        != hidden["features"].version
    )


def test_a_head_is_drawn_by_the_seed_over_an_encoder_from_a_file():
    assert "initial" in planned.changed(HEADED | FILE, seed=2) and "initial" not in planned.changed(
        FILE, seed=2
    )
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
    assert (
        behind(given, "features") == "initial"
        and behind(given, "features_random") == "initial_random"
    )
    assert planned.changed(none, batch_size=32, learning_rate=0.5) == set()
    lenet = planned.chain(none | {"network": "lenet_5"} | FILE)
    assert behind(lenet, "evaluate") == "initial" and "train" not in lenet
    assert chains.prediction_roles(given) == ["data", "normalized", "initial", "features", "svm"]
    assert "initial" not in chains.prediction_roles(planned.chain())


def test_features_joined_to_random_ones_have_a_control_only_if_something_was_learned():
    learned = {"features_concatenate": [{"epochs": 3}]}
    chain = planned.chain(epochs=0, **learned)
    assert [one.parents["weights"].stage for one in chain["joined"].parents.values()] == [
        "initial",
        "train",
    ]
    assert [one.parents["weights"].stage for one in chain["joined_random"].parents.values()] == [
        "initial",
        "initial",
    ]
    assert "joined_random" not in planned.chain(epochs=0, features_concatenate=[{"seed": 5}])
    both = planned.chain(features_concatenate=[{"epochs": 0, "seed": 5}])
    assert both["joined_random"].parents["part2"].version == both["joined"].parents["part2"].version


def test_a_joint_training_without_a_step_is_one_line():
    with pytest.raises(
        UserError,
        match="epochs is 0, but training is patches_then_gradient; set training to patches",
    ):
        planned.run(training="patches_then_gradient", epochs=0)


@pytest.mark.parametrize(
    "keys", [{}, {"features_concatenate": [{"features_layer": "enc1_pool", "weight": 0.5}]}]
)
def test_shifted_images_change_classifiers_alone(keys):
    plain = {"evaluations": ["linear", "ridge", "knn"], **keys}
    classifiers = {
        f"{name}{of}"
        for name in ("svm", "linear", "ridge", "knn")
        for of in ("", "_random", "_pixels")
    }
    parts = {"shifted_part2", "shifted_random_part2"} if keys else set()
    shifted = {"shifted", "shifted_random", "shifted_pixels"} | parts
    assert planned.changed(plain, classify_shifts=1) == classifiers | shifted | {"report"}
    assert not any(
        "classify_shifts" in artifact.spec["params"] for artifact in planned.chain(plain).values()
    )
    chain = planned.chain(plain | {"classify_shifts": 1})
    assert planned.changed(
        plain | {"classify_shifts": 1}, classify_shifts=2
    ) == classifiers | shifted | {"report"}
    assert chain["ridge"].spec["params"] == {
        "seed": 1,
        "array_library": "numpy",
        "classify_shifts": 1,
    }
    assert chain["shifted"].spec["params"] == {
        "variant": planned.run().settings.variant,
        "classify_shifts": 1,
    }
    assert chain["shifted_pixels"].spec["params"] == {"classify_shifts": 1}
    assert [chain[role].parents["features"].role for role in sorted(shifted - parts)] == [
        "features",
        "features_pixels",
        "features_random",
    ]
    copies = {
        name: one.role
        for name, one in chain["ridge_random"].parents.items()
        if one.stage == "shifted"
    }
    assert copies == {"shifted1": "shifted_random"} | (
        {"shifted2": "shifted_random_part2"} if keys else {}
    )
    assert "shifted" not in {chain[role].stage for role in chains.prediction_roles(chain)}


def test_a_listed_run_without_shifted_images_is_the_run_without_the_key():
    plain = {"evaluations": ["ridge"]}
    chain = planned.chain(
        evaluations=["ridge"], classify_shifts=1, runs=[{"classify_shifts": "none"}]
    )
    score = chain["report"].parents["score_run1"]
    assert score.version == planned.chain(plain)["ridge"].version != chain["ridge"].version


def test_a_part_that_controls_share_is_shifted_once():
    chain = planned.chain(classify_shifts=1, features_concatenate=[{"epochs": 0, "steps": "none"}])
    versions = [artifact.version for artifact in chain.values() if artifact.stage == "shifted"]
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
    assert chains.prediction_roles(planned.chain()) == [
        "data",
        "normalized",
        "train",
        "features",
        "svm",
    ]
    fitted = planned.chain(training="patches")
    assert chains.prediction_roles(fitted) == [
        "data",
        "normalized",
        "patches",
        "train",
        "features",
        "svm",
    ]
    alone = planned.chain(training="patches", network="patch_net")
    assert chains.prediction_roles(alone) == ["data", "normalized", "patches", "features", "svm"]
    ridge = planned.chain(evaluations=["linear", "ridge"])
    assert chains.prediction_roles(ridge) == ["data", "normalized", "train", "features", "ridge"]
    lenet = {"network": "lenet_5"}
    assert chains.prediction_roles(planned.chain(lenet)) == [
        "data",
        "normalized",
        "train",
        "evaluate",
    ]
    both = planned.chain(lenet | {"features_layer": "fc1", "evaluations": ["ridge"]})
    assert chains.prediction_roles(both) == ["data", "normalized", "train", "evaluate", "features"]
