"""Searches by TPE, with made-up results in the place of runs: each run follows from the results of
those before it.
"""

import math
import pathlib
import sqlite3

import pytest

import planned
from ladder.errors import UserError
from ladder.pages.runs import discovery
from ladder.store import artifacts
from ladder.store.versions import canonical
from ladder.workflow import chains, config, search, trials

KEYS = {
    "learning_rate": {"min": "1e-4", "max": 0.1, "scale": "log"},
    "optimizer": ["adam", "sgd"],
    "batch_size": {"min": 16, "max": 128},
}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def loaded(**of):
    return config.load(
        planned.RAW | {"svm_backend": "sklearn", "search": {"strategy": "tpe", "keys": KEYS, **of}}
    )


def score(run):
    """Best at a learning rate of 0.01 with adam."""
    return round(
        0.9
        - 0.1 * abs(math.log10(run.settings.learning_rate) + 2)
        - 0.2 * (run.settings.optimizer == "sgd"),
        6,
    )


def make(artifact, run, failed=""):
    """What the stage of `artifact` would write."""
    with artifacts.making(pathlib.Path(artifact.folder), artifact.spec) as work:
        work.failed = failed
        if artifact.stage == "train":
            work.metrics = {"validation_curve": {"loss": [2 - score(run), 1 - score(run)]}}
        elif not failed:
            work.write_json(
                "summary.json", {"test_accuracy": score(run), "svm": {"accuracy": score(run)}}
            )


def step(of):
    """Make what the search of these settings waits for; True if there was anything."""
    plan = search.plan(of)
    if plan.next is None:
        return False
    make(plan.next, plan.probes[-1] if plan.next.stage == "train" else plan.entries[-1].run)
    return True


def searched(**of):
    """The plan of a search that is at its end."""
    of = loaded(**of)
    while step(of):
        pass
    return search.plan(of)


def test_only_the_runs_up_to_the_first_without_a_result_are_known():
    plan = search.plan(loaded(budget=5))
    assert len(plan.entries) == 1 and plan.next.stage == "report"
    assert plan.next.version == chains.chain(plan.entries[0].run)["report"].version
    step(loaded(budget=5))
    assert len(search.plan(loaded(budget=5)).entries) == 2


def test_a_search_ends_with_its_budget_and_finds_what_is_good():
    plan = searched(budget=40)
    rates = [entry.run.settings.learning_rate for entry in plan.entries]
    scores = [score(entry.run) for entry in plan.entries]
    assert plan.next is None and len(plan.entries) == 40
    assert all(1e-4 <= rate <= 0.1 and rate == float(f"{rate:.3g}") for rate in rates)
    sizes = [entry.run.settings.batch_size for entry in plan.entries]
    assert all(type(size) is int and 16 <= size <= 128 for size in sizes)
    assert sum(scores[-20:]) / 20 > sum(scores[:10]) / 10 + 0.05, (
        "later draws are better than the first, random ones"
    )
    assert len({canonical(entry.overrides) for entry in plan.entries}) == 40


def test_the_runs_follow_from_seed_and_results_and_a_larger_budget_keeps_them(
    tmp_path, monkeypatch
):
    few = [entry.overrides for entry in searched(budget=12).entries]
    (tmp_path / "again").mkdir()
    monkeypatch.chdir(tmp_path / "again")
    assert [entry.overrides for entry in searched(budget=20).entries][:12] == few
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    assert search.plan(loaded(budget=12, seed=2)).entries[0].overrides != few[0]


def test_a_result_changes_later_draws(tmp_path, monkeypatch):
    same = [entry.overrides for entry in searched(budget=16).entries]
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    monkeypatch.setattr(
        f"{__name__}.score", lambda run: 0.5 - 0.3 * (run.settings.optimizer == "adam")
    )
    other = [entry.overrides for entry in searched(budget=16).entries]
    assert same[:10] == other[:10] and same[10:] != other[10:]


def test_a_run_that_fails_counts_and_the_search_goes_on():
    of = loaded(budget=3)
    plan = search.plan(of)
    make(plan.next, None, failed="the loss is not finite")
    while step(of):
        pass
    plan = search.plan(of)
    assert plan.next is None and len(plan.entries) == 3 and not plan.entries[0].reason


def test_a_small_space_is_searched_whole_and_no_run_twice():
    plan = searched(keys={"optimizer": ["adam", "sgd"], "batch_size": [32, 64]}, budget=50)
    found = {
        (entry.run.settings.optimizer, entry.run.settings.batch_size) for entry in plan.entries
    }
    assert len(plan.entries) == len(found) == 4


def test_lists_are_choices_and_invalid_combinations_a_reason():
    plan = searched(
        keys={"features_pool": ["none", 3], "autoencoder_filters": [[8, 4], [16]]}, budget=4
    )
    assert len(plan.entries) == 4
    assert {
        bool(entry.reason) for entry in plan.entries if entry.overrides["features_pool"] == 3
    } == {True}
    assert [16] in [entry.overrides["autoencoder_filters"] for entry in plan.entries]


def test_runs_with_a_loss_above_the_median_are_given_up_after_their_first_epochs():
    plan = searched(budget=20, prune=2)
    pruned = [entry for entry in plan.entries if entry.reason]
    whole = [entry for entry in plan.entries if not entry.reason]
    assert len(plan.entries) == 20 and not any(
        entry.reason for entry in plan.entries[: trials.LEAST_TO_PRUNE]
    )
    assert len(pruned) >= 3
    assert all(
        entry.reason.startswith("pruned after 2 epochs: its validation loss was ")
        for entry in pruned
    )
    median = sorted(score(entry.run) for entry in whole)[len(whole) // 2]
    assert all(score(entry.run) < median for entry in pruned)
    assert len(plan.probes) == 20 and {probe.settings.epochs for probe in plan.probes} == {2}
    made = {path.parent.name for path in pathlib.Path("results/report").glob("*/manifest.json")}
    assert made == {chains.chain(entry.run)["report"].version for entry in whole}


def test_a_first_training_that_fails_leaves_the_failure_to_the_run():
    of = loaded(budget=1, prune=2)
    plan = search.plan(of)
    assert plan.next.stage == "train"
    make(plan.next, plan.probes[0], failed="the loss is not finite")
    assert search.plan(of).next.stage == "report"


def test_the_pages_know_a_pruned_run_by_its_reason():
    assert discovery.PRUNED == trials.PRUNED


def test_the_study_is_a_database_of_optuna(tmp_path):
    import optuna

    plan = searched(budget=6)
    plan.study.write(tmp_path / "results/search.db")
    study = optuna.load_study(
        study_name="search", storage=f"sqlite:///{tmp_path}/results/search.db"
    )
    assert (
        study.best_value == max(score(entry.run) for entry in plan.entries)
        and len(study.trials) == 6
    )
    with sqlite3.connect(tmp_path / "results/search.db") as database:
        assert database.execute("pragma integrity_check").fetchone() == ("ok",)
    plan.study.write(tmp_path / "results/search.db")  # again, in its place


@pytest.mark.parametrize(
    "of, keys, words",
    [
        ({"prune": 2, "strategy": "random"}, {}, "search.prune is 2, but only strategy tpe prunes"),
        ({"prune": 2}, {"steps": 100}, "only gradient descent by epochs can be pruned"),
        ({"prune": -1}, {}, "prune is -1"),
        ({"strategy": "tpa"}, {}, "must be random, grid or tpe"),
    ],
)
def test_an_impossible_search_is_one_line(of, keys, words):
    with pytest.raises(UserError) as error:
        search.plan(
            config.load(planned.RAW | keys | {"search": {"strategy": "tpe", "keys": KEYS, **of}})
        )
    assert words in str(error.value) and str(error.value).isprintable()
