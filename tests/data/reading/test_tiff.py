"""TIFF of every kind that Pillow reads becomes 8-bit RGB; others, and hostile ones, are refused in
words at once.
"""

import functools
import io
import os
import struct
import time
import tracemalloc
import zlib

import numpy as np
import pytest
from PIL import Image, TiffImagePlugin

import picture_folders
import processes
from ladder import sources
from ladder.data.reading import pictures, tiff
from ladder.data.reading.pictures import PictureError
from picture_folders import COLOURS, GRADIENT

LONG, SHORT = 4, 3  # types
PLACE = 8  # of the pixel data


encoded = functools.partial(picture_folders.encoded, kind="TIFF")


def raw(data, order="<", **tags):
    """Bytes of an 8-bit grey 2x2 TIFF of this data and with other tags; t322=(type, number of
    values, value or its place).
    """
    found = {
        256: (LONG, 1, 2),
        257: (LONG, 1, 2),
        258: (SHORT, 1, 8),
        259: (SHORT, 1, 1),
        262: (SHORT, 1, 1),
        273: (LONG, 1, PLACE),
        277: (SHORT, 1, 1),
        278: (LONG, 1, 2),
        279: (LONG, 1, len(data)),
        **{int(tag[1:]): one for tag, one in tags.items()},
    }
    entries = b""
    for tag, (kind, count, value) in sorted(found.items()):
        entries += struct.pack(f"{order}HHI", tag, kind, count)
        entries += (
            struct.pack(f"{order}HH", value, 0)
            if kind == SHORT and count == 1
            else struct.pack(f"{order}I", value)
        )
    head = b"II*\0" if order == "<" else b"MM\0*"
    return (
        head
        + struct.pack(f"{order}I", 8 + len(data))
        + data
        + struct.pack(f"{order}H", len(entries) // 12)
        + entries
        + bytes(4)
    )


def pixels(data):
    return np.asarray(pictures.read(data)[0])


def refusal(data):
    with pytest.raises(PictureError) as fault:
        pictures.read(data)
    assert str(fault.value).isprintable()
    return str(fault.value)


@pytest.mark.parametrize("compression", [None, "tiff_lzw", "tiff_adobe_deflate", "packbits"])
@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr"])
def test_every_mode_becomes_the_same_eight_bit_rgb(mode, compression):
    given = Image.fromarray(COLOURS).convert(mode)
    found = pixels(encoded(given, **({"compression": compression} if compression else {})))
    # YCbCr is rounded by libtiff
    assert np.abs(found.astype(int) - np.asarray(given.convert("RGB"))).max() <= 1


def test_bilevel_facsimile_and_jpeg_are_read():
    dithered = Image.fromarray(GRADIENT).convert("1")
    np.testing.assert_array_equal(
        pixels(encoded(dithered, compression="group4")), np.asarray(dithered.convert("RGB"))
    )
    assert (
        np.abs(
            pixels(encoded(Image.fromarray(COLOURS), compression="jpeg")).astype(int) - COLOURS
        ).max()
        <= 8
    )


def test_transparent_pixels_become_white():
    layer = np.dstack([COLOURS, np.full((40, 60), 255, np.uint8)])
    layer[:, :30, 3] = 0
    image, remarks = pictures.read(encoded(Image.fromarray(layer)))
    assert (np.asarray(image)[:, :30] == 255).all() and remarks == ("transparent parts are white",)


@pytest.mark.parametrize("big_tiff", [False, True])
@pytest.mark.parametrize("compression", ["raw", "tiff_lzw"])
def test_sixteen_bits_and_floating_point_numbers_are_scaled_to_eight(compression, big_tiff):
    wide = (np.arange(40 * 60).reshape(40, 60) * 27).astype(np.uint16)
    options = {"compression": compression, "big_tiff": big_tiff}
    for numbers in (wide, wide / np.float32(65535)):
        np.testing.assert_array_equal(
            pixels(encoded(Image.fromarray(numbers), **options))[..., 1], np.rint(wide / 257)
        )


@pytest.mark.parametrize("order", ["<", ">"])
def test_sixteen_bits_of_which_zero_is_white_are_inverted_as_eight_are(order):
    wide = np.array([0, 257, 257 * 200, 65535], f"{order}u2").tobytes()
    for zero, expected in ((1, [0, 1, 200, 255]), (0, [255, 254, 55, 0])):
        given = raw(bytes([0, 1, 200, 255]), t262=(SHORT, 1, zero))
        assert pixels(given)[..., 0].ravel().tolist() == expected
        if order == "<" or zero == 1:  # Pillow does not read the other
            given = raw(wide, order, t258=(SHORT, 1, 16), t262=(SHORT, 1, zero))
            assert pixels(given)[..., 0].ravel().tolist() == expected


def test_twelve_bits_are_scaled_by_their_range():
    data = bytes([0x00, 0x0F, 0xFF, 0x80, 0x00, 0x00])  # 0, 4095; 2048, 0
    assert pixels(raw(data, t258=(SHORT, 1, 12)))[..., 0].tolist() == [[0, 255], [128, 0]]


@pytest.mark.parametrize(
    "numbers, words",
    [
        ([[0, 1.5]], "floating-point numbers from 0 to 1.5, which are not 0 to 1"),
        ([[-0.25, 1]], "from -0.25 to 1"),
        ([[0, np.nan]], "from nan to nan"),
        ([[0, np.inf]], "from 0 to inf"),
    ],
)
def test_floating_point_numbers_of_another_range_are_refused(numbers, words):
    message = refusal(encoded(Image.fromarray(np.array(numbers, np.float32))))
    assert words in message and message.endswith("; save it with 8 or 16 bits of grey or RGB")


@pytest.mark.parametrize(
    "data, words",
    [
        (
            encoded(Image.fromarray(GRADIENT.astype(np.int32))),
            "whole numbers with a sign or of 32 bits; save",
        ),
        (
            raw(bytes(8), t258=(SHORT, 1, 16), t339=(SHORT, 1, 2)),
            "whole numbers with a sign or of 32 bits; save",
        ),
        (
            encoded(Image.fromarray(COLOURS).convert("LAB")),
            "Lab colours; save it with 8 or 16 bits",
        ),
        (
            raw(bytes(16), t258=(SHORT, 1, 64), t339=(SHORT, 1, 3)),
            "a damaged TIFF, or one of a kind that cannot be read here",
        ),
        (b"MM\0+" + raw(b"")[4:], "a damaged TIFF, or one of a kind"),
        (b"II*\0", "damaged"),
        (encoded(Image.fromarray(COLOURS), compression="tiff_lzw")[:300], "damaged"),
        (encoded(Image.fromarray(COLOURS))[:-3000], "damaged"),
    ],
)
@pytest.mark.filterwarnings("ignore")  # which pytest shows again
def test_numbers_without_a_known_range_and_damaged_files_are_refused(data, words):
    assert words in refusal(data)


def test_the_first_of_several_pages_is_read_with_a_remark():
    first, second = Image.fromarray(COLOURS), Image.fromarray(COLOURS[::-1])
    image, remarks = pictures.read(encoded(first, save_all=True, append_images=[second] * 3))
    np.testing.assert_array_equal(np.asarray(image), COLOURS)
    assert remarks == ("the first of several pages",)


@pytest.mark.parametrize("compression", ["raw", "tiff_lzw"])
@pytest.mark.parametrize(
    "orientation, undo",
    [
        (1, lambda one: one),
        (2, lambda one: one[:, ::-1]),
        (3, lambda one: one[::-1, ::-1]),
        (6, lambda one: np.rot90(one)),
        (8, lambda one: np.rot90(one, -1)),
    ],
)
def test_a_picture_is_turned_upright_once(orientation, undo, compression):
    tags = TiffImagePlugin.ImageFileDirectory_v2()
    tags[274] = orientation
    given = Image.fromarray(np.ascontiguousarray(undo(COLOURS)))
    image, remarks = pictures.read(encoded(given, tiffinfo=tags, compression=compression))
    np.testing.assert_array_equal(np.asarray(image), COLOURS)
    assert remarks == (("turned as its EXIF says",) if orientation > 1 else ())


# Hostile files.

MILLION = 1_000_000


@pytest.mark.parametrize(
    "tags, words",
    [
        ({"t256": (LONG, 1, 60_000), "t257": (LONG, 1, 60_000)}, "too large"),
        (
            {"t322": (LONG, 1, 65_536), "t323": (LONG, 1, 65_536)},
            "too large: its tiles have 4,294,967,296 pixels; 50 million",
        ),
        (
            {"t273": (LONG, MILLION, PLACE), "t279": (LONG, MILLION, PLACE), "t278": (LONG, 1, 1)},
            "more than 100,000 numbers",
        ),
        ({"t282": (5, MILLION // 2, PLACE)}, "more than 100,000 numbers beside its pixels"),
        ({"t277": (SHORT, 1, 65_535)}, "a damaged TIFF, or one of a kind that cannot be read here"),
    ],
)
def test_what_claims_too_much_is_refused_at_once(tags, words):
    data, begun = raw(bytes(4 * MILLION), **tags), time.monotonic()
    tracemalloc.start()
    assert words in refusal(data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # some take a minute and gigabytes in Pillow
    assert peak < 20 * MILLION and time.monotonic() - begun < 2


@pytest.mark.parametrize("kind", [SHORT, LONG, 9])
def test_a_directory_of_exif_that_claims_too_much_is_refused_too(kind):
    inner = struct.pack("<HHHII", 1, 37500, SHORT, 2 * MILLION, 50)
    data = raw(inner + bytes(4 * MILLION), t34665=(kind, 1, PLACE))
    assert "more than 100,000 numbers" in refusal(data)
    # outside the file
    assert not tiff.fault(io.BytesIO(raw(inner + bytes(100), t34665=(kind, 1, 60_000))))


def test_pages_without_end_are_not_counted():
    start = raw(bytes(4))
    looped = start[:-4] + struct.pack("<I", 12)  # the directory begins there
    assert pictures.read(looped)[0].size == (2, 2)
    chain = b"".join(
        struct.pack("<HI", 0, len(start) + 6 * (number + 1)) for number in range(100_000)
    )
    begun = time.monotonic()
    assert pictures.read(start[:-4] + struct.pack("<I", len(start)) + chain)[1] == (
        "the first of several pages",
    )
    assert time.monotonic() - begun < 1


def test_a_strip_that_unpacks_to_much_is_not_unpacked():
    packed = zlib.compress(bytes(200 * MILLION), 9)
    assert not pixels(raw(packed, t259=(SHORT, 1, 8), t278=(LONG, 1, 0x7FFFFFFF))).any()


@pytest.mark.parametrize("compression", ["raw", "tiff_lzw", "tiff_adobe_deflate", "jpeg"])
@pytest.mark.filterwarnings("ignore")
def test_a_file_with_wrong_bytes_is_read_or_refused_in_words(compression):
    whole, random = (
        encoded(Image.fromarray(COLOURS), compression=compression),
        np.random.default_rng(3),
    )
    for _ in range(150):
        data = bytearray(whole)
        for place in (
            random.integers(0, len(data), 3).tolist()
            + random.integers(len(data) - 200, len(data), 2).tolist()
        ):
            data[place] = random.integers(256)
        try:
            assert pictures.read(bytes(data))[0].mode == "RGB"
        except PictureError as fault:
            assert str(fault)


def test_odd_tags_are_no_lines_on_the_terminal(tmp_path):
    (tmp_path / "odd.tif").write_bytes(
        raw(bytes(100), t259=(SHORT, 1, 1), t278=(LONG, 20, PLACE), t277=(SHORT, 1, 60_000))
    )
    (tmp_path / "even.tif").write_bytes(raw(bytes(100), t282=(5, 3, PLACE)))
    program = (
        "import contextlib, sys\nfrom ladder.data.reading import pictures\n"
        "for path in sys.argv[1:]:\n    with contextlib.suppress(pictures.PictureError):\n        pictures.read(path)"
    )
    run = processes.python(
        "-c",
        program,
        *tmp_path.glob("*.tif"),
        env=os.environ | {"PYTHONPATH": str(sources.SCRIPTS)},
    )
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")
