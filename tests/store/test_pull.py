"""Artifacts of another results folder are taken whole or not at all."""

import errno
import io
import os
import shutil
import subprocess
import sys
import tarfile

import pytest

import manifest_files
from ladder.errors import UserError
from ladder.files import shown
from ladder.machine import processes
from ladder.sources import ROOT
from ladder.store import artifacts, manifests, remote, versions
from ladder.store import pull as pulling

SPECS = {"data": manifest_files.spec("data", {"x": 1})}
SPECS["train"] = manifest_files.spec("train", {"x": 1}, {"data": versions.version(SPECS["data"])})
SPECS["report"] = manifest_files.spec(
    "report", {"x": 1}, {"train": versions.version(SPECS["train"])}
)
STAGES = tuple(SPECS)
DATA, TRAIN, REPORT = map(versions.version, SPECS.values())


def make(results, stage, **files):
    folder = results / stage / versions.version(SPECS[stage])
    with artifacts.making(folder, SPECS[stage]) as work:
        for name, text in files.items():
            work.write_bytes(f"{name}.bin", text.encode())
    return folder


def pull(source, here):
    return pulling.pull(str(source), here, STAGES, print)


@pytest.fixture
def there(tmp_path):
    """A results folder elsewhere with a finished artifact of each stage."""
    results = tmp_path / "elsewhere/results"
    make(results, "data", images="pixels " * 100)
    make(results, "train", weights="numbers " * 100, history="losses")
    make(results, "report", page="a page")
    return results


@pytest.fixture
def here(tmp_path):
    return tmp_path / "here/results"


def content(folder):
    return {
        path.name: path.read_bytes() for path in folder.iterdir() if path.name != artifacts.LOCK
    }


def nothing_finished(here, name):
    return manifests.read(here / name) is None


def test_whole_artifacts_are_taken_with_their_manifests_as_they_are(there, here):
    found = pull(there, here)
    assert (
        found.taken == [f"data/{DATA}", f"train/{TRAIN}", f"report/{REPORT}"]
        and not found.here
        and not found.left
    )
    for name in found.taken:
        assert content(here / name) == content(there / name)
        manifests.verify(here / name)
        artifact = artifacts.Artifact(here / name)
        assert all(artifact.path(file).exists() for file in artifact.manifest["files"])


def test_a_project_folder_is_its_results_folder(there, here):
    assert len(pull(there.parent, here).taken) == 3


def test_what_is_here_stays(there, here):
    own = make(here, "train", weights="other numbers of another machine")
    before = content(own)
    found = pull(there, here)
    assert found.here == [f"train/{TRAIN}"] and len(found.taken) == 2 and content(own) == before
    assert pull(there, here).taken == []


def test_an_artifact_that_was_interrupted_here_is_completed(there, here):
    folder = here / "train" / TRAIN
    folder.mkdir(parents=True)
    (folder / "checkpoint.safetensors").write_text("half a training")
    assert f"train/{TRAIN}" in pull(there, here).taken
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
        (folder / name).write_bytes(
            manifests.encoded({**manifest, "files": {"../../secret.txt": facts}})
        )


def be_another(folder):
    manifest = manifests.decoded(folder / manifests.MANIFEST)
    manifest_files.rewrite(folder, spec={**manifest["spec"], "stage": "report"})


def link(folder):
    (folder / "real").write_bytes((folder / "weights.bin").read_bytes())
    (folder / "weights.bin").unlink()
    (folder / "weights.bin").symlink_to("real")


FAULTS = {
    cut: "bytes, not",
    change: "its checksum is not its manifest's",
    unfinish: "unfinished there",
    point_outside: "it names a file outside of its folder",
    be_another: "it is the manifest of another artifact",
    link: "damaged there, weights.bin: it is a link",
    lambda folder: (folder / "weights.bin").unlink(): "No such file",
    lambda folder: (folder / manifests.MANIFEST).write_text("{}"): "it has no digest of itself",
}


@pytest.mark.parametrize("damage", FAULTS, ids=lambda damage: damage.__name__)
def test_an_artifact_that_is_not_whole_is_never_taken(there, here, damage):
    damage(there / "train" / TRAIN)
    found = pull(there, here)
    assert FAULTS[damage] in found.left[f"train/{TRAIN}"] and len(found.taken) == 2
    assert nothing_finished(here, f"train/{TRAIN}")
    assert not (here / "secret.txt").exists()


def test_a_file_that_changes_while_it_is_copied_is_not_taken(there, here, monkeypatch):
    real = pulling._copy

    def copy(source, target, *others):
        real(source, target, *others)
        if source.name == "weights.bin":
            with open(target, "r+b") as file:
                file.write(b"torn")

    monkeypatch.setattr(pulling, "_copy", copy)
    assert "checksum" in pull(there, here).left[f"train/{TRAIN}"]
    assert nothing_finished(here, f"train/{TRAIN}")


@pytest.mark.parametrize("name", ["weights.bin", "history.bin"])
def test_a_killed_pull_leaves_nothing_that_looks_finished_and_the_next_one_ends_it(
    there, here, monkeypatch, name
):
    real = pulling._copy

    def killed(source, *others):
        real(source, *others)
        if source.name == name:
            raise KeyboardInterrupt

    monkeypatch.setattr(pulling, "_copy", killed)
    with pytest.raises(KeyboardInterrupt):
        pull(there, here)
    assert nothing_finished(here, f"train/{TRAIN}")
    monkeypatch.undo()
    assert f"train/{TRAIN}" in pull(there, here).taken
    assert content(here / "train" / TRAIN) == content(there / "train" / TRAIN)


def test_a_disk_without_room_is_one_line(there, here, monkeypatch):
    usage = shutil.disk_usage(there)
    monkeypatch.setattr(pulling.shutil, "disk_usage", lambda path: usage._replace(free=10))
    with pytest.raises(
        UserError, match="to take, but only 10 B are free for .*; what is here stays"
    ):
        pull(there, here)


def test_what_cannot_be_written_here_is_no_fault_of_the_other_folder(there, here, monkeypatch):
    def full(source, target, *others):
        raise OSError(errno.ENOSPC, "No space left on device")  # as write() raises it

    monkeypatch.setattr(pulling, "_copy", full)
    with pytest.raises(
        UserError,
        match=rf"from: .*here/results/data/{DATA} cannot be written: No space left on device; what",
    ):
        pull(there, here)
    monkeypatch.undo()
    (here / "train").write_text("in the way")
    with pytest.raises(UserError, match=rf"from: .*/{TRAIN} cannot be written: Not a directory"):
        pull(there, here)


# By ssh.


@pytest.fixture
def ssh(tmp_path, monkeypatch):
    """A program `ssh` that runs the command here, in the folder above elsewhere/; the file with its
    arguments.
    """
    program, log = tmp_path / "bin/ssh", tmp_path / "ssh.log"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$1 $2" >> {log}\ncd {tmp_path} && [ "$2" != down ] && exec sh -c "$3"\n'
        'echo "ssh: connect to host down port 22: No route to host" >&2\nexit 255\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return log


@pytest.mark.parametrize("folder", ["elsewhere", "~/elsewhere/results", "{}/elsewhere"])
def test_artifacts_of_another_machine_come_by_ssh(there, here, ssh, tmp_path, folder):
    make(here, "data", images="other pixels")
    found = pull(f"me@server:{folder.format(tmp_path)}", here)
    assert found.taken == [f"train/{TRAIN}", f"report/{REPORT}"] and found.here == [f"data/{DATA}"]
    assert content(here / "train" / TRAIN) == content(there / "train" / TRAIN)
    assert ssh.read_text().splitlines() == ["-- me@server"] * 2
    assert not list(here.glob(".*"))


def test_a_remote_program_may_say_much_before_it_writes(there, here, ssh, tmp_path):
    program = tmp_path / "bin/ssh"
    program.write_text(
        program.read_text().replace("cd ", "head -c 300000 /dev/zero | tr '\\0' x >&2; cd ", 1)
    )
    found = subprocess.run(
        [
            sys.executable,
            str(ROOT / "workflow/scripts/pull.py"),
            "--results",
            str(here),
            "--from",
            "server:elsewhere",
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert found.stdout.startswith("3 artifacts taken from server:elsewhere"), found.stderr


def test_a_pull_that_is_killed_leaves_a_folder_that_the_next_command_knows(
    there, here, ssh, tmp_path
):
    program = tmp_path / "bin/ssh"
    program.write_text(program.read_text().replace("cd ", "kill -KILL $PPID; cd ", 1))
    killed = subprocess.run(
        [
            sys.executable,
            str(ROOT / "workflow/scripts/pull.py"),
            "--results",
            str(here),
            "--from",
            "server:elsewhere",
        ],
        capture_output=True,
    )
    assert killed.returncode == -9
    (left,) = here.glob(".*")
    # as common.smk looks for them
    assert left.match("results/.*.tmp") and left.is_dir() and processes.is_left(left)


@pytest.mark.parametrize(
    "damage", [cut, change, point_outside, be_another], ids=lambda damage: damage.__name__
)
def test_what_is_not_whole_there_is_not_taken_by_ssh_either(there, here, ssh, damage):
    damage(there / "train" / TRAIN)
    found = pull("server:elsewhere", here)
    assert (
        f"train/{TRAIN}" in found.left
        and len(found.taken) == 2
        and nothing_finished(here, f"train/{TRAIN}")
    )


@pytest.mark.parametrize(
    "source, words",
    [
        ("down:elsewhere", "down: ssh: connect to host down port 22: No route to host"),
        ("server:nowhere", "server: "),
        ("-oProxyCommand=x:y", "is not HOST:FOLDER"),
        ("server:", "is not HOST:FOLDER"),
        ("nowhere", "from: there is no folder nowhere"),
        ("a b/c:d", "there is no folder a b/c:d"),
    ],
)
def test_a_source_that_cannot_be_read_is_one_line(here, ssh, source, words):
    with pytest.raises(UserError) as error:
        pull(source, here)
    assert words in str(error.value) and str(error.value).isprintable()


# Another machine that means harm, or is broken.


@pytest.fixture
def hostile(there, here, tmp_path, monkeypatch):
    """Put a program `ssh` in place that sends a tar of the manifests with other members, then one
    of the files with others.
    """

    def answers(more=(), listed=(), sends="files.tar", behind=""):
        def archive(name, others, wanted):
            with tarfile.open(tmp_path / f"{name}.tar", "w", format=tarfile.PAX_FORMAT) as tar:
                for member, data in others:
                    tar.addfile(member, io.BytesIO(data))
                for path in sorted(filter(wanted, there.glob("*/*/*"))):
                    tar.add(path, f"./{path.relative_to(there)}")

        archive("manifests", listed, lambda path: path.name == manifests.MANIFEST)
        archive("files", more, lambda path: path.suffix == ".bin")
        program = tmp_path / "bin/ssh"
        program.parent.mkdir()
        program.write_text(
            f'#!/bin/sh\ncase "$3" in *find*) exec cat {tmp_path}/manifests.tar;; esac\n'
            f"cat {tmp_path}/{sends}{behind}\n"
        )
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
        return pull("server:elsewhere", here)

    return answers


def member(name, data=b"", **facts):
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for key, value in facts.items():
        setattr(info, key, value)
    return info, data


def chain_of_links(outside):
    """Links through folders so deep that a resolved path is too long to be looked at, and out of
    the folder behind them.
    """
    part, path, members = "d" * 247, "", []
    for letter in "abcdefghijklmnop":
        members.append(member(f"{path}{part}", type=tarfile.DIRTYPE))
        members.append(member(f"{path}{letter}", type=tarfile.SYMTYPE, linkname=part))
        path += f"{part}/"
    links = "/".join("abcdefghijklmnop") + "/" + "l" * 254
    members.append(member(links, type=tarfile.SYMTYPE, linkname="../" * 16))
    members.append(
        member("escape", type=tarfile.SYMTYPE, linkname=f"{links}/../../../{outside.name}")
    )
    members.append(member("escape/owned", b"owned"))
    members.append(member("hard", type=tarfile.LNKTYPE, linkname=f"escape/{outside.name}"))
    return members


def nested_folders(outside):
    """1,500 folders, each in the one before; their names are too long for a header after the first
    thousand.
    """
    return [member("/".join("f" * depth), type=tarfile.DIRTYPE) for depth in range(1, 1501)][-500:]


OWN = f"train/{TRAIN}"
HOSTILE = {
    "links": chain_of_links,
    "absolute": lambda outside: [
        member(f"{outside}/owned", b"owned"),
        member(f"/{OWN}/weights.bin", b"owned"),
    ],
    "above": lambda outside: [
        member("../../../owned", b"owned"),
        member(f"./{OWN}/../../../owned", b"owned"),
        member(f"{OWN}/..", b"owned"),
    ],
    "devices": lambda outside: [
        member(f"./{OWN}/weights.bin", type=tarfile.CHRTYPE, devmajor=1, devminor=5),
        member("block", type=tarfile.BLKTYPE, devmajor=8),
    ],
    "fifo": lambda outside: [
        member(f"./{OWN}/{name}", type=tarfile.FIFOTYPE) for name in ("weights.bin", "pipe")
    ],
    "a link to a secret": lambda outside: [
        member(f"./{OWN}/weights.bin", type=tarfile.SYMTYPE, linkname=f"{outside}/secret")
    ],
    "nested folders": nested_folders,
    "other names": lambda outside: [
        member(name, b"owned")
        for name in (
            f"./{OWN}/.complete.json",
            f"./{OWN}/more.bin",
            f"./{OWN}/weights.bin/x",
            ".bashrc",
            "",
        )
    ],
    "another size": lambda outside: [member(f"./{OWN}/weights.bin", b"n")],
    "sparse": lambda outside: [
        member(
            f"./{OWN}/weights.bin",
            bytes(512),
            pax_headers={
                "GNU.sparse.major": "0",
                "GNU.sparse.minor": "1",
                "GNU.sparse.map": "0,512",
                "GNU.sparse.size": "800",
            },
        )
    ],
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_only_the_files_of_artifacts_are_taken_whatever_else_comes(
    hostile, there, here, tmp_path, kind
):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    members = HOSTILE[kind](outside)
    before = {
        path for path in tmp_path.rglob("*") if here not in path.parents and "bin" not in path.parts
    }
    found = hostile(more=members, listed=members)
    assert (
        found.taken == [f"data/{DATA}", OWN, f"report/{REPORT}"]
        and not found.left
        and not found.fault
    )
    assert found.refused.keys() == {shown(one.name.removeprefix("./")) for one, _ in members}
    assert "\n" not in "".join(found.refused.values())
    for name in found.taken:
        assert content(here / name) == content(there / name)
    after = {
        path for path in tmp_path.rglob("*") if here not in path.parents and "bin" not in path.parts
    }
    assert after - before == {here, here.parent, tmp_path / "files.tar", tmp_path / "manifests.tar"}
    assert (outside / "secret").read_text() == "secret" and list(outside.iterdir()) == [
        outside / "secret"
    ]
    assert {path.name for path in here.iterdir()} == {"data", "train", "report"}
    assert all(path.is_file() and not path.is_symlink() for path in here.glob("*/*/*"))


def test_a_member_that_comes_twice_is_refused_the_second_time(hostile, there):
    found = hostile(
        more=[member(f"./{OWN}/weights.bin", (there / OWN / "weights.bin").read_bytes())]
    )
    assert OWN in found.taken and found.refused == {
        f"{OWN}/weights.bin": "nobody asked for it, or it came before"
    }


def test_what_comes_in_place_of_a_file_is_not_taken_and_the_rest_is(hostile, there, here):
    found = hostile(
        more=[member(f"./{OWN}/weights.bin", b"n" * (there / OWN / "weights.bin").stat().st_size)]
    )
    assert (
        found.left == {OWN: "damaged there, weights.bin: its checksum is not its manifest's"}
        and len(found.taken) == 2
    )
    assert nothing_finished(here, OWN)


def header(name, **facts):
    return member(name, **facts)[0].tobuf(tarfile.GNU_FORMAT)


@pytest.mark.parametrize(
    "sent, fault",
    [
        (
            header(f"./{OWN}/bomb", size=10**12),
            "bomb' has 1000000000000 bytes, more than were asked for",
        ),
        (header("x", size=-512), "server: "),
        (header("x", size=10**7), "server: "),
        (header("x", type=tarfile.XHDTYPE, size=10**9), "server: "),
        (
            (header("x", type=tarfile.XHDTYPE, size=9) + b"9 a=bcde\n".ljust(512, b"\0")) * 3000,
            "server: ",
        ),
        (
            b"".join(header(str(number)) for number in range(1001)),
            "more than 1,000 files were sent that nobody asked for",
        ),
        (b"<html>" * 10_000, "server: "),
    ],
    ids=["bomb", "negative", "cut", "long header", "headers of headers", "many", "no tar"],
)
def test_an_absurd_stream_ends_in_one_line_and_nothing_of_it_is_taken(
    hostile, here, tmp_path, sent, fault
):
    (tmp_path / "sent").write_bytes(sent)
    found = hostile(sends="sent")
    assert fault in found.fault and "\n" not in found.fault and not found.taken
    assert not list(here.glob(".*"))


def test_a_stream_without_end_is_cut_off(hostile):
    found = hostile(behind=" /dev/zero")
    assert found.fault == "from: server: more came than was asked for" and len(found.taken) == 3


def test_what_a_broken_connection_brought_is_taken_and_the_next_pull_takes_the_rest(
    hostile, there, here, tmp_path
):
    program = tmp_path / "bin/ssh"
    hostile()
    shutil.rmtree(here)
    whole = program.read_text()
    # of the second of three artifacts
    start = (tmp_path / "files.tar").read_bytes().index(b"a page")
    program.write_text(
        whole.replace(
            f"cat {tmp_path}/files.tar",
            f"head -c {start} {tmp_path}/files.tar; "
            "echo 'Connection to server closed by remote host.' >&2; kill -KILL $$",
        )
    )
    found = pull("server:elsewhere", here)
    assert found.fault == "from: server: Connection to server closed by remote host."
    assert len(found.taken) == 1 and set(found.left.values()) == {"it did not come whole"}
    program.write_text(whole)
    assert len(pull("server:elsewhere", here).taken) == 2


def test_a_machine_that_says_nothing_is_given_up(hostile, here, tmp_path, monkeypatch):
    hostile()
    shutil.rmtree(here)
    monkeypatch.setattr(remote, "SILENCE", 0.3)
    (tmp_path / "bin/ssh").write_text("#!/bin/sh\nexec sleep 1000\n")
    with pytest.raises(UserError, match="from: server: nothing came for 0.3 s"):
        pull("server:elsewhere", here)


def test_a_machine_that_never_ends_its_connection_is_given_up_with_all_that_came(
    hostile, here, tmp_path, monkeypatch
):
    monkeypatch.setattr(remote, "SILENCE", 0.3)
    found = hostile(behind="; exec sleep 1000")
    assert len(found.taken) == 3 and found.fault == "from: server: nothing came for 0.3 s"


def test_without_ssh_there_is_one_line(here, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        UserError, match="from: ssh cannot be started here: No such file or directory"
    ):
        pull("server:elsewhere", here)


# Folders of this machine that mean harm.


def manifest_with(folder, **changes):
    manifest = manifests.decoded(folder / manifests.MANIFEST)
    (folder / manifests.MANIFEST).write_bytes(manifests.encoded({**manifest, **changes}))


def without_its_version(folder):
    spec = manifests.decoded(folder / manifests.MANIFEST)["spec"]
    manifest_with(folder, spec={**spec, "params": {"x": 2}})


def not_a_number(folder):
    spec = manifests.decoded(folder / manifests.MANIFEST)["spec"]
    manifest_with(folder, spec={**spec, "params": {"x": float("nan")}})


def fifo_for_a_manifest(folder):
    (folder / manifests.MANIFEST).unlink()
    os.mkfifo(folder / manifests.MANIFEST)


def fifo_for_a_file(folder):
    (folder / "weights.bin").unlink()
    os.mkfifo(folder / "weights.bin")


def facts_of(**changes):
    def damage(folder):
        facts = manifests.decoded(folder / manifests.MANIFEST)["files"]["weights.bin"]
        manifest_with(folder, files={"weights.bin": {**facts, **changes}})

    return damage


def named(name):
    def damage(folder):
        manifest_with(
            folder,
            files={name: manifests.decoded(folder / manifests.MANIFEST)["files"]["weights.bin"]},
        )

    return damage


def nested(folder):
    deep = os.open(folder, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("f", dir_fd=deep)
        inner = os.open("f", os.O_RDONLY, dir_fd=deep)
        os.close(deep)
        deep = inner
    os.close(deep)


@pytest.mark.parametrize(
    "damage, fault",
    [
        (without_its_version, "its specification is not that of its version"),
        (not_a_number, "its specification is not that of its version"),
        (fifo_for_a_manifest, "manifest.json: it is not a file"),
        (fifo_for_a_file, "weights.bin: it is not a file"),
        *(
            (facts_of(**changes), "its size, time or checksum cannot be")
            for changes in ({"mtime_ns": 10**30}, {"bytes": -1}, {"bytes": 10**30}, {"sha256": "0"})
        ),
        *(
            (named(name), "it names a file outside of its folder")
            for name in ("a\0b", "\ud800", "", ".lock", "n" * 300)
        ),
    ],
)
def test_a_manifest_that_cannot_be_is_left_in_one_line(there, here, damage, fault):
    damage(there / "train" / TRAIN)
    found = pull(there, here)
    assert fault in found.left[OWN] and "\n" not in found.left[OWN] and len(found.taken) == 2
    assert nothing_finished(here, OWN)


def test_folders_in_folders_beside_the_files_of_an_artifact_are_not_looked_at(there, here):
    nested(there / "train" / TRAIN)
    assert len(pull(there, here).taken) == 3 and all(path.is_file() for path in here.glob("*/*/*"))
    # shutil.rmtree goes no deeper than 1,000
    subprocess.run(["rm", "-rf", there / "train" / TRAIN], check=True)


@pytest.mark.parametrize("source", ["~nobody/results", "~no such user", "nul\0byte"])
def test_the_home_of_nobody_is_no_folder(here, source):
    with pytest.raises(UserError, match="there is no folder"):
        pull(source, here)


def test_an_odd_folder_is_quoted(there, here, ssh, tmp_path):
    (tmp_path / "elsewhere").rename(tmp_path / "it's; touch owned")
    assert len(pull("server:it's; touch owned", here).taken) == 3
    assert not (tmp_path / "owned").exists()


def test_the_program_says_what_it_took(there, here):
    unfinish(there / "train" / TRAIN)
    command = [
        sys.executable,
        str(ROOT / "workflow/scripts/pull.py"),
        "--results",
        str(here),
        "--from",
    ]
    run = subprocess.run([*command, str(there)], capture_output=True, text=True)
    assert run.stdout.splitlines() == [
        f"2 artifacts taken from {there}, 0 were here, 1 left there",
        f"left: train/{TRAIN}: unfinished there",
    ]
    run = subprocess.run([*command, ""], capture_output=True, text=True)
    assert run.returncode == 2 and run.stderr.splitlines() == [
        "from is empty; name a results folder, or HOST:FOLDER: snakemake pull --config from=FOLDER"
    ]
