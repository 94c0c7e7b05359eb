"""Data sets of official files with published checksums: Fashion-MNIST, CIFAR-100 and SVHN.

A file is read only after its sha256 was verified, so what it holds is known. The checksums are
those of TensorFlow Datasets (tensorflow_datasets/url_checksums), which go with the md5 sums that
the authors of Fashion-MNIST and torchvision publish.
"""

import dataclasses
import gzip
import io
import pathlib
import tarfile

import numpy as np

from ladder.data import download
from ladder.data.datasets import Splits
from ladder.store import disk


@dataclasses.dataclass(frozen=True)
class File:
    """An official file: its name, its content in words, its length in bytes and its sha256."""

    name: str
    what: str
    size: int
    sha256: str

    def fault(self, path):
        """Short description of why the file at `path` is not this one; '' if it is."""
        try:
            held = path.stat().st_size
            digest = disk.sha256(path) if held == self.size else ""
        except OSError as error:
            return f"it cannot be read ({error.strerror})"
        if held != self.size:
            return f"it has {held:,} bytes, not {self.size:,}"
        return f"its sha256 is {digest}, not {self.sha256}" if digest != self.sha256 else ""


# Data set -> its files: of the training images and labels, then of the test set; a single one has
# both.
FILES = {
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
CIFAR100_FOLDER = "cifar-100-binary"
# bytes: coarse label, fine label, red plane, green plane, blue plane
CIFAR100_RECORD = 2 + 3 * 32 * 32


def load(name, urls, downloads, with_test=True):
    """The Splits of `name` (a key of FILES), downloaded to DOWNLOADS/NAME unless it is there.

    urls: an address for each file, in the order of FILES, or the path of a folder with them; of a
    single file, mirrors. with_test=False leaves the test images out. Raises UserError where a file
    cannot be had or is another one.
    """
    files = FILES[name]
    mirrors = (
        [[url] for url in download.one_for_each(urls, files, f"{name}_urls")]
        if len(files) > 1
        else [urls]
    )
    wanted = len(files) if with_test or len(files) == 1 else len(files) // 2
    folder = pathlib.Path(downloads).absolute() / name
    paths = [
        _fetched(file, addresses, folder, f"{name}_urls")
        for file, addresses in list(zip(files, mirrors, strict=True))[:wanted]
    ]
    train_images, train_labels, test_images, test_labels, classes = READERS[name](paths)
    test_slice = slice(None) if with_test else slice(0)
    return Splits(
        train_images, train_labels, test_images[test_slice], test_labels[test_slice], classes
    )


def _fetched(file, addresses, folder, setting):
    return download.fetch_checked(
        addresses,
        folder / file.name,
        file.fault,
        file.size,
        setting=setting,
        by_hand=f"put {file.name} by hand in {folder}",
    )


# Readers: the paths of the files -> training images and labels, test images and labels, names of
# the classes. Without paths of the test files their images are none.


def _fashion_mnist(paths):
    arrays = [_idx(path) for path in paths]
    arrays += [array[:0] for array in arrays[: 4 - len(arrays)]]
    return arrays[0][..., None], arrays[1], arrays[2][..., None], arrays[3], FASHION_CLASSES


def _idx(path):
    """The uint8 array of a gzipped IDX file: two zeros, 8, the number of dimensions, each of them
    in four bytes, the bytes.
    """
    data = gzip.decompress(path.read_bytes())
    dimensions = data[3]
    return np.frombuffer(data, np.uint8, offset=4 + 4 * dimensions).reshape(
        np.frombuffer(data, ">u4", dimensions, 4)
    )


def _cifar100(paths):
    with tarfile.open(paths[0], "r:gz") as archive:
        train, test, names = (
            archive.extractfile(f"{CIFAR100_FOLDER}/{name}").read()
            for name in ("train.bin", "test.bin", "fine_label_names.txt")
        )
    return *_cifar100_records(train), *_cifar100_records(test), tuple(names.decode().split())


def _cifar100_records(data):
    """(images, fine labels) of the records."""
    records = np.frombuffer(data, np.uint8).reshape(-1, CIFAR100_RECORD)
    images = records[:, 2:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(images), records[:, 1].copy()


def _svhn(paths):
    parts = [_mat(path) for path in paths]
    parts += [tuple(array[:0] for array in parts[0])] * (2 - len(parts))
    return *parts[0], *parts[1], tuple("0123456789")


def _mat(path):
    """(images, labels) of a MATLAB file with X (32, 32, 3, N) and y (N, 1), where label 10 is the
    digit 0.
    """
    from scipy import io as scipy_io

    held = scipy_io.loadmat(io.BytesIO(path.read_bytes()), variable_names=("X", "y"))
    return np.ascontiguousarray(held["X"].transpose(3, 0, 1, 2)), (held["y"].ravel() % 10).astype(
        np.uint8
    )


READERS = {"fashion_mnist": _fashion_mnist, "cifar100": _cifar100, "svhn": _svhn}
