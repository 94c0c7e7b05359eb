import json
import re

import pytest
import yaml

import picture_folders
import planned
from ladder.arithmetic import multipliers
from ladder.classifiers import backends
from ladder.data import datasets
from ladder.data.facts import FACTS, FOLDER
from ladder.errors import UserError
from ladder.network import networks
from ladder.rungs import catalog
from ladder.sources import ROOT
from ladder.workflow import array_libraries, chains, config, runs, settings


@pytest.mark.parametrize(
    "preset", sorted((ROOT / "presets").glob("*.yaml")), ids=lambda path: path.stem
)
def test_a_preset_is_valid(preset):
    overrides = yaml.safe_load(preset.read_text())
    assert planned.loaded(planned.RAW | overrides)


@pytest.mark.parametrize(
    "text, words",
    [
        (
            "epochs: 3\nname: a\nepochs: 4\n",
            "the key 'epochs' is there twice, in lines 1 and 3; remove one of them",
        ),
        (
            "search:\n  budget: 3\n  keys: {seed: [1, 2], seed: [3]}\n",
            "the key 'seed' is there twice, in line 3; remove",
        ),
        ("compare:\n- seed: 1\n  'seed': 2\n", "the key 'seed' is there twice, in lines 2 and 3"),
        ('{"epochs": 1,\n "epochs": 1}', "the key 'epochs' is there twice, in lines 1 and 2"),
        (
            "? [a, b]\n: &loop {seed: 1, again: *loop, seed: 2}\n",
            "the key 'seed' is there twice, in line 2",
        ),
    ],
)
def test_a_key_that_is_twice_in_a_file_is_refused_with_its_lines(tmp_path, text, words):
    (tmp_path / "over.yaml").write_text(text)
    with pytest.raises(UserError) as fault:
        config.read_file(tmp_path / "over.yaml")
    assert str(fault.value).startswith(f"{tmp_path / 'over.yaml'}: {words}")


def test_a_file_that_is_not_utf_8_is_one_line(tmp_path):
    (tmp_path / "over.yaml").write_bytes("# Größe\n".encode("latin-1"))
    with pytest.raises(UserError, match="over.yaml is not a YAML file of keys and values: unacc"):
        config.read_file(tmp_path / "over.yaml")


@pytest.mark.parametrize(
    "text, value",
    [
        ("", {}),
        ("compare: [{seed: 1}, {seed: 2}]", {"compare": [{"seed": 1}, {"seed": 2}]}),
        ("1: a\n'1': b", {1: "a", "1": "b"}),
        (
            "base: &base {seed: 1, epochs: 2}\nrun: {<<: *base, seed: 3}",
            {"base": {"seed": 1, "epochs": 2}, "run": {"seed": 3, "epochs": 2}},
        ),
    ],
)
def test_keys_of_different_mappings_are_no_repetition(tmp_path, text, value):
    (tmp_path / "over.yaml").write_text(text)
    assert config.read_file(tmp_path / "over.yaml") == value


# whose choices kernels/README.md describes
OF_A_RUNG = "variant", "features_variant"


def test_every_key_and_every_choice_of_it_is_described():
    def described(name, rule):
        text = rule["description"]
        assert text.endswith(".") and text[0] not in " -", name
        for choice in rule.get(
            "enum", rule.get("items", {}).get("enum", rule.get("anyOf", [{}])[0].get("enum", []))
        ):
            assert re.search(rf"`{choice}`|{name} {choice}\b", text) or name in OF_A_RUNG, (
                name,
                choice,
            )
        for inner, part in rule.get("properties", {}).items():
            described(inner, part)

    for key, rule in settings.rules().items():
        described(key, rule)


def test_the_schema_lists_the_available_choices():
    properties = settings.rules()
    assert properties["variant"]["enum"] == ["auto", *catalog.RUNGS]
    assert properties["features_variant"]["enum"] == ["same", *catalog.RUNGS]
    assert properties["svm_backend"]["enum"] == ["auto", *backends.BACKENDS]
    assert properties["array_library"]["enum"] == ["auto", *array_libraries.LIBRARIES]
    assert properties["network"]["anyOf"][0]["enum"] == ["auto", *networks.NETWORKS]
    assert set(properties["dataset"]["enum"]) == {*FACTS, FOLDER}


def test_the_number_of_digits_is_the_one_that_the_limits_assume():
    digits = datasets.digits()
    assert (FACTS["digits"].train, FACTS["digits"].test) == (
        len(digits.train_labels),
        len(digits.test_labels),
    )


def listed(**keys):
    return runs.resolve(config.load(planned.RAW | {"variant": "cpu"} | keys)).listed


def test_values_of_an_entry_are_a_grid_and_a_list_is_one_of_a_key_that_takes_one():
    cells = listed(runs=[{"network": ["lenet_5", "small_cnn"], "seed": [2, "3"]}])
    assert [cell.overrides for cell in cells] == [
        {"network": network, "seed": seed}
        for network in ("lenet_5", "small_cnn")
        for seed in (2, 3)
    ]
    assert all(cell.run.settings.runs == [] for cell in cells)
    one, two, three = listed(
        runs=[
            {"autoencoder_filters": [8, 4]},
            {"autoencoder_filters": [[8], ["16", 4]], "features_concatenate": []},
        ]
    )
    assert [cell.overrides["autoencoder_filters"] for cell in (one, two, three)] == [
        [8, 4],
        [8],
        [16, 4],
    ]


def test_entries_of_the_same_run_are_one_and_one_that_changes_nothing_is_this_run():
    own, other, third = listed(
        seed=5,
        tags=["all"],
        runs=[
            {"seed": ["5", 6], "tag": "seeds"},
            {"variant": "cpu", "momentum": 0.9, "name": "this"},
            {"epochs": 3, "seed": 5},
            {"epochs": "3", "tag": "short"},
        ],
    )
    assert (own.overrides, own.run, own.name, own.tags) == ({}, None, "this", ("all", "seeds"))
    assert (other.overrides, other.name, other.tags) == ({"seed": 6}, "", ("all", "seeds"))
    assert (third.overrides, third.tags) == ({"epochs": 3}, ("all", "short"))
    assert third.run.settings.tags == ["all"]


def test_a_listed_run_makes_only_what_is_asked_for_and_a_repetition_the_controls_too():
    raw = {key: value for key, value in planned.RAW.items() if key != "controls"}
    many, plain, named = (
        chains.chain(cell.run)
        for cell in runs.resolve(
            config.load(
                raw | {"runs": [{"seed": 7}, {"epochs": 3}, {"epochs": 4, "feature_map": True}]}
            )
        ).listed
    )
    alone = {"data", "normalized", "initial", "train", "features", "svm", "report"}
    of_controls = {
        f"{stage}_{kind}" for stage in ("features", "svm") for kind in ("random", "pixels")
    }
    assert (plain.keys(), named.keys()) == (alone, alone | {"map"})
    assert many.keys() == alone | of_controls
    (asked,) = runs.resolve(
        config.load(raw | {"controls": ["pixels"], "runs": [{"epochs": 3}]})
    ).listed
    assert chains.chain(asked.run).keys() == alone | {"features_pixels", "svm_pixels"}


@pytest.mark.parametrize(
    "entries, words",
    [
        (
            [{"seed": [2, 3], "name": "two"}],
            "a name is of one run, and these are 2; give them a tag",
        ),
        ([{"seed": 2, "name": "a"}, {"seed": 3, "name": "a"}], "two entries of runs have the name"),
        (
            [{"seed": 2, "name": "a"}, {"seed": "2", "name": "b"}],
            "the run 'a' once more; leave one",
        ),
        ([{"runs": [{"seed": 2}]}], "runs is not a setting in which runs could differ (entry 1"),
        ([{}, {"tags": ["a"]}], "could differ; an entry has a tag (entry 2 of runs)"),
        (
            [{"autoencoder_filters": [[8, 4], 16]}],
            "of which some are lists; a list of lists stands",
        ),
        ([{"sead": 3}], "there is no key 'sead'; did you mean seed? (entry 1 of runs)"),
        ([{"name": 7}], "name is 7, but must be one line"),
        ([{"tag": ""}], "tag is empty, but must be one line of at most 50 characters"),
        ([{"seeds": [2]}], "seeds is no more: write it as runs: [{seed: [2, 3]}]"),
    ],
)
def test_a_wrong_entry_is_one_line(entries, words):
    with pytest.raises(UserError) as caught:
        listed(runs=entries)
    assert words in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "key, text, value",
    [
        ("learning_rate", "1e-3", 0.001),
        ("batch_size", "32", 32),
        ("batch_size", 32.0, 32),
        ("train_limit", "200", 200),
        ("train_limit", "all", "all"),
        ("features_flip", "true", True),
        ("confirm", "yes", True),
        ("confirm", "no", False),
        ("svm_gamma", "0.5", 0.5),
        ("svm_gamma", "scale", "scale"),
        ("features_pool", "4", 4),
        ("controls", "random", ["random"]),
        ("svm_C", 10, 10.0),
        *(
            (key, path, [path])
            for key in (
                "cifar10_urls",
                "cifar100_urls",
                "mnist_urls",
                "fashion_mnist_urls",
                "svhn_urls",
            )
            for path in ("/data", "data/a:b", "~/data")
        ),
        ("mnist_urls", ["/a", "b", "~/c", "file:///d"], ["/a", "b", "~/c", "file:///d"]),
        ("svhn_urls", ["a", "b"], ["a", "b"]),
        ("cifar10_urls", "file:///here.tar.gz", ["file:///here.tar.gz"]),
        ("seed", 4294967295, 4294967295),
    ],
)
def test_text_is_read_as_the_type_the_schema_wants(key, text, value):
    found = config.load(planned.RAW | {key: text}).by_key()[key]
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    "key, value, words",
    [
        ("batch_sise", 32, "no key 'batch_sise'; did you mean batch_size?"),
        ("holdout", 5000, "config: there is no key 'holdout'; did you mean validation?"),
        (
            "search",
            {"keys": {"seed": [1]}, "holdout": 50},
            "search has no 'holdout'; did you mean validation?",
        ),
        (
            "strategy",
            "tpee",
            "config: there is no key 'strategy'; it is a key of search: search={strategy: ...}",
        ),
        (
            "network",
            "mynet.yaml",
            "config: network: cannot read mynet.yaml: No such file or directory",
        ),
        (
            "optimizer",
            "addam",
            "optimizer is 'addam', but must be sgd, momentum, rmsprop or adam; did you mean adam?",
        ),
        ("batch_size", 0, "batch_size is 0, but must be a whole number at least 1"),
        ("batch_size", 1.5, "batch_size is 1.5"),
        ("batch_size", True, "batch_size is True"),
        ("batch_size", "many", "batch_size is 'many'"),
        ("batch_size", None, "batch_size is empty"),
        ("learning_rate", "nan", "learning_rate is 'nan', but must be a number above 0"),
        ("learning_rate", 0, "(epochs 0 trains nothing)"),
        ("train_limit", 0, "train_limit is 0, but must be all or a whole number at least 1"),
        ("train_limit", 5000, "digits has 1433 such images"),
        ("variant", "gpu_opt_v9", "variant is 'gpu_opt_v9', but must be auto"),
        ("controls", ["randm"], "did you mean random?"),
        ("cifar10_urls", [], "cifar10_urls is empty"),
        ("cifar10_urls", ["ftp://x"], "an http, https or file address"),
        ("validation", 1430, "validation is 1430, but of 1433 training images in 10 classes"),
        ("validation", 5, "10 to 1423, or 0 for none"),
        (
            "targets",
            [{"metric": "test_acuracy", "at_least": 0.6}],
            "the metric 'test_acuracy', but summary.json has no such number; did you mean test_accuracy?",
        ),
        (
            "targets",
            [{"metric": "x" * 150, "at_least": 0.6}],
            "no such number; results/summary.json of a run has them all",
        ),
        *(
            (
                "targets",
                [wrong],
                "must be a list of at most 100, each as {metric: test_accuracy, at_least: 0.6} or with at_most",
            )
            for wrong in (
                {"metric": "test_accuracy"},
                {"metric": "loss", "at_least": 1, "at_most": 2},
                {"at_least": 1},
            )
        ),
        (
            "targets",
            [{"metric": "loss", "at_last": 1}],
            "targets has no 'at_last'; did you mean at_least?",
        ),
        (
            "targets",
            [{"metric": "loss", "at_most": "x"}],
            "targets.at_most is 'x', but must be a number",
        ),
        (
            "targets",
            [{"metric": "loss", "at_most": float("inf")}],
            "targets.at_most is inf, but must be a number",
        ),
        (
            "targets",
            [{"metric": 7, "at_most": 1}],
            "targets.metric is 7, but must be a name in summary.json",
        ),
        ("targets", ["loss < 1"], "targets is 'loss < 1', but must be a metric of summary.json"),
        ("targets", [{"metric": "loss", "at_most": 1}] * 101, "a list of at most 100"),
        (
            "patience",
            3,
            "patience is 3, but there is no validation set to measure the loss on; set validation to a number of "
            "training images, or patience to 0",
        ),
        ("network", "resnet19", "did you mean resnet18?"),
        (
            "autoencoder_filters",
            [8] * 6,
            "6 times a 2x2 pooling, which images of 32x32 do not survive; at most 5",
        ),
        (
            "epochs",
            10**72,
            "epochs is 1"
            + 72 * "0"
            + ", but must be a whole number at least 0 and at most 1,000,000,000",
        ),
        ("epochs", str(10**400), "0... (403 characters), but must be a whole number"),
        ("steps", float("inf"), "steps is inf"),
        ("seed", "9" * 5000, "but must be a whole number"),
        ("learning_rate", 10**400, "but must be a number above 0 and at most 3.4e+38"),
        (
            "learning_rate",
            1e308,
            "learning_rate is 1e+308, but must be a number above 0 and at most 3.4e+38",
        ),
        ("features_concatenate", [{"weight": 10**400}], "weight is 1000"),
        ("train_limit", 10**72, "train_limit is 1000"),
        ("test_limit", 9, "364 such images in 10 classes; 10 to 364, or all"),
        ("train_limit", 9, "1433 such images in 10 classes; 10 to 1433, or all"),
        ("evaluations", ["linear", "linear"], "a list, each linear, ridge or knn, none twice"),
        ("controls", ["pixels", "pixels"], "none twice"),
        ("controls", [{"random": {}}, "random"], "none twice"),
        ("controls", ["rndom"], "or {random: keys with other values}; did you mean random?"),
        ("controls", [{"pixels": {}}], "or {random: keys with other values}"),
        (
            "autoencoder_filters",
            [8] * 9,
            "must be a list of 1 to 8, each a whole number at least 1 and at most 65,536",
        ),
        ("runs", [{"epochs": {}}], "epochs is {}, but must be a whole number"),
        ("runs", [{"epochs": []}], "epochs is an empty list, which stands for no run"),
        (
            "name",
            "two\nlines",
            r"name is 'two\nlines', but must be one line of at most 200 characters",
        ),
        ("name", "half \ud800", r"name is 'half \ud800', but must be one line"),
        ("tags", ["\udcff"], r"tags is '\udcff'"),
        ("tags", "x" * 51, "x', but must be one line of at most 50 characters"),
        ("predict", "nul\0", r"predict is 'nul\x00', but must be a folder or a file"),
        (
            "optimizer",
            "x" * 300_000,
            "(300,002 characters), but must be sgd, momentum, rmsprop or adam",
        ),
        ("optimizer", "ad\nam", r"optimizer is 'ad\nam', but must be"),
        ("multiplier", "x" * 300, "there is no multiplier 'xxx"),
        ("test_multiplier", "x" * 300, "there is no multiplier 'xxx"),
        ("initial_weights", "x" * 300, "File name too long"),
        (
            "initial_weights",
            "/dev/zero",
            "initial_weights: cannot read /dev/zero: it is not a plain file",
        ),
        ("x" * 300_000, 1, "there is no key 'xxx"),
        ("two\nlines", 1, r"there is no key 'two\nlines'"),
        ("features_layer", "latents", "autoencoder has no such layer; did you mean latent?"),
        ("features_pool", 3, "8x8 pixels"),
        ("features_max_pool", 3, "features_max_pool is 3, but layer latent puts out 8x8 pixels"),
        (
            "freeze_encoder",
            True,
            "config: freeze_encoder is true, but autoencoder has no head that could be trained alone; set "
            "network to autoencoder_classifier, or freeze_encoder to false",
        ),
        (
            "features_pca",
            9000,
            "features_pca is 9000, but there are 8192 features; at most 8192, or none",
        ),
        ("initial_weights", "absent.bin", "initial_weights: cannot read absent.bin: No such file"),
        *(
            (
                key,
                value,
                f"{key} is {json.dumps(value)}, but must be a list of {count} http, https or file addresses or paths, or "
                "the path of a folder",
            )
            for key, count, value in (
                ("mnist_urls", 4, ["file:///a"]),
                ("fashion_mnist_urls", 4, ["/a"] * 3),
                ("mnist_urls", 4, ["/a"] * 2),
                ("svhn_urls", 2, ["http://a/b"]),
                ("svhn_urls", 2, ["/a"] * 3),
            )
        ),
        (
            "mnist_urls",
            ["/a", "/b", "/c", "ftp://d"],
            "mnist_urls is 'ftp://d', but must be an http, https or file address, or",
        ),
        ("cifar100_urls", ["ftp://x"], "an http, https or file address"),
        (
            "dataset",
            "folder",
            "dataset is folder, but folder is none; name the folder of your pictures: folder=PATH",
        ),
        (
            "folder",
            "",
            "folder is empty, but must be none, or the path of a folder or of a .npz file",
        ),
        (
            "image_size",
            [32],
            "image_size is [32], but must be a list of 2, each a whole number at least 4 and at most 512",
        ),
        (
            "multiplier",
            "am33",
            "multiplier: there is no multiplier 'am33'; it must be exact, acc16, am32, am16, mit32, mit16, "
            "fp16 or the file of a table; did you mean am32?",
        ),
        ("test_multiplier", "mit17", "test_multiplier: there is no multiplier 'mit17'"),
        (
            "variant",
            "gpu_tf32",
            "variant gpu_tf32 multiplies tf32, but precision is float32; set precision to tf32, or variant to "
            "auto",
        ),
        ("multiplier", __file__, "entries of uint8, but a multiplier table has 4^m"),
        (
            "cifar10_sha256",
            None,
            "cifar10_sha256 is empty, but must be 64 lower-case hex digits, as sha256sum prints them",
        ),
        (
            "classify_shifts",
            32,
            "classify_shifts is 32, but the images have only 32 pixels on a side; at most 31, or none",
        ),
        ("features_flip", "perhaps", "must be true or false or apart"),
        (
            "features_flip",
            "apart",
            "features_flip is apart, but only kernel ridge uses both halves; add ridge to evaluations",
        ),
    ],
)
def test_a_wrong_key_or_value_is_one_line_that_names_it(key, value, words):
    with pytest.raises(UserError) as caught:
        loaded = planned.loaded(planned.RAW | {key: value})
        runs.resolve(loaded)
        runs.entries(loaded)
    assert (
        words in str(caught.value)
        and "\n" not in str(caught.value)
        and len(str(caught.value)) <= 320
    )


def test_a_network_that_classifies_by_itself_takes_no_shifted_images():
    with pytest.raises(UserError) as caught:
        planned.loaded(planned.RAW | {"network": "lenet_5", "classify_shifts": 1})
    assert str(caught.value) == (
        "config: classify_shifts is 1, but lenet_5 classifies by itself, and only classifiers of "
        "features take shifted images; set features_layer to a layer's name, or classify_shifts to "
        "none"
    )
    assert (
        planned.loaded(
            planned.RAW | {"network": "lenet_5", "classify_shifts": "1", "features_layer": "fc1"}
        ).classify_shifts
        == 1
    )


@pytest.mark.parametrize(
    "keys, words",
    [
        (
            {"network": "lenet_5"},
            "variational is true, but network is lenet_5; set network to autoencoder, or variational to "
            "false",
        ),
        ({"network": "wta_autoencoder"}, "variational is true, but network is wta_autoencoder"),
        (
            {"network": "autoencoder_classifier"},
            "variational is true, but network is autoencoder_classifier",
        ),
        (
            {"training": "patches"},
            "variational is true, but training is patches, and distributions cannot be fitted to patches; "
            "set training to gradient, or variational to false",
        ),
        (
            {"training": "patches_then_gradient"},
            "variational is true, but training is patches_then_gradient",
        ),
        ({"features_layer": "means"}, "autoencoder has no such layer; did you mean mean?"),
    ],
)
def test_latent_values_are_drawn_by_the_autoencoder_alone_trained_by_gradient(keys, words):
    with pytest.raises(UserError) as caught:
        planned.loaded(planned.RAW | {"variational": True} | keys)
    assert (
        str(caught.value).startswith("config: ")
        and words in str(caught.value)
        and "\n" not in str(caught.value)
    )


def test_the_features_of_a_variational_autoencoder_are_its_means():
    drawn = planned.RAW | {"variational": True}
    assert runs.resolve(config.load(drawn)).features_layer == "mean"
    assert (
        runs.resolve(config.load(drawn | {"features_layer": "enc2_pool"})).features_layer
        == "enc2_pool"
    )


def test_a_number_that_python_does_not_write_out_is_refused():  # nor would pytest write it out
    for key in (
        "epochs",
        "learning_rate",
        "train_limit",
        "optimizer",
        "name",
        "search",
        "runs",
        "svm_gamma",
    ):
        with pytest.raises(UserError, match=f"{key} is too large to be shown, but must be"):
            config.load(planned.RAW | {key: 10**5000})


def nested(levels, within):
    value = []
    for _ in range(levels):
        value = within(value)
    return value


CYCLE = []
CYCLE.append({"runs": CYCLE})


@pytest.mark.parametrize(
    "value, words",
    [
        (nested(10_000, lambda inner: [inner]), "is nested more than 10 levels deep"),
        (nested(10_000, lambda inner: {"runs": inner}), "is nested more than 10 levels deep"),
        (CYCLE, "is nested more than 10 levels deep"),
        (nested(9, lambda inner: [inner] * 10), "holds more than 20,000 values"),
        ([{}] * 30_000, "holds more than 20,000 values"),
    ],
    ids=["lists", "objects", "in itself", "aliases", "long"],
)
@pytest.mark.parametrize("key", ["runs", "search", "epochs"])
def test_a_value_that_is_nested_too_deep_or_too_large_is_refused_at_once(key, value, words):
    with pytest.raises(UserError, match=f"config: {key} {words}"):
        config.load(planned.RAW | {key: value})


MANY = list(range(1, 1001))


@pytest.mark.parametrize(
    "keys, words",
    [
        (
            {"runs": [{"seed": MANY, "epochs": MANY}]},
            "stand for 1,000,000 runs; at most 1,000",
        ),
        ({"runs": [{"seed": MANY}, {"epochs": 3}]}, "stand for 1,001 runs; at most 1,000"),
        ({"features_concatenate": [{"seed": MANY[:99]}] * 99}, "stand for 9,801 runs"),
        (
            {"runs": [{"seed": MANY[:40]}], "features_concatenate": [{}] * 40},
            "stand for 1,640 runs",
        ),
        (
            {"runs": [{"seed": MANY[:400], "features_concatenate": [[{"seed": [1, 2]}], []]}]},
            "stand for 2,400 runs",
        ),
    ],
)
def test_lists_of_too_many_runs_are_refused_before_the_first_is_resolved(keys, words, monkeypatch):
    monkeypatch.setattr(runs, "resolve", None)
    with pytest.raises(UserError, match=words):
        config.load(planned.RAW | keys)


def test_a_thousand_runs_are_not_too_many():
    assert config.load(planned.RAW | {"runs": [{"seed": MANY, "tag": "many"}]})
    part = [[{"features_layer": "enc1"}]]
    assert config.load(planned.RAW | {"runs": [{"seed": MANY[:500], "features_concatenate": part}]})


def test_every_number_has_a_largest_value():
    def numbers(rule):
        every = [
            rule,
            *rule.get("anyOf", []),
            *rule.get("properties", {}).values(),
            rule.get("items", {}),
        ]
        return [
            one for one in every if one.get("type") in ("integer", "number") and "enum" not in one
        ]

    for key, rule in settings.rules().items():
        assert all("maximum" in one or "exclusiveMaximum" in one for one in numbers(rule)), key


def test_names_of_multipliers_in_versions(tmp_path):
    def resolved(**keys):
        return runs.resolve(config.load(planned.RAW | keys))

    found = resolved(multiplier="am32", multiplier_in=["weight_grad", "forward"])
    assert found.settings.multiplier_in == ["forward", "weight_grad"]
    assert (
        found.multiplier_identity
        == found.settings.test_multiplier
        == found.test_multiplier_identity
        == "am32"
    )
    assert (
        resolved(multiplier="am32", multiplier_in=["weight_grad"]).test_multiplier_identity
        == "exact"
    )
    assert resolved(multiplier="am32", test_multiplier="exact").test_multiplier_identity == "exact"
    table = tmp_path / "mine.bin"
    table.write_bytes(multipliers.tabulated("mbm", 3).tobytes())
    found = resolved(test_multiplier=str(table))
    assert (found.multiplier_identity, found.settings.test_multiplier) == ("exact", str(table))
    assert found.test_multiplier_identity == f"table {multipliers.load_table(table).digest}"


@pytest.mark.parametrize("key, name", [("multiplier", "am32"), ("test_multiplier", "fp16")])
def test_a_lower_precision_and_a_multiplier_exclude_each_other(key, name):
    with pytest.raises(UserError) as caught:
        planned.loaded(planned.RAW | {"precision": "tf32", key: name})
    assert str(caught.value) == (
        f"config: precision is tf32, but {key} is {name!r}, which says what products are too; set "
        f"precision to float32, or {key} to exact"
    )
    planned.loaded(planned.RAW | {key: name})
    planned.loaded(planned.RAW | {"precision": "tf32", "test_multiplier": "exact"})


@pytest.mark.parametrize("rung", catalog.RUNGS)
def test_a_rung_runs_at_the_precision_that_it_is_made_for_and_one_of_float32_at_any(rung):
    made_for = catalog.RUNGS[rung].precision
    for precision in multipliers.PRECISIONS:
        if made_for in ("float32", precision):
            planned.loaded(planned.RAW | {"variant": rung, "precision": precision})
        else:
            with pytest.raises(UserError, match=f"set precision to {made_for}, or variant to auto"):
                planned.loaded(planned.RAW | {"variant": rung, "precision": precision})


def test_options_of_the_features_apply_one_after_another():
    on = planned.RAW | {
        "features_two_polarity": 0,
        "features_max_pool": 2,
        "features_pool": 4,
        "features_layer": "enc2",
    }
    assert planned.loaded(on | {"features_pca": 1000}).features_pca == 1000
    with pytest.raises(
        UserError, match="features_pool is 8, but features_max_pool leaves 4x4 pixels"
    ):
        planned.loaded(planned.RAW | {"features_max_pool": 2, "features_pool": 8})
    with pytest.raises(UserError, match="there are 128 features"):
        planned.loaded(planned.RAW | {"features_pool": 1, "features_pca": 200})
    assert planned.loaded(planned.RAW | {"features_pool": 1, "features_pca": 128})
    assert planned.loaded(
        planned.RAW | {"features_pool": 1, "features_pca": 200, "features_two_polarity": 0}
    )


@pytest.mark.parametrize("key", ["autoencoder_residual", "autoencoder_attention"])
@pytest.mark.parametrize(
    "keys, words",
    [
        (
            {"network": "lenet_5"},
            "but network is lenet_5; set network to autoencoder or autoencoder_classifier, or {key} to false",
        ),
        ({"network": "wta_autoencoder"}, "but network is wta_autoencoder; set network to"),
        (
            {"training": "patches"},
            "but training is patches, and its layers cannot be fitted to patches; set training to gradient, "
            "or {key} to false",
        ),
        ({"training": "patches_then_gradient"}, "but training is patches_then_gradient, and"),
    ],
    ids=str,
)
def test_residual_blocks_and_attention_need_an_autoencoder_that_is_trained(key, keys, words):
    with pytest.raises(UserError, match=f"^config: {key} is true, {words.format(key=key)}"):
        planned.loaded(planned.RAW | {key: True} | keys)
    planned.loaded(planned.RAW | {key: True, "network": "autoencoder_classifier"})


def test_no_auto_is_left_after_resolving():
    run = runs.resolve(config.load(planned.RAW))
    assert run.settings.variant in catalog.RUNGS and run.settings.svm_backend in (
        "cuml",
        "sklearnex",
        "sklearn",
    )
    assert run.settings.threads >= 1 and run.features_layer == "latent"


# Pictures of one's own.


@pytest.fixture
def pets(tmp_path, monkeypatch):
    picture_folders.forget(monkeypatch, tmp_path)
    return picture_folders.write(tmp_path / "pets", {"cat": 40, "dog": 50})


@pytest.mark.parametrize(
    "keys, words",
    [
        ({"folder": "nowhere"}, "folder: there is no nowhere"),
        (
            {"train_limit": 100},
            "train_limit is 100, but folder has 72 such images in 2 classes; 2 to 72, or all",
        ),
        (
            {"normalization": "zca", "image_size": [8, 8]},
            "72 training images are no more than the 192 values of one, and whitening needs more",
        ),
        (
            {"svm_kernel": "none"},
            "svm_kernel is none, but then kernel ridge has to answer; add ridge to evaluations",
        ),
        (
            {"image_size": [30, 30]},
            "2 times a 2x2 pooling, which images of 30x30 do not survive; at most 1",
        ),
        (
            {"network": "small_cnn", "image_size": [4, 40]},
            "network small_cnn cannot read images of 4x40",
        ),
        (
            {"network": "patch_net", "training": "patches", "image_size": [16, 16]},
            "network patch_net cannot read images of 16x16",
        ),
        (
            {"normalization": "zca", "image_size": [128, 128]},
            "128x128x3 has 49,152 values, at most 16,384 can be whitened",
        ),
    ],
)
def test_pictures_that_do_not_go_with_the_settings_are_one_line(pets, keys, words):
    with pytest.raises(UserError) as error:
        runs.resolve(config.load(planned.RAW | {"dataset": "folder", "folder": str(pets)} | keys))
    message = str(error.value)
    assert words in message and message.startswith("config: ") and message.isprintable()


@pytest.mark.parametrize("network", sorted(networks.NETWORKS))
@pytest.mark.parametrize("size", [[32, 32], [48, 64], [20, 36], [33, 31], [512, 512], [4, 4]])
@pytest.mark.parametrize("channels", [1, 3])
def test_every_network_takes_any_size_or_says_why_not_in_one_line(pets, network, size, channels):
    keys = {
        "dataset": "folder",
        "folder": str(pets),
        "network": network,
        "image_size": size,
        "image_channels": channels,
    }
    try:
        planned.loaded(
            planned.RAW | keys | {"training": "patches" if network == "patch_net" else "gradient"}
        )
    except UserError as error:
        assert str(error).startswith("config: ") and str(error).isprintable()


@pytest.mark.parametrize(
    "keys, side",
    [
        ({"dataset": "mnist_small"}, 3),  # of 18x18 pixels
        ({"dataset": "digits"}, 2),  # 22x22
        ({"dataset": "digits", "wta_kernels": [9, 7]}, 4),  # 24x24
        ({"dataset": "mnist_small", "wta_kernels": [10, 8]}, 1),  # 19x19
        ({"dataset": "mnist_small", "features_pool": 6}, 1),
        ({"dataset": "mnist_small", "features_max_pool": 2}, 2),
        ({"dataset": "mnist_small", "network": "autoencoder"}, 1),
    ],
)
def test_maps_of_the_winner_take_all_autoencoder_are_pooled_by_what_divides_them(keys, side):
    params = planned.chain({"network": "wta_autoencoder", **keys})["features"].spec["params"]
    assert params.get("features_max_pool", 1) == side
