"""Pictures of one's own, before any is read: their files or rows, their classes, and a digest of
their content.

A folder has a folder of pictures for each class, or train/ and test/ with such folders, or pictures
without labels, or only some with them; a .npz file has arrays. Planning a run needs their numbers,
the digest and which have the same content; the latter two are kept as long as names, sizes and
times of the files stay the same. Standard library; NumPy only for .npz files.
"""

import collections
import contextlib
import errno
import functools
import hashlib
import itertools
import json
import math
import os
import pathlib
import re
import zipfile
from collections.abc import Sequence
from typing import Any

from ladder.data import labelling
from ladder.data.reading import plain
from ladder.errors import UserError, excerpt, one_line
from ladder.files import shown
from ladder.progress import bar, size
from ladder.store import cache, disk

SUFFIXES = (
    ".png",
    ".jpg",
    ".jpeg",
    ".jfif",
    ".webp",
    ".gif",
    ".bmp",
    ".apng",
    ".tif",
    ".tiff",
    ".ppm",
    ".pgm",
    ".pbm",
    ".pnm",
)
MOST_PICTURES = 500  # of one request
MOST_CLASSES = 256  # labels are bytes
LONGEST_NAME = 100  # characters of the name of a class
PARTS = ("train", "test")
# What the folder of a part may be called, in capitals too: to train on, to test on, for validation.
PART_NAME = re.compile(
    "(?:(train|training)|(test|testing)|(val|valid|validation))(?:[ _-]?(?:set|data|images))?", re.I
)
VALIDATION = "val"
UNLABELLED = ("unlabelled", "unlabeled")  # a folder beside those of the classes
NO_LABELS = (
    "The pictures are taken without labels; two or more folders of pictures, or a table "
    "(labels=TABLE.csv), would give them"
)
LEFT_OUT = "in the list leave_out"
# Part -> names of its images and labels in a .npz file: ours, MedMNIST's, and those of Keras.
OURS = {
    "train": ("images", "labels"),
    "test": ("test_images", "test_labels"),
    VALIDATION: ("val_images", "val_labels"),
}
LAYOUTS = (
    OURS,
    {**OURS, "train": ("train_images", "train_labels")},
    {"train": ("x_train", "y_train"), "test": ("x_test", "y_test"), VALIDATION: ("x_val", "y_val")},
)
NOT_READ = "not read; validation pictures are training pictures, as many as the key validation says"
MOST_UNPACKED = 8 * 10**9  # bytes of the images in a .npz file
MOST_ROWS = 10**7
KINDS_SAID = 4  # kinds of skipped files of which a message has an example


class Walk:
    """Folders and the files below them, links to folders followed, each folder once.

    where: what messages begin with. Raises UserError for a folder that cannot be read, a link that
    leads nowhere or to a folder around all of them, and a folder that is reached twice: its
    pictures would be counted twice, or without end.
    """

    def __init__(self, root, where):
        self._root, self._where = os.path.realpath(root), where
        # of the folders so far, without links -> as they were reached
        self._paths = {self._root: str(root)}

    def enter(self, folder):
        """Note that the content of a folder (a path) is read."""
        path, real = str(folder), os.path.realpath(folder)
        other = self._paths.setdefault(real, path)
        if other != path:
            raise UserError(
                f"{self._where}: {shown(other)} and {shown(path)} are the same folder; remove the link to it"
            )
        if real != self._root and os.path.commonpath([real, self._root]) == real:
            raise UserError(
                f"{self._where}: {shown(path)} is a link to {shown(real)}, a folder that it lies in; remove it"
            )

    def files(self, folder):
        """Paths (str) of the files below a folder, sorted within each one, without hidden ones."""
        for parent, folders, names in os.walk(folder, onerror=self._unreadable, followlinks=True):
            self.enter(parent)
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            yield from (
                os.path.join(parent, name) for name in sorted(names) if not name.startswith(".")
            )

    def folders(self, folder):
        """The sorted names of the folders in a folder, without hidden ones."""
        self.enter(folder)
        with os.scandir(folder) as entries:
            entries = [entry for entry in entries if not entry.name.startswith(".")]
        for entry in entries:
            if entry.is_symlink() and not os.path.exists(entry.path):
                raise UserError(
                    f"{self._where}: {shown(entry.path)} is a link to {shown(os.readlink(entry.path))}, which "
                    "cannot be reached; remove the link, or mount what it leads to"
                )
        return sorted(entry.name for entry in entries if entry.is_dir())

    def _unreadable(self, error):
        raise UserError(
            f"{self._where}: cannot read {shown(error.filename)}: {error.strerror}"
        ) from error


def find(paths: Sequence[str]) -> tuple[list[pathlib.Path], list[pathlib.Path]]:
    """(pictures, ignored files) in `paths`, which are files or folders, in order, without
    duplicates.

    In folders, searched recursively, pictures are files with a suffix of SUFFIXES, except hidden
    ones; a path of a file is accepted with any name. Raises UserError for a missing path, if
    nothing is found, above MOST_PICTURES, and as Walk.
    """
    if not paths:
        raise UserError(
            "which pictures? Name a folder or a file: snakemake results/predictions.html --config predict=FOLDER"
        )
    accepted: dict[pathlib.Path, None] = {}
    left_out: dict[pathlib.Path, None] = {}
    # pathlib's raises for an unknown ~user
    for path in (pathlib.Path(os.path.expanduser(path)) for path in paths):
        if os.path.isdir(path):
            for file in map(pathlib.Path, Walk(path, "predict").files(path)):
                (accepted if file.suffix.lower() in SUFFIXES else left_out)[file] = None
                _check_count(accepted)
        elif os.path.exists(path):
            accepted[path] = None
        else:
            raise UserError(
                f"predict: there is no {shown(path)} (seen from {shown(pathlib.Path.cwd())}); name a folder or a "
                "file"
            )
    _check_count(accepted)
    if not accepted:
        raise UserError(
            f"predict: no picture in {', '.join(map(shown, paths))}; looked for names that end in "
            f"{', '.join(SUFFIXES)}"
        )
    return list(accepted), list(left_out)


def _check_count(accepted):
    if len(accepted) > MOST_PICTURES:
        raise UserError(
            f"predict: more than {MOST_PICTURES} pictures; name a smaller folder, or some of its files"
        )


def skipping(skipped, count, what="files"):
    """The line about the files, or what else has names, that are skipped, of `count`, with an
    example of each kind; skipped: [(name, reason)].
    """
    kinds = {}
    for name, reason in skipped:
        kind = what if reason == LEFT_OUT else _kind(name)
        kinds.setdefault(kind, []).append((name, reason))
    kinds = sorted(kinds.items(), key=lambda kind: -len(kind[1]))
    said = [
        f"{len(files):,} {kind}, as {shown(files[0][0])} ({files[0][1]})"
        for kind, files in kinds[:KINDS_SAID]
    ]
    others = sum(len(files) for _, files in kinds[KINDS_SAID:])
    said += [f"{others:,} others"] if others else []
    return one_line(f"skipped {len(skipped):,} of {count:,} {what}: {'; '.join(said)}")


def _kind(name):
    suffix = os.path.splitext(name)[1].lower()
    return suffix if 1 < len(suffix) < 10 and suffix.isprintable() else "without a suffix"


@functools.cache
def source(path, labels=labelling.AUTO, leave_out="none"):
    """The Folder or Npz at a path (str); raises UserError where it is neither, or none that can be
    a data set.

    labels: auto, folders, none, or the path of a table (labelling.py); leave_out: the path of a
    list, or none.
    """
    without = labelling.left_out(leave_out) if leave_out != "none" else frozenset()
    full = pathlib.Path(os.path.expanduser(path))
    if path == "none":
        raise UserError(
            "config: dataset is folder, but folder is none; name the folder of your pictures: folder=PATH"
        )
    if not os.path.exists(full):
        raise UserError(
            f"config: folder: there is no {shown(full)} (seen from {shown(pathlib.Path.cwd())})"
        )
    if os.path.realpath(full) == os.path.sep:
        raise UserError(
            f"config: folder is {shown(path)}, the root of all files; name the folder of your pictures"
        )
    try:
        if os.path.isdir(full):
            return Folder(full, labels, without)
        if os.path.isfile(full):  # a pipe would be waited for
            with full.open("rb") as file:
                if zipfile.is_zipfile(file):
                    return Npz(full, labels, without)
    except OSError as error:
        raise UserError(
            f"config: folder: cannot read {shown(error.filename or full)}: {error.strerror}"
        ) from error
    raise UserError(f"config: folder is {shown(full)}, which is neither a folder nor a .npz file")


class Folder:
    """The pictures of a folder.

    classes: names, in their order, none where no picture has a label; files: part -> [(label, name
    below the folder)] of those that have one, sorted by name; has_test: whether there is a folder
    of test pictures, else `files` has them all as "train"; unlabelled: the names of those that have
    none; skipped: [(name, reason)] of files that are not read at all; remarks: sentences on what
    the folders were taken for, where their names do not say it. labels: as in `of`; without: names
    that are left out.
    """

    def __init__(self, path, labels=labelling.AUTO, without=frozenset()):
        self.path, self.skipped, self._walk = path, [], Walk(path, "config: folder")
        self._without, self._stats, self.remarks, self.has_test = without, [], [], False
        self.unlabelled, self._labelling = [], ""
        if labelling.is_table(labels):
            self._take_table(labelling.table(labels))
        elif labels == labelling.NONE:
            self._take_all()
        elif not self._take_folders(labels):
            self._take_all()
            self.remarks.append(NO_LABELS)
        self.remarks += _unknown(without, self.skipped)

    def _take_folders(self, labels):
        """Take the folders for classes; False where `labels` is auto and fewer than two of them
        have pictures.
        """
        path = self.path
        folders = [name for name in self._folders("") if name not in UNLABELLED]
        parts, remarks = _parts(folders, path)
        self.has_test = "test" in parts
        if not self.has_test and (
            lone := [name for name in folders if _part(name) in PARTS and self._folders(name)]
        ):
            (other,) = set(PARTS) - {_part(lone[0])}
            raise UserError(
                f"config: folder: {shown(path)} has {lone[0]}/ without {other}/; add it, or move the folders "
                "of the classes up"
            )
        self.classes = in_order(self._folders(parts["train"]) if self.has_test else folders)
        if labels == labelling.AUTO and not self._has_classes(parts.get("train", "")):
            self.has_test = False
            return False
        self.remarks += remarks
        _check_classes(self.classes, path)
        if self.has_test:
            self._check_same_classes(parts)
        self.files, used = {}, set()
        for part, folder in (parts or {"train": ""}).items():
            places = [os.path.join(folder, name) for name in self.classes]
            self.files[part] = [
                (label, name) for label, place in enumerate(places) for name in self._class(place)
            ]
            used |= set(places)
        beside = [name for name in UNLABELLED if os.path.isdir(path / name)]
        self.unlabelled = [name for folder in beside for name in self._pictures(folder)]
        self.skipped += [(name, "not in the folder of a class") for name in self._outside(used)]
        self.skipped += [
            (
                f"{name}/",
                NOT_READ
                if _part(name) == VALIDATION
                else "neither {}/ nor {}/".format(*parts.values()),
            )
            for name in folders
            if self.has_test and name not in parts.values()
        ]
        self.remarks += [] if self.has_test else self._layers()
        return True

    def _has_classes(self, part):
        """Whether at least two of the classes have a file that is a picture by its name."""
        walk = Walk(self.path, "config: folder")  # of its own: each folder is entered once
        with_pictures = (
            name
            for name in self.classes
            if any(file.lower().endswith(SUFFIXES) for file in walk.files(self.path / part / name))
        )
        return len(list(itertools.islice(with_pictures, 2))) == 2

    def _take_all(self):
        """Take all pictures of the folder without a label."""
        self._walk = Walk(self.path, "config: folder")
        self.classes, self.files, self._labelling = (), {"train": []}, labelling.NONE
        self.unlabelled = self._pictures("")
        _check_two(self.unlabelled, self.path, self.skipped)

    def _take_table(self, table):
        """Take all pictures of the folder, with the labels of a table."""
        named = self._pictures("")
        self.classes, labelled, self.unlabelled = _by_table(
            table, named, {name for name, _ in self.skipped}, self.path
        )
        self.files = {"train": labelled}
        self._labelling = json.dumps([(self.classes[label], name) for label, name in labelled])

    def _check_same_classes(self, parts):
        for here, there in ((parts["train"], parts["test"]), (parts["test"], parts["train"])):
            if missing := in_order(set(self._folders(there)) - set(self._folders(here))):
                more = f" and {len(missing) - 1} more" if missing[1:] else ""
                raise UserError(
                    f"config: folder: {here}/ of {shown(self.path)} has no folder {excerpt(missing[0])}{more}, "
                    f"which {there}/ has; both need the same classes"
                )

    def _layers(self):
        """A list with the remark that the classes might be the folders below those that are taken
        for them; else an empty one.
        """
        inner = [set() for _ in self.classes]
        for label, name in self.files["train"]:
            inner[label].add(name.split("/")[1] if name.count("/") > 1 else "")
        if len(inner[0]) < 2 or "" in inner[0] or any(names != inner[0] for names in inner):
            return []
        return [
            f"The classes are the folders {_named(self.classes)}. Each holds the same folders, "
            f"{_named(in_order(inner[0]))}, which are not told apart; if these are the classes, call the folders around "
            "them train and test"
        ]

    def counts(self, part):
        """Number of pictures of each class."""
        counts = [0] * len(self.classes)
        for label, _ in self.files[part]:
            counts[label] += 1
        return counts

    @property
    def digest(self):
        """sha256 of the names of the pictures and the sha256 of each, and of labels that do not
        follow from these names.
        """
        content = self._content["digest"]
        if not self._labelling:
            return content
        return hashlib.sha256(
            f"{content}\n{self._labelling}".encode("utf-8", "replace")
        ).hexdigest()

    @functools.cached_property
    def copies(self):
        """{name: the first name with the same content} of the pictures whose content is there more
        than once.
        """
        return {name: group[0] for group in self._content["copies"] for name in group}

    @functools.cached_property
    def _content(self):
        """Read from the cache unless a file has changed."""
        lines = "".join(f"{name}\0{length}\0{changed}\n" for name, length, changed in self._stats)
        return _kept(f"{self.path.resolve()}\n{lines}", self._read)

    def _read(self):
        digest, read = hashlib.sha256(), []
        for name, *_ in bar(self._stats, f"reading {self.path.name}", "picture"):
            read.append((name, disk.sha256(self.path / name)))
            digest.update("{}\0{}\n".format(*read[-1]).encode("utf-8", "surrogateescape"))
        return {"digest": digest.hexdigest(), "copies": _groups(read)}

    def _folders(self, part):
        return self._walk.folders(self.path / part)

    def _class(self, folder):
        """The names of the pictures of a class; raises UserError without any."""
        before = len(self.skipped)
        names = self._pictures(folder)
        if not names:
            others = self.skipped[before:]
            there = f" ({skipping(others, len(others))})" if others else ""
            raise UserError(
                f"config: folder: {shown(self.path / folder)} has no picture{there}; remove the folder, or put "
                f"pictures of the class into it ({', '.join(SUFFIXES)})"
            )
        return names

    def _pictures(self, folder):
        """The names of the pictures below a folder; notes their sizes and times, and what is
        skipped.
        """
        names, begin = [], len(str(self.path / folder)) + (not folder)
        for path in self._walk.files(self.path / folder):
            name = folder + path[begin:]  # relpath takes longer than all the rest
            if reason := self._fault(path, name):
                self.skipped.append((name, reason))
            else:
                names.append(name)
        return names

    def _fault(self, path, name):
        """Why a file is not read, in words; '' if it is, and its size and time are noted."""
        if name in self._without:
            return LEFT_OUT
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
        return [
            os.path.join(folder, entry.name)
            for folder in sorted(folders)
            for entry in sorted(os.scandir(self.path / folder), key=lambda entry: entry.name)
            if not (entry.is_dir() or entry.name.startswith("."))
        ]


class Npz:
    """The pictures of a .npz file with the arrays images, uint8 (N, H, W), (N, H, W, 1) or (N, H,
    W, 3), and perhaps labels, (N,) or (N, 1).

    It may have test_images and test_labels, and classes, the names of the labels 0, 1, ...; without
    them the classes are the different labels. LAYOUTS has the other names of the arrays. Attributes
    as those of Folder; the name of a picture is the number of its row.
    """

    def __init__(self, path, labels=labelling.AUTO, without=frozenset()):
        self.path, self.remarks, self.skipped, self.unlabelled = path, [], [], []
        self._labelling = json.dumps(sorted(without)) if without else ""
        try:
            with zipfile.ZipFile(path) as self._archive:
                self._names = {
                    name.removesuffix(".npy")
                    for name in self._archive.namelist()
                    if name.endswith(".npy")
                }
                self._choose_arrays(labels, without)
        except UserError:
            raise
        except Exception as error:  # of damage, passwords and kinds of compression, many types
            raise UserError(
                f"config: folder: {shown(path)} is not a .npz file of arrays: {error}"
            ) from error
        del self._archive
        if not self.classes:
            _check_two(self.unlabelled, path, self.skipped)
            return
        _check_classes(self.classes, path)
        if empty := [
            name
            for part in self.files
            for name, count in zip(self.classes, self.counts(part), strict=True)
            if not count
        ]:
            raise UserError(
                f"config: folder: {shown(path)} has no picture of class {excerpt(empty[0])}"
            )

    def _choose_arrays(self, labels, without):
        """Take the arrays of the file that is open, with the labels that they or a table have."""
        names = next((names for names in LAYOUTS if names["train"][0] in self._names), LAYOUTS[0])
        own = labels == labelling.FOLDERS or (
            labels == labelling.AUTO and self._has_labels(*names["train"])
        )
        self._arrays = self._parts(names) if own else {"train": names["train"]}
        self.remarks += [NO_LABELS] if labels == labelling.AUTO and not own else []
        self.has_test = "test" in self._arrays
        if without and self.has_test:
            raise UserError(
                f"config: leave_out: rows of {shown(self.path)} cannot be left out, since it has test "
                "images of its own, whose numbers are the same"
            )
        self._total = self._count(names["train"][0])
        rows = [str(row) for row in range(self._total)]
        self.skipped = [(row, LEFT_OUT) for row in rows if row in without]
        self.remarks += _unknown(without, self.skipped)
        if own:
            self.classes, numbered = self._classes(
                [self._labels(*pair) for pair in self._arrays.values()]
            )
            self.files = {
                part: [
                    (int(label), str(row))
                    for row, label in enumerate(numbers)
                    if str(row) not in without
                ]
                for part, numbers in zip(self._arrays, numbered, strict=True)
            }
            return
        table = labelling.table(labels) if labelling.is_table(labels) else {}
        self.classes, labelled, self.unlabelled = _by_table(
            table, [row for row in rows if row not in without], without, self.path
        )
        self.files = {"train": labelled}
        self._labelling = json.dumps([labelled, self.classes, self.unlabelled])

    counts = Folder.counts
    digest = Folder.digest
    copies = Folder.copies

    @functools.cached_property
    def _content(self):
        status = self.path.stat()
        return _kept(f"{self.path.resolve()}\n{status.st_size}\0{status.st_mtime_ns}\n", self._read)

    def _read(self):
        """Copies are told from each other only where the rows have yet to be split."""
        rows = (
            []
            if self.has_test
            else (
                (str(row), hashlib.sha256(data).digest())
                for row, data in enumerate(
                    bar(
                        self._rows(),
                        f"reading {self.path.name}",
                        "picture",
                        total=self._total,
                    )
                )
            )
        )
        return {"digest": disk.sha256(self.path), "copies": _groups(rows)}

    def _rows(self):
        """The bytes of each picture, one after another."""
        import numpy as np

        with opened(self.path, self.array("train")) as file:
            (count, *shape), by_columns, _ = _header(file)
            if not by_columns:
                yield from (file.read(math.prod(shape)) for _ in range(count))
        if by_columns:
            with opened(self.path, self.array("train")) as file:
                yield from map(
                    np.ascontiguousarray, np.lib.format.read_array(file, allow_pickle=False)
                )

    def array(self, part):
        """The name of the array with the images of a part."""
        return self._arrays.get(part, self._arrays["train"])[0]

    def _has_labels(self, images, labels):
        """Whether there are labels, more than one of them."""
        return labels in self._names and len(set(self._labels(images, labels).tolist())) > 1

    def _parts(self, names):
        """Part -> names of its images and labels, of those of a layout."""
        there = {
            part: pair for part, pair in names.items() if part == "train" or self._names & set(pair)
        }
        for part, pair in there.items():
            if part != "train" and (missing := set(pair) - self._names):
                (other,) = set(pair) - missing
                raise UserError(
                    f"config: folder: {shown(self.path)} has {other} without {min(missing)}; add it, or leave "
                    f"{other} out"
                )
        others = there.pop(VALIDATION, None)
        if others:
            self.remarks.append(
                f"{others[0]} of the file is {'taken to test on' if 'test' not in there else NOT_READ}"
            )
        return there if "test" in there or not others else {**there, "test": others}

    def _count(self, images):
        """The number of images of an array, after its header was checked."""
        import numpy as np

        (count, *shape), dtype = self._checked_header(images)
        if (
            dtype != np.uint8
            or len(shape) not in (2, 3)
            or (len(shape) == 3 and shape[2] not in (1, 3))
            or min(shape) < 1
        ):
            raise ValueError(
                f"{images} is {dtype} {(count, *shape)}, not uint8 (N, H, W), (N, H, W, 1) or (N, H, W, 3)"
            )
        if count > MOST_ROWS or count * math.prod(shape) > MOST_UNPACKED:
            raise ValueError(
                f"{images} has more than {size(MOST_UNPACKED)} or {MOST_ROWS:,} rows; write folders of pictures"
            )
        return count

    def _labels(self, images, labels):
        """The labels of a part, an array (N,)."""
        count = self._count(images)
        values = self._labels_or_names(labels)
        if values.shape != (count,) or values.dtype.kind not in "iuU":
            raise ValueError(
                f"{labels} is {values.dtype} {values.shape}, not {count} whole numbers or texts"
            )
        return values

    def _classes(self, labels):
        """(names of the classes, labels as numbers of each part)."""
        import numpy as np

        every = np.concatenate(labels)
        if "classes" not in self._names:
            values = np.unique(every)
            if every.dtype.kind == "U":
                values = np.array(in_order(values.tolist()))
            order = np.argsort(values)
            return tuple(map(str, values.tolist())), [
                order[np.searchsorted(values, part, sorter=order)] for part in labels
            ]
        names = self._labels_or_names("classes")
        numbers = every.dtype.kind != "U" and 0 <= every.min() <= every.max() < len(names)
        if names.dtype.kind != "U" or not numbers:
            raise ValueError(
                "classes is not a list of texts with one for each of the labels 0, 1, ..."
            )
        return tuple(names.tolist()), labels

    def _checked_header(self, name):
        if name not in self._names:
            raise ValueError(f"it has no array {name}")
        with self._archive.open(f"{name}.npy") as file:
            shape, _, dtype = _header(file)
        if dtype.hasobject or not shape:
            raise ValueError(f"{name} is no array of numbers or texts")
        return shape, dtype

    def _labels_or_names(self, name):
        """An array of labels or names, (N,) from (N,) or (N, 1), after its header was checked."""
        import numpy as np

        (count, *more), dtype = self._checked_header(name)
        if more not in ([], [1]) or count > MOST_ROWS or count * dtype.itemsize > MOST_UNPACKED:
            raise ValueError(f"{name} is {dtype} {(count, *more)}, not one label for each row")
        with self._archive.open(f"{name}.npy") as file:
            return np.lib.format.read_array(file, allow_pickle=False).reshape(-1)


@contextlib.contextmanager
def opened(path, name):
    """An array of a .npz file, open for reading; raises UserError where it is damaged."""
    try:
        with zipfile.ZipFile(path) as archive, archive.open(f"{name}.npy") as file:
            yield file
    except Exception as error:  # zipfile, zlib and NumPy raise types of their own
        raise UserError(
            f"folder: {shown(path)} is damaged: {name} cannot be read ({error})"
        ) from error


def _header(file):
    """(shape, whether it is stored by columns, dtype) of an array; the file is left at its first
    number.
    """
    import numpy as np

    version = np.lib.format.read_magic(file)
    return (
        np.lib.format.read_array_header_1_0
        if version == (1, 0)
        else np.lib.format.read_array_header_2_0
    )(file)


def _part(name):
    """The part that a folder is by its name, train, test or val; None for any other name."""
    match = PART_NAME.fullmatch(name)
    return match and (*PARTS, VALIDATION)[match.lastindex - 1]


def _parts(folders, path):
    """({"train", "test": names of these folders}, or {} where they are no parts; remarks)."""
    named = {}
    for part in (*PARTS, VALIDATION):
        alike = [name for name in folders if _part(name) == part]
        named[part] = [part] if part in alike else alike
    test = named["test"] or named[VALIDATION]
    if not (named["train"] and test):
        return {}, []
    for part, names in (("train", named["train"]), ("test", test)):
        if len(names) > 1:
            raise UserError(
                f"config: folder: {shown(path)} has {names[0]}/ and {names[1]}/; call the one that is meant {part}"
            )
    taken = {"train": named["train"][0], "test": test[0]}
    usual = tuple(taken.values()) == PARTS
    return taken, [] if usual else [
        "The folder {train}/ is taken to train on, {test}/ to test on".format(**taken)
    ]


def in_order(names):
    """A tuple of the sorted names, numbers by their value."""
    numbers = all(name.isascii() and name.isdigit() for name in names)
    return tuple(sorted(names, key=lambda name: (int(name), name)) if numbers else sorted(names))


def _named(folders):
    """Names of folders in words, the first ones."""
    return ", ".join(f"{shown(name)}/" for name in folders[:3]) + (
        f" and {len(folders) - 3} more" if folders[3:] else ""
    )


def _groups(digests):
    """[[name, ...], ...] of those that have the same digest; digests: (name, digest) of each."""
    names = {}
    for name, digest in digests:
        names.setdefault(digest, []).append(name)
    return [group for group in names.values() if group[1:]]


def _by_table(table, names, skipped, path):
    """(classes, [(label, name)], names without a label) of pictures by a table {name: label};
    skipped: names that the table may have too.
    """
    if unknown := sorted(table.keys() - set(names) - skipped):
        more = f" and {len(unknown) - 1:,} more" if unknown[1:] else ""
        raise UserError(
            f"config: labels: {shown(path)} has no picture {excerpt(unknown[0])}{more}; names are paths "
            "below the folder, as a/b.png, and of a .npz file the numbers of its rows from 0"
        )
    labelled = [(table[name], name) for name in names if table.get(name)]
    classes = in_order({label for label, _ in labelled})
    if table:
        _check_classes(classes, path)
    numbers = {label: number for number, label in enumerate(classes)}
    return (
        classes,
        [(numbers[label], name) for label, name in labelled],
        [name for name in names if not table.get(name)],
    )


def _unknown(without, skipped):
    """A list with the remark on names of leave_out that are not there; else an empty one."""
    if not (unknown := sorted(without - {name for name, reason in skipped if reason == LEFT_OUT})):
        return []
    return [f"{len(unknown):,} of the names in leave_out are not there, as {shown(unknown[0])}"]


def _check_two(names, path, skipped):
    """Check that there are pictures to learn from, and one that was not learned from."""
    if len(names) < 2:
        there = f" ({skipping(skipped, len(skipped))})" if skipped else ""
        raise UserError(
            f"config: folder: {shown(path)} has {'a single' if names else 'no'} picture{there}; two at least are "
            f"needed ({', '.join(SUFFIXES)})"
        )


def _check_classes(classes, path):
    if not 2 <= len(classes) <= MOST_CLASSES:
        raise UserError(
            f"config: folder: {shown(path)} has {len(classes)} class{'es' if len(classes) != 1 else ''}; 2 to "
            f"{MOST_CLASSES} are possible, a folder of pictures each or a label each; labels=none takes pictures "
            "without them"
        )
    for name in classes:
        if not name.isprintable() or len(name) > LONGEST_NAME or not name.strip():
            raise UserError(
                f"config: folder: the name of class {excerpt(name)} is not one line of at most {LONGEST_NAME} "
                "printable characters"
            )


def _kept(state, read):
    """`read()`, or what it was when the state (names, sizes and times of files) was the same."""
    path = (
        cache.folder("pictures")
        / hashlib.sha256(state.encode("utf-8", "surrogateescape")).hexdigest()
    )
    if cached := cache.find(path):
        return json.loads(cached.read_text("utf-8"))
    content = read()
    cache.keep(path, json.dumps(content).encode())
    return content


# The split and the order of use.


def split(listing, test_share, without=(), alike=None):
    """{"train": [(label, name)], "test": ...} of all pictures, in the order in which they are used.

    Without test pictures of its own, the share `test_share` of each class is the test set, at least
    one and not all. Pictures are ordered by a hash of their names, in turn by class, so that the
    first ones are balanced by class, and a picture more moves at most one of the others to the
    other part. Those of the same content are in the same part, unless one part would then have none
    of their class. Pictures without a label, whose label is None, follow those to train on; if
    no picture has one, all are split as if they were one class.
    without: names that are left out; alike: {name: key} of pictures that count as the same if their
    keys are equal.
    """
    alike = alike or {}
    unlabelled = [(None, name) for name in listing.unlabelled if name not in without]
    parts = {
        part: _by_class((file for file in files if file[1] not in without), len(listing.classes))
        for part, files in listing.files.items()
    }
    if not listing.classes:
        parts, unlabelled = {"train": [_by_hash(unlabelled)]}, []
    if not listing.has_test:
        files = (file for by_class in parts["train"] for file in by_class)
        same = {
            name: alike.get(first := listing.copies.get(name, name), first) for _, name in files
        }
        tests = _tests(parts["train"], test_share, same)
        parts = {
            part: [
                [file for file in files if (file[1] in tests) == (part == "test")]
                for files in parts["train"]
            ]
            for part in PARTS
        }
    in_turn = {
        part: [
            file
            for _, _, file in sorted(
                (rank, number, file)
                for number, files in enumerate(by_class)
                for rank, file in enumerate(files)
            )
        ]
        for part, by_class in parts.items()
    }
    return {**in_turn, "train": in_turn["train"] + _by_hash(unlabelled)}


def test_count(count, test_share):
    """How many of the pictures of a class are test pictures."""
    return min(max(1, round(test_share * count)), count - 1)


def training_counts(listing: Any, test_share: float) -> list[int]:
    """Number of training pictures of each class, as far as nothing is left out."""
    counts: list[int] = listing.counts("train")
    return counts if listing.has_test else [n - test_count(n, test_share) for n in counts]


def _tests(by_class, test_share, same):
    """Names of the test pictures: the first of each class that have room there with all their
    copies (same: name -> key).
    """
    together, counts, tests = {}, collections.Counter(), set()
    for label, files in enumerate(by_class):
        for _, name in files:
            together.setdefault(same[name], []).append(name)
            counts[same[name], label] += 1
    for label, files in enumerate(by_class):
        wanted = test_count(len(files), test_share)
        taken = sum(name in tests for _, name in files)
        for most in (wanted, len(files)):  # without any that has room, more than wanted
            for _, name in files:
                count = counts[same[name], label]
                if name not in tests and taken + count <= (wanted if taken else most):
                    tests.update(together[same[name]])
                    taken += count
    for files in by_class:
        if tests.issuperset(name for _, name in files):  # nothing would be left to train on
            tests -= {name for _, name in files[max(0, test_count(len(files), test_share)) :]}
    return tests


def _by_class(files, classes):
    groups = [[] for _ in range(classes)]
    for label, name in files:
        groups[label].append((label, name))
    return list(map(_by_hash, groups))


def _by_hash(files):
    """Files (label, name) in the order of a hash of their names."""
    return sorted(
        files, key=lambda file: hashlib.sha256(file[1].encode("utf-8", "surrogateescape")).digest()
    )
