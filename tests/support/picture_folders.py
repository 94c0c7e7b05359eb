"""Pictures as files: folders with one for each class, .npz files, and formats of their own."""

import io
import struct
import zlib

import numpy as np
from PIL import Image

from ladder.data import listing
from ladder.store import cache

GRADIENT = np.linspace(0, 255, 40 * 60).reshape(40, 60).astype(np.uint8)
COLOURS = np.stack([GRADIENT, GRADIENT[::-1], 255 - GRADIENT], axis=2)


def forget(monkeypatch, folder):
    """No listing or digest that an earlier test has kept, and none of this test for a later one."""
    monkeypatch.setattr(cache, "folder", lambda name: folder / "cache" / name)
    listing.source.cache_clear()


def encoded(image, kind="PNG", **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def wide_png(values):
    """A PNG of uint16 (H, W, channels): of grey or colours and either with transparency, which
    Pillow cannot write.
    """

    def chunk(name, data):
        return (
            struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        )

    height, width, channels = values.shape
    kind = {1: 0, 2: 4, 3: 2, 4: 6}[channels]
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 16, kind, 0, 0, 0))
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


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
    data = bytearray(encoded(Image.new("1", (8, 8))))
    data[16:24] = struct.pack(">II", width, height)
    data[29:33] = struct.pack(">I", zlib.crc32(data[12:29]))
    return bytes(data)


def npz(path, **arrays):
    np.savez_compressed(path, **arrays)
    return path
