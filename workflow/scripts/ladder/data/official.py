"""Data sets of official files with published checksums: MNIST, Fashion-MNIST, CIFAR-10, CIFAR-100
and SVHN.

A file is read only after its checksum was verified, so what it holds is known; nothing is extracted
to disk. The sums of MNIST are md5, of the unpacked files; those of the other files are those of
TensorFlow Datasets (tensorflow_datasets/url_checksums), which go with the md5 sums that the authors
of Fashion-MNIST and torchvision publish.
"""

import dataclasses
import gzip
import hashlib
import io
import math
import pathlib
import tarfile
import zlib

import numpy as np

from ladder.data import download
from ladder.data.datasets import Splits
from ladder.errors import UserError
from ladder.progress import log
from ladder.sources import ROOT
from ladder.store import disk


@dataclasses.dataclass(frozen=True)
class File:
    """An official file: its name, its content in words, its length in bytes, None if it is not
    known, and its sha256.
    """

    name: str
    what: str
    size: int | None
    sha256: str

    @property
    def largest(self):
        """The most bytes that a download may have; None if that is not known."""
        return self.size

    def fault(self, path):
        """Short description of why the file at `path` is not this one; '' if it is."""
        try:
            digest = disk.sha256(path)
        except OSError as error:
            return f"it cannot be read ({error.strerror})"
        held = path.stat().st_size
        if digest == self.sha256:
            return ""
        return f"its sha256 is {digest}, not {self.sha256} ({held:,} bytes)"


@dataclasses.dataclass(frozen=True)
class Idx:
    """A file of MNIST: a header, then bytes of this shape. md5: of the unpacked file, so that any
    gzipped one is taken, and one that is not.
    """

    name: str
    what: str
    shape: tuple
    md5: str

    @property
    def size(self):
        """Bytes of the unpacked file: two zeros, 8 for bytes, the number of dimensions, each of
        them in four bytes.
        """
        return 4 + 4 * len(self.shape) + math.prod(self.shape)

    @property
    def largest(self):
        """gzip may enlarge what it cannot pack; any of the four files is told from this one by its
        content.
        """
        return 2 * max(file.size for file in FILES["mnist"])

    def fault(self, path):
        """As that of a File."""
        try:
            md5 = hashlib.md5(_unpacked(path, self.size + 1), usedforsecurity=False).hexdigest()
        except DAMAGES as error:
            return f"it cannot be read ({getattr(error, 'strerror', None) or error})"
        if md5 == self.md5:
            return ""
        return f"it is not MNIST's {self.what}: unpacked it has md5 {md5}, not {self.md5}"


# What reading a damaged archive, or none, raises.
DAMAGES = OSError, EOFError, zlib.error
# What tarfile and NumPy raise too, over another archive or one that is meant to do harm.
FAULTS = (
    *DAMAGES,
    tarfile.TarError,
    AttributeError,
    KeyError,
    ValueError,
    OverflowError,
    RecursionError,
)
MOST_UNPACKED = 400_000_000  # bytes of an archive; those of CIFAR have 185 million
# of a header that extends another one; tarfile's time grows with the square of its length
MOST_EXTENDED = 10_000


class _Header(tarfile.TarInfo):
    """A header of an archive that is not read if it extends another one at an absurd length."""

    @classmethod
    def frombuf(cls, buf, encoding, errors):
        header = super().frombuf(buf, encoding, errors)
        if header.size > MOST_EXTENDED and not (header.isdir() or header.isreg()):
            raise tarfile.ReadError(f"one of its headers has more than {MOST_EXTENDED:,} bytes")
        return header


def _unpacked(path, most=-1):
    """The first `most` bytes of a file, unpacked if it is gzipped."""
    with open(path, "rb") as file:
        gzipped = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        return (gzip.GzipFile(fileobj=file) if gzipped else file).read(most)


# Data set -> its files: of the training images and labels, then of the test set; a single one has
# both.
FILES = {
    "mnist": (
        Idx(
            "train-images-idx3-ubyte.gz",
            "training images",
            (60_000, 28, 28),
            "6bbc9ace898e44ae57da46a324031adb",
        ),
        Idx(
            "train-labels-idx1-ubyte.gz",
            "training labels",
            (60_000,),
            "a25bea736e30d166cdddb491f175f624",
        ),
        Idx(
            "t10k-images-idx3-ubyte.gz",
            "test images",
            (10_000, 28, 28),
            "2646ac647ad5339dbf082846283269ea",
        ),
        Idx(
            "t10k-labels-idx1-ubyte.gz",
            "test labels",
            (10_000,),
            "27ae3e4e09519cfbb04c329615203637",
        ),
    ),
    "fashion_mnist": (
        File(
            "train-images-idx3-ubyte.gz",
            "training images",
            26_421_880,
            "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
        ),
        File(
            "train-labels-idx1-ubyte.gz",
            "training labels",
            29_515,
            "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
        ),
        File(
            "t10k-images-idx3-ubyte.gz",
            "test images",
            4_422_102,
            "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
        ),
        File(
            "t10k-labels-idx1-ubyte.gz",
            "test labels",
            5_148,
            "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
        ),
    ),
    "cifar10": (
        File(
            "cifar-10-binary.tar.gz",
            "archive",
            170_052_171,
            "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
        ),
    ),
    "cifar100": (
        File(
            "cifar-100-binary.tar.gz",
            "archive",
            168_513_733,
            "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
        ),
    ),
    "svhn": (
        File(
            "train_32x32.mat",
            "training images",
            182_040_794,
            "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8",
        ),
        File(
            "test_32x32.mat",
            "test images",
            64_275_384,
            "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b",
        ),
    ),
}
FASHION_CLASSES = (
    "T-shirt/top",
    "trouser",
    "pullover",
    "dress",
    "coat",
    "sandal",
    "shirt",
    "sneaker",
    "bag",
    "ankle boot",
)
DIGITS = tuple("0123456789")
# A part of MNIST that ships with the program (its README.md says which).
MNIST_SMALL = ROOT / "workflow" / "resources" / "mnist_small"
MNIST_SMALL_MD5 = (
    "9f484b2233862355104d937104feba72",
    "914ce1bea93984b0d7f6acff85acdd83",
    "93b05aa3632439902c6ce6df36fce30f",
    "2518481b544b53ade9c8fbef8ea5758e",
)
CIFAR10_BATCHES = tuple(f"data_batch_{number}.bin" for number in range(1, 6))


def load(name, urls, downloads, with_test=True, sha256=None):
    """The Splits of `name` (a key of FILES), downloaded to DOWNLOADS/NAME unless it is there.

    urls: an address for each file, in the order of FILES, or the path of a folder with them; of a
    single file, mirrors. with_test=False leaves the test images out. sha256: of the archive that is
    to be taken for a single file, which is then kept in a folder of its own. Raises UserError where
    a file cannot be had or is another one.
    """
    files, setting = FILES[name], f"{name}_urls"
    if sha256:
        setting += f" and {name}_sha256"
        if sha256 != files[0].sha256:
            files = (dataclasses.replace(files[0], sha256=sha256, size=None),)
    folder = pathlib.Path(downloads).absolute() / (sha256[:12] if sha256 else name)
    mirrors = (
        [[url] for url in download.one_for_each(urls, files, setting)] if len(files) > 1 else [urls]
    )
    wanted = files if with_test or len(files) == 1 else files[: len(files) // 2]
    if missing := [file.name for file in wanted if not (folder / file.name).exists()]:
        log.info("%s: %s to download and keep in %s", name, ", ".join(missing), folder)
    paths = [
        download.fetch(
            addresses,
            folder / file.name,
            file.fault,
            file.largest,
            setting=setting,
            by_hand=f"put {file.name} by hand in {folder}",
        )
        for file, addresses in zip(wanted, mirrors, strict=False)
    ]
    train_images, train_labels, test_images, test_labels, classes = READERS[name](paths)
    test_slice = slice(None) if with_test else slice(0)
    return Splits(
        train_images, train_labels, test_images[test_slice], test_labels[test_slice], classes
    )


def mnist_small(with_test=True):
    """12,000 of MNIST's images, which ship with the program: the first 600 of each class, to train
    on and to test on.

    Raises UserError if a file is not the one that ships.
    """
    paths = []
    for file, md5 in zip(FILES["mnist"], MNIST_SMALL_MD5, strict=True):
        paths.append(MNIST_SMALL / file.name)
        part = dataclasses.replace(file, shape=(6000, *file.shape[1:]), md5=md5)
        if fault := part.fault(paths[-1]):
            raise UserError(
                f"the images in {MNIST_SMALL} are not those that ship with Kernel Ladder: {fault}; get that "
                "folder again, with git: git checkout workflow/resources"
            )
    return Splits(*_mnist(paths if with_test else paths[:2]))


# Readers: the paths of the files -> training images and labels, test images and labels, names of
# the classes. Without paths of the test files their images are none.


def _mnist(paths, classes=DIGITS):
    arrays = [_idx(path) for path in paths]
    arrays += [array[:0] for array in arrays[: 4 - len(arrays)]]
    return arrays[0][..., None], arrays[1], arrays[2][..., None], arrays[3], classes


def _fashion_mnist(paths):
    return _mnist(paths, FASHION_CLASSES)


def _idx(path):
    """The uint8 array of an IDX file: two zeros, 8, the number of dimensions, each of them in four
    bytes, the bytes.
    """
    data = _unpacked(path)
    dimensions = data[3]
    return np.frombuffer(data, np.uint8, offset=4 + 4 * dimensions).reshape(
        np.frombuffer(data, ">u4", dimensions, 4)
    )


def _cifar10(paths):
    names = (*CIFAR10_BATCHES, "test_batch.bin", "batches.meta.txt")
    return _cifar(paths[0], "cifar-10-batches-bin", names, 1)


def _cifar100(paths):
    names = "train.bin", "test.bin", "fine_label_names.txt"
    return _cifar(paths[0], "cifar-100-binary", names, 2)


def _cifar(path, folder, names, labels):
    """Of an archive with files of records to train on, one to test on, and one of class names; a
    record has so many labels, of which the last one counts, then the red, green and blue plane.

    Raises UserError where it is another archive, whose checksum a person has given: it may be
    anybody's.
    """
    try:
        unpacked = io.BytesIO(_unpacked(path, MOST_UNPACKED))
        with tarfile.open(fileobj=unpacked, mode="r:", tarinfo=_Header) as archive:
            *train, test, words = (archive.extractfile(f"{folder}/{name}").read() for name in names)
        parts = [
            np.frombuffer(data, np.uint8).reshape(-1, labels + 3 * 32 * 32)
            for data in (b"".join(train), test)
        ]
        classes = tuple(words.decode().split())
        if max(rows[:, labels - 1].max(initial=0) for rows in parts) >= len(classes):
            raise ValueError(f"a label is not one of its {len(classes)} classes")
    except FAULTS as error:
        raise UserError(
            f"{path} is not the binary version, with {folder}: {error}; remove it, and name another"
        ) from error
    images = (rows[:, labels:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1) for rows in parts)
    train_images, test_images = map(np.ascontiguousarray, images)
    train_labels, test_labels = (rows[:, labels - 1].copy() for rows in parts)
    return train_images, train_labels, test_images, test_labels, classes


def _svhn(paths):
    parts = [_mat(path) for path in paths]
    parts += [tuple(array[:0] for array in parts[0])] * (2 - len(parts))
    return *parts[0], *parts[1], DIGITS


def _mat(path):
    """(images, labels) of a MATLAB file with X (32, 32, 3, N) and y (N, 1), where label 10 is the
    digit 0.
    """
    from scipy import io as scipy_io

    held = scipy_io.loadmat(io.BytesIO(path.read_bytes()), variable_names=("X", "y"))
    return np.ascontiguousarray(held["X"].transpose(3, 0, 1, 2)), (held["y"].ravel() % 10).astype(
        np.uint8
    )


READERS = {
    "mnist": _mnist,
    "fashion_mnist": _fashion_mnist,
    "cifar10": _cifar10,
    "cifar100": _cifar100,
    "svhn": _svhn,
}
