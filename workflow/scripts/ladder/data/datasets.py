"""Datasets: uint8 images, labels and class names, complete or as a class-balanced subset.

Images are NHWC; their shapes are in facts.py. No member of an archive is extracted to disk: members
are read one by one and validated against the format before use.
"""

import dataclasses
import gzip
import hashlib
import math
import os
import pathlib
import tarfile
import zlib

import numpy as np

from ladder.arithmetic import randomness
from ladder.data import download
from ladder.errors import UserError
from ladder.files import read, shown
from ladder.progress import duration, log, size
from ladder.sources import ROOT
from ladder.store import tars

CIFAR10_FILE = "cifar-10-binary.tar.gz"
# the official archive
CIFAR10_SHA256 = "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"
CIFAR10_BYTES = 170_052_171
CIFAR10_CLASSES = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)

IMAGE = (32, 32, 3)
RECORD = 1 + 32 * 32 * 3  # bytes: label, red plane, green plane, blue plane
# most records of one batch file; the official files have this many
RECORDS = 10_000
CIFAR10_FOLDER = "cifar-10-batches-bin"
TRAIN_MEMBERS = tuple(f"{CIFAR10_FOLDER}/data_batch_{i}.bin" for i in range(1, 6))
TEST_MEMBER = f"{CIFAR10_FOLDER}/test_batch.bin"
NAMES_MEMBER = f"{CIFAR10_FOLDER}/batches.meta.txt"
FOR_PYTHON = "cifar-10-batches-py", "cifar-10-python.tar.gz"  # its folder, and its archive
PICKLED = f"the version for Python, whose pickles are not read, since that runs code; take the binary version, {CIFAR10_FILE}"
# Member -> most bytes
MEMBERS = {**dict.fromkeys((*TRAIN_MEMBERS, TEST_MEMBER), RECORDS * RECORD), NAMES_MEMBER: 10_000}
MOST_BYTES = 2 * sum(MEMBERS.values())  # of an unpacked archive, other members included
MOST_MEMBERS = 100


class Rows:
    """Rows of an array, by their numbers; only those that are asked for are in memory."""

    def __init__(self, array, numbers):
        self.array, self.numbers = array, numbers
        self.shape, self.dtype = (len(numbers), *array.shape[1:]), array.dtype

    def __len__(self):
        return len(self.numbers)

    def __getitem__(self, part):
        return self.array[self.numbers[part]]


@dataclasses.dataclass(frozen=True)
class Idx:
    """One of MNIST's files, a header, then bytes of this shape.

    what  its content in words
    md5   of the unpacked file
    """

    name: str
    what: str
    shape: tuple
    md5: str

    @property
    def header(self):
        """Two zeros, 8 for unsigned bytes, the number of dimensions, and each of them in four
        bytes, big-endian.
        """
        return bytes((0, 0, 8, len(self.shape))) + b"".join(
            length.to_bytes(4) for length in self.shape
        )

    @property
    def length(self):
        """Bytes of the unpacked file."""
        return len(self.header) + math.prod(self.shape)


MNIST_FILES = (
    Idx(
        "train-images-idx3-ubyte",
        "training images",
        (60_000, 28, 28),
        "6bbc9ace898e44ae57da46a324031adb",
    ),
    Idx(
        "train-labels-idx1-ubyte", "training labels", (60_000,), "a25bea736e30d166cdddb491f175f624"
    ),
    Idx(
        "t10k-images-idx3-ubyte",
        "test images",
        (10_000, 28, 28),
        "2646ac647ad5339dbf082846283269ea",
    ),
    Idx("t10k-labels-idx1-ubyte", "test labels", (10_000,), "27ae3e4e09519cfbb04c329615203637"),
)
MNIST_BYTES = 11_594_722  # of the four official files, gzipped
# A part of them that ships with the program (its README.md says which).
MNIST_SMALL = ROOT / "workflow" / "resources" / "mnist_small"
MNIST_SMALL_FILES = (
    Idx(
        "train-images-idx3-ubyte",
        "training images",
        (6000, 28, 28),
        "9f484b2233862355104d937104feba72",
    ),
    Idx("train-labels-idx1-ubyte", "training labels", (6000,), "914ce1bea93984b0d7f6acff85acdd83"),
    Idx(
        "t10k-images-idx3-ubyte", "test images", (6000, 28, 28), "93b05aa3632439902c6ce6df36fce30f"
    ),
    Idx("t10k-labels-idx1-ubyte", "test labels", (6000,), "2518481b544b53ade9c8fbef8ea5758e"),
)


@dataclasses.dataclass(frozen=True)
class Splits:
    """The training and the test images of a dataset, with their labels.

    Images are uint8 (N, height, width, channels), labels uint8 (N,), each an index into
    `classes`. Of pictures of one's own some or all may have no label: the first L of N have one.

    names: part -> the names of its pictures in the order of its rows, of pictures of one's own.
    """

    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray
    classes: tuple
    names: dict | None = None


# With with_test=False the test images are not read, and the Splits have none.


def digits(with_test=True):
    """The 1,797 handwritten digits of scikit-learn; every fifth of each class is a test image.

    8x8 pixels of 0..16 become 32x32 pixels of 0..255 by bilinear interpolation between pixel
    centres in exact integer arithmetic; the three channels are equal.
    """
    from sklearn.datasets import load_digits

    raw = load_digits()
    images = _enlarge(raw.images.astype(np.int64))
    images = np.repeat(images[..., None], 3, axis=3)
    labels = raw.target.astype(np.uint8)
    test = _rank_in_class(labels) % 5 == 0
    tested = test & with_test
    return Splits(images[~test], labels[~test], images[tested], labels[tested], tuple("0123456789"))


def _enlarge(images):
    """(N, 8, 8) integers 0..16 -> (N, 32, 32) uint8 0..255, bilinear with clamped edges, rounded
    half up.
    """
    # centre of each new pixel relative to the old ones, in 1/8
    eighths = 2 * np.arange(32) - 3
    left, share = eighths // 8, eighths % 8
    weights = np.zeros((32, 8), np.int64)  # each row sums to 8
    np.add.at(weights, (np.arange(32), np.clip(left, 0, 7)), 8 - share)
    np.add.at(weights, (np.arange(32), np.clip(left + 1, 0, 7)), share)
    scaled = weights @ images @ weights.T  # 0 .. 16 * 64
    return ((255 * scaled + 512) // 1024).astype(np.uint8)


def cifar10(urls, downloads, sha256=CIFAR10_SHA256, with_test=True):
    """CIFAR-10 from its binary archive, downloaded to `downloads` (a folder) unless it is there.

    urls: addresses of the archive, or the path of a folder that holds it, or of the unpacked one.
    sha256: of the archive; None to accept any. Raises UserError if it cannot be downloaded or is
    not a CIFAR-10 archive.
    """
    for path in (pathlib.Path(os.path.expanduser(url)) for url in urls):
        if path.name in FOR_PYTHON:
            raise UserError(
                f"cifar10_urls: {shown(path.name)} is {PICKLED}, or leave cifar10_urls out"
            )
        for folder in (path, path / CIFAR10_FOLDER):
            if os.path.exists(folder / "data_batch_1.bin"):
                return _unpacked(folder, sha256, with_test)
    name = sha256.lower() if sha256 else hashlib.sha256("\n".join(urls).encode()).hexdigest()
    path = pathlib.Path(downloads) / name[:12] / CIFAR10_FILE
    known = CIFAR10_BYTES if name == CIFAR10_SHA256 else None
    if not path.exists():
        log.info(
            "CIFAR-10: about %s to download (%s at 1 MB/s) and keep in %s, and %s more on disk when prepared",
            size(CIFAR10_BYTES),
            duration(CIFAR10_BYTES / 1e6),
            path.parent,
            size(60_000 * RECORD),
        )
    if sha256 is None:
        archive = download.fetch_checked(
            urls,
            path,
            None,
            None,
            setting="cifar10_urls",
            by_hand=f"put the file by hand at {path}",
        )
    else:
        archive = download.fetch(urls, path, sha256, known, setting="cifar10_sha256")
    return read_cifar10(archive, with_test)


def read_cifar10(path, with_test=True):
    """The Splits in a CIFAR-10 binary archive (.tar.gz, .tar); batch files may hold fewer records
    than the official 10,000.

    Raises UserError if the archive is damaged or not in the format of CIFAR-10.
    """
    try:
        return _of_members(lambda wanted: _read_members(path, wanted), with_test)
    except _BadArchive as fault:
        raise UserError(
            f"{path} is not a CIFAR-10 binary archive: {fault}; remove it, and check cifar10_urls and "
            "cifar10_sha256"
        ) from fault


def _unpacked(folder, sha256, with_test):
    """The Splits in the folder of an unpacked archive."""
    if sha256:
        raise UserError(
            f"cifar10_urls: {shown(folder)} is unpacked, so that its checksum cannot be compared; to take it as it "
            "is, add cifar10_sha256=null, else name the archive"
        )
    try:
        return _of_members(
            lambda wanted: {name: _read_file(folder, name) for name in wanted}, with_test
        )
    except _BadArchive as fault:
        raise UserError(
            f"cifar10_urls: {shown(folder)} is not an unpacked CIFAR-10 binary archive: {fault}"
        ) from fault


def _read_file(folder, name):
    data = read(folder / pathlib.PurePosixPath(name).name, MEMBERS[name])
    _check_length(name, len(data))
    return data


def _of_members(read_members, with_test):
    """The Splits of members of an archive; read_members: names -> {name: bytes}."""
    tested = (TEST_MEMBER,) if with_test else ()
    members = read_members((*TRAIN_MEMBERS, *tested, NAMES_MEMBER))
    _check_names(members[NAMES_MEMBER])
    return Splits(*_records(members, TRAIN_MEMBERS), *_records(members, tested), CIFAR10_CLASSES)


class _BadArchive(Exception):
    """Short description of a fault in an archive or another file."""


class _Limited:
    """A stream that raises _BadArchive after MOST_BYTES, as protection against decompression
    bombs.
    """

    def __init__(self, stream):
        self._stream = stream
        self._left = MOST_BYTES

    def read(self, count):
        data = self._stream.read(count)
        self._left -= len(data)
        if self._left < 0:
            raise _BadArchive(f"it unpacks to more than {size(MOST_BYTES)}")
        return data


def _read_members(path, wanted):
    """{name: bytes} of the `wanted` members."""
    contents = {}
    try:
        with open(path, "rb") as file, _gunzipped(file) as unpacked:
            stream = _Limited(unpacked)
            with tarfile.open(
                fileobj=stream, mode="r|", bufsize=1 << 20, tarinfo=tars.Header
            ) as archive:
                for count, member in enumerate(archive, 1):
                    if count > MOST_MEMBERS:
                        raise _BadArchive(f"it has more than {MOST_MEMBERS} members")
                    name = _checked_name(member)
                    if name in contents:
                        raise _BadArchive(f"it holds {name} twice")
                    if name in wanted:
                        contents[name] = _read_member(archive, member, name)
            while stream.read(1 << 20):  # gzip's own checksum is at the end
                pass
    except (*tars.FAULTS, gzip.BadGzipFile, zlib.error) as error:
        raise _BadArchive(f"it is truncated or damaged ({' '.join(str(error).split())})") from error
    missing = [name for name in wanted if name not in contents]
    if missing:
        raise _BadArchive(f"it has no {', '.join(missing)}")
    return contents


def _gunzipped(file):
    """The stream of a file that is open for reading, unpacked if it is gzipped."""
    gzipped = file.read(2) == b"\x1f\x8b"
    file.seek(0)
    return gzip.GzipFile(fileobj=file) if gzipped else file


def _checked_name(member):
    """The member's name without './'; raises _BadArchive for names and types that could reach
    outside a folder.
    """
    shown = ascii(member.name[:80])
    name = pathlib.PurePosixPath(member.name)
    if name.is_absolute() or ".." in name.parts:
        raise _BadArchive(f"its member {shown} points outside the archive")
    if not (member.isdir() or member.isreg()) or member.issparse():
        raise _BadArchive(f"its member {shown} is not a plain file or folder")
    # an extended header may claim any; tarfile would look for the end of the member
    if member.size > MOST_BYTES:
        raise _BadArchive(f"its member {shown} has more than {size(MOST_BYTES)}")
    if name.parts[:1] == FOR_PYTHON[:1]:
        raise _BadArchive(f"it is {PICKLED}")
    return str(name)


def _read_member(archive, member, name):
    if not member.isreg():
        raise _BadArchive(f"its {name} is not a file")
    _check_length(name, member.size)
    return archive.extractfile(member).read()


def _check_length(name, length):
    if not 0 < length <= MEMBERS[name] or (name != NAMES_MEMBER and length % RECORD):
        allowed = (
            f"1 to {RECORDS:,} records of {RECORD:,} bytes"
            if name != NAMES_MEMBER
            else f"1 to {MEMBERS[name]:,} bytes"
        )
        raise _BadArchive(f"its {name} is {length:,} bytes long, which is not {allowed}")


def _records(members, names):
    """(images, labels) of all records in the members `names`."""
    batches = []
    for name in names:
        records = np.frombuffer(members[name], np.uint8).reshape(-1, RECORD)
        wrong = np.flatnonzero(records[:, 0] >= len(CIFAR10_CLASSES))
        if len(wrong):
            raise _BadArchive(
                f"record {wrong[0]} of its {name} has label {records[wrong[0], 0]}, which is not 0 to "
                f"{len(CIFAR10_CLASSES) - 1}"
            )
        batches.append(records)
    images = np.empty((sum(map(len, batches)), *IMAGE), np.uint8)
    start = 0
    for records in batches:
        images[start : start + len(records)] = (
            records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        )
        start += len(records)
    return images, np.concatenate([np.empty(0, np.uint8), *(records[:, 0] for records in batches)])


def _check_names(text):
    names = text.decode("ascii", "replace").split()
    if names != list(CIFAR10_CLASSES):
        raise _BadArchive(f"its {NAMES_MEMBER} does not list the ten classes in their order")


def mnist(urls, downloads, with_test=True):
    """MNIST from its four official files, downloaded to `downloads` (a folder) unless they are
    there.

    urls: of the training images, the training labels, the test images and the test labels, each
    gzipped or not, or the path of a folder with them. In DOWNLOADS/mnist the files have their
    official names with .gz (even if the download is not gzipped), or without if put there by hand.
    Images are uint8 (N, 28, 28, 1), unpadded. Raises UserError unless there are four addresses, if
    a file cannot be downloaded, and if it is not MNIST's.
    """
    urls = download.one_for_each(urls, MNIST_FILES, "mnist_urls")
    folder = pathlib.Path(downloads).absolute() / "mnist"
    files = MNIST_FILES if with_test else MNIST_FILES[:2]
    if missing := [file for file in files if not _kept(folder, file).exists()]:
        unpacked = sum(file.length for file in files)
        log.info(
            "MNIST: %d of its files to download (all four: %s, %s at 1 MB/s) and keep in %s, and %s more on disk when "
            "prepared",
            len(missing),
            size(MNIST_BYTES),
            duration(MNIST_BYTES / 1e6),
            folder,
            size(unpacked),
        )
    for file, url in zip(files, urls, strict=False):
        _fetch_idx(file, url, folder)
    return _of_digits([read_idx(_kept(folder, file), file) for file in files])


def mnist_small(with_test=True):
    """12,000 of MNIST's images, which ship with the program: the first 600 of each class, to train
    on and to test on.

    Raises UserError if a file is not the one that ships.
    """
    files = MNIST_SMALL_FILES if with_test else MNIST_SMALL_FILES[:2]
    try:
        return _of_digits(
            [_array(_read_idx(MNIST_SMALL / f"{file.name}.gz", file), file) for file in files]
        )
    except _BadArchive as fault:
        raise UserError(
            f"the images in {MNIST_SMALL} are not those that ship with Kernel Ladder: {fault}; get that folder "
            "again, with git: git checkout workflow/resources"
        ) from fault


def _of_digits(arrays):
    """The Splits of the arrays of MNIST's four files, or of the first two: then without test
    images.
    """
    train_images, train_labels, test_images, test_labels = (
        *arrays,
        *(array[:0] for array in arrays),
    )[:4]
    return Splits(
        train_images[..., None],
        train_labels,
        test_images[..., None],
        test_labels,
        tuple("0123456789"),
    )


def _kept(folder, file):
    """The path of a file of MNIST, whether it exists or not."""
    plain = folder / file.name
    return plain if plain.exists() else folder / f"{file.name}.gz"


def _fetch_idx(file, url, folder):
    path = _kept(folder, file)
    if path.exists():  # checked when it is read
        return
    missing = [f"{other.name}.gz" for other in MNIST_FILES if not _kept(folder, other).exists()]
    names = " and ".join(filter(None, (", ".join(missing[:-1]), missing[-1])))
    # Enough for any of the four files, so the header reveals swapped addresses; gzip may enlarge
    # incompressible data.
    largest = 2 * max(other.length for other in MNIST_FILES)
    download.fetch_checked(
        [url],
        path,
        lambda fetched: _idx_fault(fetched, file),
        largest,
        setting=f"mnist_urls ({download.in_order(MNIST_FILES)})",
        by_hand=f"put {names} (or the same unpacked, named without .gz) by hand in {folder}",
    )


def read_idx(path, file):
    """The array, uint8 of file.shape, in the IDX file at `path`, gzipped or not; file: the expected
    Idx.

    At most file.length + 1 bytes are unpacked. Raises UserError for any other content.
    """
    try:
        data = _read_idx(path, file)
    except _BadArchive as fault:
        raise UserError(
            f"{path} is not MNIST's {file.what}: {fault}; remove it and run again to download it from "
            f"mnist_urls ({download.in_order(MNIST_FILES)})"
        ) from fault
    return _array(data, file)


def _array(data, file):
    """uint8 of file.shape, from the bytes of the unpacked IDX file."""
    return np.frombuffer(data, np.uint8, offset=len(file.header)).reshape(file.shape)


def _idx_fault(path, file):
    """Short description of the fault of the file at `path`; "" if it is the Idx `file`."""
    try:
        _read_idx(path, file)
    except _BadArchive as fault:
        return f"it is not MNIST's {file.what}: {fault}"
    return ""


def _read_idx(path, file):
    """The bytes of an IDX file, header included; raises _BadArchive unless they are those of
    `file`.
    """
    try:
        with open(path, "rb") as packed:
            with _gunzipped(packed) as stream:
                start = stream.read(16)  # length of the longest header
                _check_header(start, file)
                # one more byte, to detect a longer file
                data = start + stream.read(file.length - len(start) + 1)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise _BadArchive(f"it is truncated or damaged ({' '.join(str(error).split())})") from error
    except OSError as error:
        raise _BadArchive(f"it cannot be read ({error.strerror})") from error
    _check_content(data, file, "unpacked it has" if isinstance(stream, gzip.GzipFile) else "it has")
    return data


def _check_header(start, file):
    """Raise _BadArchive unless `start`, the first 16 bytes, begins with the header of `file`."""
    if start.startswith(file.header):
        return
    for other in MNIST_FILES:
        if start.startswith(other.header):
            raise _BadArchive(f"it has the header of its {other.what}")
    shape = " x ".join(f"{length:,}" for length in file.shape)
    raise _BadArchive(
        f"it begins with {start.hex(' ', 4) or 'nothing'}, not with the header of an IDX file of {shape} "
        f"bytes, {file.header.hex(' ', 4)}"
    )


def _check_content(data, file, it_has):
    if len(data) > file.length:
        raise _BadArchive(f"{it_has} more than {file.length:,} bytes")
    if len(data) < file.length:
        raise _BadArchive(f"{it_has} only {len(data):,} of {file.length:,} bytes")
    md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
    if md5 != file.md5:
        raise _BadArchive(f"{it_has} md5 {md5}, not {file.md5}")


def limited(dataset, train_limit, test_limit):
    """A class-balanced subset with `train_limit` training and `test_limit` test rows; "all" keeps
    every row.

    Smaller subsets are contained in larger ones, and rows keep their order. Raises UserError for a
    limit above the number of rows or below the number of classes.
    """
    train = _limited_rows(dataset.train_labels, train_limit, "train_limit", len(dataset.classes))
    test = _limited_rows(dataset.test_labels, test_limit, "test_limit", len(dataset.classes))
    return Splits(
        dataset.train_images[train],
        dataset.train_labels[train],
        dataset.test_images[test],
        dataset.test_labels[test],
        dataset.classes,
    )


def _limited_rows(labels, limit, key, classes):
    if limit == "all":
        return slice(None)
    if not classes <= limit <= len(labels):
        raise UserError(
            f"{key} {limit} does not fit: it may be {classes} (one row of each class) to {len(labels)} "
            "(the rows there are), or all"
        )
    # The first row of each class, then the second of each, ...: as balanced as possible.
    return np.sort(np.lexsort((labels, _rank_in_class(labels)))[:limit])


def with_validation(dataset, count, first=None):
    """The dataset with a validation set of `count` training rows, which replaces the test set; of
    those with a label, if any has one.

    The validation set is stratified by class and does not depend on a run's seed, so runs can be
    compared; smaller validation sets are contained in larger ones, and rows keep their order.
    first: of each row the first one with an equal image, int64 (N,). Equal ones are on one side,
    but for those at its edge, and unless a class would then have none on one side. Raises UserError
    if a class would have no row on either side.
    """
    total = len(dataset.train_images)
    labels = dataset.train_labels if dataset.classes else np.zeros(total, np.uint8)
    order = randomness.generator(0, randomness.VALIDATION, 0).permutation(len(labels))
    places = np.empty(len(labels))
    places[order] = _rank_in_class(labels[order])
    sizes = np.bincount(labels, minlength=len(dataset.classes))
    shares = (places + 0.5) / sizes[labels]  # random position of a row within its class, 0 to 1
    classes = max(1, len(dataset.classes))
    for together in (shares if first is None else shares[first[: len(labels)]], shares):
        chosen = np.zeros(len(labels), bool)
        chosen[np.lexsort((labels, together))[:count]] = True
        lacking = any(len(np.unique(labels[rows])) < classes for rows in (chosen, ~chosen))
        if not lacking:
            break
    if lacking:
        raise UserError(
            f"validation {count} does not fit: of {len(labels)} training images it leaves a class without "
            "any for one of the two; choose another number"
        )
    labels = labels if dataset.classes else labels[:0]
    in_validation = np.pad(chosen, (0, total - len(chosen)))
    return Splits(
        dataset.train_images[~in_validation],
        labels[~chosen[: len(labels)]],
        dataset.train_images[in_validation],
        labels[chosen[: len(labels)]],
        dataset.classes,
    )


def _rank_in_class(labels):
    """For each row, the number of earlier rows with the same label."""
    ranks = np.empty(len(labels), np.int64)
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        ranks[rows] = np.arange(len(rows))
    return ranks
