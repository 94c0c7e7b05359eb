import gzip
import hashlib
import io
import json
import os
import pathlib
import re
import shutil
import tarfile
import time
import tracemalloc

import numpy as np
import pytest

import prepare_data
import processes
from ladder.data import datasets, download
from ladder.data import facts as dataset_facts
from ladder.errors import UserError

FOLDER = "cifar-10-batches-bin"
NAMES = "\n".join(datasets.CIFAR10_CLASSES) + "\n\n"


def records(count, seed=0):
    """`count` random records of CIFAR-10's binary format, their labels in turn."""
    rows = np.random.default_rng(seed).integers(0, 256, (count, datasets.RECORD), dtype=np.uint8)
    rows[:, 0] = np.arange(count) % 10
    return rows


def contents():
    """{member: bytes} of a small, good archive: 20 records in each training batch, 10 in the test
    batch.
    """
    files = {f"{FOLDER}/data_batch_{i}.bin": records(20, seed=i).tobytes() for i in range(1, 6)}
    files[f"{FOLDER}/test_batch.bin"] = records(10, seed=6).tobytes()
    files[f"{FOLDER}/batches.meta.txt"] = NAMES.encode()
    return files


def member(name, data=b"", **attributes):
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for key, value in attributes.items():
        setattr(info, key, value)
    return info, io.BytesIO(data)


def write(path, files, extra=()):
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        for name, data in files.items():
            archive.addfile(*member(name, data))
        for info, data in extra:
            archive.addfile(info, data)
    return path


def fault(path):
    """The one line that reading the archive fails with."""
    with pytest.raises(UserError) as error:
        datasets.read_cifar10(path)
    message = str(error.value)
    assert message.isprintable() and message.startswith(
        f"{path} is not a CIFAR-10 binary archive: "
    )
    assert "cifar10_urls and cifar10_sha256" in message
    return message


@pytest.fixture
def archive(tmp_path):
    return tmp_path / "cifar.tar.gz"


def test_digits_are_all_there_and_split_by_class():
    data = datasets.digits()
    assert data.train_images.shape == (1433, 32, 32, 3) and data.test_images.shape == (
        364,
        32,
        32,
        3,
    )
    assert data.train_images.dtype == data.test_images.dtype == data.train_labels.dtype == np.uint8
    share = np.bincount(data.test_labels) / (
        np.bincount(data.train_labels) + np.bincount(data.test_labels)
    )
    assert len(share) == 10 and np.all(np.abs(share - 0.2) < 0.01)


def test_digits_are_the_same_bytes_everywhere():
    data = datasets.digits()
    digest = hashlib.sha256()
    for array in (data.train_images, data.train_labels, data.test_images, data.test_labels):
        digest.update(array.tobytes())
    assert digest.hexdigest() == "b2851cab711638cbe9e48925a91dd61772339fc24dccbb41a4824552c047a074"


def test_digits_are_enlarged_bilinearly():
    from PIL import Image
    from sklearn.datasets import load_digits

    raw = load_digits().images[:20]
    enlarged = datasets._enlarge(raw.astype(np.int64))
    for small, large in zip(raw, enlarged, strict=True):
        reference = np.asarray(
            Image.fromarray(small.astype(np.float32)).resize((32, 32), Image.Resampling.BILINEAR)
        )
        np.testing.assert_allclose(large, reference * 255 / 16, atol=0.5001)


def test_digits_of_the_two_parts_are_those_of_scikit_learn():
    from sklearn.datasets import load_digits

    raw, data = load_digits(), datasets.digits()
    assert sorted(np.concatenate([data.train_labels, data.test_labels])) == sorted(raw.target)
    everything = np.concatenate([data.train_images, data.test_images])
    assert len(np.unique(everything.reshape(1797, -1), axis=0)) == len(np.unique(raw.data, axis=0))


def test_an_archive_becomes_nhwc_images_and_labels_in_their_order(archive):
    files = contents()
    data = datasets.read_cifar10(write(archive, files))
    assert data.train_images.shape == (100, 32, 32, 3) and data.test_images.shape == (10, 32, 32, 3)
    assert data.classes == datasets.CIFAR10_CLASSES
    for row, batch, index in ((0, 1, 0), (19, 1, 19), (20, 2, 0), (99, 5, 19)):
        raw = files[f"{FOLDER}/data_batch_{batch}.bin"][index * 3073 : (index + 1) * 3073]
        assert data.train_labels[row] == raw[0]
        for y, x, channel in ((0, 0, 0), (0, 1, 0), (1, 0, 0), (31, 31, 2), (5, 7, 1)):
            assert data.train_images[row, y, x, channel] == raw[1 + channel * 1024 + y * 32 + x]
    test = np.frombuffer(files[f"{FOLDER}/test_batch.bin"], np.uint8).reshape(10, 3073)
    np.testing.assert_array_equal(
        data.test_images.transpose(0, 3, 1, 2).reshape(10, -1), test[:, 1:]
    )


def test_other_members_and_folders_are_passed_over(archive):
    files = {f"./{name}": data for name, data in contents().items()} | {
        f"{FOLDER}/readme.html": b"<p>hello"
    }
    data = datasets.read_cifar10(write(archive, files, [member(FOLDER, type=tarfile.DIRTYPE)]))
    assert len(data.train_labels) == 100


@pytest.mark.parametrize("address", [lambda archive: archive, lambda archive: archive.parent])
def test_the_archive_may_be_a_path_or_in_a_folder(archive, tmp_path, monkeypatch, address):
    named = write(archive, contents()).rename(archive.with_name(datasets.CIFAR10_FILE))
    data = datasets.cifar10(
        [str(address(named))],
        tmp_path / "downloads",
        hashlib.sha256(named.read_bytes()).hexdigest(),
    )
    assert len(data.train_labels) == 100


def test_without_a_checksum_what_the_addresses_give_is_taken_and_kept(archive, tmp_path):
    urls = [write(archive, contents()).as_uri()]
    assert len(datasets.cifar10(urls, tmp_path / "downloads", None).train_labels) == 100
    archive.unlink()
    assert len(datasets.cifar10(urls, tmp_path / "downloads", None).train_labels) == 100


def test_a_plain_tar_is_read_as_the_gzipped_one(archive, tmp_path):
    expected = datasets.read_cifar10(write(archive, contents()))
    plain = tmp_path / "plain.tar"
    plain.write_bytes(gzip.decompress(archive.read_bytes()))
    found = datasets.cifar10(
        [str(plain)], tmp_path / "downloads", hashlib.sha256(plain.read_bytes()).hexdigest()
    )
    np.testing.assert_array_equal(found.train_images, expected.train_images)


def unpacked(folder):
    folder.mkdir()
    for name, data in contents().items():
        (folder / name.partition("/")[2]).write_bytes(data)
    return folder


def test_an_unpacked_archive_is_read_where_no_checksum_is_asked_for(archive, tmp_path):
    expected, folder = (
        datasets.read_cifar10(write(archive, contents())),
        unpacked(tmp_path / FOLDER),
    )
    for path in (folder, tmp_path):
        found = datasets.cifar10([str(path)], tmp_path / "downloads", None)
        np.testing.assert_array_equal(found.train_images, expected.train_images)
        np.testing.assert_array_equal(found.test_labels, expected.test_labels)
    with pytest.raises(
        UserError,
        match="is unpacked, so that its checksum .* add cifar10_sha256=null, else name the archive",
    ):
        datasets.cifar10([str(folder)], tmp_path / "downloads")


@pytest.mark.parametrize(
    "change, words",
    [
        (
            lambda folder: (folder / "data_batch_3.bin").unlink(),
            "cannot read .*data_batch_3.bin: No such file",
        ),
        (
            lambda folder: (folder / "test_batch.bin").write_bytes(bytes(3072)),
            "is not an unpacked .*test_batch.bin is 3,072 bytes",
        ),
        (
            lambda folder: (folder / "test_batch.bin").write_bytes(bytes(30_730_001)),
            "30,730,000 at most",
        ),
        (
            lambda folder: (folder / "batches.meta.txt").write_text("cat dog"),
            "does not list the ten classes",
        ),
        (
            lambda folder: (
                (folder / "test_batch.bin").unlink(),
                os.mkfifo(folder / "test_batch.bin"),
            ),
            "it is not a plain file",
        ),
    ],
)
def test_a_damaged_unpacked_archive_is_one_line(tmp_path, change, words):
    folder = unpacked(tmp_path / FOLDER)
    change(folder)
    with pytest.raises(UserError, match=words):
        datasets.cifar10([str(folder)], tmp_path / "downloads", None)


@pytest.mark.parametrize(
    "url", ["https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz", "/data/cifar-10-batches-py"]
)
def test_the_version_for_python_is_named_before_it_is_downloaded(tmp_path, url):
    with pytest.raises(
        UserError,
        match="is the version for Python, whose pickles are not read, since that runs code; take the "
        "binary version, cifar-10-binary.tar.gz, or leave cifar10_urls out",
    ):
        datasets.cifar10([url], tmp_path)


def test_the_version_for_python_under_another_name_is_not_unpickled(archive):
    write(archive, {"cifar-10-batches-py/data_batch_1": b"cos\nsystem\n(S'false'\ntR."})
    assert "it is the version for Python, whose pickles are not read" in fault(archive)


@pytest.mark.parametrize(
    "name", ["../../evil.txt", "/etc/evil", f"{FOLDER}/../../evil", "a/..", "../\x1b[2Jé\nx"]
)
def test_names_that_point_outside_are_refused_and_nothing_is_written(archive, tmp_path, name):
    write(archive, contents(), [member(name, b"evil")])
    assert "points outside the archive" in fault(archive)
    assert list(tmp_path.iterdir()) == [archive]


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE]
)
def test_links_devices_and_pipes_are_refused(archive, kind):
    files = contents()
    del files[f"{FOLDER}/test_batch.bin"]
    write(archive, files, [member(f"{FOLDER}/test_batch.bin", type=kind, linkname="/dev/zero")])
    assert "is not a plain file or folder" in fault(archive)


def test_a_folder_in_place_of_a_batch_is_refused(archive):
    files = contents()
    del files[f"{FOLDER}/test_batch.bin"]
    write(archive, files, [member(f"{FOLDER}/test_batch.bin", type=tarfile.DIRTYPE)])
    assert "test_batch.bin is not a file" in fault(archive)


def test_a_sparse_member_is_refused(archive):
    sparse = {
        "GNU.sparse.major": "0",
        "GNU.sparse.minor": "1",
        "GNU.sparse.map": "0,3073",
        "GNU.sparse.size": str(3073 * 10),
    }
    files = contents()
    del files[f"{FOLDER}/test_batch.bin"]
    write(archive, files, [member(f"{FOLDER}/test_batch.bin", bytes(3073), pax_headers=sparse)])
    assert "is not a plain file or folder" in fault(archive)


@pytest.mark.parametrize(
    "pax", [{"size": "1" + "0" * 15}, {"size": "1" + "0" * 40}, {"comment": "9" * 10_000}]
)
def test_an_extended_header_with_an_absurd_claim_is_refused_at_once(archive, pax):
    started = time.process_time()
    write(archive, contents(), [member("x", b"1", pax_headers=pax)])
    assert re.search("its (member 'x'|header '.*') has more than", fault(archive))
    assert time.process_time() - started < 5


def test_headers_that_extend_each_other_without_end_are_refused(archive):
    record = b"9 a=bcde\n"
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, len(record)
    block = header.tobuf(tarfile.GNU_FORMAT) + record.ljust(512, b"\0")
    archive.write_bytes(gzip.compress(block * 2000, 1))
    assert "it is truncated or damaged" in fault(archive)


@pytest.mark.parametrize("count", [0, 1, 3072, 3074, 20 * 3073 - 1, 10_001 * 3073])
def test_a_batch_that_is_not_whole_records_is_refused(archive, count):
    write(archive, contents() | {f"{FOLDER}/data_batch_3.bin": bytes(count)})
    expected = (
        f"data_batch_3.bin is {count:,} bytes long, which is not 1 to 10,000 records of 3,073 bytes"
    )
    assert expected in fault(archive)


def test_a_label_out_of_range_is_refused(archive):
    rows = records(20)
    rows[7, 0] = 10
    write(archive, contents() | {f"{FOLDER}/data_batch_2.bin": rows.tobytes()})
    assert f"record 7 of its {FOLDER}/data_batch_2.bin has label 10, which is not 0 to 9" in fault(
        archive
    )


@pytest.mark.parametrize("name", sorted(contents()))
def test_a_missing_member_is_named(archive, name):
    files = contents()
    del files[name]
    assert f"it has no {name}" in fault(write(archive, files))


def test_a_member_that_comes_twice_is_refused(archive):
    name = f"{FOLDER}/test_batch.bin"
    assert f"it holds {name} twice" in fault(
        write(archive, contents(), [member(name, records(10).tobytes())])
    )


def test_other_class_names_are_refused(archive):
    names = "\n".join(reversed(datasets.CIFAR10_CLASSES)).encode()
    assert "does not list the ten classes" in fault(
        write(archive, contents() | {f"{FOLDER}/batches.meta.txt": names})
    )


def test_an_archive_cut_anywhere_is_refused(archive):
    whole = write(archive, contents()).read_bytes()
    for length in (0, 1, 9, 100, len(whole) // 2, len(whole) - 9, len(whole) - 4, len(whole) - 1):
        archive.write_bytes(whole[:length])
        fault(archive)


def test_an_archive_with_any_damage_is_refused_or_read_unchanged(archive):
    """A flipped bit is noticed by gzip's checksum, unless it is in a field of gzip's header that
    nothing depends on.
    """
    whole = write(archive, contents()).read_bytes()
    expected = datasets.read_cifar10(archive).train_images
    refused = 0
    for position in np.random.default_rng(1).integers(0, len(whole), 40):
        archive.write_bytes(
            whole[:position] + bytes([whole[position] ^ 0x10]) + whole[position + 1 :]
        )
        try:
            np.testing.assert_array_equal(datasets.read_cifar10(archive).train_images, expected)
        except UserError:
            refused += 1
    assert refused >= 35


def test_damaged_tar_headers_are_refused_or_harmless(archive):
    """Headers with random bytes in them, in a sound gzip file: one line or the data, never another
    error.
    """
    plain = gzip.decompress(write(archive, contents()).read_bytes())
    starts = [at for at in range(0, len(plain), 512) if plain[at + 257 : at + 262] == b"ustar"]
    generator = np.random.default_rng(2)
    refused = 0
    for _ in range(60):
        damaged = bytearray(plain)
        start = int(generator.choice(starts))
        for offset in generator.integers(0, 345, 3):
            damaged[start + offset] = generator.integers(0, 256)
        damaged[start + 148 : start + 156] = b"%06o\0 " % (
            sum(damaged[start : start + 148]) + 256 + sum(damaged[start + 156 : start + 512])
        )
        archive.write_bytes(gzip.compress(bytes(damaged), 1))
        try:
            datasets.read_cifar10(archive)
        except UserError:
            refused += 1
    assert refused >= 20


def test_a_file_of_another_kind_is_refused(archive):
    for data in (
        b"<html>not found</html>",
        gzip.compress(b"not a tar"),
        gzip.compress(b""),
        bytes(5000),
    ):
        archive.write_bytes(data)
        fault(archive)


def test_a_small_file_that_unpacks_to_gigabytes_is_stopped(archive, monkeypatch):
    monkeypatch.setattr(datasets, "MOST_BYTES", 1_000_000)
    write(archive, {"padding": bytes(3_000_000)} | contents())
    assert "unpacks to more than 1.0 MB" in fault(archive)


def test_padding_behind_the_last_member_counts_too(archive, monkeypatch):
    monkeypatch.setattr(datasets, "MOST_BYTES", 1_000_000)
    with gzip.open(write(archive, contents()), "ab") as file:
        file.write(bytes(3_000_000))
    assert "unpacks to more than 1.0 MB" in fault(archive)


def test_a_header_that_claims_a_huge_size_is_stopped(archive):
    info, _ = member("x" * 200, b"")
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    header[124:136] = b"77777777777\0"  # the long name is said to have 8 GB
    header[148:156] = b"        "
    header[148:156] = b"%06o\0 " % sum(header[:512])
    archive.write_bytes(gzip.compress(bytes(header)))
    fault(archive)


def test_too_many_members_are_refused(archive):
    write(archive, {f"file{i}": b"" for i in range(datasets.MOST_MEMBERS + 1)} | contents())
    assert "more than 100 members" in fault(archive)


def test_a_configured_archive_is_fetched_kept_and_read(archive, tmp_path):
    sha256 = hashlib.sha256(write(archive, contents()).read_bytes()).hexdigest()
    data = datasets.cifar10([archive.as_uri()], tmp_path / "downloads", sha256)
    kept = tmp_path / "downloads" / sha256[:12] / "cifar-10-binary.tar.gz"
    assert kept.read_bytes() == archive.read_bytes() and len(data.train_labels) == 100


def test_an_archive_of_another_size_than_the_official_one_is_refused_at_once(archive, tmp_path):
    write(archive, contents())
    with pytest.raises(UserError, match="bytes, not 170,052,171"):
        datasets.cifar10([archive.as_uri()], tmp_path / "downloads")


def idx(array):
    """The bytes of an IDX file with this uint8 array."""
    return bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.tobytes()


@pytest.fixture
def mnist(tmp_path, monkeypatch):
    """A small MNIST, 40 training and 20 test images: its arrays; its files' bytes by name, in
    order; a folder of its own.
    """
    generator = np.random.default_rng(4)
    arrays, files, kinds = [], {}, []
    for official in datasets.MNIST_FILES:
        shape = (40 if "train" in official.name else 20, *official.shape[1:])
        arrays.append(generator.integers(0, 10, shape, dtype=np.uint8))
        files[official.name] = idx(arrays[-1])
        kinds.append(
            datasets.Idx(
                official.name, official.what, shape, hashlib.md5(files[official.name]).hexdigest()
            )
        )
    monkeypatch.setattr(datasets, "MNIST_FILES", tuple(kinds))
    monkeypatch.setattr(download, "FIRST_WAIT", 0.0)
    return Mnist(arrays, files, tmp_path / "source", tmp_path / "downloads")


class Mnist:
    def __init__(self, arrays, files, source, downloads):
        self.arrays, self.files, self.source, self.downloads = arrays, files, source, downloads
        self.kept = downloads / "mnist"

    def urls(self, pack=gzip.compress, **changed):
        """Addresses of the four files, packed; changed: other bytes for a file, by its name with _
        for -.
        """
        self.source.mkdir(exist_ok=True)
        urls = []
        for name, data in self.files.items():
            path = self.source / f"{name}.gz"
            path.write_bytes(changed.get(name.replace("-", "_"), pack(data)))
            urls.append(path.as_uri())
        return urls

    def load(self, urls):
        return datasets.mnist(urls, self.downloads)

    def fault(self, urls):
        """The one-line error of loading these."""
        with pytest.raises(UserError) as error:
            self.load(urls)
        assert str(error.value).isprintable()
        return str(error.value)

    def check(self, data):
        for found, expected in zip(
            (data.train_images, data.train_labels, data.test_images, data.test_labels),
            self.arrays,
            strict=True,
        ):
            np.testing.assert_array_equal(
                found, expected[..., None] if expected.ndim == 3 else expected
            )
            assert found.dtype == np.uint8
        assert data.train_images.shape == (40, 28, 28, 1) and data.classes == tuple("0123456789")


def test_mnist_is_its_four_files_gzipped_or_not(mnist):
    mnist.check(mnist.load(mnist.urls()))
    assert [path.name for path in sorted(mnist.kept.iterdir()) if path.name[0] != "."] == sorted(
        f"{name}.gz" for name in mnist.files
    )


def test_mnist_is_the_same_bytes_everywhere():
    expected = {
        "train-images-idx3-ubyte": (47_040_016, "00000803 0000ea60 0000001c 0000001c"),
        "train-labels-idx1-ubyte": (60_008, "00000801 0000ea60"),
        "t10k-images-idx3-ubyte": (7_840_016, "00000803 00002710 0000001c 0000001c"),
        "t10k-labels-idx1-ubyte": (10_008, "00000801 00002710"),
    }
    assert {
        file.name: (file.length, file.header.hex(" ", 4)) for file in datasets.MNIST_FILES
    } == expected
    assert [file.md5 for file in datasets.MNIST_FILES] == [
        "6bbc9ace898e44ae57da46a324031adb",
        "a25bea736e30d166cdddb491f175f624",
        "2646ac647ad5339dbf082846283269ea",
        "27ae3e4e09519cfbb04c329615203637",
    ]


def test_mnist_needs_no_network_the_second_time(mnist):
    mnist.load(mnist.urls())
    mnist.check(mnist.load(["http://127.0.0.1:9/gone"] * 4))


def test_mnist_put_there_by_hand_is_taken_packed_or_not(mnist):
    mnist.kept.mkdir(parents=True)
    for number, (name, data) in enumerate(mnist.files.items()):
        if number % 2:
            (mnist.kept / name).write_bytes(data)
        else:
            (mnist.kept / f"{name}.gz").write_bytes(gzip.compress(data))
    mnist.check(mnist.load(["http://127.0.0.1:9/gone"] * 4))


def test_without_a_network_the_files_that_are_missing_are_named(mnist):
    gone = ["file:///no/such/file"] * 4
    message = mnist.fault(gone)
    assert message.startswith(
        "cannot get train-images-idx3-ubyte.gz (file:///no/such/file: No such file"
    )
    assert (
        "put train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz, t10k-images-idx3-ubyte.gz and "
        "t10k-labels-idx1-ubyte.gz (or the same unpacked, named without .gz) by hand in "
        f"{mnist.kept} and run again"
    ) in message and "--config dataset=mnist_small" in message
    message = mnist.fault([*mnist.urls()[:3], gone[0]])
    assert "cannot get t10k-labels" in message and "put t10k-labels-idx1-ubyte.gz (or" in message


@pytest.mark.parametrize("count", [0, 1, 3, 5])
def test_other_than_four_addresses_are_refused(mnist, count):
    message = mnist.fault(["file:///no/such/file"] * count)
    assert message.startswith(
        f"mnist_urls has {count} address{'es' if count != 1 else ''}, '{'file:///no' if count else ''}"
    )
    assert (
        "; it needs 4: training images, training labels, test images, test labels, in this order, or the path of a folder "
        "that holds them"
    ) in message


@pytest.mark.parametrize("packed", [True, False])
def test_the_path_of_a_folder_that_holds_the_files_is_enough(mnist, packed):
    mnist.urls()
    for name, data in mnist.files.items() if not packed else ():
        (mnist.source / name).write_bytes(data)
        (mnist.source / f"{name}.gz").unlink()
    mnist.check(mnist.load([str(mnist.source)]))


def test_a_folder_without_a_file_of_mnist_and_a_missing_one_are_one_line(mnist):
    mnist.urls()
    (mnist.source / "t10k-images-idx3-ubyte.gz").unlink()
    assert mnist.fault([str(mnist.source)]).startswith(
        f"cannot get t10k-images-idx3-ubyte.gz ({mnist.source}: the folder has no t10k-images-idx3-ubyte.gz)"
    )
    assert mnist.fault(["/no/such/folder"]) == (
        "mnist_urls: there is no /no/such/folder; name the folder that holds the files"
    )
    assert "it needs 4: training images" in mnist.fault(
        [str(mnist.source / "train-images-idx3-ubyte.gz")]
    )


@pytest.mark.parametrize(
    "order, first",
    [
        ((1, 0, 2, 3), "training images: it has the header of its training labels"),
        ((2, 1, 0, 3), "training images: it has the header of its test images"),
        ((0, 2, 1, 3), "training labels: it has the header of its test images"),
        ((0, 1, 3, 2), "test images: it has the header of its test labels"),
        ((0, 3, 2, 1), "training labels: it has the header of its test labels"),
    ],
)
def test_swapped_addresses_of_mnist_are_reported(mnist, order, first):
    urls = mnist.urls()
    message = mnist.fault([urls[i] for i in order])
    assert f"it is not MNIST's {first}" in message
    assert (
        "check mnist_urls (training images, training labels, test images, test labels, in this order); "
        in message
    )


def test_a_file_of_mnist_with_another_content_is_refused_and_not_kept(mnist):
    data = bytearray(mnist.files["t10k-images-idx3-ubyte"])
    data[-1] ^= 1
    message = mnist.fault(mnist.urls(t10k_images_idx3_ubyte=gzip.compress(data)))
    assert (
        message.startswith("cannot get t10k-images-idx3-ubyte.gz (")
        and "it is not MNIST's test images" in message
    )
    assert (
        f"unpacked it has md5 {hashlib.md5(data).hexdigest()}, not {datasets.MNIST_FILES[2].md5}"
        in message
    )
    assert [
        path.name
        for path in mnist.kept.iterdir()
        if "t10k-images" in path.name and path.name[0] != "."
    ] == []


@pytest.mark.parametrize(
    "data, reason",
    [
        (b"", "begins with nothing"),
        (b"\0", "begins with 00,"),
        (b"<html>not found</html>", "begins with 3c68746d"),
        (
            idx(np.zeros((40, 28, 27), np.uint8)),
            "begins with 00000803 00000028 0000001c 0000001b, not with the header of an IDX"
            " file of 40 x 28 x 28 bytes, 00000803 00000028 0000001c 0000001c",
        ),
        (b"\0\0\x0d\3" + idx(np.zeros((40, 28, 28), np.uint8))[4:], "begins with 00000d03"),
    ],
)
@pytest.mark.parametrize("pack", [gzip.compress, bytes])
def test_what_is_not_idx_is_refused(mnist, pack, data, reason):
    assert reason in mnist.fault(mnist.urls(train_images_idx3_ubyte=pack(data)))


def test_a_gzipped_file_of_mnist_cut_anywhere_is_refused(mnist):
    whole = gzip.compress(mnist.files["train-labels-idx1-ubyte"])
    for length in (2, 3, 9, 15, len(whole) // 2, len(whole) - 9, len(whole) - 4, len(whole) - 1):
        message = mnist.fault(mnist.urls(train_labels_idx1_ubyte=whole[:length]))
        assert "cannot get train-labels" in message and "truncated or damaged" in message


def test_a_plain_file_of_mnist_cut_or_grown_is_refused(mnist):
    plain = mnist.files["train-labels-idx1-ubyte"]
    message = mnist.fault(mnist.urls(train_labels_idx1_ubyte=plain[:-3]))
    assert "it has only 45 of 48 bytes" in message and "unpacked it" not in message
    assert "it has more than 48 bytes" in mnist.fault(
        mnist.urls(train_labels_idx1_ubyte=plain + b"x")
    )


def test_a_gzipped_file_of_mnist_that_ends_early_or_goes_on_is_refused(mnist):
    plain = mnist.files["train-labels-idx1-ubyte"]
    assert "unpacked it has only 45 of 48 bytes" in mnist.fault(
        mnist.urls(train_labels_idx1_ubyte=gzip.compress(plain[:-3]))
    )
    for more in (gzip.compress(plain + b"x"), gzip.compress(plain) + gzip.compress(b"x")):
        assert "unpacked it has more than 48 bytes" in mnist.fault(
            mnist.urls(train_labels_idx1_ubyte=more)
        )
    assert "truncated or damaged" in mnist.fault(
        mnist.urls(train_labels_idx1_ubyte=gzip.compress(plain) + b"x")
    )


def test_a_file_of_mnist_with_any_damage_is_refused_or_read_unchanged(mnist):
    file = datasets.MNIST_FILES[0]
    whole = gzip.compress(mnist.files[file.name], mtime=0)
    path = mnist.downloads
    refused = 0
    for position in (*range(20), *np.random.default_rng(5).integers(20, len(whole), 40)):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 0x10]) + whole[position + 1 :])
        try:
            np.testing.assert_array_equal(datasets.read_idx(path, file), mnist.arrays[0])
        except UserError:
            refused += 1
    assert refused >= 50


def test_a_small_file_that_unpacks_to_much_is_never_unpacked(mnist):
    images = mnist.files["train-images-idx3-ubyte"]
    bomb = gzip.compress(images + bytes(30_000_000), mtime=0)
    assert len(bomb) < 2 * len(images)
    urls = mnist.urls(train_images_idx3_ubyte=bomb)
    tracemalloc.start()
    message = mnist.fault(urls)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "unpacked it has more than 31,376 bytes" in message and peak < 5_000_000


def test_a_file_larger_than_any_of_mnist_is_not_downloaded(mnist):
    urls = mnist.urls(t10k_labels_idx1_ubyte=bytes(100_000))
    assert "it is 100,000 bytes, and the wanted file has at most 62,752" in mnist.fault(urls)


def test_a_wrong_file_of_mnist_put_there_by_hand_is_named_and_kept(mnist):
    urls = mnist.urls()
    mnist.load(urls)
    path = mnist.kept / "t10k-labels-idx1-ubyte.gz"
    path.write_bytes(gzip.compress(mnist.files["train-labels-idx1-ubyte"]))
    message = mnist.fault(urls)
    assert (
        f"{path} is not MNIST's test labels: it has the header of its training labels; remove it"
        in message
    )
    assert path.exists()
    path.unlink()
    mnist.check(mnist.load(urls))


def test_a_folder_in_place_of_a_file_of_mnist_is_reported(mnist):
    (mnist.kept / "train-labels-idx1-ubyte").mkdir(parents=True)
    assert "it cannot be read (Is a directory)" in mnist.fault(mnist.urls())


def test_the_small_part_of_mnist_has_600_of_each_class_in_both_parts():
    part = prepare_data._load({"dataset": "mnist_small"}, {})
    assert part.train_images.shape == part.test_images.shape == (6000, 28, 28, 1)
    assert (
        np.bincount(part.train_labels).tolist()
        == np.bincount(part.test_labels).tolist()
        == [600] * 10
    )
    # MNIST's
    assert part.train_labels[:5].tolist() == [5, 0, 4, 1, 9] and part.test_labels[:5].tolist() == [
        7,
        2,
        1,
        0,
        4,
    ]
    assert len(prepare_data._load({"dataset": "mnist_small"}, {}, with_test=False).test_images) == 0


def test_a_damaged_file_of_the_small_part_is_one_line_that_says_how_to_get_it_again(
    tmp_path, monkeypatch
):
    shutil.copytree(datasets.MNIST_SMALL, tmp_path / "small")
    labels = tmp_path / "small/train-labels-idx1-ubyte.gz"
    data = bytearray(gzip.decompress(labels.read_bytes()))
    data[100] ^= 1
    labels.write_bytes(gzip.compress(data))
    monkeypatch.setattr(datasets, "MNIST_SMALL", tmp_path / "small")
    with pytest.raises(
        UserError,
        match="are not those that ship with Kernel Ladder: .* md5 .*git checkout workflow/resources",
    ):
        datasets.mnist_small()


def test_the_data_stage_has_mnist(mnist):
    options = {"urls": json.dumps(mnist.urls()), "downloads": str(mnist.downloads)}
    mnist.check(prepare_data._load({"dataset": "mnist"}, options))
    with pytest.raises(
        UserError, match="choose mnist_small, digits, cifar10, mnist, fashion_mnist, cifar100, svhn"
    ):
        prepare_data._load({"dataset": "emnist"}, options)


def test_the_facts_are_those_of_the_data():
    facts = dataset_facts.FACTS
    digits = datasets.digits()
    assert facts["digits"] == dataset_facts.Facts(
        digits.train_images.shape[1:],
        len(digits.classes),
        len(digits.train_labels),
        len(digits.test_labels),
    )
    assert facts["cifar10"] == dataset_facts.Facts(
        datasets.IMAGE,
        len(datasets.CIFAR10_CLASSES),
        len(datasets.TRAIN_MEMBERS) * datasets.RECORDS,
        datasets.RECORDS,
    )
    shapes = [file.shape for file in datasets.MNIST_FILES]
    assert shapes[0][1:] == shapes[2][1:] and [shape[0] for shape in shapes[1::2]] == [
        shape[0] for shape in shapes[::2]
    ]
    assert facts["mnist"] == dataset_facts.Facts(
        (*shapes[0][1:], 1), 10, shapes[0][0], shapes[2][0]
    )


def test_the_facts_need_the_standard_library_alone():
    scripts = pathlib.Path(dataset_facts.__file__).parents[2]
    code = f"import sys; sys.path.insert(0, {str(scripts)!r}); from ladder.data.facts import FACTS; print(*FACTS)"
    run = processes.python("-I", "-S", "-c", code, check=True)
    assert run.stdout.split() == list(dataset_facts.FACTS)


def test_limits_are_balanced_nested_and_in_order():
    labels = np.random.default_rng(3).integers(0, 10, 500).astype(np.uint8)
    kept = {
        limit: datasets._limited_rows(labels, limit, "train_limit", 10) for limit in (10, 57, 200)
    }
    for limit, rows in kept.items():
        counts = np.bincount(labels[rows], minlength=10)
        assert len(rows) == limit and counts.max() - counts.min() <= 1 and np.all(np.diff(rows) > 0)
    assert set(kept[10]) < set(kept[57]) < set(kept[200])


def test_a_limit_near_all_rows_is_as_balanced_as_the_data_allows():
    data = datasets.digits()
    part = datasets.limited(data, 1400, "all")
    counts, available = np.bincount(part.train_labels), np.bincount(data.train_labels)
    assert np.all((counts >= counts.max() - 1) | (counts == available))
    assert len(part.train_images) == 1400 and len(part.test_images) == 364


def test_limits_keep_images_with_their_labels():
    data = datasets.digits()
    part = datasets.limited(data, 20, 10)
    for image, label in zip(part.train_images, part.train_labels, strict=True):
        matches = np.flatnonzero((data.train_images == image).all(axis=(1, 2, 3)))
        assert label in data.train_labels[matches]


@pytest.mark.parametrize("limit", [9, 0, -5, 1434])
def test_a_limit_that_the_data_cannot_give_is_named_with_what_it_may_be(limit):
    with pytest.raises(UserError, match=rf"train_limit {limit} .* 10 .* to 1433 .*, or all"):
        datasets.limited(datasets.digits(), limit, "all")


def test_a_test_limit_is_named_as_such():
    with pytest.raises(UserError, match="test_limit 365"):
        datasets.limited(datasets.digits(), "all", 365)


@pytest.mark.parametrize("count", [10, 143, 700])
def test_a_validation_set_is_stratified_and_disjoint_from_the_training_rows(count):
    data = datasets.digits()
    part = datasets.with_validation(data, count)
    sizes, drawn = np.bincount(data.train_labels), np.bincount(part.test_labels, minlength=10)
    assert np.abs(drawn - sizes * count / sizes.sum()).max() < 1.01 and drawn.sum() == count
    assert len(part.train_labels) == len(data.train_labels) - count

    def rows(images, labels):
        return sorted(
            image.tobytes() + bytes([label]) for image, label in zip(images, labels, strict=True)
        )

    both = rows(
        np.concatenate((part.train_images, part.test_images)),
        np.concatenate((part.train_labels, part.test_labels)),
    )
    assert both == rows(data.train_images, data.train_labels), (
        "every row is on one side, with its own label"
    )


def test_validation_sets_are_nested_and_the_same_each_time():
    data = datasets.digits()
    small, large, again = (datasets.with_validation(data, count) for count in (100, 300, 300))
    assert np.array_equal(large.test_images, again.test_images) and np.array_equal(
        large.train_labels, again.train_labels
    )
    larger = {image.tobytes() for image in large.test_images}
    assert all(image.tobytes() in larger for image in small.test_images)
    assert not np.array_equal(large.test_images, data.train_images[:300]), (
        "they are drawn, not the first ones"
    )


@pytest.mark.parametrize("count", [3, 1430])
def test_a_validation_set_that_leaves_a_class_without_images_is_one_line(count):
    with pytest.raises(UserError, match=f"validation {count} does not fit"):
        datasets.with_validation(datasets.digits(), count)


def test_without_its_test_images_a_dataset_is_read_where_they_are_not_there(tmp_path, mnist):
    files = contents()
    del files[datasets.TEST_MEMBER]
    archive = write(tmp_path / "no_test.tar.gz", files)
    part = datasets.read_cifar10(archive, with_test=False)
    assert part.train_images.shape == (100, 32, 32, 3) and part.test_images.shape == (0, 32, 32, 3)
    assert len(part.test_labels) == 0 and "has no " in fault(archive)

    urls = mnist.urls()
    for url in urls[2:]:
        pathlib.Path(url.removeprefix("file://")).unlink()
    part = datasets.mnist(urls, mnist.downloads, with_test=False)
    np.testing.assert_array_equal(part.train_labels, mnist.arrays[1])
    assert part.test_images.shape == (0, 28, 28, 1) and part.test_labels.shape == (0,)
    assert not list(mnist.kept.glob("t10k*"))
    assert datasets.digits(with_test=False).test_images.shape == (0, 32, 32, 3)
