"""Images of a data set from pictures of one's own: decoded, scaled and cropped one by one, straight to the disk.

Only the small images are kept, in a file without a name; an original is in memory while it is decoded. Threads decode, in the
order of listing.split, so the images do not depend on their number.
"""

import concurrent.futures
import contextlib
import tempfile
import zipfile

import numpy as np
from PIL import Image

from ladder.data import listing
from ladder.data.datasets import Dataset
from ladder.data.reading import pictures
from ladder.errors import UserError, excerpt
from ladder.files import shown
from ladder.progress import bar, log

AT_ONCE = 64   # pictures handed to the threads together


def load(path, params, limits, scratch, threads):
    """(Dataset, [{"file", "reason"}] of the pictures that were skipped) of the pictures at `path`, a folder or a .npz file.

    params: folder_sha256, image_size, image_channels, test_share; limits: part -> number of images, "all" or 0 for none;
    scratch: a folder with room for the images. Raises UserError where the pictures are not those of folder_sha256, or a class
    is left without any.
    """
    source = _checked(path, params)
    shape = (*params["image_size"], params["image_channels"])
    arrays, names, skipped, more = [], {}, list(source.skipped), []
    for part, files in listing.split(source, params.get("test_share")).items():
        images, labels, names[part], refused, first = _part(source, part, files, shape, limits[part], scratch, threads)
        arrays += [images, labels]
        skipped += refused
        more += first
        if len(labels):
            _check_classes(source, labels, part)
    listing.of.cache_clear()
    _checked(path, params)
    if skipped:
        count = len(source.skipped) + sum(map(len, source.files.values()))
        log.info("%s; skipped.json names them", listing.skipping(skipped, count))
    if more:
        log.info("%d picture%s more frames or pages than the first, which is read, as %s", len(more),
                 "s have" if len(more) != 1 else " has", shown(more[0]))
    return Dataset(*arrays, source.classes, names), [{"file": shown(name), "reason": reason} for name, reason in skipped]


def _checked(path, params):
    """The listing of `path`; raises UserError unless its content is the planned one."""
    source = listing.of(path)
    if source.digest != params["folder_sha256"]:
        raise UserError(f"the pictures of {shown(path)} changed after this run was planned; run it again")
    return source


def _check_classes(source, labels, part):
    if missing := set(range(len(source.classes))) - set(np.unique(labels).tolist()):
        raise UserError(f"folder: no {part} picture of class {excerpt(source.classes[min(missing)])} can be read; remove the "
                        "class, or put other pictures into it")


def _part(source, part, files, shape, limit, scratch, threads):
    """(images, labels, names, skipped, more) of one part: uint8 (N, *shape), a map of a file on the disk, uint8 (N,), N texts.

    skipped: [(name, reason)]; more: names of the pictures with frames or pages beside the first.
    """
    most = len(files) if limit == "all" else limit
    labels, names, skipped, more, read = [], [], [], [], _reader(source, part, shape)
    with contextlib.ExitStack() as stack:
        pool = stack.enter_context(concurrent.futures.ThreadPoolExecutor(threads))
        progress = stack.enter_context(bar(total=min(most, len(files)), label=f"{part} pictures", unit=" pictures"))
        file = tempfile.TemporaryFile(dir=scratch)   # lives as long as its map
        for start in range(0, len(files), AT_ONCE):
            if len(labels) == most:
                break
            batch = files[start:start + AT_ONCE]
            for (label, name), (image, remarks) in zip(batch, pool.map(read, (name for _, name in batch)), strict=True):
                if len(labels) < most and image is not None:
                    file.write(image.data)
                    labels.append(label)
                    names.append(name)
                    more += [name] if pictures.FIRST in remarks else []
                elif len(labels) < most:
                    skipped.append((name, remarks))
            progress.update(len(batch))
        file.flush()
    images = np.memmap(file, np.uint8, "r", shape=(len(labels), *shape)) if labels else np.empty((0, *shape), np.uint8)
    return images, np.array(labels, np.uint8), names, skipped, more


def _reader(source, part, shape):
    """A function: the name of a picture -> (its image, uint8 of this shape, remarks) or (None, why it cannot be read)."""
    if isinstance(source, listing.Folder):
        return lambda name: _fitted(lambda: pictures.read(source.path / name), shape)
    images = _array(source.path, source.array(part))
    if images.shape[3:] == (1,):
        images = images[..., 0]
    return lambda row: _fitted(lambda: (Image.fromarray(images[int(row)]).convert("RGB"), ()), shape)


def _array(path, name):
    """An array of a .npz file; raises UserError where it is damaged."""
    try:
        with zipfile.ZipFile(path) as archive, archive.open(f"{name}.npy") as file:
            return np.lib.format.read_array(file, allow_pickle=False)
    except Exception as error:   # zipfile, zlib and NumPy raise types of their own
        raise UserError(f"folder: {shown(path)} is damaged: {name} cannot be read ({error})") from error


def _fitted(read, shape):
    try:
        image, remarks = read()
        return pictures.fit(image, "folder", shape)[0].copy(), "; ".join(remarks)
    except pictures.PictureError as fault:
        return None, str(fault)
