"""Artifacts of another results folder are taken whole or not at all."""

import errno
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

import manifest_files
from ladder.errors import UserError
from ladder.machine import processes
from ladder.sources import ROOT
from ladder.store import artifacts, manifests, pull

STAGES = ("data", "train", "report")
DATA, TRAIN, REPORT = "d00000000001", "t00000000001", "r00000000001"


def make(results, stage, version, parents=None, **files):
    with artifacts.making(results / stage / version, manifest_files.spec(stage, {"x": 1}, parents)) as work:
        for name, text in files.items():
            work.write_bytes(f"{name}.bin", text.encode())
    return results / stage / version


@pytest.fixture
def there(tmp_path):
    """A results folder elsewhere with a finished artifact of each stage."""
    results = tmp_path / "elsewhere/results"
    make(results, "data", DATA, images="pixels " * 100)
    make(results, "train", TRAIN, {"data": DATA}, weights="numbers " * 100, history="losses")
    make(results, "report", REPORT, {"train": TRAIN}, page="a page")
    return results


@pytest.fixture
def here(tmp_path):
    return tmp_path / "here/results"


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != artifacts.LOCK}


def nothing_finished(here, name):
    return manifests.read(here / name) is None


def test_whole_artifacts_are_taken_with_their_manifests_as_they_are(there, here):
    found = pull.pull(str(there), here, STAGES)
    assert found.taken == [f"data/{DATA}", f"train/{TRAIN}", f"report/{REPORT}"] and not found.here and not found.left
    for name in found.taken:
        assert content(here / name) == content(there / name)
        manifests.verify(here / name)
        artifact = artifacts.Artifact(here / name)
        assert all(artifact.path(file).exists() for file in artifact.manifest["files"])


def test_a_project_folder_is_its_results_folder(there, here):
    assert len(pull.pull(str(there.parent), here, STAGES).taken) == 3


def test_what_is_here_stays(there, here):
    own = make(here, "train", TRAIN, {"data": DATA}, weights="other numbers of another machine")
    before = content(own)
    found = pull.pull(str(there), here, STAGES)
    assert found.here == [f"train/{TRAIN}"] and len(found.taken) == 2 and content(own) == before
    assert pull.pull(str(there), here, STAGES).taken == []


def test_an_artifact_that_was_interrupted_here_is_completed(there, here):
    folder = here / "train" / TRAIN
    folder.mkdir(parents=True)
    (folder / "checkpoint.safetensors").write_text("half a training")
    assert f"train/{TRAIN}" in pull.pull(str(there), here, STAGES).taken
    assert content(folder) == content(there / "train" / TRAIN)


def cut(folder):
    (folder / "weights.bin").write_bytes((folder / "weights.bin").read_bytes()[:-1])


def change(folder):
    data, times = (folder / "weights.bin").read_bytes(), (folder / "weights.bin").stat()
    (folder / "weights.bin").write_bytes(b"N" + data[1:])
    os.utime(folder / "weights.bin", ns=(times.st_atime_ns, times.st_mtime_ns))


def unfinish(folder):
    for name in (manifests.MANIFEST, manifests.COMPLETE):
        (folder / name).unlink()


def point_outside(folder):
    (folder.parent.parent / "secret.txt").write_text("secret")
    manifest = manifests.decoded(folder / manifests.MANIFEST)
    facts = manifests.facts(folder.parent.parent / "secret.txt")
    for name in (manifests.MANIFEST, manifests.COMPLETE):
        (folder / name).write_bytes(manifests.encoded({**manifest, "files": {"../../secret.txt": facts}}))


def be_another(folder):
    manifest = manifests.decoded(folder / manifests.MANIFEST)
    manifest_files.rewrite(folder, spec={**manifest["spec"], "stage": "report"})


def link(folder):
    (folder / "real").write_bytes((folder / "weights.bin").read_bytes())
    (folder / "weights.bin").unlink()
    (folder / "weights.bin").symlink_to("real")


FAULTS = {cut: "bytes, not", change: "its checksum is not its manifest's", unfinish: "unfinished there",
          point_outside: "it names a file outside of its folder", be_another: "it is the manifest of another artifact",
          link: "damaged there", lambda folder: (folder / "weights.bin").unlink(): "No such file",
          lambda folder: (folder / manifests.MANIFEST).write_text("{}"): "it has no digest of itself"}


@pytest.mark.parametrize("damage", FAULTS, ids=lambda damage: damage.__name__)
def test_an_artifact_that_is_not_whole_is_never_taken(there, here, damage):
    damage(there / "train" / TRAIN)
    found = pull.pull(str(there), here, STAGES)
    assert FAULTS[damage] in found.left[f"train/{TRAIN}"] and len(found.taken) == 2
    assert nothing_finished(here, f"train/{TRAIN}")
    assert not (here / "secret.txt").exists()


def test_a_file_that_changes_while_it_is_copied_is_not_taken(there, here, monkeypatch):
    real = shutil.copyfile

    def copyfile(source, target, **options):
        real(source, target, **options)
        if pathlib.Path(source).name == "weights.bin":
            with open(target, "r+b") as file:
                file.write(b"torn")

    monkeypatch.setattr(pull.shutil, "copyfile", copyfile)
    assert "checksum" in pull.pull(str(there), here, STAGES).left[f"train/{TRAIN}"]
    assert nothing_finished(here, f"train/{TRAIN}")


@pytest.mark.parametrize("name", ["weights.bin", "history.bin"])
def test_a_pull_that_is_killed_leaves_nothing_that_looks_finished_and_the_next_one_ends_it(there, here, monkeypatch, name):
    real = shutil.copyfile

    def killed(source, target, **options):
        real(source, target, **options)
        if pathlib.Path(source).name == name:
            raise KeyboardInterrupt

    monkeypatch.setattr(pull.shutil, "copyfile", killed)
    with pytest.raises(KeyboardInterrupt):
        pull.pull(str(there), here, STAGES)
    assert nothing_finished(here, f"train/{TRAIN}")
    monkeypatch.undo()
    assert f"train/{TRAIN}" in pull.pull(str(there), here, STAGES).taken
    assert content(here / "train" / TRAIN) == content(there / "train" / TRAIN)


def test_a_disk_without_room_is_one_line(there, here, monkeypatch):
    usage = shutil.disk_usage(there)
    monkeypatch.setattr(pull.shutil, "disk_usage", lambda path: usage._replace(free=10))
    with pytest.raises(UserError, match="but only 10 B are free; what is here stays"):
        pull.pull(str(there), here, STAGES)


def test_what_cannot_be_written_here_is_no_fault_of_the_other_folder(there, here, monkeypatch):
    def full(source, target, follow_symlinks):
        raise OSError(errno.ENOSPC, "No space left on device", str(source))   # as copyfile names the file that it reads

    monkeypatch.setattr(pull.shutil, "copyfile", full)
    with pytest.raises(UserError, match=rf"from: .*here/results/data/{DATA} cannot be written: No space left on device; what"):
        pull.pull(str(there), here, STAGES)
    monkeypatch.undo()
    (here / "train").write_text("in the way")
    with pytest.raises(UserError, match=rf"from: .*/{TRAIN} cannot be written: Not a directory"):
        pull.pull(str(there), here, STAGES)


# By ssh.

@pytest.fixture
def ssh(tmp_path, monkeypatch):
    """A program `ssh` that runs the command here, in the folder above elsewhere/; the file with its arguments."""
    program, log = tmp_path / "bin/ssh", tmp_path / "ssh.log"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$1 $2" >> {log}\ncd {tmp_path} && [ "$2" != down ] && exec sh -c "$3"\n'
                       'echo "ssh: connect to host down port 22: No route to host" >&2\nexit 255\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return log


@pytest.mark.parametrize("folder", ["elsewhere", "~/elsewhere/results", "{}/elsewhere"])
def test_artifacts_of_another_machine_come_by_ssh(there, here, ssh, tmp_path, folder):
    make(here, "data", DATA, images="other pixels")
    found = pull.pull(f"me@server:{folder.format(tmp_path)}", here, STAGES)
    assert found.taken == [f"train/{TRAIN}", f"report/{REPORT}"] and found.here == [f"data/{DATA}"]
    assert content(here / "train" / TRAIN) == content(there / "train" / TRAIN)
    assert ssh.read_text().splitlines() == ["-- me@server"] * 2
    assert not list(here.glob(".*"))


def test_a_remote_program_may_say_much_before_it_writes(there, here, ssh, tmp_path):
    program = tmp_path / "bin/ssh"
    program.write_text(program.read_text().replace("cd ", "head -c 300000 /dev/zero | tr '\\0' x >&2; cd ", 1))
    found = subprocess.run([sys.executable, str(ROOT / "workflow/scripts/pull.py"), "--results", str(here), "--from",
                            "server:elsewhere"], capture_output=True, text=True, timeout=60)
    assert found.stdout.startswith("3 artifacts taken from server:elsewhere"), found.stderr


def test_a_pull_that_is_killed_leaves_a_folder_that_the_next_command_knows(there, here, ssh, tmp_path):
    program = tmp_path / "bin/ssh"
    program.write_text(program.read_text().replace("cd ", "kill -KILL $PPID; cd ", 1))
    killed = subprocess.run([sys.executable, str(ROOT / "workflow/scripts/pull.py"), "--results", str(here), "--from",
                             "server:elsewhere"], capture_output=True)
    assert killed.returncode == -9
    left, = here.glob(".*")
    assert left.match("results/.*.tmp") and left.is_dir() and processes.is_left(left)   # as common.smk looks for them


@pytest.mark.parametrize("damage", [cut, change, point_outside, be_another], ids=lambda damage: damage.__name__)
def test_what_is_not_whole_there_is_not_taken_by_ssh_either(there, here, ssh, damage):
    damage(there / "train" / TRAIN)
    found = pull.pull("server:elsewhere", here, STAGES)
    assert f"train/{TRAIN}" in found.left and len(found.taken) == 2 and nothing_finished(here, f"train/{TRAIN}")


@pytest.mark.parametrize("source, words", [
    ("down:elsewhere", "down: ssh: connect to host down port 22: No route to host"),
    ("server:nowhere", "server: "), ("-oProxyCommand=x:y", "is not HOST:FOLDER"), ("server:", "is not HOST:FOLDER"),
    ("nowhere", "from: there is no folder nowhere"), ("a b/c:d", "there is no folder a b/c:d")])
def test_a_source_that_cannot_be_read_is_one_line(here, ssh, source, words):
    with pytest.raises(UserError) as error:
        pull.pull(source, here, STAGES)
    assert words in str(error.value) and str(error.value).isprintable()


def test_an_odd_folder_is_quoted(there, here, ssh, tmp_path):
    (tmp_path / "elsewhere").rename(tmp_path / "it's; touch owned")
    assert len(pull.pull("server:it's; touch owned", here, STAGES).taken) == 3
    assert not (tmp_path / "owned").exists()


def test_the_program_says_what_it_took(there, here):
    unfinish(there / "train" / TRAIN)
    command = [sys.executable, str(ROOT / "workflow/scripts/pull.py"), "--results", str(here), "--from"]
    run = subprocess.run([*command, str(there)], capture_output=True, text=True)
    assert run.stdout.splitlines() == [f"2 artifacts taken from {there}, 0 were here, 1 left there",
                                       f"left: train/{TRAIN}: unfinished there"]
    run = subprocess.run([*command, ""], capture_output=True, text=True)
    assert run.returncode == 2 and run.stderr.splitlines() == [
        "from is empty; name a results folder, or HOST:FOLDER: snakemake pull --config from=FOLDER"]
