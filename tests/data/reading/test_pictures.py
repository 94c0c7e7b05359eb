"""Pictures of every format and size become images of a dataset by the documented rules; others are
refused with a reason.
"""

import concurrent.futures
import os
import threading
import time

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFile

import picture_folders
import processes
from ladder import sources
from ladder.data import datasets
from ladder.data.facts import FACTS
from ladder.data.reading import pictures, plain
from ladder.data.reading.pictures import PictureError
from picture_folders import COLOURS, GRADIENT, encoded


def digit(size=(280, 280), ink=0, paper=255, box=(100, 40, 160, 240), mode="L"):
    """A thick upright stroke with a foot."""
    image = Image.new(mode, size, paper)
    draw = ImageDraw.Draw(image)
    left, top, right, bottom = box
    draw.rectangle((left, top, left + 20, bottom), fill=ink)
    draw.rectangle((left, bottom - 20, right, bottom), fill=ink)
    return image


# Reading.


@pytest.mark.parametrize(
    "mode, kind, tolerance",
    [
        ("RGB", "PNG", 0),
        ("RGB", "BMP", 0),
        ("RGB", "WEBP", 0),
        ("RGB", "JPEG", 8),
        ("P", "PNG", 0),
        ("P", "GIF", 0),
        ("RGBA", "PNG", 0),
        ("CMYK", "JPEG", 12),
        ("L", "PNG", 0),
        ("LA", "PNG", 0),
        ("1", "PNG", 0),
    ],
)
def test_every_mode_becomes_the_same_eight_bit_rgb(mode, kind, tolerance):
    source = Image.fromarray(COLOURS)
    if mode in ("L", "LA", "1"):
        source = Image.fromarray(
            np.where(GRADIENT > 127, 255, 0).astype(np.uint8) if mode == "1" else GRADIENT
        ).convert("RGB")
    given = source.quantize(64) if mode == "P" else source.convert(mode)
    if mode == "P":  # of the colours that its palette has
        source = given.convert("RGB")
    options = (
        {"lossless": True}
        if kind == "WEBP"
        else {"quality": 98, "subsampling": 0}
        if kind == "JPEG"
        else {}
    )
    image, remarks = pictures.read(encoded(given, kind, **options))
    assert image.mode == "RGB" and remarks == ()
    assert np.abs(np.asarray(image).astype(int) - np.asarray(source)).max() <= tolerance


def test_sixteen_bits_of_grey_are_scaled_to_eight():
    wide = (np.arange(40 * 60).reshape(40, 60) * 27).astype(np.uint16)
    image, _ = pictures.read(encoded(Image.fromarray(wide)))
    np.testing.assert_array_equal(np.asarray(image)[..., 0], np.rint(wide / 257))


def test_sixteen_bits_of_colour_are_taken_too():
    wide = COLOURS.astype(np.uint16) * 257
    image, _ = pictures.read(picture_folders.wide_png(wide))
    np.testing.assert_array_equal(np.asarray(image), COLOURS)


@pytest.mark.parametrize(
    "orientation, undo",
    [
        (2, lambda pixels: pixels[:, ::-1]),
        (3, lambda pixels: pixels[::-1, ::-1]),
        (6, lambda pixels: np.rot90(pixels)),
        (8, lambda pixels: np.rot90(pixels, -1)),
    ],
)
def test_exif_turns_a_picture_upright(orientation, undo):
    exif = Image.Exif()
    exif[0x0112] = orientation
    image, remarks = pictures.read(
        encoded(Image.fromarray(np.ascontiguousarray(undo(COLOURS))), exif=exif)
    )
    np.testing.assert_array_equal(np.asarray(image), COLOURS)
    assert remarks == ("turned as its EXIF says",)


@pytest.mark.parametrize("orientation", [0, 1, 9])
def test_an_undefined_orientation_is_ignored(orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    image, remarks = pictures.read(encoded(Image.fromarray(COLOURS), exif=exif))
    np.testing.assert_array_equal(np.asarray(image), COLOURS)
    assert remarks == ()


def test_transparent_pixels_become_white_with_a_remark():
    layer = Image.fromarray(np.dstack([COLOURS, np.full((40, 60), 255, np.uint8)]))
    layer.paste((10, 20, 30, 0), (0, 0, 30, 40))
    image, remarks = pictures.read(encoded(layer))
    assert (np.asarray(image)[:, :30] == 255).all()
    np.testing.assert_array_equal(np.asarray(image)[:, 30:], COLOURS[:, 30:])
    assert remarks == ("transparent parts are white",)


@pytest.mark.parametrize("kind", ["GIF", "PNG", "WEBP"])
def test_the_first_frame_of_an_animation_is_used_with_a_remark(kind):
    first, second = Image.new("RGB", (20, 20), "red"), Image.new("RGB", (20, 20), "blue")
    image, remarks = pictures.read(
        encoded(first, kind, save_all=True, append_images=[second, first])
    )
    red, green, blue = image.getpixel((10, 10))
    assert red > 240 and green < 15 and blue < 15
    assert remarks == ("animated: the first of 3 frames",)


# Faults.


@pytest.mark.parametrize(
    "data, words",
    [
        (b"", "the file is empty"),
        (b"hello", "not a picture that can be read here"),
        (encoded(Image.fromarray(COLOURS))[:-400], "damaged or cut short"),
        (encoded(Image.fromarray(COLOURS), "JPEG")[:-400], "damaged or cut short"),
        (encoded(Image.fromarray(COLOURS), "WEBP")[:150], "damaged or cut short"),
        (encoded(Image.fromarray(COLOURS), "ICO"), "not a picture that can be read here"),
        (encoded(Image.fromarray(COLOURS), "PPM")[:-400], "damaged or cut short"),
        (b"\x89PNG\r\n\x1a\n" + bytes(100), "damaged or cut short|not a picture"),
    ],
)
def test_an_incomplete_picture_is_refused(data, words):
    with pytest.raises(PictureError, match=words) as fault:
        pictures.read(data)
    assert "\n" not in str(fault.value)


@pytest.mark.parametrize("byte", range(8, 400, 7))
def test_a_picture_with_a_wrong_byte_is_read_or_refused_in_words(byte):
    data = bytearray(encoded(Image.fromarray(COLOURS)))
    data[byte] ^= 0x55
    try:
        assert pictures.read(bytes(data))[0].mode == "RGB"
    except PictureError as fault:
        assert str(fault)


@pytest.mark.parametrize("size", [(20_100, 10_000), (20_000, 20_000), (200_000_001, 1)])
def test_a_picture_of_too_many_pixels_is_refused_before_it_is_unpacked(size, monkeypatch):
    data = picture_folders.claiming(*size)
    monkeypatch.setattr(Image.Image, "load", None)
    with pytest.raises(PictureError, match="too large.*200 million"):
        pictures.read(data)


@pytest.fixture
def small_limit(monkeypatch):
    """Pictures of more than 1,000 pixels are large ones, and converted by tiles of 16 x 16."""
    monkeypatch.setattr(pictures, "MOST_PIXELS", 1000)
    monkeypatch.setattr(pictures, "TILE", 16)


SMOOTH = np.stack([np.add.outer(np.arange(40), 2 * np.arange(60))] * 3, axis=2).astype(np.uint8)
HALF = SMOOTH.reshape(20, 2, 30, 2, 3).mean(axis=(1, 3))


@pytest.mark.parametrize(
    "kind, mode, options",
    [
        ("JPEG", "RGB", {"quality": 98}),
        ("JPEG", "L", {"quality": 98, "progressive": True}),
        ("JPEG", "CMYK", {"quality": 98}),
        ("MPO", "RGB", {"quality": 98, "save_all": True}),
        ("PNG", "RGB", {}),
        ("PNG", "RGBA", {}),
        ("PNG", "I;16", {}),
        ("TIFF", "RGB", {}),
        ("WEBP", "RGB", {"lossless": True}),
        ("BMP", "L", {}),
        ("PPM", "RGB", {}),
    ],
)
@pytest.mark.parametrize("orientation", [1, 6])
def test_a_large_picture_is_halved_and_upright(small_limit, kind, mode, options, orientation):
    source, exif = Image.fromarray(SMOOTH), Image.Exif()
    exif[0x0112] = orientation
    if orientation != 1 and kind in ("BMP", "PPM"):
        return
    given = (
        Image.fromarray(SMOOTH[..., 0].astype(np.uint16) * 257)
        if mode == "I;16"
        else source.convert(mode)
    )
    image, remarks = pictures.read(encoded(given, kind, exif=exif, **options))
    upright = HALF if orientation == 1 else np.rot90(HALF, -1)
    assert np.abs(np.asarray(image) - upright).max() <= (4 if kind in ("JPEG", "MPO") else 1)
    assert remarks == (
        "its sides halved",
        *(["turned as its EXIF says"] if orientation != 1 else []),
    )


def test_a_large_jpeg_is_not_decoded_at_its_size(small_limit, monkeypatch):
    sizes, load = [], pictures._loaded
    monkeypatch.setattr(pictures, "_loaded", lambda image: sizes.append(image.size) or load(image))
    pictures.read(encoded(Image.fromarray(SMOOTH), "JPEG"))
    pictures.read(encoded(Image.fromarray(SMOOTH[:20]), "PNG"))
    assert sizes == [(30, 20), (60, 20)]


def test_a_jpeg_is_decoded_at_the_size_that_is_enough_and_gives_the_same_image(monkeypatch):
    slopes = np.add.outer(np.arange(1200) // 8, np.arange(1600) // 16)
    given, shape = Image.fromarray(slopes.astype(np.uint8)).convert("RGB"), (64, 64, 3)
    sizes, load = [], pictures._loaded
    monkeypatch.setattr(pictures, "_loaded", lambda image: sizes.append(image.size) or load(image))
    least = pictures.enough("folder", shape)
    images = {
        (kind, size): pictures.read(encoded(given, kind), size)[0]
        for kind in ("JPEG", "PNG")
        for size in (0, least)
    }
    assert sizes == [(1600, 1200), (800, 600), (1600, 1200), (1600, 1200)]
    assert {image.info["size"] for image in images.values()} == {(1600, 1200)}
    first, *others = (
        pictures.fit(image, "folder", shape)[0].astype(int) for image in images.values()
    )
    assert all(np.abs(other - first).max() <= 2 for other in others)
    assert pictures.enough("mnist", (28, 28, 1)) == 0  # its ink is searched in all of it


def test_transparent_parts_of_a_large_picture_are_white(small_limit):
    layer = np.dstack([SMOOTH, np.full((40, 60), 255, np.uint8)])
    layer[:, 40:, 3] = 0
    image, remarks = pictures.read(encoded(Image.fromarray(layer)))
    assert (np.asarray(image)[:, 20:] == 255).all() and remarks == (
        "its sides halved",
        "transparent parts are white",
    )


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "TIFF"])
def test_large_pictures_are_decoded_by_one_thread(small_limit, monkeypatch, kind):
    threads, load = set(), ImageFile.ImageFile.load

    def seen(image):
        threads.add(threading.get_ident())
        time.sleep(0.005)
        return load(image)

    monkeypatch.setattr(ImageFile.ImageFile, "load", seen)
    data = encoded(Image.fromarray(SMOOTH), kind)
    threads.clear()
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(pictures.read, [data] * 8))
    assert len(threads) == 1


@pytest.mark.parametrize("kind", pictures.FEWER_HALVED)
def test_formats_whose_decoders_take_more_memory_have_a_smaller_limit(monkeypatch, kind):
    monkeypatch.setattr(pictures, "FEWER_HALVED", {kind: 2000})
    with pytest.raises(PictureError, match="too large: 60 × 40 pixels; 0 million at most"):
        pictures.read(encoded(Image.fromarray(SMOOTH), kind))


PEAK = """
import resource, sys
sys.path[:0] = [{scripts!r}]
from ladder.data.reading import pictures
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
image, _ = pictures.read(sys.argv[1])
print(image.size, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_a_small_file_with_a_large_picture_takes_no_more_memory_than_stated(tmp_path):
    Image.new("1", (7100, 7100)).save(tmp_path / "bomb.png", compress_level=1)
    code = PEAK.format(scripts=str(sources.SCRIPTS))
    run = processes.python("-c", code, str(tmp_path / "bomb.png"), check=True)
    size, taken = run.stdout.rsplit(" ", 1)
    assert size == "(3550, 3550)" and (tmp_path / "bomb.png").stat().st_size < 100_000
    # kB: a byte for each of 50 million pixels, four for each that is left, and what a tile takes
    assert int(taken) < 220_000


# PNM.


def test_a_pnm_of_every_depth_is_read():
    wide = (np.arange(40 * 60).reshape(40, 60) * 27).astype(np.uint16)
    image, _ = pictures.read(b"P5 60 40 65535\n" + wide.astype(">u2").tobytes())
    np.testing.assert_array_equal(np.asarray(image)[..., 0], np.rint(wide / 257))
    image, _ = pictures.read(b"P5 60 40 1023\n" + (wide // 64).astype(">u2").tobytes())
    np.testing.assert_allclose(np.asarray(image)[..., 0], (wide // 64) * (255 / 1023), atol=1)
    for data in (
        b"P6 60 40 255\n" + COLOURS.tobytes(),
        b"P3 60 40 255\n" + " ".join(map(str, COLOURS.ravel())).encode(),
    ):
        np.testing.assert_array_equal(np.asarray(pictures.read(data)[0]), COLOURS)
    assert np.asarray(pictures.read(b"P4 8 1\n\xf0")[0])[0, :, 0].tolist() == [0] * 4 + [255] * 4


@pytest.mark.parametrize(
    "data, words",
    [
        (b"P3 10 10 255\n" + b"#\n" * 400_000, "a PNM with 400,000 comments; 1,000 at most"),
        (
            b"P3 3000 2000 255\n1 2 3",
            "a PNM of text, or of other than 8 or 16 bits, of more than 5 million pixels",
        ),
        (b"P6 3000 2000 100\n", "of more than 5 million pixels"),
        (b"P5 99999 99999 255\n", "too large"),
        (b"P5 -4 4 255\n1234", "damaged|not a picture"),
        (b"Pf 2 1\n-1.0\n" + b"\0\0\xc8\x42" * 2, "from 100 to 100, which are not 0 to 1"),
    ],
)
def test_a_pnm_that_would_take_minutes_or_has_no_known_range_is_refused(data, words):
    begun = time.process_time()
    with pytest.raises(PictureError, match=words):
        pictures.read(data)
    assert time.process_time() - begun < 2


def test_a_large_file_and_a_pipe_are_refused_without_reading_them(tmp_path):
    large, pipe = tmp_path / "large.png", tmp_path / "pipe.png"
    with open(large, "wb") as file:
        file.truncate(plain.MOST_BYTES + 1)
    os.mkfifo(pipe)
    with pytest.raises(PictureError, match="100.0 MB large; 100.0 MB at most"):
        pictures.read(large)
    with pytest.raises(PictureError, match="not a plain file"):
        pictures.read(pipe)
    with pytest.raises(PictureError, match="cannot be read: No such file"):
        pictures.read(tmp_path / "gone.png")


# Fitting.


def test_a_photograph_is_scaled_and_cropped_around_its_centre():
    wide = np.zeros((64, 192, 3), np.uint8)
    wide[:, :64], wide[:, 64:128], wide[:, 128:] = (255, 0, 0), (0, 255, 0), (0, 0, 255)
    pixels, steps = pictures.fit(Image.fromarray(wide), "cifar10", FACTS["cifar10"].shape)
    assert pixels.shape == (32, 32, 3) and pixels.dtype == np.uint8
    assert (pixels[:, 2:-2] == (0, 255, 0)).all() and steps == (
        "scaled",
        "cropped around its centre",
    )
    assert pictures.fit(Image.fromarray(wide[:, :64]), "cifar10", FACTS["cifar10"].shape)[1] == (
        "scaled",
    )


def test_a_photograph_of_the_datasets_size_is_taken_byte_by_byte():
    image = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    pixels, steps = pictures.fit(Image.fromarray(image), "cifar10", FACTS["cifar10"].shape)
    np.testing.assert_array_equal(pixels, image)
    assert steps == ()


@pytest.mark.parametrize("inverted", [False, True])
def test_an_image_of_the_digits_is_taken_as_it_is_and_upside_down_in_brightness_too(inverted):
    for image in datasets.digits().test_images[:40]:
        given = 255 - image if inverted else image
        pixels, steps = pictures.fit(Image.fromarray(given), "digits", FACTS["digits"].shape)
        np.testing.assert_array_equal(pixels, image)
        assert steps == (("inverted",) if inverted else ())


def test_a_small_digit_is_enlarged_as_the_dataset_enlarges_it():
    from sklearn.datasets import load_digits

    small = np.rint(load_digits().images[:50] * 255 / 16).astype(np.uint8)
    expected = datasets._enlarge(load_digits().images[:50].astype(np.int64)).astype(int)
    for image, wanted in zip(small, expected, strict=True):
        pixels, _ = pictures.fit(
            Image.fromarray(image).convert("RGB"), "digits", FACTS["digits"].shape
        )
        assert np.abs(pixels[..., 0] - wanted).max() <= 2  # rounded once more


@pytest.mark.parametrize("dataset, box, grid", [("mnist", 20, 28), ("digits", 32, 32)])
@pytest.mark.parametrize(
    "size, place",
    [
        ((280, 280), (100, 40, 160, 240)),
        ((900, 300), (700, 30, 780, 150)),
        ((60, 60), (5, 5, 50, 50)),
    ],
)
def test_a_digits_ink_is_light_fills_its_box_and_is_centred(dataset, box, grid, size, place):
    image = digit(size, box=place).convert("RGB")
    pixels, steps = pictures.fit(image, dataset, FACTS[dataset].shape)
    assert pixels.shape == FACTS[dataset].shape and steps[0] == "inverted"
    ink = pixels[..., 0] > 60
    rows, columns = (np.flatnonzero(ink.any(axis=axis)) for axis in (1, 0))
    assert abs(max(np.ptp(rows), np.ptp(columns)) + 1 - box) <= 1
    assert pixels.max() >= (255 if dataset == "mnist" else 200) and pixels[0, -1, 0] == 0
    if dataset == "mnist":
        y, x = np.indices(pixels.shape[:2])
        mass = pixels[..., 0] / pixels[..., 0].sum(dtype=float)
        assert (
            abs((mass * (y + 0.5)).sum() - 14) <= 0.51
            and abs((mass * (x + 0.5)).sum() - 14) <= 0.51
        )


def test_the_position_and_the_polarity_of_a_digit_do_not_matter():
    first, _ = pictures.fit(
        digit(box=(100, 40, 160, 240)).convert("RGB"), "mnist", FACTS["mnist"].shape
    )
    for other in (
        digit(box=(30, 60, 90, 260)),
        digit(ink=255, paper=0),
        digit(ink=90, paper=230),
        digit(size=(560, 280), box=(400, 40, 460, 240)),
    ):
        np.testing.assert_array_equal(
            pictures.fit(other.convert("RGB"), "mnist", FACTS["mnist"].shape)[0], first
        )


def test_shadows_and_noise_of_a_photographed_sheet_are_not_ink():
    random, sheet = np.random.default_rng(0), np.asarray(digit(), np.float64)
    shade = np.linspace(0.85, 1, 280)[:, None]
    photograph = np.clip(
        (0.7 * sheet + 60) * shade + random.normal(0, 4, sheet.shape), 0, 255
    ).astype(np.uint8)
    clean, photographed = (
        pictures.fit(image.convert("RGB"), "mnist", FACTS["mnist"].shape)[0].astype(int)
        for image in (digit(), Image.fromarray(photograph))
    )
    assert np.abs(clean - photographed).mean() < 4 and (photographed[:3] == 0).all()


@pytest.mark.parametrize("dataset", pictures.DIGITS)
@pytest.mark.parametrize("level", [0, 128, 255])
def test_a_blank_sheet_is_no_digit(dataset, level):
    with pytest.raises(PictureError, match="blank"):
        pictures.fit(Image.new("RGB", (200, 100), (level,) * 3), dataset, FACTS[dataset].shape)


@pytest.mark.parametrize("size", [(1, 1), (1, 500), (500, 1), (3, 2), (6000, 40)])
@pytest.mark.parametrize("dataset", FACTS)
def test_any_size_makes_an_image_or_a_fault_in_words(size, dataset):
    image = Image.fromarray(
        np.random.default_rng(1).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    )
    try:
        assert pictures.fit(image, dataset, FACTS[dataset].shape)[0].shape == FACTS[dataset].shape
    except PictureError as fault:
        assert "blank" in str(fault)


def test_a_picture_keeps_a_small_copy_of_what_was_given():
    source = encoded(Image.fromarray(np.kron(COLOURS, np.ones((20, 20, 1), np.uint8))))
    taken = pictures.take(source, "cifar10", FACTS["cifar10"].shape, "name")
    assert taken.name == "name" and max(taken.original.size) == pictures.ORIGINAL
    assert taken.remarks == ("scaled", "cropped around its centre")


def test_a_garment_is_trimmed_scaled_to_the_whole_image_and_centred():
    sheet = Image.new("L", (300, 200), 250)
    sheet.paste(40, (100, 50, 160, 170))  # 60 x 120, dark on light
    pixels, steps = pictures.fit(
        sheet.convert("RGB"), "fashion_mnist", FACTS["fashion_mnist"].shape
    )
    assert pixels.shape == (28, 28, 1) and steps == (
        "inverted",
        "its ink cut out",
        "scaled to 28 pixels",
        "centred",
    )
    rows, columns = (np.flatnonzero(pixels[..., 0].max(axis=axis) > 127) for axis in (1, 0))
    assert (rows[0], rows[-1], columns[0], columns[-1]) == (0, 27, 7, 20)
    assert "One picture is one garment." in pictures.rule(
        "fashion_mnist", FACTS["fashion_mnist"].shape
    )


@pytest.mark.parametrize(
    "dataset, words",
    [
        ("mnist", ["inverted", "20 pixels", "centre of mass", "28 × 28"]),
        ("digits", ["inverted", "8 × 8 or 32 × 32", "enlarged to 32 × 32"]),
        ("cifar10", ["cropped around its centre", "32 × 32"]),
    ],
)
def test_the_rule_is_described(dataset, words):
    assert all(word in pictures.rule(dataset, FACTS[dataset].shape) for word in words)
