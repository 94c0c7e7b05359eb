"""Folders of small pictures, a folder for each class, and .npz files of them."""

import numpy as np
from PIL import Image


def picture(seed, size=(40, 30)):
    """A PIL picture of random colours, (width, height) = size."""
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8))


def write(folder, counts, first=0):
    """Write `count` pictures for each class of counts, {class: count}, as PNG below the folder, which is returned."""
    for label, (name, count) in enumerate(counts.items()):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            picture(first + 1000 * label + number).save(folder / name / f"{number:04d}.png")
    return folder


def npz(path, **arrays):
    np.savez_compressed(path, **arrays)
    return path
