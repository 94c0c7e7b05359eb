"""The terminal of `make report` and `kernel-ladder`: which words it has, in which order, and what a
wrong name says.
"""

import json
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import time

import pytest

import manifest_files
import processes
from ladder import caller
from ladder.errors import UserError
from ladder.sources import ROOT
from ladder.workflow import commands, terminal

SCRIPTS = ROOT / "workflow/scripts"


@pytest.mark.parametrize(
    "file, said",
    [
        (
            "presets/mnsit_lenet_5.yaml",
            "there is no file presets/mnsit_lenet_5.yaml; did you mean mnist_lenet_5.yaml?",
        ),
        (
            "elsewhere/mnist_wtaa.yaml",
            "there is no file elsewhere/mnist_wtaa.yaml; did you mean mnist_wta.yaml?",
        ),
        ("qqq.yaml", "there is no file qqq.yaml; there are mine.yaml, cifar10_autoencoder.yaml, "),
        ("mine.yaml", "mine.yaml is not a YAML file of keys and"),
    ],
)
def test_a_missing_or_binary_file_of_settings_is_one_line_with_the_nearest_name(
    tmp_path, monkeypatch, file, said, capsys
):
    monkeypatch.chdir(tmp_path)
    pathlib.Path("mine.yaml").write_bytes(b"\xff\x00\x81")
    assert terminal.run(["report", "--configfile", file]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(said)


@pytest.mark.parametrize(
    "words, said",
    [
        ("--config epochs", "defined as name=value pairs. (Unparsable value: 'epochs')"),
        ("--cores x", "must be integer or 'all'."),
        ("--directory /proc/x", "No such file or directory: '/proc/x'"),
        ("--executor slrm", "invalid choice: 'slrm' (choose from 'local', "),
        ("--configfle mine.yaml", "unrecognized arguments: --configfle"),
    ],
)
def test_words_that_snakemake_cannot_read_are_one_line(words, said, capsys):
    assert terminal.run(["report", *words.split()]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("the command cannot be read: ") and said in line


def test_a_mistyped_profile_of_a_cluster_is_refused_and_not_replaced_by_none():
    for name in (None, "none", "slurm"):
        commands.check_profile(name, ROOT)
    for name, said in (("profiles/slrum", "did you mean slurm?"), ("q", "there are default, ")):
        with pytest.raises(UserError, match=f"no profile '{name}'; {said}"):
            commands.check_profile(name, ROOT)


def test_help_is_snakemakes(capsys):
    assert terminal.run(["--help"]) == 0
    assert capsys.readouterr().out.startswith("usage: ")


def test_a_mistyped_target_is_one_line_and_a_file_that_is_there_is_none():
    commands.check_targets([__file__], [])
    for target, near in (
        ("reprot", "; did you mean report?"),
        ("results/run.html", "; did you mean results/runs.html?"),
        ("fit_svn", "; did you mean fit_svm?"),
        ("zzz", ", and no folder of this name; there are data, evaluate, features,"),
    ):
        with pytest.raises(UserError) as error:
            commands.check_targets([target], ["report", "fit_svm"])
        assert str(error.value).startswith(f"there is no target '{target}'{near}")


METRICS = {
    "data": ({"train": 6000, "test": 60}, "6,000 training images, 60 to be scored on"),
    "train": ({"loss": [0.5, 0.067806]}, "loss 0.067806"),
    "svm": ({"accuracy": 0.9673}, "96.73 % correct"),
    "labels": (
        {"counts": [10, 30], "scores": [[], [{"accuracy": 0.7}, {"accuracy": 0.8}]]},
        "75.00 % correct with 30 labels",
    ),
    "report": ({}, ""),
}


@pytest.mark.parametrize("stage", METRICS)
def test_a_line_has_the_number_of_the_stage_its_seconds_and_its_key_number(
    tmp_path, stage, monkeypatch
):
    import snakemake_logger_plugin_ladder as plugin

    metrics, said = METRICS[stage]
    folder = tmp_path / stage / "v0"
    manifest_files.write(folder, manifest_files.spec(stage), metrics=metrics, seconds=20.4)
    line = plugin.line(5, 16, f"{stage}_random", folder / "manifest.json")
    assert line.split() == ["[", "5", "of", "16]", f"{stage}_random", "20", "s", *said.split()]


def test_at_the_end_are_the_verdict_and_the_address_of_what_was_asked_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pathlib.Path("results").mkdir()
    assert terminal.page_lines(["report"]) == []
    for name in ("report.html", "network.html"):
        pathlib.Path("results", name).touch()
    pathlib.Path("results/summary.json").write_text(
        json.dumps({"verdict": "An SVM classifies well."})
    )
    report, network = (
        (tmp_path / f"results/{name}.html").as_uri() for name in ("report", "network")
    )
    assert terminal.page_lines(["report"]) == ["", "An SVM classifies well.", report]
    assert terminal.page_lines(["results/network.html", "svm"]) == ["", network]


@pytest.mark.parametrize(
    "words, command",
    [
        (
            "report --cores 2 --config dataset=folder folder='my pets' labels=a.csv network=small_cnn",
            "report --cores 2 --config network=auto features_pool=auto dataset=folder "
            "'folder=my pets' labels=a.csv",
        ),
        (
            "--config=folder=pets --configfile a.yaml",
            "--config network=auto features_pool=auto folder=pets --configfile a.yaml",
        ),
        ("", "--config network=auto features_pool=auto"),
    ],
)
def test_what_helps_is_the_command_again_with_other_settings(words, command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pathlib.Path("results").mkdir()
    pathlib.Path("results/report.html").touch()
    advised = "snakemake report --config dataset=folder folder=PATH network=auto features_pool=auto"
    pathlib.Path("results/summary.json").write_text(
        json.dumps({"verdict": "No.", "next": {"reason": "so it is", "command": advised}})
    )
    *_, reason, line, _ = terminal.page_lines(shlex.split(words))
    program = pathlib.Path(sys.executable).with_name("snakemake")
    assert (reason, line) == ("What most likely helps, as so it is:", f"{program} {command}")


PROGRAM = [sys.executable, SCRIPTS / "run_workflow.py", "-s", ROOT / "Snakefile", "--cores", "1"]


def command(folder, *words):
    process = processes.run(*PROGRAM, *words, cwd=folder)
    return process.returncode, process.stderr.splitlines(), process.stdout


def test_the_terminal_has_a_line_for_each_stage_and_with_v_snakemakes_words(tmp_path):
    words = [
        "train",
        "--config",
        "train_limit=60",
        "test_limit=20",
        "epochs=1",
        "batch_size=16",
        "threads=1",
        "warmup_steps=0",
    ]
    status, lines, _ = command(tmp_path, *words)
    stages = [line for line in lines if line.startswith("[")]
    made = sorted(line.split("] ")[1].split()[0] for line in stages)
    assert status == 0 and made == ["data", "initial", "normalized", "train"], lines
    assert [line.partition("]")[0] for line in stages] == [
        f"[{number} of 4" for number in range(1, 5)
    ]
    assert len(lines) < len(stages) + 5 and not any("Select jobs" in line for line in lines)
    (log,) = (tmp_path / ".snakemake/log").glob("*.log")
    assert "Select jobs to execute..." in log.read_text()
    status, lines, _ = command(tmp_path, *words, "-v", "seed=2")
    assert status == 0 and "Select jobs to execute..." in lines
    (damaged,) = tmp_path.glob("results/normalized/*/train.npy")
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"x")
    status, lines, _ = command(tmp_path, *words, "learning_rate=1e30", "seed=3")
    assert any(line.startswith("damaged, and made again: results/normalized/") for line in lines)
    assert (
        status == 1
        and lines[-2] == ""
        and lines[-1].startswith("train ")
        and "try a smaller learning_rate" in lines[-1]
    )
    assert sum("try a smaller learning_rate" in line for line in lines) == 1
    assert not any("Error in rule" in line for line in lines)


# The stage `data` says that it opens its images, and waits: Ctrl-C always meets it there.
HELD = """
import pathlib, sys, time
def hold(event, arguments):
    if event == "open" and str(arguments[0]).endswith("t10k-images-idx3-ubyte.gz"):
        pathlib.Path("held").touch()
        time.sleep(600)
if any(word.endswith("prepare_data.py") for word in sys.orig_argv):
    sys.addaudithook(hold)
"""


def test_ctrl_c_once_or_twice_is_one_line_and_the_next_command_goes_on(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(HELD)
    words = ["data", "--config", "train_limit=60", "test_limit=20"]
    for times in (1, 2):
        process = subprocess.Popen(
            [*PROGRAM, *words],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(tmp_path)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            # what a shell starts in the background takes no notice of it
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        while not (tmp_path / "held").exists():
            assert process.poll() is None, process.communicate()
            time.sleep(0.05)
        for _ in range(times):
            os.killpg(process.pid, signal.SIGINT)
            time.sleep(0.1)
        output, _ = process.communicate(timeout=300)
        (tmp_path / "held").unlink()
        assert process.returncode == 1, output
        lines = [line for line in output.splitlines() if "interrupted" in line or "^C" in line]
        assert len(lines) == 1 and lines[0].startswith("data "), output
        assert "; the same command goes on from here" in lines[0] and "Traceback" not in output
        assert not list(tmp_path.glob("results/data/*/manifest.json"))
    status, lines, _ = command(tmp_path, *words)
    assert status == 0 and lines[-1].startswith("[1 of 1] data "), lines


@pytest.mark.parametrize(
    "words, wanted",
    [
        (
            ["report", "pets"],
            ["report", "--config", "dataset=folder", 'folder="pets"'],
        ),
        (
            ["report", "a.npz", "--config", "seed=2"],
            ["report", "--config", "dataset=folder", 'folder="a.npz"', "seed=2"],
        ),
        (
            ["report", "pets", "--config=seed=2"],
            ["report", "--config", "dataset=folder", 'folder="pets"', "seed=2"],
        ),
        (["./data"], ["--config", "dataset=folder", 'folder="./data"']),
        (["not/there"], ["--config", "dataset=folder", 'folder="not/there"']),
        (["data"], ["data"]),
        (["results/repot.html"], ["results/repot.html"]),
        (["report", "--directory", "pets"], ["report", "--directory", "pets"]),
        (["notes.txt"], ["notes.txt"]),
    ],
)
def test_a_target_that_is_a_folder_of_pictures_becomes_settings(
    tmp_path, monkeypatch, words, wanted
):
    monkeypatch.chdir(tmp_path)
    for folder in ("pets", "data", "results"):
        pathlib.Path(folder).mkdir()
    for file in ("a.npz", "notes.txt"):
        pathlib.Path(file).touch()
    assert terminal.with_pictures(words) == wanted


def test_a_page_that_is_no_runs_report_is_named_and_no_other_runs_verdict(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results").mkdir()
    for page in ("runs", "report"):
        (tmp_path / "results" / f"{page}.html").touch()
    for target in ("runs", "results/runs.html"):
        assert terminal.page_lines([target]) == [(tmp_path / "results/runs.html").as_uri()]
    assert terminal.page_lines(["data"]) == []


def test_a_job_that_was_killed_with_its_shell_is_named_and_none_that_said_why(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    facts = {"errors": str(tmp_path / "errors"), "started": 0}
    monkeypatch.setattr(caller, "fact", facts.get)
    for rule in ("fit_svm", "make_report"):  # by now there is a message
        commands.name_if_silent(rule)
    commands.repeat_errors()
    message = capsys.readouterr().err.strip()
    assert message == (
        "fit_svm was killed with its shell, perhaps for want of memory; run the same command again: "
        "finished artifacts stay"
    )
