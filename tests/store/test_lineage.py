"""A version is named by its beginning, or the message names the nearest."""

import pytest

import synthetic_results
from ladder.errors import UserError
from ladder.store import lineage


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    results = tmp_path_factory.mktemp("results")
    runs = [synthetic_results.add(results, epochs=epochs) for epochs in (1, 2)]
    return lineage.Store(results), runs[0]["train"].version


def test_a_version_can_be_named_by_its_beginning(made):
    store, version = made
    for name in (version, f"results/train/{version}/", version[:8]):
        assert lineage.resolve(store, name) == version


@pytest.mark.parametrize(
    "name, words",
    [
        ("r00000000000", "the nearest are r"),
        ("z", "there is no version z"),
        ("r", "more than one version"),
        ("", "no version"),
    ],
)
def test_a_version_that_is_not_there_is_named_with_the_nearest(made, name, words):
    with pytest.raises(UserError, match=words):
        lineage.resolve(made[0], name)


def test_nothing_to_compare_is_said(tmp_path):
    with pytest.raises(UserError, match="holds no artifacts"):
        lineage.resolve(lineage.Store(tmp_path), "r0")
