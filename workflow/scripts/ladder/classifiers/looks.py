"""What pictures of one's own look like, as far as rules for their settings go by it: their size,
and whether they look like their mirror images.

Both come from a sample, the first pictures by a hash of their names, and are kept by the digest of
the pictures, so that only the first command looks at them.
"""

import concurrent.futures
import dataclasses
import hashlib
import json
import statistics
from typing import Any

from ladder.data import listing
from ladder.machine import runtime
from ladder.progress import bar
from ladder.store import cache

SAMPLE = 600  # pictures
SHAPE = (32, 32, 3)  # at which they are compared with their mirror images
LEAST = 40  # of which half are as many rows as kernel ridge needs
SEED = 1


@dataclasses.dataclass(frozen=True)
class Looks:
    """What was seen of a sample of pictures.

    side   the median of the shorter sides, in pixels
    count  pictures, every other of them mirrored, that kernel ridge regression classified as
           mirrored or not; 0 where there are too few
    right  how many of these it classified correctly
    """

    side: int
    right: int
    count: int


def find(source: Any) -> Looks:
    """The Looks of a listing.Folder or listing.Npz."""
    path = cache.folder("looks") / source.digest
    if cached := cache.find(path):
        return Looks(**json.loads(cached.read_text("utf-8")))
    seen: Looks = _mirror_test(source)
    cache.keep(path, json.dumps(dataclasses.asdict(seen)).encode())
    return seen


def _mirror_test(source):
    sampled = sorted(
        [
            *((part, name) for part, files in source.files.items() for _, name in files),
            *(("train", name) for name in source.unlabelled),
        ],
        key=lambda row: hashlib.sha256(row[1].encode("utf-8", "surrogateescape")).digest(),
    )[:SAMPLE]
    images, sides = [], []
    for image, side in bar(
        _read(source, sampled), f"looking at {source.path.name}", "picture", total=len(sampled)
    ):
        images.append(image)
        sides.append(side)
    return Looks(int(statistics.median(sides or [0])), *_told_apart(images))


def _read(source, sampled):
    """(image, uint8 of SHAPE; shorter side) of each of the pictures, (part, name), that can be
    read.
    """
    import numpy as np  # here, as Pillow: a command that has looked before needs neither
    from PIL import Image

    from ladder.data.reading import pictures

    arrays, least = {}, pictures.enough("folder", SHAPE)
    if isinstance(source, listing.Npz):
        for part in source.files:
            with listing.opened(source.path, source.array(part)) as file:
                arrays[part] = np.lib.format.read_array(file, allow_pickle=False)

    def read(row):
        part, name = row
        try:
            image = (
                Image.fromarray(np.squeeze(arrays[part][int(name)])).convert("RGB")
                if arrays
                else pictures.read(source.path / name, least)[0]
            )
        except pictures.PictureError:
            return None
        side = min(image.info.get("size", image.size))
        return pictures.fit(image, "folder", SHAPE)[0], side

    with concurrent.futures.ThreadPoolExecutor(runtime.available_cores()) as pool:
        yield from filter(None, pool.map(read, sampled))


def _told_apart(images):
    """(how many of the last half kernel ridge tells from mirror images, fitted to the first half;
    how many these are).
    """
    import numpy as np

    from ladder.classifiers import ridge

    if len(images) < LEAST:
        return 0, 0
    rows = np.array(images, np.float32) / 255
    train, test = np.array_split(rows, 2)
    mirrored = np.arange(len(test)) % 2
    model = ridge.fit(
        np.concatenate([_flat(train), _flat(train[:, :, ::-1])]),
        np.repeat([0, 1], len(train)),
        SEED,
    )
    shown = np.where(mirrored[:, None, None, None], test[:, :, ::-1], test)
    predictions = ridge.classify(model, _flat(shown))[0]
    return int(np.sum(predictions == mirrored)), len(test)


def _flat(images):
    return images.reshape(len(images), -1)
