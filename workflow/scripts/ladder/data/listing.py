"""Pictures of one's own, before any is read: their files or rows, their classes, and a digest of their content.

A folder has a folder of pictures for each class, or train/ and test/ with such folders; a .npz file has arrays. Planning a run
needs their numbers and the digest, which is kept as long as names, sizes and times of the files stay the same. Standard
library; NumPy only for .npz files.
"""

import errno
import functools
import hashlib
import os
import pathlib
import zipfile
from collections.abc import Sequence

from ladder.data.reading import plain
from ladder.errors import UserError, excerpt, one_line
from ladder.files import shown
from ladder.progress import bar, size
from ladder.store import cache, disk

SUFFIXES = (".png", ".jpg", ".jpeg", ".jfif", ".webp", ".gif", ".bmp", ".apng", ".tif", ".tiff")
MOST_PICTURES = 500        # of one request
MOST_CLASSES = 256         # labels are bytes
LONGEST_NAME = 100         # characters of the name of a class
PARTS = ("train", "test")
MOST_UNPACKED = 8 * 10**9   # bytes of the images in a .npz file
MOST_ROWS = 10**7
KINDS_SAID = 4       # kinds of skipped files of which a message has an example


class Walk:
    """Folders and the files below them, links to folders followed, each folder once.

    where: what messages begin with. Raises UserError for a folder that cannot be read, a link that leads nowhere or
    to a folder around all of them, and a folder that is reached twice: its pictures would be counted twice, or without end.
    """

    def __init__(self, root, where):
        self._root, self._where = os.path.realpath(root), where
        self._paths = {self._root: str(root)}   # of the folders so far, without links -> as they were reached

    def enter(self, folder):
        """Note that the content of a folder (a path) is read."""
        path, real = str(folder), os.path.realpath(folder)
        other = self._paths.setdefault(real, path)
        if other != path:
            raise UserError(f"{self._where}: {shown(other)} and {shown(path)} are the same folder; remove the link to it")
        if real != self._root and os.path.commonpath([real, self._root]) == real:
            raise UserError(f"{self._where}: {shown(path)} is a link to {shown(real)}, a folder that it lies in; remove it")

    def files(self, folder):
        """Paths (str) of the files below a folder, sorted within each one, without hidden ones."""
        for parent, folders, names in os.walk(folder, onerror=self._unreadable, followlinks=True):
            self.enter(parent)
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            yield from (os.path.join(parent, name) for name in sorted(names) if not name.startswith("."))

    def folders(self, folder):
        """The sorted names of the folders in a folder, without hidden ones."""
        self.enter(folder)
        with os.scandir(folder) as entries:
            entries = [entry for entry in entries if not entry.name.startswith(".")]
        for entry in entries:
            if entry.is_symlink() and not os.path.exists(entry.path):
                raise UserError(f"{self._where}: {shown(entry.path)} is a link to {shown(os.readlink(entry.path))}, which "
                                "cannot be reached; remove the link, or mount what it leads to")
        return sorted(entry.name for entry in entries if entry.is_dir())

    def _unreadable(self, error):
        raise UserError(f"{self._where}: cannot read {shown(error.filename)}: {error.strerror}") from error


def find(paths: Sequence[str]) -> tuple[list[pathlib.Path], list[pathlib.Path]]:
    """(pictures, ignored files) in `paths`, which are files or folders, in order, without duplicates.

    In folders, searched recursively, pictures are files with a suffix of SUFFIXES, except hidden ones; a path of a file is
    accepted with any name. Raises UserError for a missing path, if nothing is found, above MOST_PICTURES, and as Walk.
    """
    if not paths:
        raise UserError("which pictures? Name a folder or a file: snakemake results/predictions.html --config predict=FOLDER")
    accepted: dict[pathlib.Path, None] = {}
    left_out: dict[pathlib.Path, None] = {}
    for path in (pathlib.Path(os.path.expanduser(path)) for path in paths):   # pathlib's raises for an unknown ~user
        if os.path.isdir(path):
            for file in map(pathlib.Path, Walk(path, "predict").files(path)):
                (accepted if file.suffix.lower() in SUFFIXES else left_out)[file] = None
                _check_count(accepted)
        elif os.path.exists(path):
            accepted[path] = None
        else:
            raise UserError(f"predict: there is no {shown(path)} (seen from {shown(pathlib.Path.cwd())}); name a folder or a "
                            "file")
    _check_count(accepted)
    if not accepted:
        raise UserError(f"predict: no picture in {', '.join(map(shown, paths))}; looked for names that end in "
                        f"{', '.join(SUFFIXES)}")
    return list(accepted), list(left_out)


def _check_count(accepted):
    if len(accepted) > MOST_PICTURES:
        raise UserError(f"predict: more than {MOST_PICTURES} pictures; name a smaller folder, or some of its files")


def skipping(skipped, count):
    """The line about the files that are skipped, of `count` files, with an example of each kind; skipped: [(name, reason)]."""
    kinds = {}
    for name, reason in skipped:
        kinds.setdefault(_kind(name), []).append((name, reason))
    kinds = sorted(kinds.items(), key=lambda kind: -len(kind[1]))
    said = [f"{len(files):,} {kind}, as {shown(files[0][0])} ({files[0][1]})" for kind, files in kinds[:KINDS_SAID]]
    others = sum(len(files) for _, files in kinds[KINDS_SAID:])
    said += [f"{others:,} others"] if others else []
    return one_line(f"skipped {len(skipped):,} of {count:,} files: {'; '.join(said)}")


def _kind(name):
    suffix = os.path.splitext(name)[1].lower()
    return suffix if 1 < len(suffix) < 10 and suffix.isprintable() else "without a suffix"


@functools.cache
def of(path):
    """The Folder or Npz at a path (str); raises UserError where it is neither, or none that can be a data set."""
    full = pathlib.Path(os.path.expanduser(path))
    if path == "none":
        raise UserError("config: dataset is folder, but folder is none; name the folder of your pictures: folder=PATH")
    if not os.path.exists(full):
        raise UserError(f"config: folder: there is no {shown(full)} (seen from {shown(pathlib.Path.cwd())})")
    if os.path.realpath(full) == os.path.sep:
        raise UserError(f"config: folder is {shown(path)}, the root of all files; name the folder of your pictures")
    if os.path.isdir(full):
        try:
            return Folder(full)
        except OSError as error:
            raise UserError(f"config: folder: cannot read {shown(error.filename or full)}: {error.strerror}") from error
    if not os.path.isfile(full) or not zipfile.is_zipfile(full):   # a pipe would be waited for
        raise UserError(f"config: folder is {shown(full)}, which is neither a folder nor a .npz file")
    return Npz(full)


class Folder:
    """The pictures of a folder.

    classes: names, sorted; files: part -> [(label, name below the folder)], sorted by name; has_test: whether there is a folder
    of test pictures, else `files` has them all as "train"; skipped: [(name, reason)] of files that are not read at all.
    """

    def __init__(self, path):
        self.path, self.skipped, self._walk = path, [], Walk(path, "config: folder")
        folders = self._folders("")
        self.has_test = set(folders) >= set(PARTS)
        if not self.has_test and (lone := [name for name in folders if name in PARTS and self._folders(name)]):
            other, = set(PARTS) - set(lone)
            raise UserError(f"config: folder: {shown(path)} has {lone[0]}/ without {other}/; add it, or move the folders "
                            "of the classes up")
        self.classes = tuple(self._folders("train") if self.has_test else folders)
        _check_classes(self.classes, path)
        self.files, self._stats = {}, []
        for part in PARTS if self.has_test else ("train",):
            if self.has_test and (other := set(self._folders(part)) ^ set(self.classes)):
                raise UserError(f"config: folder: train/ and test/ of {shown(path)} have different classes: "
                                f"{excerpt(min(other))}")
            self.files[part] = [file for label, name in enumerate(self.classes)
                                for file in self._pictures(label, f"{part}/{name}" if self.has_test else name)]
        used = {f"{part}/{name}" if self.has_test else name for part in self.files for name in self.classes}
        self.skipped += [(name, "not in the folder of a class") for name in self._outside(used)]
        self.skipped += [(f"{name}/", "neither train/ nor test/") for name in folders if self.has_test and name not in PARTS]

    def counts(self, part):
        """Number of pictures of each class."""
        counts = [0] * len(self.classes)
        for label, _ in self.files[part]:
            counts[label] += 1
        return counts

    @functools.cached_property
    def digest(self):
        """sha256 of the names of the pictures and the sha256 of each; read from the cache unless a file has changed."""
        lines = "".join(f"{name}\0{length}\0{changed}\n" for name, length, changed in self._stats)
        return _kept(f"{self.path.resolve()}\n{lines}", self._content)

    def _content(self):
        digest = hashlib.sha256()
        for name, *_ in bar(self._stats, f"reading {self.path.name}", "picture"):
            digest.update(f"{name}\0{disk.sha256(self.path / name)}\n".encode("utf-8", "surrogateescape"))
        return digest.hexdigest()

    def _folders(self, part):
        return self._walk.folders(self.path / part)

    def _pictures(self, label, folder):
        """(label, name) of the pictures of a class; notes their sizes and times, and what is skipped."""
        labelled, begin, before = [], len(str(self.path / folder)), len(self.skipped)
        for path in self._walk.files(self.path / folder):
            name = folder + path[begin:]   # relpath takes longer than all the rest
            if reason := self._fault(path, name):
                self.skipped.append((name, reason))
            else:
                labelled.append((label, name))
        if not labelled:
            others = self.skipped[before:]
            there = f" ({skipping(others, len(others))})" if others else ""
            raise UserError(f"config: folder: {shown(self.path / folder)} has no picture{there}; remove the folder, or put "
                            f"pictures of the class into it ({', '.join(SUFFIXES)})")
        return labelled

    def _fault(self, path, name):
        """Why a file is not read, in words; '' if it is, and its size and time are noted."""
        if not path.lower().endswith(SUFFIXES):
            return "no picture by its name" if os.path.exists(path) else "a link that leads nowhere"
        try:
            status = os.stat(path)
        except OSError as error:
            return f"cannot be read: {error.strerror}"
        if refusal := plain.refusal(status):
            return refusal
        if not os.access(path, os.R_OK):
            return f"cannot be read: {os.strerror(errno.EACCES)}"
        self._stats.append((name, status.st_size, status.st_mtime_ns))
        return ""

    def _outside(self, used):
        """Names of files that lie beside the folders of the classes."""
        folders = {"", *(os.path.dirname(name) for name in used)}
        return [os.path.join(folder, entry.name) for folder in sorted(folders) for entry in sorted(
            os.scandir(self.path / folder), key=lambda entry: entry.name) if not (entry.is_dir() or entry.name.startswith("."))]


class Npz:
    """The pictures of a .npz file with the arrays images, uint8 (N, H, W), (N, H, W, 1) or (N, H, W, 3), and labels (N,).

    It may have test_images and test_labels, and classes, the names of the labels 0, 1, ...; without them the classes are the
    different labels. Attributes as those of Folder; the name of a picture is the number of its row.
    """

    skipped = ()

    def __init__(self, path):
        self.path = path
        try:
            with zipfile.ZipFile(path) as self._archive:
                self._names = set(self._archive.namelist())
                self.has_test = {"test_images.npy", "test_labels.npy"} <= self._names
                labels = [self._labels(part) for part in (PARTS if self.has_test else PARTS[:1])]
                self.classes, numbered = self._classes(labels)
        except Exception as error:   # of damage, passwords and kinds of compression, many types
            raise UserError(f"config: folder: {shown(path)} is not a .npz file of arrays: {error}") from error
        del self._archive
        _check_classes(self.classes, path)
        self.files = {part: [(int(label), str(row)) for row, label in enumerate(numbers)]
                      for part, numbers in zip(PARTS, numbered, strict=False)}
        if empty := [name for part in self.files for name, count in zip(self.classes, self.counts(part), strict=True)
                     if not count]:
            raise UserError(f"config: folder: {shown(path)} has no picture of class {excerpt(empty[0])}")

    counts = Folder.counts

    @functools.cached_property
    def digest(self):
        status = self.path.stat()
        return _kept(f"{self.path.resolve()}\n{status.st_size}\0{status.st_mtime_ns}\n", lambda: disk.sha256(self.path))

    def array(self, part):
        """The name of the array with the images of a part."""
        return "test_images" if part == "test" and self.has_test else "images"

    def _labels(self, part):
        """The labels of a part, an array (N,), after the header of its images was checked."""
        import numpy as np

        name = self.array(part)
        (count, *shape), dtype = self._header(name)
        if dtype != np.uint8 or len(shape) not in (2, 3) or (len(shape) == 3 and shape[2] not in (1, 3)) or 0 in shape:
            raise ValueError(f"{name} is {dtype} {(count, *shape)}, not uint8 (N, H, W), (N, H, W, 1) or (N, H, W, 3)")
        if count > MOST_ROWS or count * np.prod(shape, dtype=object) > MOST_UNPACKED:
            raise ValueError(f"{name} has more than {size(MOST_UNPACKED)} or {MOST_ROWS:,} rows; write folders of pictures")
        labels = self._small(name.replace("images", "labels"))
        if labels.shape != (count,) or labels.dtype.kind not in "iuU":
            raise ValueError(f"the labels are {labels.dtype} {labels.shape}, not {count} whole numbers or texts")
        return labels

    def _classes(self, labels):
        """(names of the classes, labels as numbers of each part)."""
        import numpy as np

        if "classes.npy" not in self._names:
            values = np.unique(np.concatenate(labels))
            return tuple(map(str, values.tolist())), [np.searchsorted(values, part) for part in labels]
        names, every = self._small("classes"), np.concatenate(labels)
        numbers = every.dtype.kind != "U" and 0 <= every.min() <= every.max() < len(names)
        if names.dtype.kind != "U" or not numbers:
            raise ValueError("classes is not a list of texts with one for each of the labels 0, 1, ...")
        return tuple(names.tolist()), labels

    def _header(self, name):
        import numpy as np

        if f"{name}.npy" not in self._names:
            raise ValueError(f"it has no array {name}")
        with self._archive.open(f"{name}.npy") as file:
            version = np.lib.format.read_magic(file)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, _, dtype = read(file)
        if dtype.hasobject or not shape:
            raise ValueError(f"{name} is no array of numbers or texts")
        return shape, dtype

    def _small(self, name):
        """An array of labels or names, after its header was checked."""
        import numpy as np

        shape, dtype = self._header(name)
        if len(shape) != 1 or shape[0] > MOST_ROWS or shape[0] * dtype.itemsize > MOST_UNPACKED:
            raise ValueError(f"{name} is {dtype} {shape}, not one label for each row")
        with self._archive.open(f"{name}.npy") as file:
            return np.lib.format.read_array(file, allow_pickle=False)


def _check_classes(classes, path):
    if not 2 <= len(classes) <= MOST_CLASSES:
        raise UserError(f"config: folder: {shown(path)} has {len(classes)} class{'es' if len(classes) != 1 else ''}, a folder "
                        f"of pictures each; 2 to {MOST_CLASSES} are possible")
    for name in classes:
        if not name.isprintable() or len(name) > LONGEST_NAME or not name.strip():
            raise UserError(f"config: folder: the name of class {excerpt(name)} is not one line of at most {LONGEST_NAME} "
                            "printable characters")


def _kept(state, digest):
    """`digest()`, or what it was when the state (names, sizes and times of files) was the same."""
    path = cache.folder("folders") / hashlib.sha256(state.encode("utf-8", "surrogateescape")).hexdigest()
    if cached := cache.find(path):
        return cached.read_text("utf-8")
    hexdigest = digest()
    cache.keep(path, hexdigest.encode())
    return hexdigest


# The split and the order of use.

def split(listing, test_share):
    """{"train": [(label, name)], "test": ...} of all pictures, in the order in which they are used.

    Without test pictures of its own, the share `test_share` of each class is the test set, at least one and not all. Pictures
    are ordered by a hash of their names, in turn by class, so that the first ones are balanced by class, and a picture more
    moves at most one of the others to the other part.
    """
    parts = {part: _by_class(files, len(listing.classes)) for part, files in listing.files.items()}
    if not listing.has_test:
        tests = [test_count(len(files), test_share) for files in parts["train"]]
        parts = {"train": [files[count:] for files, count in zip(parts["train"], tests, strict=True)],
                 "test": [files[:count] for files, count in zip(parts["train"], tests, strict=True)]}
    return {part: [file for _, _, file in sorted((rank, label, file) for label, files in enumerate(by_class)
                                                 for rank, file in enumerate(files))] for part, by_class in parts.items()}


def test_count(count, test_share):
    """How many of the pictures of a class are test pictures."""
    return min(max(1, round(test_share * count)), count - 1)


def _by_class(files, classes):
    groups = [[] for _ in range(classes)]
    for label, name in files:
        groups[label].append((label, name))
    return [sorted(rows, key=lambda row: hashlib.sha256(row[1].encode("utf-8", "surrogateescape")).digest()) for rows in groups]
