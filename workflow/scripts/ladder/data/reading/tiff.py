"""What pictures in TIFF need beside Pillow: a look at the file before it is opened, and grey levels
of more than 8 bits.
"""

import contextlib
import struct

import numpy as np
from PIL import TiffImagePlugin as plugin

# First bytes of a file -> formats (of struct) of the place of a directory, of its number of
# entries, and of an entry: tag, type, number of values, and the value or its place. The last one is
# BigTIFF.
HEADS = {
    b"II*\0": ("<I", "<H", "<HHI4s"),
    b"MM\0*": (">I", ">H", ">HHI4s"),
    b"II+\0": ("<Q", "<Q", "<HHQ8s"),
}
# of which Pillow takes the directories for others than they are
ODD = {b"MM\0+", b"MM*\0", b"II\0*"}
BYTES = {1, 2, 7}  # types whose values are read as a whole; others are read number by number
# types of whole numbers -> their format
WHOLE = {3: "H", 4: "I", 6: "b", 8: "h", 9: "i", 13: "I", 16: "Q"}
# tags with the place of another directory: EXIF, GPS, interoperability
DIRECTORIES = {34665, 34853, 40965}
MOST_NUMBERS = 100_000  # in all directories; a picture has two for each of its strips or tiles
WHITE_IS_ZERO = 0  # photometric interpretation, which Pillow applies to 8 bits and fewer
# mode -> what it has, which has no range
UNKNOWN = {"I": "whole numbers with a sign or of 32 bits", "LAB": "Lab colours"}
ADVICE = "save it with 8 or 16 bits of grey or RGB"
UNREADABLE = f"a damaged TIFF, or one of a kind that cannot be read here; {ADVICE}"


def fault(file):
    """Why a TIFF that is open for reading must not be given to Pillow, in words; '' for any other
    file.

    Pillow reads the numbers in the directories of the first page one by one, seconds for each
    million, before it says how large the picture is.
    """
    head = _head(file)
    if head in HEADS and _has_too_many_numbers(file, *HEADS[head]):
        return f"a TIFF with more than {MOST_NUMBERS:,} numbers beside its pixels"
    return UNREADABLE if head in ODD else ""


def unidentified(file):
    """UNREADABLE if a file that is open for reading begins like a TIFF, else ''."""
    return UNREADABLE if _head(file) in HEADS else ""


def _head(file):
    """The first bytes of a file, which is left at its start."""
    file.seek(0)
    head = file.read(4)
    file.seek(0)
    return head


def _has_too_many_numbers(file, place, *forms):
    file.seek(4 if place.endswith("I") else 8)
    places, count = list(_read(file, place)), 0
    for at in places:  # grows by those that an entry names
        for tag, kind, length, value in _entries(file, at, *forms):
            count += 1 if kind in BYTES else 1 + length
            if count > MOST_NUMBERS:
                return True
            if tag in DIRECTORIES and kind in WHOLE and length == 1:
                named = struct.unpack_from(place[0] + WHOLE[kind], value)
                places += [offset for offset in named if offset not in places]
    return False


def _entries(file, at, count, entry):
    """The entries of a directory, as far as the file has them."""
    with contextlib.suppress(struct.error, OSError, ValueError, OverflowError):
        file.seek(at)
        for _ in range(*_read(file, count)):
            yield _read(file, entry)


def _read(file, form):
    return struct.unpack(form, file.read(struct.calcsize(form)))


def grey(image, tags):
    """float32 (H, W) from 0, black, to 1 of a picture of 12 or 16 bits, or of floating-point
    numbers; tags: of a TIFF.

    Raises ValueError where the numbers have no range that is known.
    """
    values = np.asarray(image, np.float32)
    most = 1 if image.mode == "F" else 4095 if tags.get(plugin.BITSPERSAMPLE) == (12,) else 65535
    low, high = float(values.min()), float(values.max())
    if not 0 <= low <= high <= most:
        raise ValueError(f"floating-point numbers from {low:g} to {high:g}, which are not 0 to 1")
    levels = values / np.float32(most)
    return 1 - levels if tags.get(plugin.PHOTOMETRIC_INTERPRETATION) == WHITE_IS_ZERO else levels
