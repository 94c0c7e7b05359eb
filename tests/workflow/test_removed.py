"""What release 0.1.0 had opens, or one line says what to do instead."""

import pathlib
import re
import sys

import pytest
import yaml

import planned
import processes
from ladder.errors import UserError
from ladder.sources import ROOT
from ladder.workflow import commands, config, plans, removed, settings

RELEASE = ROOT / "tests/support/release_0.1.0"
KEYS = yaml.safe_load((RELEASE / "all_settings.yaml").read_text("utf-8"))
MAKE_TARGETS = (
    "report model table demo watch test test-all lint check benchmark gpu-check gpu-prepare profile records "
    "container container-gpu docs pictures pins dist clean"
).split()


def test_a_key_in_a_list_or_in_a_search_names_what_to_do_instead_too():
    for raw in (
        {"runs": [{"recompute": [True, False]}]},
        {"search": {"keys": {"recompute": [True, False]}}},
    ):
        with pytest.raises(
            UserError, match="^config: .*recompute is no more: a smaller batch_size"
        ):
            plans.load(planned.RAW | raw)


def test_the_configuration_of_the_release_plans_its_run():
    loaded = config.load(config.read_file(RELEASE / "config.yaml"))
    assert planned.loaded(loaded.by_key())
    assert (loaded.dataset, loaded.network, loaded.epochs) == ("mnist_small", "wta_autoencoder", 10)


@pytest.mark.parametrize("key", KEYS)
def test_a_key_of_the_release_opens_or_names_what_to_do_instead(key):
    if key in settings.KEYS:
        assert config.load({key: KEYS[key]})
    else:
        with pytest.raises(UserError, match=f"^config: {key} is no more: .{{20,}}$"):
            config.load({key: KEYS[key]})


@pytest.mark.parametrize(
    "target, words",
    [
        ("pull", "rsync -a"),
        ("results/compare.html", "snakemake runs"),
    ],
)
def test_a_target_of_snakemake_that_is_no_more_names_what_to_do_instead(
    target, words, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    pathlib.Path("results").mkdir()
    pathlib.Path("results/compare.html").touch()  # of that release
    with pytest.raises(UserError, match=f"^{target} is no more: .*{words} .* \\(docs/"):
        commands.check_targets([target], ["gc"])


def test_a_target_of_make_is_there_or_names_what_to_do_instead():
    now = re.search(r"^TARGETS = (.*)$", (ROOT / "Makefile").read_text("utf-8"), re.M)[1].split()
    gone = [name for name in MAKE_TARGETS if name not in now]
    for name in (*gone, "bundle"):
        done = processes.run("make", "--no-print-directory", name, cwd=ROOT)
        assert done.returncode == 2 and done.stderr.startswith(removed.instead(name) + "\n")


@pytest.mark.parametrize("script", ["to_mlflow.py", "watch.py", "demo.py"])
def test_a_script_that_people_called_says_what_to_do_instead(script):
    command = [sys.executable, ROOT / "workflow/scripts" / script, "--runs", "results"]
    done = processes.run(*command)
    assert done.returncode == 1 and done.stderr == removed.instead(script) + "\n"


def test_no_word_is_both_there_and_no_more():
    there = {*settings.KEYS, *commands.TARGETS, *commands.KNOWN}
    assert there & removed.INSTEAD.keys() == {"search"}  # a key, which was a target too
    assert removed.instead("report") == removed.instead("rep") == ""
