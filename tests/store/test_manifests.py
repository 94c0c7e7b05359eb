"""A changed manifest is never used, a changed file is found without reading the others, and no
damage ends in a traceback.
"""

import os
import random

import pytest

import manifest_files
import processes
from ladder.store import artifacts, manifests


@pytest.fixture
def folder(tmp_path):
    with artifacts.making(
        tmp_path / "t0123456789a", manifest_files.spec("train", {"n": 1})
    ) as work:
        work.write_json("facts.json", [1, 2, 3])
        work.write_bytes("weights.bin", b"12345678")
        work.metrics = {"accuracy": 0.5, "by_class": {"ä": 1e-5}}
    return tmp_path / "t0123456789a"


def fault_of(folder, **options):
    """The words for the damage that `verify` finds, '' for none."""
    try:
        manifests.verify(folder, **options)
    except manifests.Damaged as damage:
        assert "\n" not in str(damage) and len(str(damage)) < 300
        return damage.brief
    return ""


def test_any_flipped_bit_and_any_cut_makes_it_damaged(folder):
    path, chance = folder / "manifest.json", random.Random(1)
    whole = path.read_bytes()
    changed = [
        whole[:at] + bytes([whole[at] ^ 1 << chance.randrange(8)]) + whole[at + 1 :]
        for at in range(len(whole))
    ]
    changed += [whole[:at] for at in range(len(whole))] + [
        whole + b"\n",
        whole.replace(b"\n", b"\r\n"),
        b"\0" * len(whole),
    ]
    for data in changed:
        path.write_bytes(data)
        with pytest.raises(manifests.Damaged):
            manifests.read(folder)
        assert manifests.read_if_whole(folder) is None
    path.write_bytes(whole)
    assert manifests.read(folder)["metrics"] == {"accuracy": 0.5, "by_class": {"ä": 1e-5}}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        "null",
        "[" * 10**5,
        '{"a":' * 10**5,
        "1" * 10**5,
        "\ufffd",
        '{"digest": null}',
        '{\n "digest": "' + "0" * 64 + '",\n}',
    ],
)
def test_any_other_file_is_no_manifest(folder, text):
    (folder / "manifest.json").write_text(text)
    assert fault_of(folder).startswith("manifest.json: it")


def test_a_fifo_or_a_device_is_no_manifest_and_is_not_waited_for(folder):
    for name in ("manifest.json", ".complete.json"):
        (folder / name).unlink()
    os.mkfifo(folder / "manifest.json")
    assert fault_of(folder) == "manifest.json: it is not a file"
    (folder / "manifest.json").unlink()
    (folder / "manifest.json").symlink_to("/dev/zero")
    assert fault_of(folder) == "manifest.json: it is not a file"


@pytest.mark.parametrize(
    "change, fault",
    [
        ({"machine": None}, "machine: a value has the wrong type"),
        ({"spec": []}, "spec: a value has the wrong type"),
        ({"files": [1]}, "files: a value has the wrong type"),
        ({"threads": True}, "threads: a value has the wrong type"),
        ({"files": {"a": {"bytes": 1, "sha256": "0"}}}, "a: it has no mtime_ns"),
        ({"metrics": "much"}, "metrics: a value has"),
        ({"seconds": "1"}, "seconds: a value"),
        ({"spec": {"stage": "train"}}, "spec: it has no params"),
        ({"version": "t11111111111"}, "it is the manifest of t11111111111"),
        ({"notes": [[[]]]}, "notes"),
    ],
)
def test_a_manifest_of_another_shape_is_damaged_although_its_digest_is_right(folder, change, fault):
    (folder / "manifest.json").write_bytes(manifests.encoded({**manifests.read(folder), **change}))
    assert fault_of(folder).startswith(f"manifest.json: {fault}")


def test_text_that_is_no_json_or_nested_too_deep_is_damaged_despite_its_digest(folder, monkeypatch):
    for text in ("[" * 10**5, '"a": 1' + "0" * 10**5, "\ufffd"):
        monkeypatch.setattr(manifests, "_text", lambda value, text=text: b"{\n" + text.encode())
        (folder / "manifest.json").write_bytes(manifests.encoded({}))
        assert fault_of(folder) == "manifest.json: it is not JSON"


def test_a_manifest_that_is_a_folder_or_of_another_artifact_is_damaged(folder, tmp_path):
    copy = tmp_path / "t11111111111"
    os.rename(folder, copy)
    assert fault_of(copy) == "manifest.json: it is the manifest of t0123456789a"
    (copy / "manifest.json").unlink()
    (copy / "manifest.json").mkdir()
    assert fault_of(copy) == "manifest.json: Is a directory"


def test_the_digest_is_that_of_the_file_without_its_line(folder):
    command = "grep -v '^ \"digest\"' manifest.json | sha256sum"
    found = processes.run("sh", "-c", command, cwd=folder).stdout.split()[0]
    assert found == manifests.read(folder)["digest"]


def test_only_a_file_of_another_time_is_read_and_a_whole_one_gets_its_time_back(
    folder, monkeypatch
):
    read = []
    sha256 = manifests.disk.sha256
    monkeypatch.setattr(
        manifests.disk, "sha256", lambda path: read.append(path.name) or sha256(path)
    )
    recorded = (folder / "weights.bin").stat().st_mtime_ns
    assert fault_of(folder) == "" and read == []
    os.utime(folder / "weights.bin", ns=(1, 1))
    assert fault_of(folder) == "" and read == ["weights.bin"]
    assert (folder / "weights.bin").stat().st_mtime_ns == recorded
    assert fault_of(folder) == "" and read == ["weights.bin"]


def test_damage_of_the_same_size_and_time_is_seen_by_its_reader_and_then_by_all(
    folder,
):
    path = folder / "weights.bin"
    before = path.stat()
    path.write_bytes(b"1234567!")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert fault_of(folder) == ""
    with pytest.raises(
        manifests.Damaged,
        match="weights.bin is damaged .its checksum is not its manifest's.; the command",
    ):
        artifacts.Artifact(folder).path("weights.bin")
    assert fault_of(folder) == "weights.bin: its checksum is not its manifest's"


def test_thoroughly_reads_every_file(folder):
    before = (folder / "facts.json").stat()
    (folder / "facts.json").write_text((folder / "facts.json").read_text().replace("1", "7"))
    os.utime(folder / "facts.json", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert fault_of(folder) == ""
    assert fault_of(folder, thoroughly=True) == "facts.json: its checksum is not its manifest's"


@pytest.mark.parametrize(
    "damage", [lambda path: path.unlink(), lambda path: path.write_bytes(b"{"), lambda path: None]
)
@pytest.mark.parametrize("name", ["manifest.json", ".complete.json"])
def test_one_whole_copy_of_the_manifest_is_enough_to_keep_the_artifact(folder, name, damage):
    whole = (folder / name).read_bytes()
    damage(folder / name)
    with artifacts.making(folder, manifest_files.spec("train", {"n": 1})) as work:
        assert work.complete
    assert (
        (folder / "manifest.json").read_bytes() == (folder / ".complete.json").read_bytes() == whole
    )


def test_folders_in_the_place_of_files_are_no_obstacle(folder):
    for name in ("manifest.json", ".complete.json", "weights.bin", ".lock"):
        (folder / name).unlink()
        (folder / name / "inside").mkdir(parents=True)
    with artifacts.making(folder, manifest_files.spec("train", {"n": 1})) as work:
        assert not work.complete
        work.write_bytes("weights.bin", b"12345678")
    assert artifacts.Artifact(folder).path("weights.bin").read_bytes() == b"12345678"
    assert fault_of(folder, thoroughly=True) == ""
