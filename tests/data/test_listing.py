import io
import os
import pathlib
import re
import shutil
import sys
import types
import zipfile

import numpy as np
import pytest

import picture_folders
import processes
from ladder import sources
from ladder.data import facts, listing
from ladder.errors import UserError
from ladder.files import shown
from permissions import unprivileged


@pytest.fixture(autouse=True)
def fresh(tmp_path, monkeypatch):
    picture_folders.forget(monkeypatch, tmp_path)


def again(path):
    listing.source.cache_clear()
    return listing.source(str(path))


def fault(path):
    """The one line that listing this path ends with."""
    with pytest.raises(UserError) as error:
        again(path)
    message = str(error.value)
    assert message.isprintable() and message.startswith("config: ") and len(message) < 400
    return message


def test_classes_are_the_folders_by_name_and_their_pictures_are_found_in_them(tmp_path):
    folder = picture_folders.write(
        tmp_path / "pets", {"dog": 3, "cat": 2, "Zebra": 1, "cat/kittens": 1}
    )
    found = again(folder)
    assert (
        found.classes == ("Zebra", "cat", "dog")
        and found.counts("train") == [1, 3, 3]
        and not found.has_test
    )
    assert (1, "cat/kittens/0000.png") in found.files["train"]


def test_names_begin_below_the_folder_however_it_is_called(tmp_path, monkeypatch):
    folder = picture_folders.write(tmp_path / "pets", {"cat": 1, "dog": 1})
    (folder / "cat/inner").mkdir()
    (folder / "cat/0000.png").rename(folder / "cat/inner/0000.png")
    names = [name for _, name in again(folder).files["train"]]
    monkeypatch.chdir(folder)
    assert [
        name for path in (".", "../pets/", "../pets/.") for _, name in again(path).files["train"]
    ] == 3 * names
    assert all((folder / name).is_file() for name in names)


def test_train_and_test_are_parts_if_they_hold_the_folders_of_classes(tmp_path):
    folder = picture_folders.write(tmp_path, {"train/a": 4, "train/b": 3, "test/a": 1, "test/b": 2})
    found = again(folder)
    assert (found.classes, found.counts("train"), found.counts("test")) == (
        ("a", "b"),
        [4, 3],
        [1, 2],
    )
    assert found.remarks == []


@pytest.mark.parametrize(
    "train, test",
    [
        ("training", "testing"),
        ("Training", "Test"),
        ("TRAIN", "TEST"),
        ("train", "val"),
        ("training_set", "test_set"),
        ("train", "valid"),
        ("train-images", "validation"),
    ],
)
def test_parts_may_have_other_names_and_a_remark_says_so(tmp_path, train, test):
    found = again(
        picture_folders.write(
            tmp_path, {f"{train}/a": 4, f"{train}/b": 3, f"{test}/a": 1, f"{test}/b": 2}
        )
    )
    assert (found.classes, found.counts("train"), found.counts("test")) == (
        ("a", "b"),
        [4, 3],
        [1, 2],
    )
    assert (
        found.remarks == [f"The folder {train}/ is taken to train on, {test}/ to test on"]
        and found.skipped == []
    )


def test_classes_may_be_called_like_parts(tmp_path):
    assert again(picture_folders.write(tmp_path / "p", {"train": 2, "car": 2})).classes == (
        "car",
        "train",
    )
    assert again(picture_folders.write(tmp_path / "q", {"valid": 2, "invalid": 2})).classes == (
        "invalid",
        "valid",
    )


@pytest.mark.parametrize(
    "folders, said",
    [(("x", "y"), True), (("train", "test"), True), (("images",), False), (("", "x", "y"), False)],
)
def test_classes_that_all_hold_the_same_folders_are_remarked_upon(tmp_path, folders, said):
    found = again(
        picture_folders.write(
            tmp_path,
            {
                f"{name}/{inner}": 2
                for name in ("fold1", "fold2", "fold3", "fold4")
                for inner in folders
            },
        )
    )
    assert found.classes == ("fold1", "fold2", "fold3", "fold4") and bool(found.remarks) == said
    assert not said or found.remarks[0].startswith(
        "The classes are the folders fold1/, fold2/, fold3/ and 1 more. Each holds the same folders, "
        f"{min(folders)}/, {max(folders)}/, which are not told apart"
    )


def test_numbers_as_classes_are_in_their_order(tmp_path):
    numbers = tuple(map(str, range(12)))
    assert (
        again(picture_folders.write(tmp_path / "p", dict.fromkeys(numbers, 1))).classes == numbers
    )
    mixed = again(picture_folders.write(tmp_path / "q", dict.fromkeys(("10", "9", "a"), 1)))
    assert mixed.classes == ("10", "9", "a")


def test_what_is_no_picture_is_named_and_skipped(tmp_path, monkeypatch):
    folder = picture_folders.write(tmp_path / "pets", {"cat": 2, "dog": 2, ".hidden": 2})
    for name in ("readme.txt", "cat/notes.md", "cat/empty.png", "cat/.x.png"):
        (folder / name).write_bytes(b"" if "empty" in name else b"x")
    os.mkfifo(folder / "dog/pipe.png")
    (folder / "dog/lost.png").symlink_to("nowhere")
    (folder / "dog/more").symlink_to("/no/such/disk")
    (folder / "cat/large.png").write_bytes(b"x" * 5000)
    monkeypatch.setattr(listing.plain, "MOST_BYTES", 4999)
    found = again(folder)
    assert found.classes == ("cat", "dog") and found.counts("train") == [2, 2]
    assert dict(found.skipped) == {
        "readme.txt": "not in the folder of a class",
        "cat/notes.md": "no picture by its name",
        "cat/empty.png": "the file is empty",
        "dog/more": "a link that leads nowhere",
        "dog/pipe.png": "not a plain file",
        "dog/lost.png": "cannot be read: No such file or directory",
        "cat/large.png": "0.0 MB large; 0.0 MB at most",
    }


def test_the_line_about_skipped_files_has_their_number_kinds_and_examples():
    heic = [(f"cat/{number}.HEIC", "no picture by its name") for number in range(1200)]
    empty = [("dog/e.png", "the file is empty"), ("dog/f.png", "not a plain file")]
    assert listing.skipping([*empty, *heic], 5000) == (
        "skipped 1,202 of 5,000 files: 1,200 .heic, as cat/0.HEIC (no picture by its name); 2 .png, as dog/e.png (the file is "
        "empty)"
    )
    many = [
        (f"a.{suffix}", "no") for suffix in ("mp4", "txt", "xml", "csv", "json", "", "x" * 40)
    ] + [("a.b/README", "no")]
    line = listing.skipping(many, 9)
    assert line.startswith(
        "skipped 8 of 9 files: 3 without a suffix, as a. (no); 1 .mp4, as"
    ) and line.endswith("; 2 others")
    left_out = [("5", listing.LEFT_OUT), ("8", listing.LEFT_OUT)]
    assert listing.skipping(left_out, 40, "rows") == (
        "skipped 2 of 40 rows: 2 rows, as 5 (in the list leave_out)"
    )


# Links to folders.


@pytest.fixture
def linked(tmp_path):
    """A folder with nothing in it, and the function that links a folder of pictures of another disk
    to a name in it.
    """
    (tmp_path / "pets").mkdir()

    def link(name, *counts):
        disk = tmp_path / "disk" / name
        picture_folders.write(disk, *counts) if counts else disk.mkdir(parents=True)
        (tmp_path / "pets" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "pets" / name).symlink_to(disk)
        return disk

    link.to = tmp_path / "pets"
    return link


def test_linked_parts_and_classes_are_read_as_those_of_the_folder(linked, tmp_path):
    linked("train", {"a": 2, "b": 1})
    linked("test", {"a": 1, "b": 1})
    found = again(linked.to)
    assert (found.classes, found.counts("train"), found.counts("test")) == (
        ("a", "b"),
        [2, 1],
        [1, 1],
    )
    assert found.files["train"][0] == (0, "train/a/0000.png")
    copied = shutil.copytree(linked.to, tmp_path / "copied")
    assert again(copied).digest == found.digest and not (copied / "train").is_symlink()
    link = tmp_path / "link"
    link.symlink_to(linked.to)
    assert again(link).digest == found.digest


def test_a_linked_class_and_a_linked_folder_within_a_class_are_read(linked):
    linked("dog", {"": 2})
    picture_folders.write(linked.to, {"cat": 1})
    linked("cat/more", {"": 3, "inner": 1})
    found = again(linked.to)
    assert (
        found.classes == ("cat", "dog") and found.counts("train") == [5, 2] and found.skipped == []
    )


@pytest.mark.parametrize(
    "name, target, words",
    [
        (
            "cat/loop",
            "cat",
            "/pets/cat and .*/pets/cat/loop are the same folder; remove the link to it",
        ),
        ("cat/loop", ".", "/pets and .*/pets/cat/loop are the same folder"),
        ("cat/loop", "..", "/pets/cat/loop is a link to .*, a folder that it lies in; remove it$"),
        ("cat/loop", "/", "/pets/cat/loop is a link to /, a folder that it lies in"),
        ("bird", "cat", "/pets/bird and .*/pets/cat are the same folder; remove the link"),
        ("cat/dogs", "dog", "/pets/cat/dogs and .*/pets/dog are the same folder; remove the link"),
        (
            "bird",
            "bird",
            "/pets/bird is a link to .*bird, which cannot be reached; remove the link, or mount what it leads to",
        ),
        ("bird", "/no/such/disk", "/pets/bird is a link to /no/such/disk, which cannot be reached"),
    ],
)
def test_links_that_lead_round_twice_to_a_folder_or_nowhere_are_one_line(
    tmp_path, name, target, words
):
    folder = picture_folders.write(tmp_path / "pets", {"cat": 2, "dog": 2})
    (folder / name).symlink_to(folder / target)
    message = fault(folder)
    assert re.search(words, message) and message.startswith("config: folder: ")


def test_linked_parts_that_are_the_same_folder_or_lead_round_are_one_line(linked):
    disk = linked("train", {"a": 2, "b": 2})
    (linked.to / "test").symlink_to(disk)  # every test picture would be one of training
    assert "/pets/train and" in fault(linked.to) and "/pets/test are the same folder" in fault(
        linked.to
    )
    (linked.to / "test").unlink()
    (linked.to / "test").symlink_to(linked.to)
    assert "are the same folder" in fault(linked.to)


def test_links_that_multiply_folders_end_at_once(tmp_path):
    folder = picture_folders.write(tmp_path / "pets", {"cat": 2, "dog": 2})
    for number in range(40):  # two ways to each of them, 2^40 in all
        (folder / f"cat/{number}").mkdir()
        for name in "ab":
            (folder / f"cat/{number}/{name}").symlink_to(f"../{number + 1}")
    assert "are the same folder" in fault(folder)


@pytest.mark.parametrize("given, secret", [("pets", "pets/dog/secret"), ("pets.npz", "pets.npz")])
def test_what_may_not_be_read_is_one_line(tmp_path, given, secret):
    picture_folders.write(tmp_path / "pets", {"cat": 2, "dog": 2, "dog/secret": 2})
    np.savez(tmp_path / "pets.npz", images=np.zeros((2, 8, 8), np.uint8))
    (tmp_path / secret).chmod(0)
    program = "import sys; from ladder.data import listing; listing.source(sys.argv[1])"
    run = processes.run(
        *unprivileged(),
        sys.executable,
        "-c",
        program,
        str(tmp_path / given),
        env=os.environ | {"PYTHONPATH": str(sources.SCRIPTS), "HOME": str(tmp_path)},
    )
    (tmp_path / secret).chmod(0o700)
    line = run.stderr.splitlines()[-1]
    assert "config: folder: cannot read" in line and line.endswith(f"{secret}: Permission denied")


def test_a_picture_without_permission_is_skipped_until_it_has_it(tmp_path):
    folder = picture_folders.write(tmp_path / "pets", {"cat": 2, "dog": 2})
    secret = next((folder / "cat").iterdir())
    secret.chmod(0)
    program = "import sys; from ladder.data import listing; found = listing.source(sys.argv[1]); print(found.skipped, found.digest)"
    command = [*unprivileged(), sys.executable, "-c", program, str(folder)]
    environment = os.environ | {"PYTHONPATH": str(sources.SCRIPTS), "HOME": str(tmp_path)}
    hidden = processes.run(*command, env=environment)
    secret.chmod(0o600)
    given = processes.run(*command, env=environment)
    assert hidden.stdout.startswith(
        f"[('cat/{secret.name}', 'cannot be read: Permission denied')] "
    ), hidden.stderr
    assert given.stdout.startswith("[] ") and given.stdout.split()[-1] != hidden.stdout.split()[-1]


def test_a_folder_beside_train_and_test_is_named(tmp_path):
    found = again(
        picture_folders.write(
            tmp_path, {"train/a": 2, "train/b": 2, "test/a": 1, "test/b": 1, "val/a": 1}
        )
    )
    assert found.skipped == [("val/", listing.NOT_READ)] and found.counts("train") == [2, 2]
    (tmp_path / "more").mkdir()
    assert ("more/", "neither train/ nor test/") in again(tmp_path).skipped


@pytest.mark.parametrize(
    "counts, words",
    [
        ({}, "has no picture; two at least are needed (.png, "),
        ({"a": 1}, "has a single picture; two at least"),
        ({f"c{number}": 1 for number in range(257)}, "has 257 classes"),
        ({"a": 1, "b": 0, "c": 1}, "b has no picture; remove the folder"),
        ({"train/a": 1, "train/b": 1}, "has train/ without test/; add it"),
        ({"training/a": 1, "training/b": 1}, "has training/ without test/; add it"),
        (
            {"Train/a": 1, "training/a": 1, "test/a": 1},
            "has Train/ and training/; call the one that is meant train",
        ),
        (
            {"train/a": 1, "train/b": 1, "test/a": 1, "test/c": 1},
            "has no folder 'c', which test/ has; both need the same classes",
        ),
        (
            {"train/a": 1, "train/b": 1, "train/c": 1, "test/a": 1},
            "has no folder 'b' and 1 more, which train/ has",
        ),
        ({"a\nb": 1, "c": 1}, r"the name of class 'a\nb' is not one line"),
        ({"x" * 101: 1, "c": 1}, "at most 100 printable"),
    ],
)
def test_what_is_no_data_set_is_one_line(tmp_path, counts, words):
    assert words in fault(picture_folders.write(tmp_path, counts))


def test_a_class_without_a_picture_says_what_it_has(tmp_path):
    folder = picture_folders.write(tmp_path / "pets", {"cat": 2, "dog": 0, "owl": 1})
    for number in range(3):
        (folder / f"dog/{number}.heic").write_bytes(b"x")
    assert (
        "pets/dog has no picture (skipped 3 of 3 files: 3 .heic, as dog/0.heic (no picture by its name)); remove the "
        "folder, or put pictures of the class into it (.png, "
    ) in fault(folder)


def test_as_many_classes_and_as_long_a_name_as_the_messages_say_are_taken(tmp_path):
    found = again(
        picture_folders.write(
            tmp_path, {"x" * 100: 1, **{f"c{number}": 1 for number in range(255)}}
        )
    )
    assert len(found.classes) == 256 and found.classes[-1] == "x" * 100


def test_a_missing_path_and_another_kind_of_file_are_one_line(tmp_path):
    (tmp_path / "file.txt").write_text("x")
    assert "folder: there is no" in fault(tmp_path / "nowhere")
    assert "is neither a folder nor a .npz file" in fault(tmp_path / "file.txt")
    os.mkfifo(tmp_path / "pipe")
    assert "is neither a folder nor a .npz file" in fault(tmp_path / "pipe")
    assert "the root of all files" in fault("/") and "the root of all files" in fault("../" * 50)
    assert (
        fault("none")
        == "config: dataset is folder, but folder is none; name the folder of your pictures: folder=PATH"
    )


def test_the_digest_is_that_of_names_and_content_wherever_the_folder_lies(tmp_path):
    first = picture_folders.write(tmp_path / "one", {"a": 2, "b": 2})
    second = picture_folders.write(tmp_path / "two", {"a": 2, "b": 2})
    digest = again(first).digest
    assert digest == again(second).digest and len(digest) == 64
    (second / "b/0001.png").rename(second / "b/0002.png")
    assert again(second).digest != digest
    (second / "b/0002.png").rename(second / "b/0001.png")
    (second / "notes.txt").write_text("no picture")
    assert again(second).digest == digest
    picture_folders.picture(7).save(second / "b/0001.png")
    assert again(second).digest != digest


def test_the_digest_is_computed_once_per_change_of_the_folder(tmp_path, monkeypatch):
    folder, read = picture_folders.write(tmp_path / "pets", {"a": 2, "b": 2}), []
    real = listing.disk.sha256
    monkeypatch.setattr(
        listing.disk, "sha256", lambda path: read.append(pathlib.Path(path).name) or real(path)
    )
    digest = again(folder).digest
    assert again(folder).digest == digest and len(read) == 4
    changed = (folder / "a/0000.png").stat()
    # as an edit that keeps the size
    os.utime(folder / "a/0000.png", ns=(changed.st_atime_ns, changed.st_mtime_ns + 1))
    assert again(folder).digest == digest and len(read) == 8


# The split.


def test_the_split_is_a_share_of_each_class_by_name_and_begins_balanced(tmp_path):
    parts = listing.split(again(picture_folders.write(tmp_path, {"a": 20, "b": 10, "c": 2})), 0.25)
    test, train = ([label for label, _ in parts[part]] for part in ("test", "train"))
    assert [test.count(label) for label in range(3)] == [5, 2, 1] and [
        train.count(label) for label in range(3)
    ] == [15, 8, 1]
    assert train[:3] == [0, 1, 2] and train[3:9] == [0, 1] * 3
    assert not set(parts["train"]) & set(parts["test"])


def test_a_picture_more_moves_no_other_one_from_test_to_train(tmp_path):
    folder = picture_folders.write(tmp_path / "p", {"a": 20, "b": 10})
    before = set(listing.split(again(folder), 0.25)["test"])
    picture_folders.picture(5005).save(folder / "a/new.png")
    after = listing.split(again(folder), 0.25)
    # the new one may take the place of the last
    assert len(before & {file for file in after["train"]}) <= 1


def copied(listing, groups):
    """A listing whose names, a class each a string, have the same content by group: name -> first
    name.
    """
    return types.SimpleNamespace(
        classes=tuple(listing),
        has_test=False,
        copies=groups,
        unlabelled=[],
        files={
            "train": [
                (label, name) for label, names in enumerate(listing.values()) for name in names
            ]
        },
    )


@pytest.mark.parametrize(
    "classes, groups, tests",
    [
        ({"a": [f"a{n}" for n in range(8)], "b": [f"b{n}" for n in range(4)]}, {}, (2, 1)),
        # every picture twice
        ({"a": [f"a{n}" for n in range(8)]}, {f"a{n}": f"a{n % 4}" for n in range(8)}, (2,)),
        # no group has room: one is taken
        ({"a": [f"a{n}" for n in range(6)]}, {f"a{n}": f"a{n % 3}" for n in range(6)}, (2,)),
        # the many copies have no room
        ({"a": [f"a{n}" for n in range(40)]}, {f"a{n}": "a0" for n in range(30)}, (10,)),
        # nothing else in the class
        ({"a": [f"a{n}" for n in range(8)]}, {f"a{n}": "a0" for n in range(8)}, None),
    ],
)
def test_copies_are_in_the_same_part_and_the_share_is_kept(classes, groups, tests):
    source = copied(classes, groups)
    parts = listing.split(source, 0.25)
    names = {part: {name for _, name in files} for part, files in parts.items()}
    assert sorted(names["train"] | names["test"]) == sorted(
        name for names in classes.values() for name in names
    )
    counts = tuple(sum(label == one for one, _ in parts["test"]) for label in range(len(classes)))
    assert counts == (tests or (2,)) and min(map(len, names.values())) > 0
    if tests:
        assert not {groups.get(name, name) for name in names["train"]} & {
            groups.get(name, name) for name in names["test"]
        }
    if not groups or tests is None:  # as it is without copies
        assert parts == listing.split(copied(classes, {}), 0.25)


def test_copies_with_two_labels_are_in_one_part_unless_a_class_has_no_others():
    classes = {"a": [f"a{n}" for n in range(12)], "b": [f"b{n}" for n in range(12)]}
    twins = {f"{label}{n}": f"a{n}" for label in "ab" for n in range(6)}
    parts = {
        part: {name for _, name in files}
        for part, files in listing.split(copied(classes, twins), 0.25).items()
    }
    assert not {twins.get(name) for name in parts["train"]} & {
        twins.get(name) for name in parts["test"]
    } - {None}
    only = {f"b{n}": "a0" for n in range(12)} | {"a0": "a0"}
    parts = listing.split(copied(classes, only), 0.25)
    assert all({label for label, _ in files} == {0, 1} for files in parts.values())


def test_copies_are_found_by_content_and_read_once(tmp_path, monkeypatch):
    folder = picture_folders.write(tmp_path / "pets", {"a": 3, "b": 3})
    shutil.copy(folder / "a/0000.png", folder / "b/wrong.png")
    assert again(folder).copies == {"a/0000.png": "a/0000.png", "b/wrong.png": "a/0000.png"}
    monkeypatch.setattr(listing.disk, "sha256", None)
    assert again(folder).copies["b/wrong.png"] == "a/0000.png" and len(again(folder).digest) == 64
    images = np.arange(6, dtype=np.uint8).repeat(12).reshape(6, 4, 3) % 4
    path = picture_folders.npz(tmp_path / "a.npz", images=images, labels=np.arange(6) % 2)
    monkeypatch.undo()
    assert again(path).copies == {"0": "0", "4": "0", "1": "1", "5": "1"}


@pytest.mark.parametrize(
    "count, share, tests", [(2, 0.01, 1), (2, 0.99, 1), (100, 0.2, 20), (10, 0.25, 2)]
)
def test_a_class_keeps_a_picture_for_each_part(count, share, tests):
    assert listing.test_count(count, share) == tests


def test_the_facts_of_a_folder_are_its_own(tmp_path):
    listing.source.cache_clear()
    folder = picture_folders.write(tmp_path / "p", {"a": 10, "b": 5})
    keys = {"dataset": "folder", "test_share": 0.2, "image_size": [24, 40], "image_channels": 1}
    keys |= {"labels": "auto", "leave_out": "none"}
    assert facts.find(types.SimpleNamespace(**keys, folder=str(folder))) == facts.Facts(
        (24, 40, 1), 2, 12, 3
    )
    single = picture_folders.write(tmp_path / "q", {"a": 10, "b": 1})
    assert facts.find(types.SimpleNamespace(**keys, folder=str(single))) == facts.Facts(
        (24, 40, 1), 2, 9, 2
    )
    lone = picture_folders.write(tmp_path / "r", {"a": 1, "b": 1})
    with pytest.raises(UserError, match="no class has a second picture with a label to test on"):
        facts.find(types.SimpleNamespace(**keys, folder=str(lone)))


# .npz files.

IMAGES = np.zeros((6, 5, 4, 3), np.uint8)
LABELS = np.array([3, 1, 3, 1, 1, 3])


def test_a_npz_file_has_classes_by_its_labels_or_names(tmp_path):
    found = again(picture_folders.npz(tmp_path / "a.npz", images=IMAGES, labels=LABELS))
    assert (
        found.classes == ("1", "3")
        and found.files["train"][:2] == [(1, "0"), (0, "1")]
        and not found.has_test
    )
    names = again(
        picture_folders.npz(tmp_path / "b.npz", images=IMAGES, labels=np.array(["cat", "ant"] * 3))
    )
    assert names.classes == ("ant", "cat") and names.counts("train") == [3, 3]
    named = again(
        picture_folders.npz(
            tmp_path / "c.npz",
            images=IMAGES[..., 0],
            labels=LABELS // 2,
            test_images=IMAGES[:2],
            test_labels=np.array([1, 0]),
            classes=np.array(["x", "y"]),
        )
    )
    assert named.classes == ("x", "y") and named.has_test and named.counts("test") == [1, 1]


def test_the_layouts_of_medmnist_and_keras_are_read(tmp_path):
    column = LABELS[:, None].astype(np.uint8)
    medmnist = again(
        picture_folders.npz(
            tmp_path / "a.npz",
            train_images=IMAGES,
            train_labels=column,
            val_images=IMAGES[:2],
            val_labels=column[:2],
            test_images=IMAGES[:4],
            test_labels=column[:4],
        )
    )
    assert (
        medmnist.classes == ("1", "3")
        and medmnist.counts("train") == [3, 3]
        and medmnist.counts("test") == [2, 2]
    )
    assert medmnist.array("train") == "train_images" and medmnist.remarks == [
        f"val_images of the file is {listing.NOT_READ}"
    ]
    keras = again(
        picture_folders.npz(
            tmp_path / "b.npz",
            x_train=IMAGES[..., 0],
            y_train=LABELS,
            x_test=IMAGES[:2, ..., 0],
            y_test=LABELS[:2],
        )
    )
    assert (
        keras.has_test
        and keras.array("test") == "x_test"
        and keras.counts("test") == [1, 1]
        and keras.remarks == []
    )
    two = again(
        picture_folders.npz(
            tmp_path / "c.npz",
            train_images=IMAGES,
            train_labels=LABELS,
            val_images=IMAGES[:2],
            val_labels=LABELS[:2],
        )
    )
    assert two.array("test") == "val_images" and two.remarks == [
        "val_images of the file is taken to test on"
    ]
    texts = again(
        picture_folders.npz(
            tmp_path / "d.npz", images=IMAGES, labels=np.array(["10", "9", "10", "9", "2", "2"])
        )
    )
    assert texts.classes == ("2", "9", "10") and [label for label, _ in texts.files["train"]] == [
        2,
        1,
        2,
        1,
        0,
        0,
    ]


@pytest.mark.parametrize(
    "arrays, words",
    [
        ({"labels": LABELS}, "it has no array images"),
        (
            {"images": IMAGES.astype(float), "labels": LABELS},
            "images is float64 (6, 5, 4, 3), not uint8",
        ),
        ({"images": IMAGES[:, 0, 0], "labels": LABELS}, "not uint8 (N, H, W)"),
        ({"images": IMAGES, "labels": LABELS[:5]}, "not 6"),
        (
            {"images": np.zeros((6, 5, 4, 4), np.uint8), "labels": LABELS},
            "(N, H, W, 1) or (N, H, W, 3)",
        ),
        ({"images": IMAGES, "labels": LABELS * 0.5}, "labels is float64"),
        (
            {"images": IMAGES, "labels": LABELS, "test_images": IMAGES},
            "has test_images without test_labels; add it, or leave",
        ),
        (
            {"train_images": IMAGES, "train_labels": np.zeros((6, 14), int)},
            "train_labels is int64 (6, 14), not one label",
        ),
        *(
            (
                {"images": IMAGES, "labels": LABELS // 2 + more, "classes": np.array(["a", "b"])},
                "one for each of the labels 0, 1",
            )
            for more in (1, -1)
        ),  # 2 is one too many, -1 none
        (
            {
                "images": IMAGES,
                "labels": LABELS,
                "test_images": IMAGES,
                "test_labels": LABELS * 0 + 1,
            },
            "has no picture of class '3'",
        ),
        (
            {"images": IMAGES, "labels": np.array([[], 1, 2, 3, 4, 5], object)},
            "labels is no array of numbers or texts",
        ),
    ],
)
def test_a_npz_file_that_does_not_fit_is_one_line(tmp_path, arrays, words):
    assert words in fault(picture_folders.npz(tmp_path / "a.npz", **arrays))


def test_a_npz_file_that_claims_too_much_or_is_damaged_is_one_line(tmp_path):
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "|u1", "fortran_order": False, "shape": (10**7, 100, 100)}
    )
    with zipfile.ZipFile(tmp_path / "huge.npz", "w") as archive:
        archive.writestr("images.npy", header.getvalue())
    assert "images has more than 8.0 GB or 10,000,000 rows" in fault(tmp_path / "huge.npz")
    whole = picture_folders.npz(tmp_path / "a.npz", images=IMAGES, labels=LABELS).read_bytes()
    with zipfile.ZipFile(tmp_path / "odd.npz", "w") as archive:
        archive.writestr("images.npy", b"no header")
    assert "is not a .npz file of arrays" in fault(tmp_path / "odd.npz")
    packed = tmp_path / "packed.npz"
    np.savez_compressed(
        packed,
        images=np.random.default_rng(0).integers(0, 256, (6, 5, 4), np.uint8),
        labels=np.arange(6) % 2,
    )
    with zipfile.ZipFile(packed) as archive:
        begin = archive.getinfo("labels.npy").header_offset + 60
    content = packed.read_bytes()
    for name, bytes_ in (
        (
            "broken.npz",
            content[:begin]
            + bytes(one ^ 0x5A for one in content[begin : begin + 20])
            + content[begin + 20 :],
        ),
        (
            "secret.npz",
            content.replace(b"PK\3\4-\0\0", b"PK\3\4-\0\1").replace(
                b"PK\1\2-\3-\0\0", b"PK\1\2-\3-\0\1"
            ),
        ),
    ):  # with a password
        (tmp_path / name).write_bytes(bytes_)
        assert "is not a .npz file of arrays" in fault(tmp_path / name)
    (tmp_path / "cut.npz").write_bytes(whole[:-40])
    assert "is neither a folder nor a .npz file" in fault(tmp_path / "cut.npz")


# Pictures to predict.


@pytest.fixture
def folder(tmp_path):
    for name in ("b.PNG", "a b – 七.jpg", "inner/c.webp", "notes.txt", ".hidden.png", ".git/d.png"):
        path = tmp_path / "my pictures" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    return tmp_path / "my pictures"


def test_a_folders_pictures_are_found_in_order_hidden_ones_apart(folder):
    found, left_out = listing.find([str(folder)])
    assert [str(path.relative_to(folder)) for path in found] == [
        "a b – 七.jpg",
        "b.PNG",
        "inner/c.webp",
    ]
    assert [path.name for path in left_out] == ["notes.txt"]


def test_a_linked_folder_is_searched_and_one_without_end_is_one_line(folder, tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk/d.tiff").write_bytes(b"x")
    (folder / "linked").symlink_to(tmp_path / "disk")
    assert [path.name for path in listing.find([folder])[0]] == [
        "a b – 七.jpg",
        "b.PNG",
        "c.webp",
        "d.tiff",
    ]
    (folder / "inner/loop").symlink_to(folder)
    with pytest.raises(
        UserError,
        match="^predict: .*my pictures and .*inner/loop are the same folder; remove the link to it$",
    ):
        listing.find([folder])


def test_a_file_that_is_named_counts_whatever_its_name_and_once(folder):
    found, _ = listing.find([folder / "notes.txt", folder, folder / "b.PNG"])
    assert [path.name for path in found] == ["notes.txt", "a b – 七.jpg", "b.PNG", "c.webp"]


@pytest.mark.parametrize(
    "paths, words",
    [
        ([], "which pictures?"),
        (["nowhere/at all"], "there is no nowhere/at all"),
        (["~nobody-here"], "there is no ~nobody-here"),
        (["my pictures/.git/.."], None),
        (["empty"], "no picture in empty"),
    ],
)
def test_a_missing_path_is_one_line(folder, monkeypatch, paths, words):
    monkeypatch.chdir(folder.parent)
    (folder.parent / "empty").mkdir()
    if words is None:
        assert len(listing.find(paths)[0]) == 3
        return
    with pytest.raises(UserError, match=words) as fault:
        listing.find(paths)
    assert "\n" not in str(fault.value)


def test_the_home_folder_can_be_named(folder, monkeypatch):
    monkeypatch.setenv("HOME", str(folder.parent))
    assert len(listing.find(["~/my pictures"])[0]) == 3


def test_more_pictures_than_a_page_holds_are_refused(folder, monkeypatch):
    monkeypatch.setattr(listing, "MOST_PICTURES", 2)
    with pytest.raises(UserError, match="more than 2 pictures; name a smaller folder"):
        listing.find([folder])


def test_a_name_that_is_not_utf8_can_be_shown(tmp_path):
    with open(os.fsencode(tmp_path) + b"/\xff.png", "wb"):
        pass
    shown(listing.find([tmp_path])[0][0]).encode()


# Pictures without labels, or with few.


def names(listing):
    return sorted(listing.unlabelled)


@pytest.mark.parametrize(
    "labels, counts",
    [
        ("auto", {"": 5}),
        ("auto", {"cat": 5}),
        ("auto", {"cat": 4, "empty": 0, "": 1}),
        ("none", {"cat": 2, "dog": 2, "dog/inner": 1}),
        ("auto", {"train": 3, "test": 2}),
    ],
)
def test_pictures_without_classes_are_taken_without_labels(tmp_path, labels, counts):
    folder = picture_folders.write(tmp_path / "p", counts)
    found = listing.source(str(folder), labels)
    assert found.classes == () and found.files == {"train": []} and len(names(found)) == 5
    parts = listing.split(found, 0.25)
    assert [len(parts[part]) for part in ("train", "test")] == [4, 1]
    assert {label for files in parts.values() for label, _ in files} == {None}
    assert sorted(name for files in parts.values() for _, name in files) == names(found)
    assert all((folder / name).is_file() for name in names(found))


def test_the_digest_counts_whether_there_are_labels_and_which(tmp_path):
    folder = picture_folders.write(tmp_path / "p", {"a": 3, "b": 3})
    table = tmp_path / "labels.csv"
    digests = [listing.source(str(folder), labels).digest for labels in ("auto", "folders", "none")]
    for label in "yz":
        table.write_text(f"name,label\na/0000.png,x\nb/0000.png,{label}\n")
        listing.source.cache_clear()
        digests.append(listing.source(str(folder), str(table)).digest)
    assert digests[0] == digests[1] and len(set(digests)) == 4


def test_a_table_gives_labels_to_few_pictures_and_the_others_are_learned_from(tmp_path):
    folder = picture_folders.write(tmp_path / "p", {"": 9})
    table = tmp_path / "labels.csv"
    table.write_text(
        "label,name\n"
        + "".join(f"{'xy'[row % 2]},000{row}.png\n" for row in range(6))
        + ",0008.png\n"
    )
    found = listing.source(str(folder), str(table))
    assert found.classes == ("x", "y") and found.counts("train") == [3, 3]
    parts = listing.split(found, 0.34)
    assert [label for label, _ in parts["train"]] == [0, 1, 0, 1, None, None, None]
    assert sorted(label for label, _ in parts["test"]) == [0, 1]


def test_a_folder_unlabelled_beside_the_classes_has_no_label(tmp_path):
    folder = picture_folders.write(tmp_path / "p", {"a": 4, "b": 4, "unlabelled": 3})
    found = again(folder)
    assert found.classes == ("a", "b") and found.skipped == []
    assert names(found) == [f"unlabelled/000{row}.png" for row in range(3)]


@pytest.mark.parametrize(
    "text, words",
    [
        ("name,label\n0000.png,a\n0000.png,b\n", "'0000.png' is there twice (row 3)"),
        ("name,label\nother.png,a\nx.png,b\n", "has no picture 'other.png' and 1 more"),
        ("name,label\n0000.png,a\n", "has 1 class; 2 to 256"),
        ("name" + ",label" * 10**6, "begins with 1,000,001 columns"),
        ("name,label\n0000.png,a,b\n", "row 2 has 3 columns"),
        ("0000.png;a\n", "begins with 1 columns"),
        ("", "begins with 0 columns"),
        ("name,label\n", "has no rows"),
        (b"\xff\xfename", "is no text in UTF-8"),
        ('name,label\n"0000.png,a\n', "is no table in CSV"),
        ("name,label\n0000.png," + "a" * 200_000, "is no table in CSV: field larger"),
        (None, "is no file"),
    ],
)
def test_a_table_that_does_not_fit_is_one_line(tmp_path, text, words):
    folder = picture_folders.write(tmp_path / "p", {"": 3})
    table = tmp_path / "labels.csv"
    if text is not None:
        table.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UserError) as error:
        listing.source(str(folder), str(table))
    message = str(error.value)
    assert words in message and message.isprintable() and len(message) < 400


def test_pictures_are_left_out_by_a_list_and_the_digest_is_that_of_the_others(tmp_path):
    folder = picture_folders.write(tmp_path / "p", {"": 5})
    names_file = tmp_path / "leave_out.txt"
    names_file.write_text("0001.png\r\n0003.png\nno such.png\n")
    found = listing.source(str(folder), "auto", str(names_file))
    assert names(found) == ["0000.png", "0002.png", "0004.png"]
    assert found.skipped == [(f"000{row}.png", listing.LEFT_OUT) for row in (1, 3)]
    assert found.remarks[-1] == "1 of the names in leave_out are not there, as no such.png"
    for row in (1, 3):
        (folder / f"000{row}.png").unlink()
    assert again(folder).digest == found.digest


def test_a_npz_file_without_labels_or_with_a_table_or_a_list(tmp_path):
    path = str(picture_folders.npz(tmp_path / "a.npz", images=IMAGES))
    assert listing.source(path).unlabelled == list("012345") and listing.source(path).classes == ()
    one = str(picture_folders.npz(tmp_path / "b.npz", images=IMAGES, labels=LABELS * 0))
    assert listing.source(one).classes == ()
    table, left = tmp_path / "labels.csv", tmp_path / "left.txt"
    table.write_text("name,label\n0,a\n5,b\n4,a\n2,b\n")
    left.write_text("1\n")
    found = listing.source(path, str(table), str(left))
    assert found.files == {"train": [(0, "0"), (1, "2"), (0, "4"), (1, "5")]}
    assert found.unlabelled == ["3"] and found.skipped == [("1", listing.LEFT_OUT)]
    assert (
        len({found.digest, listing.source(path).digest, listing.source(path, str(table)).digest})
        == 3
    )
