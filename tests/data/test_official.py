import dataclasses
import gzip
import hashlib
import io
import json
import shutil
import tarfile
import tracemalloc

import numpy as np
import pytest
from scipy import io as scipy_io

import prepare_data
from ladder.data import download, official
from ladder.data.facts import FACTS
from ladder.errors import UserError


def idx(array):
    return gzip.compress(
        bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.tobytes()
    )


def images(count, shape):
    return np.random.default_rng(count).integers(0, 256, (count, *shape), dtype=np.uint8)


def mnist(train, train_labels, test, test_labels):
    return [idx(train[..., 0]), idx(train_labels), idx(test[..., 0]), idx(test_labels)]


def records(pixels, labels, *coarse):
    planes = pixels.transpose(0, 3, 1, 2).reshape(len(pixels), -1)
    before = np.full((len(labels), len(coarse)), coarse, np.uint8)
    return np.concatenate([before, labels[:, None], planes], axis=1).tobytes()


def packed(folder, members):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name, data in members.items():
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return [file.getvalue()]


def names(count):
    return "".join(f"class{number}\n" for number in range(count)).encode()


def cifar10(train, train_labels, test, test_labels):
    batches = zip(np.split(train, 5), np.split(train_labels, 5), strict=True)
    members = {f"data_batch_{n}.bin": records(*batch) for n, batch in enumerate(batches, 1)}
    members |= {"test_batch.bin": records(test, test_labels), "batches.meta.txt": names(10)}
    return packed("cifar-10-batches-bin", members)


def cifar100(train, train_labels, test, test_labels):
    """The archive, its coarse labels all 7."""
    members = {"train.bin": records(train, train_labels, 7)}
    members |= {"test.bin": records(test, test_labels, 7), "fine_label_names.txt": names(100)}
    return packed("cifar-100-binary", members)


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


WRITERS = {
    "mnist": mnist,
    "fashion_mnist": mnist,
    "cifar10": cifar10,
    "cifar100": cifar100,
    "svhn": svhn,
}


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
        self.urls, files, self.folder = [], [], folder
        for file, data in zip(official.FILES[name], WRITERS[name](*self.arrays), strict=True):
            (folder / file.name).write_bytes(data)
            self.urls.append((folder / file.name).as_uri())
            if name == "mnist":
                shape = np.frombuffer(gzip.decompress(data), ">u4", len(file.shape), 4)
                md5 = hashlib.md5(gzip.decompress(data)).hexdigest()
                files.append(dataclasses.replace(file, shape=tuple(shape.tolist()), md5=md5))
            else:
                sha256 = hashlib.sha256(data).hexdigest()
                files.append(dataclasses.replace(file, size=len(data), sha256=sha256))
        monkeypatch.setattr(official, "FILES", {**official.FILES, name: tuple(files)})
        monkeypatch.setattr(download, "FIRST_WAIT", 0.0)

    def load(self, urls=None, with_test=True, **more):
        return official.load(self.name, urls or self.urls, self.downloads, with_test, **more)

    def fault(self, urls=None, **more):
        """The one line that loading ends with."""
        with pytest.raises(UserError) as error:
            self.load(urls, **more)
        assert str(error.value).isprintable()
        return str(error.value)


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
        (lambda data: data[:-9] + bytes([data[-9] ^ 1]) + data[-8:], ("its sha256 is ", "it ")),
        (lambda data: data[:-1], ("its sha256 is ", "it ")),
        (
            lambda data: data + bytes(100_000),
            (" bytes, and the wanted file has at most ",),
        ),
    ],
)
def test_a_file_with_another_content_is_one_line_and_not_kept(small, tmp_path, change, words):
    last = official.FILES[small.name][-1]
    path = tmp_path / last.name
    path.write_bytes(change(path.read_bytes()))
    message = small.fault()
    assert any(word in message for word in words)
    assert f"check {small.name}_urls; put {last.name} by hand in" in message
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


def test_other_than_one_address_for_each_file_is_one_line(tmp_path):
    said = (
        "mnist_urls has 3 addresses, 'file:///a, file:///a, file:///a'; it needs 4: training images"
    )
    with pytest.raises(UserError, match=said):
        official.load("mnist", ["file:///a"] * 3, tmp_path)
    with pytest.raises(UserError, match="mnist_urls: there is no /no/such/folder; name the folder"):
        official.load("mnist", ["/no/such/folder"], tmp_path)


@pytest.fixture
def digits(tmp_path, monkeypatch):
    return Small("mnist", tmp_path, monkeypatch)


def test_mnist_is_known_by_its_unpacked_content(digits, tmp_path):
    for number, url in enumerate(official.FILES["mnist"]):
        path, data = tmp_path / url.name, gzip.decompress((tmp_path / url.name).read_bytes())
        path.unlink()
        path = path.with_suffix("") if number % 2 else path
        path.write_bytes(data if number % 2 else gzip.compress(data, 1))
    data = digits.load([str(tmp_path)])
    np.testing.assert_array_equal(data.train_images, digits.arrays[0])
    np.testing.assert_array_equal(data.test_labels, digits.arrays[3])


def test_files_of_mnist_in_another_order_or_with_any_damage_are_refused(digits, tmp_path):
    message = digits.fault([digits.urls[at] for at in (1, 0, 2, 3)])
    assert "it is not MNIST's training images: unpacked it has md5 " in message
    file = official.FILES["mnist"][1]
    whole = (tmp_path / file.name).read_bytes()
    spoiled = [
        whole[:at] for at in range(len(whole) - 8)
    ]  # 8 bytes of gzip's checks are not needed
    spoiled += [gzip.compress(gzip.decompress(whole) + b"x"), b"<html>log in first</html>"]
    for data in spoiled:
        (tmp_path / "spoiled").write_bytes(data)
        assert file.fault(tmp_path / "spoiled")
    assert "Is a directory" in file.fault(tmp_path)


def test_a_small_file_that_unpacks_to_much_is_never_unpacked(digits, tmp_path):
    file = official.FILES["mnist"][0]
    images = gzip.decompress((tmp_path / file.name).read_bytes())
    (tmp_path / file.name).write_bytes(gzip.compress(images + bytes(20_000_000)))
    tracemalloc.start()
    message = digits.fault()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "it is not MNIST's training images" in message and peak < 5_000_000


def test_another_archive_of_cifar10_is_taken_by_its_checksum(tmp_path, monkeypatch):
    small = Small("cifar10", tmp_path, monkeypatch)
    (file,) = official.FILES["cifar10"]
    for data in (gzip.decompress((tmp_path / file.name).read_bytes()), b"no archive"):
        (tmp_path / file.name).write_bytes(data)
        message = small.fault(sha256=file.sha256)
        found = hashlib.sha256(data).hexdigest()
        assert f"its sha256 is {found}, not" in message or "has at most" in message
        assert "check cifar10_urls and cifar10_sha256; put" in message
        if data != b"no archive":
            np.testing.assert_array_equal(small.load(sha256=found).train_images, small.arrays[0])
            assert (small.downloads / found[:12] / file.name).exists()
    assert "is not the binary version, with cifar-10-batches-bin: " in small.fault(sha256=found)


@pytest.mark.parametrize(
    "change, words",
    [
        ({"test_batch.bin": None}, "test_batch.bin' not found"),
        ({"data_batch_3.bin": bytes(3072)}, "cannot reshape array"),
        ({"data_batch_2.bin": b"\x0a" * 3073}, "a label is not one of its 10 classes"),
        ({"batches.meta.txt": b"\xff"}, "can't decode"),
    ],
)
def test_an_archive_that_is_none_of_cifar10_is_one_line(tmp_path, monkeypatch, change, words):
    small = Small("cifar10", tmp_path, monkeypatch)
    (file,) = official.FILES["cifar10"]
    with tarfile.open(tmp_path / file.name) as archive:
        whole = {one.name: archive.extractfile(one).read() for one in archive}
    changed = {name.rpartition("/")[2]: data for name, data in whole.items()} | change
    (data,) = packed(
        "cifar-10-batches-bin", {name: held for name, held in changed.items() if held is not None}
    )
    (tmp_path / file.name).write_bytes(data)
    assert words in small.fault(sha256=hashlib.sha256(data).hexdigest())


@pytest.mark.parametrize(
    "folder, size, words",
    [("cifar-10-batches-bin", 50_000_000, ""), ("x" * 20_000, 9, "has more than 10,000 bytes")],
)
def test_an_archive_that_is_meant_to_do_harm_is_one_line(
    tmp_path, monkeypatch, folder, size, words
):
    small = Small("cifar10", tmp_path, monkeypatch)
    (file,) = official.FILES["cifar10"]
    monkeypatch.setattr(official, "MOST_UNPACKED", 1_000_000)
    (data,) = packed(folder, {"data_batch_1.bin": bytes(size)})
    (tmp_path / file.name).write_bytes(data)
    tracemalloc.start()
    message = small.fault(sha256=hashlib.sha256(data).hexdigest())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "is not the binary version" in message and words in message and peak < 5_000_000


def test_the_small_part_of_mnist_has_600_of_each_class_in_both_parts():
    part = prepare_data._load({"dataset": "mnist_small"}, {})
    assert part.train_images.shape == part.test_images.shape == (6000, 28, 28, 1)
    assert (
        np.bincount(part.train_labels).tolist()
        == np.bincount(part.test_labels).tolist()
        == [600] * 10
    )
    # MNIST's
    assert part.train_labels[:5].tolist() == [5, 0, 4, 1, 9]
    assert part.test_labels[:5].tolist() == [7, 2, 1, 0, 4]
    assert len(prepare_data._load({"dataset": "mnist_small"}, {}, with_test=False).test_images) == 0


def test_a_damaged_file_of_the_small_part_is_one_line_that_says_how_to_get_it_again(
    tmp_path, monkeypatch
):
    shutil.copytree(official.MNIST_SMALL, tmp_path / "small")
    labels = tmp_path / "small/train-labels-idx1-ubyte.gz"
    data = bytearray(gzip.decompress(labels.read_bytes()))
    data[100] ^= 1
    labels.write_bytes(gzip.compress(data))
    monkeypatch.setattr(official, "MNIST_SMALL", tmp_path / "small")
    with pytest.raises(
        UserError,
        match="are not those that ship with Kernel Ladder: .* md5 .*git checkout workflow/resources",
    ):
        official.mnist_small()


def test_the_data_stage_has_each_data_set(small):
    options = {"urls": json.dumps(small.urls), "downloads": str(small.downloads)}
    sha256 = (
        {"cifar10_sha256": official.FILES["cifar10"][0].sha256} if small.name == "cifar10" else {}
    )
    data = prepare_data._load({"dataset": small.name, **sha256}, options)
    np.testing.assert_array_equal(data.train_images, small.arrays[0])
    with pytest.raises(
        UserError, match="choose mnist_small, digits, cifar10, mnist, fashion_mnist, cifar100, svhn"
    ):
        prepare_data._load({"dataset": "emnist"}, options)
