"""A command line of Snakemake as far as a plan depends on it."""

import argparse
import json
import os
import sys

import pytest

from ladder import caller
from ladder.workflow import commands
from ladder.workflow.commands import Command


def command(text):
    return Command(tuple(text.split()))


@pytest.mark.parametrize(
    "text, targets",
    [
        ("-n --cores 1 results/report.html", {"results/report.html"}),
        ("train --config name=svm report=1", {"train"}),
        ("-R train_network train svm", set()),
    ],
)
def test_targets_are_words_that_are_no_values_of_an_option_that_takes_several(text, targets):
    assert command(text).targets == targets


def test_what_is_forced_and_told_and_only_planned():
    forced = command("-R train_network fit_svm -f report --config name=-n")
    assert forced.forced == {"train_network", "fit_svm", "report"}
    assert forced.has_settings and not forced.dry
    planned = command("-np report")
    assert planned.dry and not planned.forced and not planned.has_settings


@pytest.fixture
def begun(tmp_path, monkeypatch):
    """begin(words, cores) in an empty folder; (the command, what its stages are told)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", os.environ["PATH"])
    monkeypatch.setattr(commands.atexit, "register", lambda *arguments, **keywords: None)

    def begin(text, cores=1, inherited=""):
        monkeypatch.setenv(caller.VARIABLE, inherited or "{}")
        monkeypatch.setattr(sys, "argv", ["snakemake", *text.split()])
        return commands.begin(lambda: cores + 0), json.loads(os.environ[caller.VARIABLE])

    return begin


def test_stages_are_told_when_the_command_began_and_where_jobs_run(begun, monkeypatch):
    command, told = begun("report")
    assert command.is_main and told["started"] == command.now.stat().st_mtime_ns
    assert (told["elsewhere"], told["checks"], told.get("keep_failed")) == (False, True, None)
    assert begun("-n report")[1]["checks"] is False
    told = begun("report", None)[1]
    assert (told["elsewhere"], told["checks"]) == (True, False)
    on_slurm = argparse.Namespace(executor="slurm", targets=[], dryrun=False)
    monkeypatch.setattr(Command, "options", on_slurm)  # whose plugin is not installed here
    told = begun("report", 4)[1]
    assert (told["elsewhere"], told["checks"]) == (True, False)


def test_only_pages_of_lists_keep_failed_runs(begun):
    assert begun("runs results/best.yaml")[1]["keep_failed"] is True
    for text in ("runs report", "report", "", "--configfile results/best.yaml"):
        assert "keep_failed" not in begun(text)[1], text


def test_a_job_on_a_node_believes_the_command_that_has_sent_it(begun):
    inherited = json.dumps({"started": 5, "elsewhere": True, "checks": False})
    command, told = begun("report", 2, inherited)
    assert not command.is_main and (told["started"], told["elsewhere"], told["checks"]) == (
        5,
        True,
        False,
    )


def test_each_command_has_a_newest_file_of_its_own_content(begun):
    first, second = (begun("report")[0].now.read_text() for _ in range(2))
    assert first != second


def test_errors_are_repeated_as_the_last_lines_and_a_signal_is_told_in_words(
    begun, tmp_path, capsys
):
    _, told = begun("report")
    (tmp_path / "logs/train").mkdir(parents=True)
    with open(told["errors"], "w") as file:
        file.write("data d1: the wrong thing\n")
    (tmp_path / "logs/train/t1.log.killed").write_text("137 workflow/scripts/train_network.py\n")
    commands.repeat_errors()
    lines = capsys.readouterr().err.splitlines()
    assert lines[-2] == "data d1: the wrong thing" and lines[-1].startswith(
        "train_network was killed by signal 9 before"
    )
    commands.repeat_errors()
    assert "killed" not in capsys.readouterr().err, "said once"
    (tmp_path / "logs/train/t2.log.killed").write_text("137 workflow/scripts/train_network.py\n")
    os.utime(tmp_path / "logs/train/t2.log.killed", (1, 1))
    commands.repeat_errors()
    assert "killed" not in capsys.readouterr().err and not list(tmp_path.glob("logs/*/*.killed")), (
        "it is of an earlier command"
    )
