import dataclasses
import json
import logging
import os
import pathlib
import shutil

import numpy as np
import pytest
from PIL import Image

import picture_folders
import prepare_data
import processes
from ladder.data import datasets, folder, listing, names
from ladder.data.reading import pictures
from ladder.errors import UserError
from ladder.store import artifacts

ALL = {"train": "all", "test": "all"}


@pytest.fixture(autouse=True)
def fresh(tmp_path, monkeypatch):
    picture_folders.forget(monkeypatch, tmp_path)


def params(path, size=(16, 16), channels=3, **changed):
    listing.source.cache_clear()
    return {
        "folder_sha256": listing.source(str(path)).digest,
        "image_size": list(size),
        "image_channels": channels,
        "test_share": 0.25,
        **changed,
    }


def load(path, tmp_path, limits=ALL, threads=2, **changed):
    data, skipped, _ = folder.load(named(path), params(path, **changed), limits, tmp_path, threads)
    images = {part: getattr(data, f"{part}_images")[:] for part in ALL}
    return dataclasses.replace(data, **{f"{part}_images": images[part] for part in ALL}), skipped


def named(path, labels="auto", leave_out="none"):
    """The options of the stage that name pictures."""
    return {"folder": str(path), "labels": labels, "leave_out": leave_out}


@pytest.fixture
def path(tmp_path):
    """A folder of four pictures in each of two classes."""
    return picture_folders.write(tmp_path / "p", {"a": 4, "b": 4})


def plain(path, colours):
    """A folder of pictures of one colour, {class: [colour]}, of odd sizes."""
    for name, every in colours.items():
        (path / name).mkdir(parents=True)
        for number, colour in enumerate(every):
            Image.new("RGB", (20 + number, 30), colour).save(path / name / f"{number}.png")
    return path


def test_images_have_the_colours_of_the_pictures_of_their_classes(tmp_path):
    path = plain(
        tmp_path / "p",
        {"red": [(200 + n, 0, 0) for n in range(8)], "green": [(0, 100 + n, 0) for n in range(8)]},
    )
    data, skipped = load(path, tmp_path)
    assert data.classes == ("green", "red") and skipped == []
    assert data.train_images.shape == (12, 16, 16, 3) and data.test_images.shape == (4, 16, 16, 3)
    for images, labels in (
        (data.train_images, data.train_labels),
        (data.test_images, data.test_labels),
    ):
        assert images.dtype == labels.dtype == np.uint8
        assert [int(image[8, 8].argmax()) for image in images] == [1 - label for label in labels]
    both = np.concatenate([data.train_images, data.test_images])[:, 8, 8].max(axis=1)
    assert sorted(both.tolist()) == [*range(100, 108), *range(200, 208)]  # each picture once


def test_a_picture_becomes_what_a_prediction_makes_of_it(tmp_path):
    path = picture_folders.write(tmp_path / "p", {"a": 2, "b": 2})
    data, _ = load(path, tmp_path, size=(12, 20))
    (label, name), *_ = listing.split(listing.source(str(path)), 0.25)["train"]
    expected = pictures.take(path / name, "folder", (12, 20, 3), name).pixels
    np.testing.assert_array_equal(data.train_images[0], expected)
    assert data.train_labels[0] == label


def test_large_pictures_are_antialiased(tmp_path):
    stripes = np.repeat(np.tile([0, 255], 320)[None, :], 640, axis=0).astype(np.uint8)
    for name in "ab":
        (tmp_path / "p" / name).mkdir(parents=True)
        for number in range(2):
            Image.fromarray(stripes).save(tmp_path / "p" / name / f"{number}.png")
    data, _ = load(tmp_path / "p", tmp_path)
    # a nearest or bilinear sample would be 0 or 255
    assert np.abs(data.train_images.astype(int) - 127).max() <= 2


def test_grey_images_have_one_channel(tmp_path):
    data, _ = load(
        plain(tmp_path / "p", {"a": [(255, 0, 0)] * 2, "b": [(0, 0, 255)] * 2}),
        tmp_path,
        channels=1,
    )
    assert data.train_images.shape == (2, 16, 16, 1) and sorted(
        data.train_images[:, 0, 0, 0].tolist()
    ) == [29, 76]


def test_pictures_that_cannot_be_read_are_skipped_and_named(tmp_path):
    path = picture_folders.write(tmp_path / "p", {"a": 8, "b": 8})
    whole = (path / "a/0000.png").read_bytes()
    (path / "a/cut.png").write_bytes(whole[: len(whole) // 2])
    (path / "a/text.png").write_text("no picture")
    (path / "b/bomb.png").write_bytes(picture_folders.claiming(20_000, 20_000))
    (path / "readme.txt").write_text("x")
    data, skipped = load(path, tmp_path)
    reasons = {one["file"]: one["reason"] for one in skipped}
    assert reasons.keys() == {"a/cut.png", "a/text.png", "b/bomb.png", "readme.txt"}
    assert reasons["a/cut.png"].startswith("damaged or cut short") and reasons[
        "b/bomb.png"
    ].startswith("too large")
    assert reasons["a/text.png"].startswith("not a picture that can be read here")
    assert len(data.train_labels) + len(data.test_labels) == 16


def test_one_line_counts_what_is_skipped_and_one_the_pictures_with_more_pages(
    path, tmp_path, caplog
):
    with caplog.at_level(logging.INFO):
        load(path, tmp_path)
    assert caplog.messages == []
    for name in ("a/1.heic", "a/2.heic", "b/3.HEIC", "notes.txt"):
        (path / name).write_bytes(b"x")
    (path / "b/float.tif").write_bytes(b"II*\0")
    pages = [picture_folders.picture(number) for number in range(3)]
    pages[0].save(path / "b/pages.tif", save_all=True, append_images=pages[1:])
    pages[0].save(path / "a/moving.gif", save_all=True, append_images=pages[1:])
    with caplog.at_level(logging.INFO):
        load(path, tmp_path)
    assert caplog.messages == [
        "skipped 5 of 15 files: 3 .heic, as a/1.heic (no picture by its name); 1 .txt, as notes.txt (not in the folder of a "
        "class); 1 .tif, as b/float.tif (damaged or cut short (unpack requires a buffer of 4 bytes)); skipped.json names them",
        "2 pictures have more frames or pages than the first, which is read, as b/pages.tif",
    ]


def test_a_class_of_which_nothing_can_be_read_is_one_line(path, tmp_path):
    for file in (path / "b").iterdir():
        file.write_text("no picture")
    with pytest.raises(
        UserError,
        match=r"fewer than two pictures of class 'b' can be read \(b/000\d.png: not a picture .*; 1 "
        r"more\); remove the class, or put other pictures into it",
    ):
        load(path, tmp_path)


def test_the_only_picture_of_a_class_is_trained_on(tmp_path):
    source = picture_folders.write(tmp_path / "pets", {"a": 5, "b": 1})
    dataset, skipped = load(source, tmp_path)
    assert dataset.train_labels.tolist().count(1) == 1 and dataset.test_labels.tolist() == [0]
    assert skipped == []


@pytest.mark.parametrize("limits", [ALL, {"train": 4, "test": 2}])
def test_a_class_whose_pictures_of_a_part_are_damaged_is_split_of_the_readable_ones(
    tmp_path, limits
):
    path = picture_folders.write(tmp_path / "p", {"a": 4, "b": 4, "c": 8})
    whole = listing.split(listing.source(str(path)), 0.25)
    damaged = [name for label, name in whole["test"] if label == 0] + [
        name for label, name in whole["train"] if label == 2
    ]
    for name in damaged:
        (path / name).write_text("no picture")
    data, skipped = load(
        path,
        tmp_path,
        limits={
            **limits,
            "train": 3 if limits is not ALL else "all",
            "test": 3 if limits is not ALL else "all",
        },
    )
    assert set(data.train_labels.tolist()) == set(data.test_labels.tolist()) == {0, 1, 2}
    assert not set(data.names["train"] + data.names["test"]) & set(damaged)
    if limits is ALL:
        assert len(data.train_labels) + len(data.test_labels) == 9 and {
            one["file"] for one in skipped
        } == set(damaged)
        assert [name for name in data.names["test"] if name[0] == "b"] == [
            name for label, name in whole["test"] if label == 1
        ]


def test_a_given_part_whose_pictures_of_a_class_are_damaged_names_them(tmp_path):
    path = picture_folders.write(
        tmp_path / "p", {"train/a": 4, "train/b": 4, "test/a": 2, "test/b": 1}
    )
    (path / "test/b/0000.png").write_text("no picture")
    with pytest.raises(
        UserError,
        match=r"no test picture of class 'b' can be read \(test/b/0000.png: not a picture ",
    ):
        load(path, tmp_path)


HOSTILE = [
    "a\nb.png",
    "caf\udce9.png",
    "<b>&amp;.png",
    '"quoted", and; more.png',
    "\u202egnp.png",
    " spaces .png",
    "=1+1.png",
]


@pytest.mark.parametrize(
    "limits", [{"test_limit": "all"}, {"test_limit": "all", "train_limit": 9}, {"validation": 5}]
)
def test_each_row_has_the_name_of_its_picture_whatever_it_is(tmp_path, limits):
    path = picture_folders.write(tmp_path / "p", {"a": 6, "b": 12})
    for number, name in enumerate(HOSTILE):
        picture_folders.picture(500 + number).save(tmp_path / "saved.png")
        os.rename(tmp_path / "saved.png", path / "a" / name)
    (path / "b/0003.png").write_text("no picture")
    made = make(path, tmp_path, **limits)
    rows = json.loads((made.folder / "names.json").read_text())
    for part in ("train", "test"):
        images, labels = made.array(f"{part}_images.npy"), made.array(f"{part}_labels.npy")
        for name, image, label in zip(rows[part], images, labels, strict=True):
            assert np.array_equal(
                pictures.take(path / name, "folder", (16, 16, 3), name).pixels, image
            )
            assert name.startswith(f"{made.metrics['classes'][label]}/")
        assert names.read(made, part) == [name.replace("\udce9", "\\xe9") for name in rows[part]]
    read = [*rows["train"], *rows["test"]]
    assert len(read) == len(set(read)) and (limits == {"test_limit": "all"}) == (
        {f"a/{name}" for name in HOSTILE} <= set(read)
    )


def test_limits_count_pictures_that_can_be_read_and_stay_balanced(tmp_path):
    path = picture_folders.write(tmp_path / "p", {"a": 40, "b": 40})
    order = [name for _, name in listing.split(listing.source(str(path)), 0.25)["train"]]
    for name in order[:3]:
        (path / name).write_text("no picture")
    data, skipped = load(path, tmp_path, limits={"train": 10, "test": 6})
    assert (
        np.bincount(data.train_labels).tolist() in ([4, 6], [6, 4], [5, 5])
        and len(data.test_labels) == 6
    )
    assert {one["file"] for one in skipped} == set(order[:3])


def test_the_bytes_do_not_depend_on_the_number_of_threads(tmp_path):
    path = picture_folders.write(tmp_path / "p", {"a": 90, "b": 60})
    one, many = (load(path, tmp_path, threads=threads)[0] for threads in (1, 5))
    np.testing.assert_array_equal(one.train_images, many.train_images)
    np.testing.assert_array_equal(one.test_labels, many.test_labels)


def test_pictures_that_changed_after_planning_are_one_line(path, tmp_path):
    planned = params(path)
    picture_folders.picture(99).save(path / "a/more.png")
    listing.source.cache_clear()
    with pytest.raises(UserError, match="changed after this run was planned; run it again"):
        folder.load(named(path), planned, ALL, tmp_path, 1)


def test_pictures_that_change_while_they_are_read_are_one_line(path, tmp_path, monkeypatch):
    real = folder._part

    def part(*arguments):
        picture_folders.picture(99).save(path / "a/0000.png")
        return real(*arguments)

    monkeypatch.setattr(folder, "_part", part)
    with pytest.raises(UserError, match="changed after this run was planned"):
        load(path, tmp_path)


def test_a_npz_file_gives_its_rows(tmp_path):
    images = np.random.default_rng(3).integers(0, 256, (12, 16, 16), dtype=np.uint8)
    path = picture_folders.npz(
        tmp_path / "a.npz",
        images=images,
        labels=np.arange(12) % 3,
        test_images=images[:3],
        test_labels=np.arange(3),
    )
    data, _ = load(path, tmp_path, channels=1)
    np.testing.assert_array_equal(
        data.test_images[np.argsort(data.test_labels), ..., 0], images[:3]
    )
    assert {image.tobytes() for image in data.train_images} == {image.tobytes() for image in images}
    colour, _ = load(path, tmp_path)
    np.testing.assert_array_equal(colour.train_images, np.repeat(data.train_images, 3, axis=3))


def test_a_npz_file_without_test_images_is_split(tmp_path):
    images = np.random.default_rng(3).integers(0, 256, (12, 16, 16, 3), dtype=np.uint8)
    data, _ = load(
        picture_folders.npz(tmp_path / "a.npz", images=images, labels=np.arange(12) % 3), tmp_path
    )
    assert np.bincount(data.train_labels).tolist() == [3, 3, 3] and np.bincount(
        data.test_labels
    ).tolist() == [1, 1, 1]
    found = {image.tobytes() for image in (*data.train_images, *data.test_images)}
    assert found == {image.tobytes() for image in images}


@pytest.mark.parametrize("shape", [(1, 6), (6, 1), (6, 1, 3), (1, 6, 3), (6, 1, 1), (6, 4, 1)])
def test_rows_of_a_npz_file_may_be_one_pixel_high_or_wide(tmp_path, shape):
    images = np.random.default_rng(3).integers(0, 256, (4, *shape), dtype=np.uint8)
    path = picture_folders.npz(tmp_path / "a.npz", images=images, labels=np.arange(4) % 2)
    data, skipped = load(path, tmp_path, size=shape[:2])
    height, width, channels = *shape[:2], shape[2] if len(shape) == 3 else 1
    whole = np.broadcast_to(images.reshape(4, height, width, channels), (4, height, width, 3))
    assert not skipped and sorted(map(bytes, (*data.train_images, *data.test_images))) == sorted(
        map(bytes, whole.copy())
    )


def test_the_name_of_a_row_of_a_npz_file_is_its_row_there(tmp_path):
    images = np.random.default_rng(3).integers(0, 256, (12, 16, 16, 3), dtype=np.uint8)
    made = make(
        picture_folders.npz(tmp_path / "a.npz", images=images, labels=np.arange(12) % 3),
        tmp_path,
        test_limit="all",
    )
    for part in ("train", "test"):
        np.testing.assert_array_equal(
            made.array(f"{part}_images.npy"), images[[int(row) for row in names.read(made, part)]]
        )


def test_damaged_images_of_a_npz_file_are_one_line(tmp_path):
    images = np.random.default_rng(3).integers(0, 256, (8, 40, 40, 3), dtype=np.uint8)
    path = picture_folders.npz(tmp_path / "a.npz", images=images, labels=np.arange(8) % 2)
    content = path.read_bytes()
    path.write_bytes(content[:3000] + b"damage" + content[3006:])
    with pytest.raises(UserError, match=r"folder: .*a.npz is damaged: images cannot be read \("):
        load(path, tmp_path)


def make(path, tmp_path, **changed):
    planned = {"dataset": "folder", "train_limit": "all", **params(path), **changed}
    spec = {"stage": "data", "params": planned, "sources": {}, "parents": {}}
    with artifacts.making(tmp_path / "data" / "d0123456789a", spec, remake=True) as work:
        work.threads = 1
        prepare_data.make(work, {}, planned, {"urls": "[]", "downloads": "", **named(path)})
    return artifacts.Artifact(tmp_path / "data" / "d0123456789a")


def test_the_stage_writes_the_images_and_what_was_skipped(tmp_path):
    path = picture_folders.write(tmp_path / "my pets", {"cat": 8, "dog": 8})
    (path / "cat/text.png").write_text("no picture")
    made = make(path, tmp_path, test_limit="all")
    assert made.metrics == {
        "folder": "my pets",
        "skipped": 1,
        "classes": ["cat", "dog"],
        "train": 12,
        "test": 4,
        "remarks": [],
        "given": [],
        "copies": {"pictures": 0, "in_both_parts": 0, "with_different_labels": 0},
    }
    assert json.loads((made.folder / "skipped.json").read_text())[0]["file"] == "cat/text.png"
    assert made.array("train_images.npy").shape == (12, 16, 16, 3)
    assert {file.name for file in made.folder.iterdir()} >= set(made.manifest["files"])
    assert not [file for file in made.folder.iterdir() if file.name.startswith("tmp")]


def test_validation_pictures_are_written_block_by_block_and_are_training_pictures(
    tmp_path, monkeypatch
):
    asked, rows = [], datasets.Rows.__getitem__
    monkeypatch.setattr(prepare_data, "BLOCK", 5)
    monkeypatch.setattr(
        datasets.Rows,
        "__getitem__",
        lambda self, part: asked.append(part) or rows(self, part),
    )
    path = picture_folders.write(tmp_path / "pets", {"cat": 16, "dog": 16})
    whole = make(path, tmp_path, test_limit="all")
    images = {
        image.tobytes(): label
        for image, label in zip(
            whole.array("train_images.npy"), whole.array("train_labels.npy"), strict=True
        )
    }
    asked.clear()
    made = make(path, tmp_path, validation=6)
    blocks = [part.start for part in asked if isinstance(part, slice)]
    found = {
        image.tobytes(): label
        for part in ("train", "test")
        for image, label in zip(
            made.array(f"{part}_images.npy"), made.array(f"{part}_labels.npy"), strict=True
        )
    }
    assert found == images and len(made.array("test_labels.npy")) == 6
    assert blocks == [0, 5, 10, 15, 0, 5]


def test_with_a_validation_set_the_test_pictures_are_not_read(tmp_path):
    path = picture_folders.write(
        tmp_path / "p", {"train/a": 8, "train/b": 8, "test/a": 2, "test/b": 2}
    )
    for file in (path / "test").glob("*/*.png"):
        file.write_text("no picture")
    made = make(path, tmp_path, validation=4)
    assert (made.metrics["train"], made.metrics["test"], made.metrics["skipped"]) == (12, 4, 0)


def test_copies_are_in_one_part_and_counted(tmp_path, caplog, monkeypatch):
    path = picture_folders.write(tmp_path / "p", {"a": 12, "b": 12})
    for number in range(12):
        shutil.copy(path / f"a/{number:04d}.png", path / f"a/copy{number}.png")
        # equal when decoded alone
        Image.open(path / f"b/{number:04d}.png").save(path / f"b/{number}.bmp")
    shutil.copy(path / "a/0000.png", path / "b/wrong.png")
    read, opened = pictures.read, []
    monkeypatch.setattr(pictures, "read", lambda *of: opened.append(of[0]) or read(*of))
    with caplog.at_level(logging.INFO):
        made = make(path, tmp_path, test_limit="all")
    # once each, although equal pictures have them split again
    assert len(opened) == len(set(opened)) == 49
    assert any("split again" in message for message in caplog.messages)
    parts = [
        {image.tobytes() for image in made.array(f"{part}_images.npy")}
        for part in ("train", "test")
    ]
    assert made.metrics["copies"] == {
        "pictures": 49,
        "in_both_parts": 0,
        "with_different_labels": 3,
    }
    assert not parts[0] & parts[1]
    assert 10 <= made.metrics["test"] <= 14 and made.metrics["train"] + made.metrics["test"] == 49
    assert caplog.messages[-1] == (
        "49 pictures are there more than once, equal when scaled; test pictures that are training "
        "pictures too: 0; pictures with different labels: 3"
    )


def test_copies_in_given_parts_stay_there_and_are_counted(tmp_path):
    path = picture_folders.write(
        tmp_path / "p", {"train/a": 4, "train/b": 4, "test/a": 2, "test/b": 2}
    )
    shutil.copy(path / "train/a/0000.png", path / "test/a/copy.png")
    shutil.copy(path / "train/b/0000.png", path / "test/a/wrong.png")
    made = make(path, tmp_path, test_limit="all")
    assert made.metrics["copies"] == {"pictures": 4, "in_both_parts": 2, "with_different_labels": 2}
    assert made.metrics["test"] == 6


def test_equal_rows_of_a_npz_file_are_in_one_part(tmp_path):
    images = np.random.default_rng(3).integers(0, 256, (20, 16, 16), dtype=np.uint8)
    for order in (np.ascontiguousarray, np.asfortranarray):
        made = make(
            picture_folders.npz(
                tmp_path / "a.npz",
                images=order(np.concatenate([images, images])),
                labels=np.arange(40) % 2,
            ),
            tmp_path,
            test_limit="all",
        )
        assert made.metrics["copies"] == {
            "pictures": 40,
            "in_both_parts": 0,
            "with_different_labels": 0,
        }
        assert (made.metrics["train"], made.metrics["test"]) == (32, 8)


def test_copies_are_on_one_side_of_a_validation_set(tmp_path):
    path = picture_folders.write(
        tmp_path / "p", {"train/a": 9, "train/b": 9, "test/a": 2, "test/b": 2}
    )
    for name in list(path.glob("train/*/*.png")):
        shutil.copy(name, name.with_suffix(".copy.png"))
    found = make(path, tmp_path, validation=8).metrics["copies"]
    assert found == {"pictures": 36, "in_both_parts": 0, "with_different_labels": 0}


PEAK = """
import sys, resource
sys.path[:0] = [{scripts!r}]
from ladder.data import folder, listing, names
from ladder.data.reading import pictures
path, scratch = sys.argv[1:]
found = listing.source(path)
shape = (8, 8, 3)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
readers = folder._readers(found, shape, scratch, 1)
for part, files in listing.split(found, 0.1).items():
    folder._part(readers[part], part, files, "all")
print(before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def test_originals_are_not_kept_in_memory(tmp_path):
    path = tmp_path / "p"
    for name in "ab":
        (path / name).mkdir(parents=True)
        # 3 MB each when it is decoded
        Image.new("RGB", (1000, 1000), (9, 9, 9)).save(path / name / "0.png")
        for number in range(1, 60):
            os.link(path / name / "0.png", path / name / f"{number}.png")
    code = PEAK.format(scripts=str(pathlib.Path(folder.__file__).parents[2]))
    run = processes.python(
        "-c",
        code,
        str(path),
        str(tmp_path),
        check=True,
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path)},
    )
    before, after = map(int, run.stdout.split())
    assert after - before < 60_000  # kB; all 120 would be 360 MB


# Pictures without labels, or with few.


def test_pictures_without_a_label_are_training_pictures_after_those_that_have_one(tmp_path):
    path = picture_folders.write(tmp_path / "p", {"a": 5, "b": 5, "unlabelled": 6})
    made = make(path, tmp_path, test_limit="all")
    labels = {part: made.array(f"{part}_labels.npy") for part in ("train", "test")}
    files = made.json("names.json")
    assert len(labels["train"]) == 8 and labels["train"].tolist() == [0, 1] * 4
    assert all(name.startswith("unlabelled/") for name in files["train"][8:])
    assert len(made.array("train_images.npy")) == len(files["train"]) == 14
    assert (made.metrics["train"], made.metrics["test"], len(labels["test"])) == (14, 2, 2)


@pytest.mark.parametrize(
    "counts, labelled", [({"": 20}, 0), ({"a": 8, "b": 8, "unlabelled": 4}, 12)]
)
def test_validation_pictures_are_of_those_with_labels_if_any_has_one(tmp_path, counts, labelled):
    path = picture_folders.write(tmp_path / "p", counts)
    made = make(path, tmp_path, validation=4)
    files = made.json("names.json")
    whole = make(path, tmp_path / "whole", test_limit="all").json("names.json")
    assert len(files["test"]) == 4 and set(files["test"]) < set(whole["train"])
    assert not any(name.startswith("unlabelled/") for name in files["test"])
    assert sorted(files["train"] + files["test"]) == sorted(whole["train"])
    assert len(made.array("train_labels.npy")) == max(0, labelled - 4)
    assert len(made.array("test_labels.npy")) == (4 if labelled else 0)


def test_fewer_than_two_pictures_that_can_be_read_are_one_line(tmp_path):
    path = picture_folders.write(tmp_path / "p", {"": 1})
    for number in range(3):
        (path / f"damaged{number}.png").write_bytes(b"no picture")
    with pytest.raises(UserError, match="fewer than two pictures can be read"):
        load(path, tmp_path)
