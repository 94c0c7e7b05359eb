import gzip
import hashlib
import io
import tarfile

import numpy as np
import pytest
from scipy import io as scipy_io

from ladder.data import download, official
from ladder.data.facts import FACTS
from ladder.errors import UserError


def idx(array):
    return gzip.compress(
        bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.tobytes()
    )


def images(count, shape):
    return np.random.default_rng(count).integers(0, 256, (count, *shape), dtype=np.uint8)


def fashion_mnist(train, train_labels, test, test_labels):
    return [idx(train[..., 0]), idx(train_labels), idx(test[..., 0]), idx(test_labels)]


def cifar100(train, train_labels, test, test_labels):
    """The archive, its coarse labels all 7."""
    members = {
        "fine_label_names.txt": "".join(f"class{number}\n" for number in range(100)).encode()
    }
    for name, pixels, labels in (
        ("train.bin", train, train_labels),
        ("test.bin", test, test_labels),
    ):
        planes = pixels.transpose(0, 3, 1, 2).reshape(len(pixels), -1)
        members[name] = np.concatenate(
            [np.full((len(labels), 1), 7, np.uint8), labels[:, None], planes], axis=1
        ).tobytes()
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, data in members.items():
            member = tarfile.TarInfo(f"cifar-100-binary/{name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return [packed.getvalue()]


def svhn(train, train_labels, test, test_labels):
    files = []
    for pixels, labels in ((train, train_labels), (test, test_labels)):
        file = io.BytesIO()
        scipy_io.savemat(
            file,
            {"X": pixels.transpose(1, 2, 3, 0), "y": np.where(labels == 0, 10, labels)[:, None]},
            do_compression=True,
        )
        files.append(file.getvalue())
    return files


WRITERS = {"fashion_mnist": fashion_mnist, "cifar100": cifar100, "svhn": svhn}


class Small:
    """A small data set in the format of the official one: its arrays, the addresses of its files, a
    folder of its own.
    """

    def __init__(self, name, folder, monkeypatch):
        self.name, self.downloads = name, folder / "downloads"
        shape, classes = FACTS[name].shape, FACTS[name].classes
        self.arrays = [
            images(30, shape),
            (np.arange(30) * 7 % classes).astype(np.uint8),
            images(20, shape),
            (np.arange(20) % classes).astype(np.uint8),
        ]
        self.urls, files = [], []
        for file, data in zip(official.FILES[name], WRITERS[name](*self.arrays), strict=True):
            (folder / file.name).write_bytes(data)
            self.urls.append((folder / file.name).as_uri())
            files.append(
                official.File(file.name, file.what, len(data), hashlib.sha256(data).hexdigest())
            )
        monkeypatch.setattr(official, "FILES", {**official.FILES, name: tuple(files)})
        monkeypatch.setattr(download, "FIRST_WAIT", 0.0)

    def load(self, urls=None, with_test=True):
        return official.load(self.name, urls or self.urls, self.downloads, with_test)


@pytest.fixture(params=WRITERS)
def small(request, tmp_path, monkeypatch):
    return Small(request.param, tmp_path, monkeypatch)


def test_images_and_labels_come_in_their_order(small):
    data = small.load()
    found = (data.train_images, data.train_labels, data.test_images, data.test_labels)
    for array, expected in zip(found, small.arrays, strict=True):
        np.testing.assert_array_equal(array, expected)
        assert array.dtype == np.uint8
    assert len(data.classes) == FACTS[small.name].classes and data.classes[1] in (
        "trouser",
        "class1",
        "1",
    )


def test_files_are_kept_and_need_no_network_again(small, tmp_path):
    small.load()
    first = small.load([(tmp_path / "gone").as_uri()] * len(small.urls))
    np.testing.assert_array_equal(first.train_images, small.arrays[0])


def test_without_test_images_their_files_are_not_downloaded(small):
    data = small.load(with_test=False)
    assert (
        len(data.test_images) == len(data.test_labels) == 0
        and data.test_images.shape[1:] == FACTS[small.name].shape
    )
    np.testing.assert_array_equal(data.train_labels, small.arrays[1])
    kept = {
        path.name
        for path in (small.downloads / small.name).iterdir()
        if not path.name.startswith(".")
    }
    assert kept == {
        file.name
        for file in official.FILES[small.name]
        if len(small.urls) == 1 or not file.what.startswith("test")
    }


@pytest.mark.parametrize(
    "change, words",
    [
        (lambda data: data[:-1] + bytes([data[-1] ^ 1]), "its sha256 is "),
        (lambda data: data[:-1], " bytes, not "),
        (lambda data: data + b"x", " bytes, and the wanted file has at most "),
    ],
)
def test_a_file_with_another_content_is_one_line_and_not_kept(small, tmp_path, change, words):
    last = official.FILES[small.name][-1]
    path = tmp_path / last.name
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(UserError) as error:
        small.load()
    message = str(error.value)
    assert (
        message.isprintable()
        and words in message
        and f"check {small.name}_urls; put {last.name} by hand in" in message
    )
    assert not (small.downloads / small.name / last.name).exists()


def test_a_wrong_number_of_addresses_is_one_line(tmp_path):
    with pytest.raises(
        UserError,
        match="svhn_urls has 1 address, 'file:///a'; it needs 2: training images, test images, in "
        "this order, or the path of a folder that holds them",
    ):
        official.load("svhn", ["file:///a"], tmp_path)


def test_the_path_of_a_folder_that_holds_the_files_is_enough(small, tmp_path):
    np.testing.assert_array_equal(small.load([str(tmp_path)]).test_labels, small.arrays[3])


def test_mirrors_of_a_single_file_are_tried_in_order(tmp_path, monkeypatch):
    small = Small("cifar100", tmp_path, monkeypatch)
    data = small.load([(tmp_path / "gone").as_uri(), *small.urls])
    np.testing.assert_array_equal(data.test_labels, small.arrays[3])
