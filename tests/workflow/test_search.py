"""The runs of a search: every combination, or drawn by its seed; always with a validation set."""

import math

import pytest

import planned
from ladder.errors import UserError
from ladder.store.versions import canonical
from ladder.workflow import chains, config, runs, search

KEYS = {
    "learning_rate": {"min": "1e-4", "max": 0.1, "scale": "log"},
    "optimizer": ["adam", "sgd"],
    "epochs": {"min": 1, "max": 5},
}


@pytest.fixture
def loaded():
    """Loads the committed configuration with these overrides."""
    return lambda **keys: config.load(planned.RAW | {"svm_backend": "sklearn"} | keys)


def overrides(loaded, **of):
    return [entry.overrides for entry in search.plan(loaded(search=of)).entries]


def test_without_a_search_there_are_no_runs(loaded):
    assert (
        search.plan(loaded()).entries == []
        and search.plan(loaded(search={"budget": 5})).entries == []
    )


def test_values_are_drawn_within_their_ranges_and_as_the_types_of_their_keys(loaded):
    found = overrides(loaded, keys=KEYS, budget=60)
    assert len(found) == len({canonical(one) for one in found}) == 60
    rates = [one["learning_rate"] for one in found]
    assert all(1e-4 <= rate <= 0.1 and rate == float(f"{rate:.3g}") for rate in rates)
    assert 15 < sum(rate < math.sqrt(1e-4 * 0.1) for rate in rates) < 45, (
        "half of them below the middle of the scale"
    )
    assert {one["epochs"] for one in found} == {1, 2, 3, 4, 5} and all(
        type(one["epochs"]) is int for one in found
    )
    assert {one["optimizer"] for one in found} == {"adam", "sgd"}


def test_the_same_seed_and_budget_give_the_same_runs_and_a_larger_budget_keeps_them(loaded):
    few, again, many = (overrides(loaded, keys=KEYS, budget=budget) for budget in (7, 7, 30))
    assert few == again == many[:7]
    assert overrides(loaded, keys=KEYS, budget=7, seed=2) != few
    # in every release
    assert few[0] == {"learning_rate": 0.0751, "optimizer": "adam", "epochs": 3}


def test_a_space_smaller_than_the_budget_is_drawn_whole(loaded):
    found = overrides(
        loaded, keys={"optimizer": ["adam", "sgd"], "batch_size": [32, 64]}, budget=50
    )
    assert sorted(canonical(one) for one in found) == sorted(
        canonical({"optimizer": optimizer, "batch_size": size})
        for optimizer in ("adam", "sgd")
        for size in (32, 64)
    )


def test_a_space_of_integers_is_drawn_whole_also_where_its_limits_are_no_integers(loaded):
    found = overrides(loaded, keys={"svm_C": {"min": 0.5, "max": 3.5, "integer": True}}, budget=50)
    assert {one["svm_C"] for one in found} == {1, 2, 3}
    searched = loaded(
        search={
            "strategy": "tpe",
            "keys": {"svm_C": {"min": 0.5, "max": 3.5, "scale": "log", "integer": True}},
        }
    )
    assert search.plan(searched).entries[0].overrides["svm_C"] in (1, 2, 3)


def test_a_grid_is_every_combination_with_the_given_points_of_a_range(loaded):
    keys = {
        "learning_rate": {"min": 0.001, "max": 0.1, "scale": "log"},
        "epochs": {"min": 1, "max": 9, "points": 2},
    }
    assert overrides(loaded, strategy="grid", keys=keys) == [
        {"learning_rate": rate, "epochs": epochs}
        for rate in (0.001, 0.01, 0.1)
        for epochs in (1, 9)
    ]
    with pytest.raises(UserError, match="has 6 runs, more than its budget of 5"):
        search.plan(loaded(search={"strategy": "grid", "keys": keys, "budget": 5}))


def test_a_key_that_takes_a_list_has_lists_as_choices(loaded):
    assert overrides(loaded, strategy="grid", keys={"autoencoder_filters": [[8, 4], [16]]}) == [
        {"autoencoder_filters": [8, 4]},
        {"autoencoder_filters": [16]},
    ]


@pytest.mark.parametrize(
    "keys, of, validation",
    [
        ({}, {}, 143),
        ({"train_limit": 300}, {}, 30),
        ({"validation": 50}, {}, 50),
        ({"validation": 50}, {"validation": 60}, 60),
    ],
)
def test_every_run_is_scored_on_the_same_validation_set(loaded, keys, of, validation):
    entries = search.plan(loaded(search={"keys": {"seed": [1, 2, 3]}, **of}, **keys)).entries
    assert {entry.run.settings.validation for entry in entries} == {validation}
    assert len({chains.chain(entry.run)["data"].version for entry in entries}) == 1


def test_the_runs_are_the_ordinary_ones_of_their_settings(loaded):
    (entry,) = search.plan(loaded(search={"keys": {"learning_rate": [0.01]}})).entries
    plain = loaded(learning_rate=0.01, validation=143, tags=["search"], feature_map=False)
    assert (
        chains.chain(entry.run)["report"].version
        == chains.chain(runs.resolve(plain))["report"].version
    )
    assert entry.tags == ("search",)
    (entry,) = search.plan(loaded(search={"keys": {"seed": [2]}, "tag": "mine"})).entries
    assert entry.run.settings.tags == ["mine"]


def test_a_search_plans_what_auto_stands_for():
    (entry,) = search.plan(config.load({"search": {"keys": {"seed": [2]}}})).entries
    assert not entry.reason
    alone = {"data", "normalized", "initial", "train", "features", "svm", "report"}
    assert chains.chain(entry.run).keys() == alone


def test_incompatible_values_are_a_reason_and_no_error(loaded):
    entries = search.plan(
        loaded(search={"strategy": "grid", "keys": {"features_pool": ["none", 3]}})
    ).entries
    assert [bool(entry.reason) for entry in entries] == [False, True]
    assert (
        entries[1].reason
        == "features_pool is 3, but layer latent puts out 8x8 pixels, which 3 does not divide"
    )


@pytest.mark.parametrize(
    "of, words",
    [
        (
            {"keys": {"learning_rat": [1]}},
            "there is no key 'learning_rat', which search names; did you mean learning_rate?",
        ),
        ({"keys": {"train_limit": [100, 200]}}, "search cannot vary train_limit"),
        ({"keys": {"seed": []}}, "names no value for seed"),
        ({"keys": {"optimizer": ["adam", "adamm"]}}, "did you mean adam?"),
        ({"keys": {"seed": 5}}, "must be a list of values, or a range"),
        (
            {"keys": {"seed": {"min": 1, "max": 2, "scal": "log"}}},
            "has no 'scal'; did you mean scale?",
        ),
        ({"keys": {"learning_rate": {"min": 0.1, "max": 0.01}}}, "goes from 0.1 to 0.01"),
        (
            {"keys": {"weight_decay": {"min": 0, "max": 1, "scale": "log"}}},
            "above 0 on a logarithmic scale",
        ),
        (
            {"keys": {"svm_C": {"min": 0.2, "max": 0.8, "integer": True}}},
            "search.keys.svm_C goes from 1 to 0; the first must be",
        ),
        ({"keys": {"optimizer": {"min": 1, "max": 2}}}, "optimizer is 1, but must be"),
        ({"keys": {"batch_size": {"min": 0, "max": 64}}}, "batch_size is 0, but must be"),
        ({"budgt": 3}, "search has no 'budgt'; did you mean budget?"),
        ({"budget": 0}, "search.budget is 0, but must be"),
        ({"keys": {"x" * 999: [1]}}, "there is no key 'xxx"),
        ({"budget": 10**7}, "at most 1,000"),
        (
            {"strategy": "grid", "keys": {"seed": {"min": 1, "max": 99, "points": 10**7}}},
            "points is 10000000, but must be",
        ),
        (
            {"strategy": "grid", "keys": {"seed": [1] * 1000, "epochs": [1] * 999}},
            "has 999,000 runs, more than its budget",
        ),
        (
            {
                "keys": {"seed": {"min": 1, "max": 10**5}, "features_concatenate": [[{}] * 9]},
                "budget": 101,
            },
            "stand for 1,010 runs; at most 1,000",
        ),
        (
            {"keys": {"seed": [1]}, "validation": 5},
            "validation is 5, but of 1433 training images in 10 classes",
        ),
        (
            {"keys": {"seed": [1]}, "validation": 1430},
            "10 to 1423, or 0 for none (validation of search)",
        ),
        ({"strategy": "gird"}, "did you mean grid?"),
        ({"keys": {"seed": [1]}, "metric": "network"}, "does not classify"),
        ({"keys": {"network": ["lenet_5"]}, "metric": "svm"}, "name a features_layer"),
    ],
)
def test_an_impossible_search_is_one_line(loaded, of, words):
    with pytest.raises(UserError) as caught:
        search.plan(loaded(search=of))
    assert words in str(caught.value) and "\n" not in str(caught.value)
