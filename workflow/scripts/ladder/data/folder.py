"""Images of a data set from pictures of one's own: decoded, scaled and cropped one by one, straight
to the disk.

Only the small images are kept, in a file without a name; an original is in memory while it is
decoded. Threads decode, in the order of listing.split, so the images do not depend on their number.
"""

import concurrent.futures
import dataclasses
import functools
import hashlib
import operator
import tempfile
from typing import NamedTuple

import numpy as np
from PIL import Image

from ladder.data import listing
from ladder.data.datasets import Rows, Splits
from ladder.data.reading import pictures
from ladder.errors import UserError, excerpt
from ladder.files import shown
from ladder.progress import bar, log

AT_ONCE = 64  # pictures handed to the threads together
NAMED = 3  # files that a message names


@dataclasses.dataclass(frozen=True)
class Part:
    """What was read of a part.

    images   Rows uint8 (N, H, W, C), of a file on the disk
    labels   uint8 (L,) of the first L, those that have one
    names    of the images, N
    digests  of the images, N
    skipped  name -> (label, reason)
    more     names of the pictures with frames or pages beside the first
    """

    images: np.ndarray
    labels: np.ndarray
    names: list
    digests: list
    skipped: dict
    more: list


def load(options, params, limits, scratch, threads):
    """(Splits, [{"file", "reason"}] of what was skipped, remarks) of the pictures that `options`
    name: folder, a folder or a .npz file, labels and leave_out (listing.source).

    params: folder_sha256, image_size, image_channels, test_share; limits: part -> number of images,
    "all" or 0 for none; scratch: a folder with room for the images. Raises UserError where the
    pictures are not those of folder_sha256, or a class is left without any.
    """
    source = _checked(options, params)
    shape = (*params["image_size"], params["image_channels"])
    readers = _readers(source, shape, scratch, threads)
    damaged, alike = {}, {}
    # until the split is one of pictures that can be read, and equal ones are in one part
    while True:
        split = listing.split(source, params.get("test_share"), damaged, alike)
        parts = {
            part: _part(readers[part], part, files, limits[part]) for part, files in split.items()
        }
        lacking = {
            part: _lacking(source, taken) if limits[part] else [] for part, taken in parts.items()
        }
        before = len(damaged), len(alike)
        damaged, alike = damaged | _damaged(parts, lacking), alike | _equal(source, parts)
        if (len(damaged), len(alike)) == before:
            break
        log.info(
            "the pictures are split again: %d cannot be read, %d are equal when scaled",
            len(damaged),
            len(alike),
        )
    refused = functools.reduce(operator.or_, (read.skipped for read in parts.values()), damaged)
    _check_classes(source, lacking, refused)
    listing.source.cache_clear()
    _checked(options, params)
    skipped = [*source.skipped, *((name, reason) for name, (_, reason) in refused.items())]
    _log(source, skipped, [name for part in parts.values() for name in part.more])
    return (
        Splits(
            *(array for part in parts.values() for array in (part.images, part.labels)),
            source.classes,
            {part: taken.names for part, taken in parts.items()},
        ),
        [{"file": shown(name), "reason": reason} for name, reason in skipped],
        source.remarks,
    )


def _log(source, skipped, more):
    for remark in source.remarks:
        log.info("%s", remark)
    if skipped:
        count = len(source.skipped) + sum(map(len, source.files.values())) + len(source.unlabelled)
        what = "files" if isinstance(source, listing.Folder) else "rows"
        log.info("%s; skipped.json names them", listing.skipping(skipped, count, what))
    if more:
        log.info(
            "%d picture%s more frames or pages than the first, which is read, as %s",
            len(more),
            "s have" if len(more) != 1 else " has",
            shown(more[0]),
        )


def _checked(options, params):
    """The listing of the pictures; raises UserError unless its content is the planned one."""
    source = listing.source(options["folder"], options["labels"], options["leave_out"])
    if source.digest != params["folder_sha256"]:
        raise UserError(
            f"the pictures of {shown(source.path)} changed after this run was planned; run it again"
        )
    return source


def _lacking(source, read):
    """The labels of which a Part has no picture; without labels [None] if it has none at all."""
    if not source.classes:
        return [] if read.names else [None]
    return sorted(set(range(len(source.classes))) - set(read.labels.tolist()))


def _damaged(parts, lacking):
    """What was skipped, as in Part.skipped, of the classes of which a part has no picture (lacking:
    part -> labels).
    """
    labels = {label for missing in lacking.values() for label in missing}
    return {
        name: fault
        for part in parts.values()
        for name, fault in part.skipped.items()
        if fault[0] in labels
    }


def _equal(source, parts):
    """{name: digest} of all pictures that differ, but not when scaled, for listing.split; none if
    no two are in different parts, or the parts are given."""
    names, crossing = {}, set.intersection(*(set(part.digests) for part in parts.values()))
    for name, digest in (
        row for part in parts.values() for row in zip(part.names, part.digests, strict=True)
    ):
        names.setdefault(digest, set()).add(source.copies.get(name, name))
    if source.has_test or all(len(names[digest]) == 1 for digest in crossing):
        return {}
    return {name: digest for digest, group in names.items() for name in group if len(group) > 1}


def _unexpected(source, lacking):
    """(part, labels) of what is lacking, but for the test pictures of classes of a single picture,
    which is trained on.
    """
    counts = [] if source.has_test else source.counts("train")
    single = {label for label, count in enumerate(counts) if count == 1}
    for part, labels in lacking.items():
        if missing := [label for label in labels if part != "test" or label not in single]:
            yield part, missing


def _check_classes(source, lacking, refused):
    for part, missing in _unexpected(source, lacking):
        faults = [
            f"{shown(name)}: {reason}"
            for name, (label, reason) in refused.items()
            if label == missing[0]
        ]
        more = f"; {len(faults) - NAMED} more" if faults[NAMED:] else ""
        if not source.classes:
            raise UserError(
                f"folder: fewer than two pictures can be read ({'; '.join(faults[:NAMED])}{more})"
            )
        few = (
            f"no {part} picture of class" if source.has_test else "fewer than two pictures of class"
        )
        raise UserError(
            f"folder: {few} {excerpt(source.classes[missing[0]])} can be read ({'; '.join(faults[:NAMED])}{more}); "
            "remove the class, or put other pictures into it"
        )


def _part(read, part, files, limit):
    """The Part with the first `limit` of the files, (label, name) each, that can be read."""
    most = len(files) if limit == "all" else limit
    labels, names, rows, digests, skipped, more = [], [], [], [], {}, []
    with bar(total=min(most, len(files)), label=f"{part} pictures", unit=" pictures") as progress:
        for start in range(0, len(files), AT_ONCE):
            if len(names) == most:
                break
            batch = files[start : start + AT_ONCE]
            for (label, name), picture in zip(batch, read.pictures(batch), strict=True):
                if len(names) < most and picture.digest:
                    labels += [] if label is None else [label]
                    names.append(name)
                    rows.append(picture.row)
                    digests.append(picture.digest)
                    more += [name] if pictures.FIRST in picture.remarks else []
                elif len(names) < most:
                    skipped[name] = label, picture.remarks
            progress.update(len(batch))
    images = Rows(read.images(), np.array(rows, np.int64))
    return Part(images, np.array(labels, np.uint8), names, digests, skipped, more)


class ReadPicture(NamedTuple):
    """A picture that was read, or not.

    row      of Read.images
    digest   of the image, b"" where it cannot be read
    remarks  on it, or why it cannot be read
    """

    row: int
    digest: bytes
    remarks: str


class Read:
    """The pictures that were read, each once, however often they are split; their images lie in a
    file without a name. reader: a function as that of _reader.
    """

    def __init__(self, reader, shape, scratch, threads):
        self._reader, self._shape = reader, shape
        self._pool = concurrent.futures.ThreadPoolExecutor(threads)
        self._file = tempfile.TemporaryFile(dir=scratch)  # lives as long as its maps
        self._known, self._count = {}, 0

    def pictures(self, files):
        """The ReadPicture of each of the files, (label, name)."""
        new = [name for _, name in files if name not in self._known]
        for name, (image, remarks) in zip(new, self._pool.map(self._reader, new), strict=True):
            self._known[name] = self._kept(image, remarks)
        return [self._known[name] for _, name in files]

    def _kept(self, image, remarks):
        if image is None:
            return ReadPicture(-1, b"", remarks)
        self._file.write(image.data)
        self._count += 1
        return ReadPicture(self._count - 1, hashlib.sha256(image.data).digest(), remarks)

    def images(self):
        """uint8 (N, H, W, C): all that were read."""
        self._file.flush()
        shape = self._count, *self._shape
        if not self._count:
            return np.empty(shape, np.uint8)
        return np.memmap(self._file, np.uint8, "r", shape=shape)


def _readers(source, shape, scratch, threads):
    """{part: Read}, one for both parts where no name is in both."""
    is_folder = isinstance(source, listing.Folder)
    arrays = {part: None if is_folder else source.array(part) for part in listing.PARTS}
    readers = {
        array: Read(_reader(source, array, shape), shape, scratch, threads)
        for array in set(arrays.values())
    }
    return {part: readers[array] for part, array in arrays.items()}


def _reader(source, array, shape):
    """A function: the name of a picture -> (its image, uint8 of this shape, remarks) or (None, why
    it cannot be read); array: of a .npz file.
    """
    if isinstance(source, listing.Folder):
        least = pictures.enough("folder", shape)
        return lambda name: _fitted(lambda: pictures.read(source.path / name, least), shape)
    with listing.opened(source.path, array) as file:
        images = np.lib.format.read_array(file, allow_pickle=False)
    if images.shape[3:] == (1,):
        images = images[..., 0]
    return lambda row: _fitted(
        lambda: (Image.fromarray(images[int(row)]).convert("RGB"), ()), shape
    )


def _fitted(read, shape):
    try:
        image, remarks = read()
        return pictures.fit(image, "folder", shape)[0].copy(), "; ".join(remarks)
    except pictures.PictureError as fault:
        return None, str(fault)
