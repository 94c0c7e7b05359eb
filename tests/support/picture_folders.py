"""Folders of small pictures, a folder for each class, and .npz files of them."""

import io
import struct
import zlib

import numpy as np
from PIL import Image


def picture(seed, size=(40, 30)):
    """A PIL picture of random colours, (width, height) = size."""
    return Image.fromarray(
        np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    )


def write(folder, counts, first=0):
    """Write `count` pictures for each class of counts, {class: count}, as PNG below the folder,
    which is returned.
    """
    for label, (name, count) in enumerate(counts.items()):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            picture(first + 1000 * label + number).save(folder / name / f"{number:04d}.png")
    return folder


def claiming(width, height):
    """Bytes of a small PNG whose header claims this size."""
    file = io.BytesIO()
    Image.new("1", (8, 8)).save(file, "PNG")
    data = bytearray(file.getvalue())
    data[16:24] = struct.pack(">II", width, height)
    data[29:33] = struct.pack(">I", zlib.crc32(data[12:29]))
    return bytes(data)


def npz(path, **arrays):
    np.savez_compressed(path, **arrays)
    return path
