"""The workflow as a whole, run by Snakemake in a copy of the project whose stage scripts only
record their arguments.

The computations are tested elsewhere; these tests cover when stages run, with which arguments, and
the output.
"""

import ast
import contextlib
import fcntl
import importlib.metadata
import json
import os
import pathlib
import platform
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import termios
import time
import zipfile

import psutil
import pytest
import yaml

import manifest_files
import once
import snakemake_server
from ladder.rungs import catalog
from ladder.sources import ROOT
from ladder.store import shorter
from ladder.workflow import settings
from ladder.workflow.stages import COPIES, RUNS, STAGES
from permissions import unprivileged

SCRIPT = """
import json, os, time
from ladder.errors import RunFailed, UserError
from ladder.progress import log
from ladder.stage import stage_script

def make(work, inputs, params, options):
    for artifact in inputs.values():
        artifact.failed or artifact.path("given.json")
    with open("ran.txt", "a") as file:
        print(work.spec["stage"], work.threads, file=file)
    if params.get("learning_rate") == 666:
        raise RunFailed("it diverged as the test wants")
    if work.spec["stage"] in os.environ.get("FAIL", "").split():
        raise UserError("failed as the test wants")
    if os.environ.get("BUG") == work.spec["stage"]:
        raise ZeroDivisionError("a bug as the test wants")
    if os.environ.get("DIE") == work.spec["stage"]:
        os.kill(os.getpid(), 9)
    if os.environ.get("MEET") == work.spec["stage"]:   # continues when two of this stage are running
        for _ in range(600):
            if open("ran.txt").read().split().count(work.spec["stage"]) > 1:
                break
            time.sleep(0.1)
        else:
            raise UserError("alone")
    while os.environ.get("TALK") == work.spec["stage"]:
        log.info("at work")
        time.sleep(0.01)
    if os.environ.get("SLOW") == work.spec["stage"]:
        time.sleep(float(os.environ.get("SECONDS_OF_WORK", 2)))
    work.write_json("given.json", params)
    for name in PAGES:
        if name == "report.html":
            trained = inputs["train"].json("given.json") if "train" in inputs else {}
            work.write_bytes(name, b"<body>\\n" + json.dumps(trained | params).encode())
        else:
            work.write_json(name, params)

if __name__ == "__main__":
    stage_script.run(make, takes_failed=TAKES_FAILED)
"""
ALL = [
    "data",
    "features",
    "features",
    "features",
    "initial",
    "map",
    "normalized",
    "report",
    "svm",
    "svm",
    "svm",
    "train",
]


class Project:
    """A copy of the project in `folder`."""

    def __init__(self, folder):
        self.folder = folder

    def snakemake(self, *arguments, **environment):
        """Snakemake's output; `status` is its exit status."""
        self.status, output = snakemake_server.run(arguments, self.folder, **environment)
        return output

    def start(self, *arguments, output=None, first=lambda: None, **environment):
        """A command of its own; output: where it writes, by default output.txt; first: what its
        process does before it.
        """

        def prepare():
            # A shell's background jobs ignore Ctrl-C, and so would the command if the tests are one
            # of them.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            first()

        with open(self.folder / "output.txt", "a") as file:
            output = file if output is None else output
            return subprocess.Popen(
                self.command(*arguments),
                cwd=self.folder,
                env=os.environ | environment,
                stdin=output,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=prepare,
            )

    def processes(self):
        """The processes that work in this folder."""
        return [
            process
            for process in psutil.process_iter(["cwd"])
            if process.info["cwd"] == str(self.folder)
        ]

    def command(self, *arguments):
        return [sys.executable, "-m", "snakemake", *arguments]

    def ran(self):
        """The stages that ran since the last call, sorted."""
        record = self.folder / "ran.txt"
        lines = record.read_text().splitlines() if record.exists() else []
        record.unlink(missing_ok=True)
        return sorted(line.split()[0] for line in lines)

    def wait_for(self, stage):
        """Return once a script of this stage is running."""
        record = self.folder / "ran.txt"
        for _ in range(300):
            if record.exists() and stage in record.read_text().split():
                return
            time.sleep(0.1)
        raise AssertionError(f"{stage} did not start")

    def page(self):
        # below a notice
        return json.loads((self.folder / "results/report.html").read_text().splitlines()[-1])

    def edit(self, path, text):
        with open(self.folder / path, "a") as file:
            file.write(text)


def imports(script):
    """The import statements of a script, so that they count as its sources; never run."""
    found = [
        node
        for node in ast.walk(ast.parse(script))
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    return "\nif False:\n" + "".join(f"    {ast.unparse(node)}\n" for node in found)


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """A project that has run once; only to be copied."""
    return Project(once.folder(tmp_path_factory, "finished", finish))


def finish(folder):
    shutil.copy(ROOT / "Snakefile", folder)
    shutil.copy(ROOT / "tests/support/experiment.yaml", folder / "config.yaml")
    for name in ("workflow", "profiles", "envs"):
        shutil.copytree(ROOT / name, folder / name)
    for stage in STAGES.values():
        of_lists = stage.name == "search"
        script = folder / stage.script
        made = SCRIPT.replace("TAKES_FAILED", str(of_lists)).replace("PAGES", repr(stage.pages))
        script.write_text(made + imports(script.read_text()))
    project = Project(folder)
    output = project.snakemake()
    assert project.status == 0, output
    assert project.ran() == ALL


@pytest.fixture
def project(finished, tmp_path):
    return Project(shutil.copytree(finished.folder, tmp_path / "project"))


@pytest.fixture
def fresh(finished, tmp_path):
    """A project without results."""
    ignore = shutil.ignore_patterns("results", "logs", ".snakemake")
    return Project(shutil.copytree(finished.folder, tmp_path / "project", ignore=ignore))


def reasons(output):
    """role -> reason, from the messages of the jobs that run or would run."""
    lines = [line.split(": ", 2) for line in output.splitlines() if line.startswith("Job ")]
    return {line[1].split()[0]: line[2] for line in lines if len(line) == 3}


def test_copies_in_results_are_made_here_also_where_a_cluster_runs_the_jobs():
    text = (ROOT / "workflow/rules/pages.smk").read_text()
    assert (
        len(re.findall(r"^ *rule\b.*:$", text, re.MULTILINE)) == text.count("localrule: True") > 0
    )


def test_a_second_run_has_nothing_to_do(project):
    assert "Nothing to be done" in project.snakemake()
    assert project.ran() == []


def test_switching_a_key_and_back_runs_nothing_the_second_time(project):
    changed = ("--config", "batch_size=32")
    dry = reasons(project.snakemake("-n", *changed))
    assert dry["train"] == "batch_size 64 -> 32"
    assert dry["features"] == "parent train changed"
    assert not dry.keys() & {
        "data",
        "normalized",
        "initial",
        "features_random",
        "svm_random",
        "features_pixels",
        "svm_pixels",
    }
    assert project.page()["batch_size"] == 64

    project.snakemake(*changed)
    assert project.ran() == ["features", "map", "report", "svm", "train"]
    assert project.page()["batch_size"] == 32
    assert "results/report.html" in project.snakemake("-n"), (
        "a dry run says that the page would be replaced"
    )
    assert project.page()["batch_size"] == 32, "a dry run changes nothing"
    project.snakemake()
    assert project.page()["batch_size"] == 64
    project.snakemake(*changed)
    assert project.page()["batch_size"] == 32
    assert project.ran() == []


def test_a_longer_training_goes_on_from_a_finished_one_unless_it_is_to_be_made_again(project):
    (folder,) = (project.folder / "results/train").iterdir()
    manifest_files.add_file(folder, shorter.STATE, b"averages")
    longer, words = ("--config", "epochs=20"), f"goes_on_from=results/train/{folder.name} "
    output = project.snakemake("-np", *longer)
    assert (
        reasons(output)["train"] == f"epochs 10 -> 20, goes on from {folder.name}"
        and words in output
    )
    assert words not in project.snakemake("-np", "--config", "epochs=20", "schedule=cosine")
    assert words not in project.snakemake("-np", "train", *longer, "-R", "train_network")
    assert words in project.snakemake("-p", "train", *longer)
    assert project.ran() == ["train"]
    (made,) = set((project.folder / "results/train").iterdir()) - {folder}
    output = project.snakemake("-np", *longer, "-R", "train_network")
    assert reasons(output)["train"] == "made again" and words not in output
    assert words not in project.snakemake("-np", "train", *longer, "-f")
    shutil.rmtree(made)  # asks for the same
    output = project.snakemake("-np", *longer)
    assert reasons(output)["train"] == "epochs 10 -> 20" and words not in output


def test_a_schedule_that_does_not_fit_is_said_when_the_training_is_planned(project):
    words = "warmup_steps 150 is more than the training has (steps 70); the learning rate rises over the first 7 steps instead"
    output = project.snakemake("-n", "--config", "steps=70")
    assert output.splitlines().count(words) == 1
    assert "warmup_steps" not in project.snakemake(
        "-n"
    ) and "warmup_steps" not in project.snakemake("-n", "-F")


def elsewhere(project, folder, *arguments):
    """(status, output) of Snakemake in another folder than the project's, with settings that no
    artifact there has.
    """
    folder.mkdir(exist_ok=True)
    return snakemake_server.run(["--cores", "1", *arguments], folder)


@pytest.mark.parametrize("read_only", [False, True], ids=["writable", "read-only"])
def test_the_workflow_runs_in_any_folder_with_the_config_yaml_there_or_else_its_own(
    fresh, tmp_path, read_only
):
    before = sorted(path for path in fresh.folder.rglob("*") if "__pycache__" not in path.parts)
    command = ["-s", str(fresh.folder / "Snakefile")]
    for path in [fresh.folder, *fresh.folder.rglob("*")] * read_only:
        path.chmod(0o555 if path.is_dir() else 0o444)
    status, output = elsewhere(fresh, tmp_path / "here", *command)
    page = tmp_path / "here/results/report.html"
    assert status == 0 and json.loads(page.read_text().splitlines()[-1])["batch_size"] == 64, output
    (tmp_path / "here/config.yaml").write_text("batch_size: 16\n")
    status, output = elsewhere(fresh, tmp_path / "here", *command)
    assert status == 0 and json.loads(page.read_text().splitlines()[-1])["batch_size"] == 16, output
    assert (
        sorted(path for path in fresh.folder.rglob("*") if "__pycache__" not in path.parts)
        == before
    ), "nothing lands there"
    for path in [fresh.folder, *fresh.folder.rglob("*")] * read_only:
        path.chmod(0o755 if path.is_dir() else 0o644)


def test_directory_names_the_folder_of_results_and_configuration(fresh, tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "there/config.yaml").write_text("seed: 7\n")
    output = fresh.snakemake("--directory", str(tmp_path / "there"))
    assert fresh.status == 0, output
    assert (
        json.loads((tmp_path / "there/results/report.html").read_text().splitlines()[-1])["seed"]
        == 7
    )
    assert not (fresh.folder / "results").exists()


MODULE = """
configfile: "config/config.yaml"

module kernel_ladder:
    snakefile: "{snakefile}"
    config: config

use rule * from kernel_ladder as kl_*

rule count:
    default_target: True
    input: "results/report.html"
    output: "bytes.txt"
    shell: "wc -c < {{input}} > {{output}}"
"""


@pytest.mark.parametrize("snakefile", ["Snakefile", "workflow/Snakefile"])
def test_the_workflow_is_a_module_of_another_in_snakedeploys_layout(fresh, tmp_path, snakefile):
    other = tmp_path / "other"
    for path, text in (
        ("workflow/Snakefile", MODULE.format(snakefile=fresh.folder / snakefile)),
        ("config/config.yaml", "batch_size: 16\n"),
        ("config.yaml", "a key: of the other workflow\n"),
    ):
        (other / path).parent.mkdir(parents=True, exist_ok=True)
        (other / path).write_text(text)
    for ran, words in ((ALL, "kl_train_network"), ([], "")):  # also by the usual rerun triggers
        status, output = elsewhere(fresh, other)
        lines = (other / "ran.txt").read_text().split()[::2] if (other / "ran.txt").exists() else []
        assert status == 0 and sorted(lines) == ran and words in output, output
        (other / "ran.txt").unlink(missing_ok=True)
    page = other / "results/report.html"
    assert json.loads(page.read_text().splitlines()[-1])["batch_size"] == 16
    assert int((other / "bytes.txt").read_text()) == len(page.read_bytes())


TWO_MODULES = """
module first:
    snakefile: "{snakefile}"
    config: {{"batch_size": 16}}
    prefix: "first"

module second:
    snakefile: "{snakefile}"
    config: {{"batch_size": 32}}
    prefix: "second/part"

use rule * from first as first_*
use rule * from second as second_*

rule both:
    default_target: True
    input: "first/results/report.html", "second/part/results/report.html"
"""


def test_two_modules_with_prefixes_have_their_own_pages_and_share_the_artifacts(fresh, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "Snakefile").write_text(TWO_MODULES.format(snakefile=fresh.folder / "Snakefile"))
    (other / "config.yaml").write_text((fresh.folder / "config.yaml").read_text())
    status, output = elsewhere(fresh, other)
    ran = [line.split()[0] for line in (other / "ran.txt").read_text().splitlines()]
    assert status == 0, output
    assert sorted(ran) == sorted([*ALL, "train", "features", "svm", "map", "report"]), (
        "what both have is made once"
    )
    (other / "ran.txt").unlink()
    status, output = elsewhere(fresh, other)
    assert status == 0 and not (other / "ran.txt").exists(), output
    for folder, batch in (("first", 16), ("second/part", 32)):
        assert (
            json.loads((other / folder / "results/report.html").read_text().splitlines()[-1])[
                "batch_size"
            ]
            == batch
        )
    assert not (other / "results/report.html").exists()


def test_snakemakes_own_report_has_the_page(project):
    output = project.snakemake("--report", "own.zip")
    assert project.status == 0, output
    with zipfile.ZipFile(project.folder / "own.zip") as archive:
        (page,) = [
            name
            for name in archive.namelist()
            if name.count("/") > 1 and name.endswith("report.html")
        ]
        assert archive.read(page) == (project.folder / "results/report.html").read_bytes()


def test_settings_are_printed_and_the_training_step(project):
    shutil.copy(ROOT / "config.yaml", project.folder)  # in which every key has its default
    changed = ("--config", "batch_size=16", "search={budget: 3}", "name=first try")

    def printed(*arguments):
        return subprocess.run(
            project.command(*arguments), cwd=project.folder, stdout=subprocess.PIPE, text=True
        ).stdout

    assert yaml.safe_load(printed("settings", *changed)) == {
        "batch_size": 16,
        "search": {"budget": 3},
        "name": "first try",
    }
    assert printed("settings") == "# every setting has its default\n"
    assert list(yaml.safe_load(printed("all_settings"))) == list(settings.KEYS)
    explained = printed("explain", "--config", "variant=gpu_opt_v2")
    assert (
        explained.startswith("wta_autoencoder by gpu_opt_v2, 64 images: ")
        and "gpu_opt_v2/conv2d.cu conv2d" in explained
    )


def test_a_key_that_does_not_matter_reruns_nothing(project):
    output = project.snakemake(
        "--config", "momentum=0.5", "schedule_step_epochs=3", "threads=1", "cifar10_sha256=null"
    )
    assert "Nothing to be done" in output


def test_other_versions_of_libraries_are_said(fresh, tmp_path):
    other = tmp_path / "numpy-9.9.dist-info/METADATA"
    other.parent.mkdir()
    other.write_text("Name: numpy\nVersion: 9.9\n")
    # found by the stages, not by Snakemake, which runs already
    fresh.snakemake("train", PYTHONPATH=str(tmp_path))
    assert fresh.ran() == ["data", "initial", "normalized", "train"]
    here = importlib.metadata.version("numpy")
    said = (
        f"numpy 9.9 -> {here} since data, normalized, initial, train were made; -F makes them again"
    )
    for arguments in (("train", "-n"), ("train",)):
        assert said in fresh.snakemake(*arguments).splitlines() and fresh.ran() == []
    assert said in fresh.snakemake("train", "-F") and fresh.status == 0
    assert fresh.ran() == ["data", "initial", "normalized", "train"]
    assert " since " not in fresh.snakemake("train", "-n")


def test_an_edited_module_reruns_the_stages_that_import_it(project):
    module = "workflow/scripts/ladder/training/training.py"
    project.edit(module, "\n\n# a remark\n")
    assert "Nothing to be done" in project.snakemake()
    project.edit(module, "EDITED = True\n")
    dry = reasons(project.snakemake("-n"))
    assert dry["train"] == "workflow/scripts/ladder/training/training.py changed"
    assert "parent train changed" in dry["features"]
    assert (
        dry.keys()
        & {"data", "normalized", "initial", "features_random", "svm_random", "features_pixels"}
        == set()
    )


def test_an_edited_template_reruns_the_report_alone(project):
    project.edit("workflow/scripts/ladder/pages/assets/report.html", "<!-- a remark -->\n")
    assert [role for role in reasons(project.snakemake("-n")) if role in STAGES] == ["report"]


def test_a_new_import_counts_by_itself_and_a_module_loaded_by_name_is_refused(project):
    (project.folder / "workflow/scripts/ladder/extra.py").write_text("")
    script = project.folder / "workflow/scripts/train_network.py"
    text = script.read_text()
    script.write_text("from ladder import extra\n" + text)
    assert (
        reasons(project.snakemake("-n"))["train"]
        == "workflow/scripts/ladder/extra.py and 1 more sources changed"
    )
    script.write_text("import importlib\nimportlib.import_module('ladder.extra')\n" + text)
    output = project.snakemake("train")
    assert project.status != 0
    assert "workflow/scripts/ladder/extra.py" in output.splitlines()[-1]


def test_copied_results_rerun_nothing_without_records_and_with_any_file_times(project):
    shutil.rmtree(project.folder / ".snakemake")
    times = random.Random(1)
    for path in sorted(path for path in project.folder.rglob("*") if path.is_file()):
        os.utime(path, (0, times.randrange(2**31)))
    assert "Nothing to be done" in project.snakemake()
    project.snakemake("report", "--config", "seed=5")
    assert project.page()["seed"] == 5
    project.ran()
    for path in sorted(path for path in project.folder.rglob("*") if path.is_file()):
        os.utime(path, (0, times.randrange(2**31)))
    output = project.snakemake("train", "--config", "seed=6")
    assert project.status == 0, output
    assert project.page()["seed"] == 5, "a command that makes no report leaves the page as it was"
    output = project.snakemake()
    assert project.status == 0 and project.page()["seed"] == 1, output
    assert project.ran() == ["initial", "train"]


def flip(path):
    """Change a bit in the middle of a file; returns its times before."""
    data, before = bytearray(path.read_bytes()), path.stat()
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    return before.st_atime_ns, before.st_mtime_ns


def in_place_of(path):
    """Replace a file by a folder that is not empty."""
    path.unlink()
    path.mkdir()
    (path / "file").write_text("in the way")


# Role -> (file, the damage done to it, its beginning in words).
DAMAGES = {
    "data": ("given.json", flip, "its checksum is not its manifest's"),
    "normalized": ("given.json", lambda path: path.write_text("{"), "it has 1 bytes, not "),
    "initial": ("given.json", pathlib.Path.unlink, "it is missing"),
    "train": ("given.json", in_place_of, "it is not a file"),
    "features": ("manifest.json", flip, "its digest is not that of its content"),
    "features_random": (
        "manifest.json",
        lambda path: path.write_text(""),
        "it has no digest of itself",
    ),
    "features_pixels": (
        "manifest.json",
        lambda path: path.write_text("[" * 10**5),
        "it has no digest of itself",
    ),
    "svm": ("manifest.json", in_place_of, "Is a directory"),
    "svm_random": ("manifest.json", pathlib.Path.unlink, "it is missing"),
}


def content(results):
    """Path -> bytes of every file of the artifacts, without the circumstances of their making that
    manifests record.
    """
    return {
        path: path.read_bytes()
        for path in sorted(results.glob("*/*/*"))
        if path.name not in ("manifest.json", ".lock")
        and path.is_file()
        and not path.name.startswith(".")
    }


def test_what_is_damaged_is_named_and_made_again_from_what_is_whole(project):
    results = project.folder / "results"
    before = content(results)
    roles = json.loads((next(results.glob("report/*")) / "manifest.json").read_text())["spec"][
        "parents"
    ]
    roles |= {"initial": next(results.glob("initial/*")).name}
    damaged = {}
    for role, (name, damage, _) in DAMAGES.items():
        (path,) = results.glob(f"*/{roles[role]}/{name}")
        damage(path)
        damaged[role] = path.relative_to(project.folder)
    print(project.snakemake("-n"))
    dry = reasons(project.snakemake("-n"))
    assert {role: dry[role] for role in DAMAGES} == {
        role: dry[role]
        for role, (_, _, fault) in DAMAGES.items()
        if f"damaged: {damaged[role]} ({fault}" in dry[role]
    }
    output = project.snakemake()
    assert project.status == 0, output
    assert content(results) == before and "Traceback" not in output
    assert project.ran() == ["data", "initial", "normalized", "train"], (
        "of the others only the manifest was damaged"
    )
    assert "Nothing to be done" in project.snakemake()


def test_a_damaged_second_copy_of_a_manifest_is_written_anew(project):
    copies = sorted(project.folder.glob("results/*/*/.complete.json"))
    for copy, damage in zip(
        copies,
        (flip, pathlib.Path.unlink, in_place_of, lambda path: path.write_text("")),
        strict=False,
    ):
        damage(copy)
    assert "Nothing to be done" in project.snakemake()
    for path in copies:
        assert path.read_bytes() == path.with_name("manifest.json").read_bytes()


def test_damage_that_keeps_size_and_time_is_named_by_its_reader_and_made_again(
    project,
):
    (path,) = project.folder.glob("results/train/*/given.json")
    before = path.read_bytes()
    os.utime(path, ns=flip(path))
    assert "Nothing to be done" in project.snakemake(), "its reader has no reason to run"
    command = ("features", "--config", "features_pool=2")
    output = project.snakemake(*command)
    shown = path.relative_to(project.folder)
    print(output)
    assert project.status != 0 and "Traceback" not in output
    assert f"{shown} is damaged (its checksum is not its manifest's)" in output.splitlines()[-1]
    project.ran()
    assert reasons(project.snakemake("-n", *command))["train"].startswith(f"damaged: {shown}")
    assert project.snakemake(*command) and project.status == 0
    assert project.ran() == ["features", "train"] and path.read_bytes() == before


def test_a_folder_in_the_place_of_a_page_is_one_line_and_stays(project):
    for name in ("report.html", "summary.json"):
        path = project.folder / "results" / name
        whole = path.read_bytes()
        in_place_of(path)
        output = project.snakemake()
        assert project.status != 0 and "Traceback" not in output
        assert (
            output.splitlines()[-1]
            == f"results/{name} is a folder; move it away: a page goes there"
        )
        assert (path / "file").read_text() == "in the way"
        shutil.rmtree(path)
        path.write_bytes(whole)


def test_a_folder_in_the_place_of_the_page_of_runs_is_one_line_and_stays(fresh):
    (fresh.folder / "results/runs.html/mine").mkdir(parents=True)
    output = fresh.snakemake("results/runs.html")
    assert fresh.status != 0 and "Traceback" not in output
    assert output.splitlines()[-1] == "cannot write results/runs.html: Is a directory"
    assert (fresh.folder / "results/runs.html/mine").is_dir()


def test_a_changed_page_is_copied_again_and_one_changed_in_its_artifact_made_again(
    project,
):
    copy, (made,) = (
        project.folder / "results/summary.json",
        project.folder.glob("results/report/*/summary.json"),
    )
    whole = made.read_bytes()
    flip(copy)
    project.snakemake()
    assert copy.read_bytes() == whole and project.ran() == []
    os.utime(made, ns=flip(made))
    damaged = made.read_bytes()
    assert f"damaged: {made.relative_to(project.folder)} (its checksum" in project.snakemake("-n")
    project.snakemake()
    assert copy.read_bytes() == made.read_bytes() == whole != damaged and project.ran() == [
        "report"
    ]
    flip(made)
    made.write_bytes(whole)
    copy.unlink()
    assert project.snakemake() and project.status == 0
    assert copy.read_bytes() == whole and project.ran() == [], "it was put right by hand"


def test_results_of_another_machine_open_where_their_backend_cannot_run(project, tmp_path):
    config = ("--config", "svm_backend=cuml")
    output = project.snakemake(*config)
    assert project.status != 0
    assert "svm_backend cuml" in output.splitlines()[-1]
    assert project.ran() == [], "found before the work begins"

    backends = project.folder / "workflow/scripts/ladder/classifiers/backends.py"
    here = backends.read_text()
    name = "def unavailable(name: str) -> str | None:\n"
    assert name in here
    backends.write_text(
        here.replace(
            name, f"{name}    if os.environ.get('ELSEWHERE'):\n        return None\n"
        ).replace("import importlib.util", "import importlib.util\nimport os")
    )
    (project.folder / "workflow/scripts/ladder/verify/check_backend.py").write_text(
        "def check():\n    return {'passed': True, 'fault': '', 'passing': False, 'summary': 'as the test wants'}\n"
    )
    project.snakemake(*config, ELSEWHERE="1", XDG_CACHE_HOME=str(tmp_path))
    assert project.ran() == ["report", "svm", "svm", "svm"]
    assert "Nothing to be done" in project.snakemake(*config)


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--config", "batch_sise=32"], "did you mean batch_size?"),
        # which Snakemake reads before any rule, and answers with a traceback of its own
        (["--configfile", "qqq.yaml"], "there is no file qqq.yaml; there are "),
        (
            ["--config", "epochs=" + 9000 * "[" + 9000 * "]"],
            "(18,002 characters), but must be a whole number",
        ),
    ],
)
def test_a_wrong_configuration_is_one_line(project, arguments, words):
    output = project.snakemake(*arguments)
    assert project.status
    assert words in output.splitlines()[-1]
    assert "Traceback" not in output


def test_text_and_numbers_are_one_version(project):
    assert "Nothing to be done" in project.snakemake(
        "--config", "batch_size='64'", "learning_rate=1e-3", "svm_C=10.0"
    )


def test_a_stages_message_is_the_last_line(fresh):
    output = fresh.snakemake(FAIL="normalized")
    assert fresh.status != 0
    assert output.splitlines()[-1].endswith(": failed as the test wants")
    assert "Traceback" not in output


def test_a_stages_bug_is_one_line_that_names_the_log_with_its_traceback(fresh):
    output = fresh.snakemake(BUG="normalized")
    assert fresh.status != 0 and "Traceback" not in output and "was killed" not in output
    line, _, log = output.splitlines()[-1].rpartition("; its traceback is in ")
    assert line.endswith(": ZeroDivisionError: a bug as the test wants")
    assert "Traceback" in (fresh.folder / log).read_text()


def test_a_failed_stage_shows_a_command_of_a_few_lines_that_can_be_run_by_hand(fresh):
    output = fresh.snakemake("--config", "features_layer=enc1", FAIL="normalized")
    (command,) = [
        line for line in output.splitlines() if line.strip().startswith("trap : TERM; exec 3>&2 ")
    ]
    assert len(command) < 500
    done = subprocess.run(
        ["sh", "-c", command],
        cwd=fresh.folder,
        text=True,
        stderr=subprocess.PIPE,
        env=os.environ | {"PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"},
    )
    # which needs no other, and may not have come yet
    ran = [stage for stage in fresh.ran() if stage != "initial"]
    assert done.returncode == 0 and ran == ["data", "normalized", "normalized"], done.stderr


def test_a_dry_run_writes_nothing_into_logs(fresh):
    fresh.snakemake("-n")
    assert fresh.status == 0 and not list((fresh.folder / "logs").glob("*/*"))


@pytest.mark.parametrize("name", ["results", "logs", ".snakemake"])
def test_a_place_that_is_no_folder_is_one_line(fresh, name):
    (fresh.folder / name).write_text("a file")
    output = fresh.snakemake()
    assert fresh.status == 1 and "Traceback" not in output
    assert (
        output.splitlines()[-1]
        == f"{name} is not a folder, but this command has to write into it; move it away"
    )


@pytest.mark.parametrize("name", ["results", "logs", ".snakemake"])
@pytest.mark.parametrize("target", ["data", "results/runs.html"])
def test_a_place_of_somebody_else_is_one_line_before_any_work(fresh, name, target):
    (fresh.folder / name).mkdir()
    (fresh.folder / name).chmod(0o555)
    done = subprocess.run(
        [*unprivileged(), *fresh.command(target)],
        cwd=fresh.folder,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    (fresh.folder / name).chmod(0o755)
    assert done.returncode == 1 and "Traceback" not in done.stdout and fresh.ran() == []
    assert done.stdout.splitlines()[-1].startswith(
        f"nothing can be written into {fresh.folder / name}: Permission denied"
    )


def test_the_users_cache_folder_is_not_needed(fresh):
    output = fresh.snakemake("data", XDG_CACHE_HOME=os.devnull)
    assert fresh.status == 0 and fresh.ran() == ["data"], output


def test_a_project_folder_may_have_braces_in_its_name(fresh, tmp_path):
    project = Project(fresh.folder.rename(tmp_path / "{brace} and {wildcards.version}"))
    output = project.snakemake("data", "results/network.html", "results/runs.html")
    assert project.status == 0 and project.ran() == ["data", "network"], output


def test_a_configuration_that_is_not_utf_8_is_one_line(fresh):
    (fresh.folder / "config.yaml").write_bytes("# Größe\n".encode("latin-1"))
    output = fresh.snakemake("-n")
    assert fresh.status == 1
    assert output.splitlines()[-1].startswith(
        "config.yaml is not a YAML file of keys and values: unacceptable"
    )


def test_a_killed_stage_is_named_in_the_last_line_and_made_by_the_same_command(fresh):
    output = fresh.snakemake(DIE="normalized")
    # nor the shell's line with the whole command
    assert fresh.status != 0 and "Traceback" not in output and " Killed " not in output
    assert output.splitlines()[-1].startswith(
        "normalize_images was killed by signal 9 before it could say why"
    )
    fresh.snakemake()
    assert fresh.status == 0 and fresh.ran() == sorted([*ALL, "normalized"])


def test_forcing_a_rule_makes_it_and_what_depends_on_it_again(project):
    project.snakemake("train", "-R", "train_network")
    assert project.ran() == ["train"]
    project.snakemake("-f", "train")
    assert project.ran() == ["train"]
    project.snakemake("report", "-R", "fit_svm")
    assert project.ran() == ["report", "svm", "svm", "svm"]


def test_snakemakes_other_ways_to_choose_jobs_do_what_they_do_anywhere(project):
    project.snakemake("-F")
    assert project.ran() == ALL
    project.snakemake("--until", "train_network", "--config", "seed=3")
    assert project.ran() == ["initial", "train"]
    project.snakemake("--omit-from", "fit_svm", "--config", "seed=4")
    assert project.ran() == ["features", "features", "initial", "map", "train"]
    project.snakemake("--touch")
    assert project.status == 0 and project.ran() == []
    assert "Nothing to be done" in project.snakemake()


def test_the_next_command_removes_what_killed_ones_left_and_nothing_of_others(project):
    ended = subprocess.Popen(["true"])
    ended.wait()
    forms = (
        "logs/.errors.{}",
        "logs/.command.{}",
        "logs/train/.t.json.{}.tmp",
        "results/.report.html.{}.tmp",
    )
    gone, kept = (
        [project.folder / form.format(f"{machine}.{process}") for form in forms]
        for machine, process in ((platform.node(), ended.pid), ("elsewhere", ended.pid))
    )
    kept += [project.folder / form.format(f"{platform.node()}.{os.getpid()}") for form in forms]
    for path in (*gone, *kept):
        path.touch()
    assert project.snakemake("-n") and project.status == 0
    assert [path.exists() for path in gone] == [False] * len(gone)
    assert [path.exists() for path in kept] == [True] * len(kept)


def test_two_runs_at_once_share_the_work(fresh):
    runs = [fresh.start(SLOW="train"), fresh.start(SLOW="train")]
    assert [run.wait() for run in runs] == [0, 0], (fresh.folder / "output.txt").read_text()
    assert fresh.ran() == ALL


@pytest.mark.parametrize("pause", [0, 4], ids=["its job still runs", "its job has ended"])
def test_after_snakemake_alone_was_killed_the_plain_command_finishes(fresh, pause):
    run = fresh.start(SLOW="train")
    fresh.wait_for("train")
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    time.sleep(pause)
    fresh.snakemake()
    assert fresh.status == 0
    assert fresh.ran() == ALL, "the orphan's work was waited for and used"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_after_everything_was_killed_the_plain_command_finishes(fresh, number):
    # longer than a busy machine needs to notice the start
    run = fresh.start(SLOW="train", SECONDS_OF_WORK="60")
    fresh.wait_for("train")
    os.killpg(run.pid, number)
    run.wait()
    time.sleep(0.5)
    fresh.snakemake()
    assert fresh.status == 0
    assert fresh.ran() == sorted([*ALL, "train"])


@pytest.mark.parametrize(
    "words, talks",
    [("Using workflow", ""), ("at work", "train"), ("copied from", "")],
    ids=["at the start", "in training", "at the end"],
)
def test_a_reader_that_goes_away_ends_the_command_and_leaves_no_process(fresh, words, talks):
    reader, writer = os.pipe()
    run = fresh.start(output=writer, TALK=talks)
    os.close(writer)
    with open(reader) as lines:
        assert any(words in line for line in lines)
    run.wait(600)  # it would wait for ever
    assert fresh.processes() == []
    ran = fresh.ran()
    fresh.snakemake()
    assert fresh.status == 0 and sorted([*ran, *fresh.ran()]) == sorted(
        [*ALL, *[talks] * bool(talks)]
    )


def on_a_terminal(number):
    """What a process does first that has a terminal and takes its SIGHUP as `number` says."""

    def first():
        fcntl.ioctl(1, termios.TIOCSCTTY, 0)
        signal.signal(signal.SIGHUP, number)

    return first


@pytest.mark.parametrize(
    "number",
    [signal.SIG_DFL, signal.SIG_IGN],
    ids=["ends it", "does not end it after nohup or disown"],
)
def test_a_terminal_that_hangs_up(fresh, number):
    terminal, there = os.openpty()
    run = fresh.start(output=there, first=on_a_terminal(number), SLOW="train", SECONDS_OF_WORK="2")
    os.close(there)
    fresh.wait_for("train")
    os.close(terminal)
    status = run.wait(600)
    assert fresh.processes() == []
    if number is signal.SIG_IGN:
        assert status == 0 and fresh.ran() == ALL
    else:
        assert status == -signal.SIGHUP
        fresh.snakemake()
        assert fresh.status == 0 and fresh.ran() == sorted([*ALL, "train"])


def test_a_signal_to_all_processes_of_a_command_is_named_in_the_last_line(fresh):
    run = fresh.start(SLOW="train", SECONDS_OF_WORK="60")
    fresh.wait_for("train")
    os.killpg(run.pid, signal.SIGTERM)
    assert run.wait(600) != 0 and fresh.processes() == []
    assert (
        (fresh.folder / "output.txt")
        .read_text()
        .splitlines()[-1]
        .startswith("train_network was asked to end (SIGTERM)")
    )


def test_threads_come_from_the_configuration_not_from_cores(fresh):
    fresh.snakemake("data", "--cores", "1", "--config", "threads=3")
    assert pathlib.Path(fresh.folder / "ran.txt").read_text().split() == ["data", "3"]


TWO = ("--config", "runs=[{epochs: [3, 4]}]", "controls=[]")


def test_runs_of_a_list_run_in_parallel_each_with_its_threads(project):
    output = project.snakemake("runs", "--cores", "2", *TWO, "threads=1", MEET="train")
    assert project.status == 0, output


def test_a_hint_tells_how_to_run_a_list_in_parallel(project):
    compare = ("-n", "runs", *TWO)
    assert "threads=1 makes 4 at a time" in project.snakemake(*compare, "--cores", "4")
    assert "at a time" not in project.snakemake(*compare, "--cores", "1")
    assert "at a time" not in project.snakemake(*compare, "threads=1", "--cores", "4")


def test_set_threads_limits_the_threads_of_a_job(fresh):
    fresh.snakemake(
        "data", "--cores", "2", "--set-threads", "prepare_data=1", "--config", "threads=2"
    )
    assert pathlib.Path(fresh.folder / "ran.txt").read_text().split() == ["data", "1"]


def test_the_rungs_are_compared_on_request(project):
    project.snakemake("results/parity.html")
    assert project.ran() == ["parity"]
    assert project.status == 0 and (project.folder / "results/parity.json").exists()
    assert "Nothing to be done" in project.snakemake("results/parity.html")

    project.snakemake("results/parity.html", "--config", "batch_size=32")
    assert project.ran() == ["parity"]
    assert json.loads((project.folder / "results/parity.html").read_text())["batch_size"] == 32
    project.snakemake("results/parity.html")
    assert project.ran() == []
    assert json.loads((project.folder / "results/parity.html").read_text())["batch_size"] == 64


def test_auto_selects_the_fastest_rung_of_this_machine_and_says_so(project):
    record = {"machine": catalog.machine(), "fastest": {"float32": "cpu_sequential"}}
    (project.folder / "results/parity.json").write_text(json.dumps(record))
    assert "variant auto: cpu_sequential (the fastest that passed on this machine)" in (
        output := project.snakemake("-n")
    )
    assert reasons(output)["train"].startswith("variant cpu -> cpu_sequential")
    (project.folder / "results/parity.json").write_text(
        json.dumps({**record, "machine": {"host": "elsewhere", "gpu": None}})
    )
    assert "Nothing to be done" in (output := project.snakemake("-n"))
    assert "results/parity.html` finds the fastest" in output


@pytest.mark.skipif(catalog.no_gpu() is None, reason="there is a GPU here")
def test_a_gpu_rung_is_refused_in_one_line_before_any_work_where_there_is_no_gpu(fresh):
    output = fresh.snakemake("--config", "variant=gpu_basic")
    assert fresh.status != 0 and fresh.ran() == []
    assert (
        "variant gpu_basic needs " in output.splitlines()[-1]
        and "set variant to auto, cpu" in output.splitlines()[-1]
    )


@pytest.fixture
def with_gpu(fresh, tmp_path, monkeypatch):
    """A project without results on a machine with a made-up GPU, where checks before the first use
    are fake_check's.
    """
    fresh.edit("workflow/scripts/ladder/rungs/catalog.py", "\n\ndef no_gpu():\n    return None\n")
    fresh.edit(
        "workflow/scripts/ladder/machine/driver.py",
        "\n\ndef gpu():\n    return Gpu('Fake', 'sm_86', 1 << 34, 100 << 10)\n",
    )
    shutil.copy(
        ROOT / "tests/support/fake_check.py",
        fresh.folder / "workflow/scripts/ladder/verify/check_rung.py",
    )
    shutil.copy(ROOT / "tests/support/fake_faults.py", fresh.folder / "workflow/scripts")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("CALLS", str(tmp_path / "calls.txt"))
    fresh.checked = lambda: (
        (tmp_path / "calls.txt").read_text().split() if (tmp_path / "calls.txt").exists() else []
    )
    return fresh


def test_auto_passes_over_a_rung_that_fails_its_check_before_the_first_use(with_gpu):
    faults = json.dumps({"gpu_opt_v2": "wrong", "gpu_gemm": "illegal address"})
    assert "variant auto: gpu_opt_v2 (" in (output := with_gpu.snakemake("-n", FAULTS=faults))
    assert "it is checked before its first use" in output and with_gpu.checked() == []
    output = with_gpu.snakemake("train", FAULTS=faults)
    assert with_gpu.status == 0 and with_gpu.ran() == ["data", "initial", "normalized", "train"]
    # and none by the stage: the outcome was kept
    assert with_gpu.checked() == ["gpu_opt_v2", "gpu_gemm", "gpu_opt_v1"]
    assert (
        "rung gpu_opt_v2 is passed over: gpu_opt_v2 computes other numbers: enc2.weight deviates by 3.1e-01"
        in output
    )
    assert (
        "rung gpu_gemm is passed over: gpu_gemm could not be checked: RuntimeError: illegal address"
        in output
    )
    assert (
        "variant auto: gpu_opt_v1 (" in output
        and "gpu_opt_v1 passed: sgd 1.9e-07 in a.bias" in output
    )
    manifest = json.loads(next(with_gpu.folder.glob("results/train/*/manifest.json")).read_text())
    assert manifest["spec"]["params"]["variant"] == "gpu_opt_v1"
    assert (
        manifest["notes"]["first_use"].items()
        >= {"name": "gpu_opt_v1", "summary": "sgd 1.9e-07 in a.bias"}.items()
    )
    output = with_gpu.snakemake("train")  # as it was kept, although it would pass now
    assert (
        "Nothing to be done" in output
        and "gpu_opt_v2 is passed over" in output
        and len(with_gpu.checked()) == 3
    )
    with_gpu.snakemake("train", "--config", "batch_size=32")  # another plan
    assert with_gpu.checked()[3:] == ["gpu_opt_v2"]


def test_a_named_rung_that_fails_its_check_stops_the_stage_in_one_line(with_gpu):
    output = with_gpu.snakemake(
        "train", "--config", "variant=gpu_opt_v2", FAULTS='{"gpu_opt_v2": "wrong"}'
    )
    assert with_gpu.status != 0 and with_gpu.ran() == ["data", "initial", "normalized"]
    last = output.strip().splitlines()[-1]
    assert "gpu_opt_v2 computes other numbers: enc2.weight deviates by 3.1e-01 (checked 20" in last
    assert (
        "please report it with that file" in last
        and "variant=auto takes a rung that passes" in last
    )
    assert "Traceback" not in output


def test_layers_are_fitted_before_the_decoder_is_trained_and_features_are_theirs(project):
    project.snakemake("report", "--config", "training=patches")
    assert project.status == 0
    assert project.ran() == ["features", "map", "patches", "report", "svm", "train"]
    project.snakemake("report", "--config", "training=patches", "decoder_epochs=2")
    assert project.ran() == ["report", "train"]
    project.snakemake(
        "report", "--config", "training=patches", "patches_iterations=3", "controls=[]"
    )
    assert project.ran() == ["features", "map", "patches", "report", "svm", "train"]
    project.snakemake(
        "report",
        "--config",
        "training=patches_then_gradient",
        "patches_iterations=3",
        "controls=[]",
    )
    assert project.ran() == ["features", "map", "report", "svm", "train"]


def test_a_network_that_is_only_fitted_has_no_training(project):
    project.snakemake("report", "--config", "training=patches", "network=patch_net", "controls=[]")
    assert project.status == 0 and project.ran() == [
        "features",
        "initial",
        "map",
        "patches",
        "report",
        "svm",
    ]
    output = project.snakemake("train", "--config", "training=patches", "network=patch_net")
    assert project.status != 0
    assert (
        "train: this configuration has no such stage; it has data, normalized, initial, patches, features,"
        in output
    )
    assert "Traceback" not in output


def test_appended_features_are_made_and_joined_and_nothing_is_trained_twice(project):
    joined = (
        "report",
        "--config",
        "features_concatenate=[{features_layer: enc1_pool, weight: 0.5}]",
    )
    output = project.snakemake("features", *joined[1:])
    assert project.status == 0 and project.ran() == ["features", "joined"], output
    output = project.snakemake(*joined)
    assert project.status == 0, output
    assert project.ran() == ["features", "joined", "map", "report", "svm", "svm"]
    assert "Nothing to be done" in project.snakemake(*joined)
    project.snakemake(*joined, "-R", "train_network")
    assert project.ran() == ["features", "features", "joined", "map", "report", "svm", "train"]
    other = ("report", "--config", "features_concatenate=[{seed: 9}]", "controls=[]")
    assert "joined" in reasons(project.snakemake("-n", *other))
    project.snakemake(*other)
    assert project.ran() == ["features", "initial", "joined", "map", "report", "svm", "train"]


def test_missing_seeds_are_run_and_existing_ones_reused(project):
    seeds = ("report", "--config", "runs=[{seed: [0, 1, 2]}]", "controls=[]")
    output = project.snakemake(*seeds)
    assert project.status == 0, output
    assert project.ran() == sorted(["report", *2 * ["initial", "train", "features", "svm"]])
    assert "Nothing to be done" in project.snakemake(*seeds)
    project.snakemake("report", "--config", "seed=2", "controls=[]")
    assert project.ran() == ["map", "report"], "that run's scores were there"


def test_training_starts_from_the_named_weights_file_and_again_if_it_changes(project):
    (project.folder / "start.bin").write_bytes(b"some weights")
    start = ("train", "--config", "initial_weights=start.bin")
    project.snakemake(*start)
    assert project.status == 0 and project.ran() == ["initial", "train"]
    project.snakemake(*start)
    assert project.ran() == []
    (project.folder / "start.bin").write_bytes(b"other weights")
    project.snakemake(*start)
    assert project.ran() == ["initial", "train"]


def test_a_network_of_a_persons_own_is_drawn_and_its_wrong_line_is_named(project):
    rows = "\n".join(
        f"  - {{{row}}}"
        for row in ("layer: flat, kind: flatten", "layer: scores, kind: dense, units: classes")
    )
    (project.folder / "mine.yaml").write_text(
        f"loss: cross_entropy\nfeatures: flat\nlayers:\n{rows}\n"
    )
    project.snakemake("results/network.html", "--config", "network=mine.yaml")
    assert project.status == 0 and project.ran() == ["network"]
    given = json.loads((project.folder / "results/network.html").read_text())
    assert given["network"] == "mine.yaml" and given["table"]["layers"][1]["units"] == 10
    (project.folder / "mine.yaml").write_text("loss: mse\n")
    output = project.snakemake("results/network.html", "--config", "network=mine.yaml")
    assert (
        project.status == 1
        and "mine.yaml line 1: the key features is missing" in output
        and "Traceback" not in output
    )


def test_only_missing_runs_of_the_compare_list_are_made(project):
    compare = (
        "runs",
        "--config",
        "runs=[{epochs: [10, 3]}, {variant: gpu_basic}]",
        "svm_backend=sklearn",
    )
    project.snakemake("report", "--config", "svm_backend=sklearn")
    project.ran()
    output = project.snakemake(*compare)
    assert project.status == 0, output
    # of 3 epochs: those of 10 exist, but for a report that has the list
    assert project.ran() == ["features", "report", "report", "svm", "train"]
    rows = json.loads((project.folder / "results/runs.json").read_text())["runs"]
    states = [row["state"] for row in rows if row["trial"]]
    if catalog.no_gpu():
        assert states.count("not possible") == 1 and len(states) == 3
    project.snakemake(*compare)
    assert project.ran() == []


def test_runs_of_the_list_are_made_once_and_kept_by_gc(project):
    listed = ("--config", "runs=[{seed: [1, 2]}]")
    project.snakemake("report", "--config", "seed=2")
    project.ran()
    output = project.snakemake("results/runs.html", *listed)
    # both runs exist, but for a report that has the list, and one without a map
    assert project.status == 0 and project.ran() == ["report", "report"], output
    project.snakemake("runs", *listed)
    assert project.ran() == []
    rows = json.loads((project.folder / "results/runs.json").read_text())["runs"]
    reached, versions = (
        project.snakemake("gc", *listed),
        [row["run"] for row in rows if row["trial"]],
    )
    assert len(versions) == 2 and not any(version in reached for version in versions)
    assert "Nothing reaches" in project.snakemake("gc")


def test_a_wrong_entry_names_the_list_it_is_in(project):
    output = project.snakemake("-n", "--config", "runs=[{}, {sead: 3}]")
    assert project.status == 1 and "did you mean seed? (entry 2 of runs)" in output.splitlines()[-1]


DIVERGING = (
    "runs",
    "--config",
    "runs=[{learning_rate: [666, 0.5]}, {batch_size: 32}]",
    "controls=[]",
)
DIVERGED = "it diverged as the test wants"


def test_a_failed_run_stops_no_other_of_a_list_and_is_not_repeated(project):
    output = project.snakemake(*DIVERGING)
    assert project.status == 0, output
    # of the two others
    assert project.ran() == sorted([*3 * ["train"], *2 * ["features", "svm", "report"]])
    reports = (project.folder / "results/report").glob("*/manifest.json")
    failed = [json.loads(path.read_text()).get("failed") for path in reports]
    assert sorted(filter(None, failed)) == [DIVERGED] and len(failed) == 4
    assert DIVERGED in (project.folder / "results/runs.json").read_text()
    project.snakemake(*DIVERGING)
    assert project.ran() == []


@pytest.mark.parametrize("target", ["report", "train"])
def test_a_failed_run_ends_with_its_message_also_after_a_list_kept_it(project, target):
    alone = (target, "--config", "learning_rate=666", "controls=[]")
    for _ in range(2):
        output = project.snakemake(*alone)
        assert project.status != 0 and output.splitlines()[-1].endswith(DIVERGED), output
        project.snakemake(*DIVERGING)
        assert project.status == 0
    project.ran()
    project.snakemake(*alone)
    assert project.ran() == [], "it is known to fail"


# ---- pages that the configuration has left behind


@pytest.fixture
def shown(project):
    """(project, path of its report, its bytes)"""
    page = project.folder / "results/report.html"
    return project, page, page.read_bytes()


def notice(page):
    """The text of the notice at the top of a page, '' without one."""
    found = re.search(r"<body>\n<!--of another configuration-->(.*)<!--end-->\n", page.read_text())
    return re.sub("<[^>]+>", "", found[1]) if found else ""


def test_a_page_of_another_configuration_says_so_until_it_belongs_to_it_again(shown):
    project, page, before = shown
    summary = (project.folder / "results/summary.json").read_bytes()
    version = next((project.folder / "results/report").iterdir()).name
    project.snakemake("train", "--config", "batch_size=32")
    assert re.fullmatch(
        rf"This page shows {version}\. The latest command \([-\d]+ [\d:]+ UTC\) was for another configuration: "
        r"batch_size 64 → 32\. \.venv/bin/snakemake results/report\.html, with the settings of that command "
        r"line, makes the page anew\.",
        notice(page),
    ), page.read_text()[:900]
    project.snakemake("train", "--config", "batch_size=16")
    assert "batch_size 64 → 16" in notice(page) and page.read_bytes().endswith(
        before.partition(b"<body>\n")[2]
    )
    assert "Nothing to be done" in project.snakemake("train") and page.read_bytes() == before
    assert (project.folder / "results/summary.json").read_bytes() == summary
    assert "Nothing to be done" in project.snakemake()


def test_a_page_that_an_edited_configuration_has_left_says_so_and_is_replaced(
    shown,
):
    project, page, before = shown
    config = project.folder / "config.yaml"
    config.write_text(config.read_text().replace("batch_size: 64\n", "batch_size: 32\n"))
    project.snakemake(FAIL="svm")
    assert project.status != 0
    assert (
        "configuration: batch_size 64 → 32. .venv/bin/snakemake results/report.html makes the page anew."
        in notice(page)
    )
    project.snakemake()
    assert project.status == 0 and not notice(page) and page.read_bytes() != before
    config.write_text(config.read_text().replace("batch_size: 32\n", "batch_size: 64\n"))
    project.snakemake()
    assert page.read_bytes() == before


@pytest.mark.parametrize(
    "arguments",
    [
        ["-n", "train", "--config", "batch_size=32"],
        ["train", "--config", "batch_size=0"],
        ["--config", "svm_backend=cuml"],
        ["--touch"],
        ["--summary", "--config", "seed=2"],
    ],
)
def test_a_command_that_runs_nothing_puts_no_notice_on_a_page(shown, arguments):
    project, page, before = shown
    project.snakemake(*arguments)
    assert page.read_bytes() == before and project.ran() == []


def test_a_page_that_shows_what_is_no_longer_there_says_that(shown):
    project, page, before = shown
    shutil.rmtree(next((project.folder / "results/report").iterdir()))
    project.snakemake("train", "--config", "batch_size=32")
    assert "This page shows an artifact that is no longer there." in notice(page)
    project.snakemake()
    assert not notice(page)


SEARCH = ("runs", "--config", "controls=[]")


def test_a_search_makes_ordinary_runs_and_a_larger_budget_only_the_missing_ones(
    project,
):
    def space(budget):
        return f"search={{keys: {{svm_C: {{min: 1, max: 100, scale: log}}}}, budget: {budget}}}"

    output = project.snakemake(*SEARCH, space(2))
    assert project.status == 0, output
    assert project.ran() == sorted(
        ["data", "normalized", "train", "features", *2 * ["svm", "report"], "search"]
    )
    (data,) = [spec["params"] for spec in specs(project, "data") if "validation" in spec["params"]]
    assert data == {"dataset": "digits", "train_limit": "all", "validation": 143}
    assert "search" in (project.folder / "results/best.yaml").read_text()
    assert (project.folder / "results/best.yaml").read_text() in output, (
        "the best setting is printed at the end"
    )
    project.snakemake(*SEARCH, space(3))
    assert project.ran() == ["report", "search", "svm"]
    project.snakemake(*SEARCH, space(3))
    assert project.ran() == []


def specs(project, stage):
    return [
        json.loads(path.read_text())["spec"]
        for path in (project.folder / "results" / stage).glob("*/manifest.json")
    ]


def test_a_search_by_tpe_makes_one_run_after_another_and_then_its_page(project):
    def space(budget):
        return f"search={{strategy: tpe, keys: {{svm_C: {{min: 1, max: 100, scale: log}}}}, budget: {budget}}}"

    output = project.snakemake("-n", *SEARCH, space(2))
    assert (
        "runs from 1 on, each drawn from the results of those before it" in output
        and project.ran() == []
    )
    output = project.snakemake(*SEARCH, space(2))
    assert project.status == 0, output
    assert project.ran() == sorted(
        ["data", "normalized", "train", "features", *2 * ["svm", "report"], "search"]
    )
    # the first is made as any listed run is
    assert [f"search: run {number} of 2" in output for number in (2, 3)] == [True, False]
    assert draws(project) == 2 and (project.folder / "results/best.yaml").exists()
    project.snakemake(*SEARCH, space(2))
    assert project.ran() == []
    output = project.snakemake(*SEARCH, space(3), "-R", "fit_svm")
    assert (
        project.status == 1
        and "search: 2 of its runs are made; make the others without -f, -F and -R" in output
    )
    project.snakemake(*SEARCH, space(3))
    assert project.ran() == ["report", "search", "svm"], (
        "a larger budget keeps the runs that are there"
    )
    assert draws(project) == 3
    output = project.snakemake(*SEARCH, space(2))
    assert project.status == 0 and project.ran() == [] and "svm_C" in output, "all of it was there"
    assert draws(project) == 2, "the study goes with the page"


def draws(project):
    """The number of draws in the study beside the page of the search."""
    with contextlib.closing(sqlite3.connect(project.folder / "results/search.db")) as database:
        return database.execute("select count(*) from trials").fetchone()[0]


def test_the_page_of_runs_is_written_anew_each_time(project):
    project.snakemake("report", "--config", "name=first try")
    assert project.ran() == ["report"] and project.page()["name"] == "first try"
    for _ in range(2):
        assert "results/runs.html: 2 runs" in project.snakemake("results/runs.html")


def test_a_page_of_all_runs_has_those_of_the_same_command(project):
    output = project.snakemake(
        "--cores", "1", "results/runs.html", "report", "--config", "name=second"
    )
    assert project.ran() == ["report"] and "results/runs.html: 2 runs" in output
    output = project.snakemake(
        "--cores", "1", "results/runs.csv", "results/report.html", "--config", "name=third"
    )
    assert project.ran() == ["report"]
    assert output.index(": copied from results/report/") < output.index("results/runs.html: 3 runs")


def test_missing_pictures_are_named_before_any_training(fresh):
    for config, words in (
        (("--config", "predict=no such folder"), "there is no no such folder"),
        ((), "which pictures?"),
    ):
        output = fresh.snakemake("results/predictions.html", *config)
        assert fresh.status != 0 and words in output.splitlines()[-1] and fresh.ran() == []


def test_predictions_need_the_classifier_but_no_report_and_no_control(project):
    (project.folder / "pictures").mkdir()
    (project.folder / "pictures/cat.png").touch()
    predict = ("-n", "results/predictions.html", "--config", "predict=pictures")
    assert set(reasons(project.snakemake(*predict))) == {"predictions"}, (
        "on every request, with existing artifacts"
    )
    assert (
        {"train", "evaluate"}
        <= set(reasons(project.snakemake(*predict, "network=lenet_5")))
        <= {"initial", "train", "evaluate", "predictions"}
    )
    assert "Nothing to be done" in project.snakemake("-n", "--config", "predict=pictures")
    shutil.rmtree(project.folder / "results")
    assert set(reasons(project.snakemake(*predict))) == {
        "data",
        "normalized",
        "initial",
        "train",
        "features",
        "svm",
        "predictions",
    }


def test_gc_removes_unreachable_artifacts_and_only_when_confirmed(project):
    project.snakemake("train", "--config", "epochs=3")
    project.snakemake("train", "--config", "epochs=4")
    (kept,) = [
        path.name
        for path in (project.folder / "results/train").iterdir()
        if json.loads((path / "manifest.json").read_text())["spec"]["params"]["epochs"] == 4
    ]
    output = project.snakemake("gc", "--config", f"keep=[{kept[:-1]}]", "confirm=yes")
    assert project.status == 1 and output.splitlines()[-1].startswith(
        f"keep: no version in results is '{kept[:-1]}'; do you mean "
    ), output
    listed = project.snakemake("gc", "--config", f"keep=[{kept}]")
    assert f"keep {kept}: train/{kept}\n" in listed
    listed = listed.partition("Nothing reaches")[2]
    assert "In all" in listed
    assert len(list((project.folder / "results/train").iterdir())) == 3
    assert f"train/{kept}" not in listed.partition("In all")[0]
    project.snakemake("gc", "--config", f"keep=[{kept}]", "confirm=yes")
    left = [
        json.loads((path / "manifest.json").read_text())["spec"]["params"]["epochs"]
        for path in (project.folder / "results/train").iterdir()
    ]
    assert sorted(left) == [4, 10]
    project.ran()
    (project.folder / "presets").mkdir()
    (project.folder / "presets/odd.yaml").write_text("network: lenet_5\nfeatures_layer: latent\n")
    output = project.snakemake("gc", "--config", "network=lenet_5", "batch_size=32", "confirm=yes")
    assert (
        project.status == 0
        and "presets/odd.yaml does not go with config.yaml: config: features_layer" in output
    ), output
    (project.folder / "presets/usual.yaml").write_text("seed: 1\n")
    project.snakemake("train")
    project.ran()
    listed = project.snakemake("gc", "--config", "features_pool=2", "network=lenet_5")
    assert not re.search("(?<!results/)train/t", listed), "presets/usual.yaml reaches it"
    project.snakemake("train")
    assert project.status == 0 and project.ran() == []


CONDA = """#!/bin/sh
# As far as Snakemake calls it. An environment has a python3 of its own, which leaves a note and is else the tests'.
case "$1 $2" in
    "info --json") echo '{{"conda_prefix": "{conda}", "default_prefix": "{conda}", "platform": "linux-64"}}' ;;
    "--version ") echo "conda 24.7.1" ;;
    "config --get") echo '{{"get": {{"channel_priority": "strict"}}}}' ;;
    "env create")
        while [ "$1" != --prefix ] && [ $# -gt 0 ]; do shift; done
        mkdir -p "$2/bin" "$2/conda-meta"
        printf '#!/bin/sh\\necho "$1" >> {note}\\nexec {python} "$@"\\n' > "$2/bin/python3"
        chmod +x "$2/bin/python3" ;;
esac
"""


# Runs the command that it is given, and notes the image.
APPTAINER = """#!{python}
import os, sys
if sys.argv[1:] == ["--version"]:
    print("apptainer version 1.3.4")
else:
    *_, image, shell, option, command = sys.argv
    print(image, file=open("{note}", "a"))
    os.execvp(shell, [shell, option, command])
"""


def test_with_sdm_apptainer_every_stage_runs_in_the_image_that_the_folder_has(fresh, tmp_path):
    (tmp_path / "bin").mkdir()
    program, note = tmp_path / "bin/apptainer", tmp_path / "note.txt"
    program.write_text(APPTAINER.format(python=sys.executable, note=note))
    program.chmod(0o755)
    fresh.snakemake("--sdm", "apptainer", PATH=f"{program.parent}:{os.environ['PATH']}")
    assert fresh.status == 0 and fresh.ran() == ALL
    # and the copy of the report
    assert note.read_text().split() == ["kernel-ladder.sif"] * (len(ALL) + 1)
    assert fresh.page()["batch_size"] == 64


def test_with_sdm_conda_stages_run_in_the_environment_that_snakemake_makes(fresh, tmp_path):
    conda, note = tmp_path / "conda", tmp_path / "note.txt"
    (conda / "bin").mkdir(parents=True)
    (conda / "bin/conda").write_text(CONDA.format(conda=conda, note=note, python=sys.executable))
    (conda / "bin/conda").chmod(0o755)
    (conda / "bin/activate").write_text('export PATH="$1/bin:$PATH"\n')
    output = fresh.snakemake("data", "--sdm", "conda", PATH=f"{conda / 'bin'}:{os.environ['PATH']}")
    assert fresh.status == 0 and fresh.ran() == ["data"], output
    assert note.read_text().splitlines() == ["workflow/scripts/prepare_data.py"]


def test_a_dead_link_in_the_place_of_a_page_is_one_line(project):
    (project.folder / "results/model.zip").symlink_to("nowhere")
    output = project.snakemake("model")
    assert project.status == 1
    assert (
        output.splitlines()[-1]
        == "results/model.zip is a link that leads nowhere; move it away: a page goes there"
    )


LISTS = (
    "runs=[{multiplier: [exact], seed: [1]}]",
    "search={budget: 1, keys: {learning_rate: {min: 0.001, max: 0.01}}}",
)


# which need the files of real artifacts
WRITERS = dict.fromkeys(
    ("predictions.html", "predictions.json", "predictions.csv"), "make_predictions"
)


def test_every_page_whose_job_failed_is_made_by_the_plain_command(project):
    """Snakemake itself does not run a job with an `update` output again that has failed, where an
    older output is there.
    """
    scripts = project.folder / "workflow/scripts/tools"
    pages = [
        *(page for pages in COPIES.values() for page in pages),
        *(f"results/{name}" for name in (*RUNS, *WRITERS)),
    ]
    for page in pages:
        (project.folder / page).write_text("<body>\nof another run")
    (project.folder / "cat.png").touch()
    words = (
        "-k",
        *pages,
        "--config",
        *LISTS,
        "controls=[]",
        "feature_map=false",
        "predict=cat.png",
    )
    whole = {
        scripts / f"{name}.py": (scripts / f"{name}.py").read_text()
        for name in ("publish", "make_runs")
    }
    whole |= {
        scripts / f"{name}.py": "".join(
            f"open('results/{page}', 'w').write('new')\n"
            for page, writer in WRITERS.items()
            if writer == name
        )
        for name in WRITERS.values()
    }
    for script in whole:
        script.write_text("raise SystemExit(1)\n")
    for failing in (" ".join(COPIES), ""):
        project.snakemake(*words, FAIL=failing)
        assert project.status == 1
    for script, text in whole.items():
        script.write_text(text)
    output = project.snakemake(*words)
    assert project.status == 0, output
    old = [
        page
        for page in pages
        if "of another run" in (project.folder / page).read_text("utf-8", "replace")
    ]
    assert not old, output
