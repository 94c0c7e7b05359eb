"""A slice of the campaign; `python tests/campaigns/settings.py` tries thousands of settings."""

import pytest

import settings
from ladder.errors import UserError
from ladder.workflow import config


@pytest.fixture
def campaign(tmp_path, monkeypatch):
    monkeypatch.setattr(settings, "BATCH", 30)
    return settings.Campaign(tmp_path, seed=7)


@pytest.fixture(autouse=True)
def busy_machine(monkeypatch):
    """The campaign's limit is for an idle machine; here it has to end a plan that never would."""
    monkeypatch.setattr(settings, "SECONDS", 60)


def test_generated_settings_are_planned_or_refused_in_one_line(campaign):
    assert campaign.run(30, first=1) == []
    assert campaign.run(30, first=1) == [], "what was tried is not tried again"
    assert len((campaign.folder / "settings.jsonl").read_text().splitlines()) == 1


def test_snakemake_comes_to_the_same_verdict(campaign):
    for overrides, in_a_file in (
        ({"epochs": settings.Hostile("two lines"), "seed": 3}, True),
        ({"batch_size": "32"}, False),
    ):
        message = settings.check(overrides)
        assert bool(message) == in_a_file
        settings.check_by_snakemake(campaign.project, overrides, message, in_a_file)
    with pytest.raises(
        AssertionError,
        match="'another verdict', but by Snakemake 'config: epochs is -1, but must be",
    ):
        settings.check_by_snakemake(
            campaign.project, {"epochs": -1}, "another verdict", in_a_file=True
        )


@pytest.mark.parametrize(
    "raised, words",
    [
        (UserError("x" * 500), "it has 500 characters"),
        (ValueError("a bug"), "ValueError: a bug"),
        (RecursionError(), "RecursionError"),
    ],
)
def test_a_message_that_is_too_long_and_any_other_exception_are_faults(
    campaign, monkeypatch, raised, words
):
    def load(raw):
        raise raised

    monkeypatch.setattr(config, "load", load)
    assert words in campaign.run(30, first=1)[0]


def test_a_late_verdict_is_a_fault(campaign, monkeypatch):
    monkeypatch.setattr(settings, "SECONDS", 0)
    assert " s for {" in campaign.run(30, first=1)[0]


@pytest.mark.parametrize("key", ["epochs", "runs", "search"])
def test_every_hostile_value_is_refused_or_planned(key):
    for name in settings.HOSTILE:
        settings.check({key: settings.Hostile(name)})
