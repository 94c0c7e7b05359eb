"""predict.py of an exported model makes of a picture what the stage `data` makes of it, or refuses
it in the same words.
"""

import ast
import io
import itertools
import os
import re
import sys
import tarfile

import numpy as np
import pytest
from PIL import Image, ImageDraw

import export_model
import picture_folders
import processes
import two_readers
from ladder.data.reading import pictures, plain
from ladder.sources import ROOT

MODES = (
    "1",
    "L",
    "P",
    "PA",
    "LA",
    "La",
    "RGB",
    "RGBA",
    "RGBX",
    "RGBa",
    "CMYK",
    "YCbCr",
    "HSV",
    "LAB",
    "I",
    "F",
    "I;16",
    "I;16B",
    "I;16L",
)
# modes of one number of many bits
NUMBERS = {"I": np.int32, "F": np.float32, "I;16": "<u2", "I;16L": "<u2", "I;16B": ">u2"}
FEWEST = 120  # files that Pillow writes of these


@pytest.fixture(autouse=True)
def no_listing_of_another_test(tmp_path, monkeypatch):
    picture_folders.forget(monkeypatch, tmp_path)


def drawn(mode):
    """A picture of 60 x 40 pixels in this mode, with transparent parts where it can have them."""
    ramp = np.linspace(0, 1, 40 * 60).reshape(40, 60)
    if mode in NUMBERS:
        most = 1 if mode == "F" else 65535
        return Image.frombytes(mode, (60, 40), (ramp * most).astype(NUMBERS[mode]).tobytes())
    colours = np.stack(
        [255 * ramp, 255 * ramp[::-1], 255 - 255 * ramp, np.where(ramp > 0.5, 255, 90)], 2
    ).astype(np.uint8)
    picture = Image.fromarray(colours)
    for step in {
        "PA": ("P", "PA"),
        "La": ("LA", "La"),
        "LAB": ("RGB", "LAB"),
        "HSV": ("RGB", "HSV"),
    }.get(mode, (mode,)):
        picture = picture.convert(step)
    return picture


def written(picture, kind, **options):
    """The bytes of a file of this kind, none where Pillow writes no such file."""
    file = io.BytesIO()
    try:
        picture.save(file, kind, **options)
    except Exception:  # Pillow raises many types
        return b""
    return file.getvalue()


def every_mode():
    """Files of every mode and format that Pillow writes, with palettes, transparency, EXIF and 16
    bits of colour.
    """
    Image.init()
    kinds = sorted(Image.SAVE.keys() - {"PDF", "ICNS"})  # which take seconds, and are refused
    files = [written(drawn(mode), kind) for kind, mode in itertools.product(kinds, MODES)]
    files += [
        written(drawn(mode), "PNG", transparency=key)
        for mode, key in (
            ("1", 0),
            ("L", 100),
            ("P", 3),
            ("P", bytes(range(256))),
            ("RGB", (10, 240, 244)),
            ("I;16", 500),
        )
    ]
    files += [
        written(drawn("P").quantize(count), kind)
        for count in (2, 4, 16)
        for kind in ("PNG", "GIF", "BMP", "TIFF")
    ]
    files += [
        written(drawn("RGB"), kind, exif=turned(number))
        for kind in ("PNG", "JPEG", "WEBP", "TIFF", "MPO")
        for number in range(10)
    ]
    files += [
        written(drawn("L"), "TIFF", compression=way)
        for way in ("tiff_lzw", "packbits", "tiff_adobe_deflate")
    ]
    return [file for file in files if file] + [
        random_wide_png(channels) for channels in (1, 2, 3, 4)
    ]


def turned(orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif


def random_wide_png(channels):
    values = np.random.default_rng(channels).integers(0, 65536, (40, 60, channels))
    return picture_folders.wide_png(values)


@pytest.mark.filterwarnings("ignore")
def test_every_mode_and_cut_file_is_the_same_image_or_refused_in_the_same_words(tmp_path):
    whole = every_mode()
    files = whole + [file[: len(file) * part // 8] for file in whole for part in (1, 7)]
    otherwise, counts, imported = two_readers.compare(files, tmp_path)
    assert (
        otherwise == [] and len(whole) > FEWEST and counts["read"] > 80 and counts["refused"] > 200
    ), counts
    assert imported == {"numpy", "PIL"}


def test_the_reader_imports_nothing_else_of_the_project():
    for path in export_model.READING.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module]
                if isinstance(node, ast.ImportFrom) and not node.level
                else []
            )
            assert {name.partition(".")[0] for name in names} <= {
                *sys.stdlib_module_names,
                "numpy",
                "PIL",
            }, path


def test_a_digit_is_cut_out_as_for_the_page_of_predictions(tmp_path):
    sheet = Image.new("L", (300, 200), 250)
    ImageDraw.Draw(sheet).rectangle((100, 50, 130, 170), fill=40)
    for name, picture in ("drawn", sheet), ("blank", Image.new("RGB", (50, 50))):
        picture.save(tmp_path / f"{name}.png")
    files = [str(tmp_path / f"{name}.png") for name in ("drawn", "blank")]
    answered, _ = two_readers.by_predict(
        two_readers.unpack(tmp_path / "model"), files, "mnist", (28, 28, 1)
    )
    np.testing.assert_array_equal(
        answered[files[0]], pictures.take(files[0], "mnist", (28, 28, 1), "").pixels
    )
    assert answered[files[1]] == "blank: nothing on it stands out from its background"


def test_the_whole_list_is_read_whatever_a_file_is_and_nothing_is_waited_for(tmp_path):
    folder = tmp_path / "odd"
    folder.mkdir()
    os.mkfifo(folder / "pipe.png")
    (folder / "empty.png").touch()
    (folder / "torn.png").write_bytes(written(drawn("RGB"), "PNG")[:200])
    (folder / "words.png").write_text("hello")
    (folder / "dead.png").symlink_to("nowhere")
    with open(folder / "large.png", "wb") as file:
        file.truncate(plain.MOST_BYTES + 1)
    drawn("I;16").save(folder / "wide.png")
    drawn("RGB").save(os.fsencode(folder) + b"/\xff\n.png")
    files = [*map(str, sorted(folder.iterdir())), "/dev/zero", "/dev/stdin", str(folder), "n" * 300]
    answered, _ = two_readers.by_predict(
        two_readers.unpack(tmp_path / "model"), files, "folder", two_readers.SHAPE
    )
    reasons = {name: answer if isinstance(answer, str) else "" for name, answer in answered.items()}
    assert {name.removeprefix(f"{folder}/"): reason for name, reason in reasons.items()} == {
        "pipe.png": "not a plain file",
        "empty.png": "the file is empty",
        "wide.png": "",
        "\\udcff\\n.png": "",
        "torn.png": "damaged or cut short (image file is truncated)",
        "large.png": "100.0 MB large; 100.0 MB at most",
        "words.png": "not a picture that can be read here (PNG, JPEG, WebP, GIF, BMP, TIFF or PNM)",
        "dead.png": "cannot be read: No such file or directory",
        "/dev/zero": "not a plain file",
        "/dev/stdin": "not a plain file",
        str(folder): "not a plain file",
        "n" * 300: "cannot be read: File name too long",
    }


@pytest.mark.filterwarnings("ignore")  # which pytest shows again
def test_the_thousand_odd_pictures_that_pillow_is_tested_with(tmp_path, capsys):
    """Its sources have them; the hash of these is among Pillow's in envs/cpu.txt."""
    (tmp_path / "pillow.txt").write_text(
        re.search(r"^pillow==(?:.*\\\n)*.*\n", (ROOT / "envs/cpu.txt").read_text(), re.M)[0]
    )
    ran = processes.python(
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--no-binary",
        "pillow",
        "--dest",
        tmp_path,
        "--require-hashes",
        "-r",
        tmp_path / "pillow.txt",
    )
    if ran.returncode:
        pytest.skip(
            f"Pillow's sources cannot be downloaded here: {ran.stderr.strip().splitlines()[-1]}"
        )
    with tarfile.open(next(tmp_path.glob("pillow-*.tar.gz"))) as archive:
        files = [
            archive.extractfile(entry).read()
            for entry in archive
            if entry.isfile() and "/Tests/images/" in entry.name
        ]
    otherwise, counts, _ = two_readers.compare(files, tmp_path)
    with capsys.disabled():
        print(f"\n{len(files)} pictures: {counts}")
    assert otherwise == [] and len(files) > 1000 and counts["read"] > 600
