"""Users' own pictures, read safely and converted to images of a dataset.

Reading: PNG, JPEG, WebP, GIF, BMP, TIFF and PNM, rotated by their EXIF orientation, the first frame
of an animation, the first page of a TIFF, transparency on white, as 8-bit RGB. 12 and 16 bits are
scaled by their whole range, floating-point numbers from 0 to 1; other numbers have no brightness
that is known, and are refused. A picture of more than MOST_PIXELS is halved. A JPEG is decoded at
half, a quarter or an eighth of its size where that is still `enough` to scale it from, in a fifth
of the time.

Fitting, by dataset. A photograph is scaled to the dataset's shorter side (bicubic, antialiased) and
cropped around its centre. A digit is preprocessed like its dataset: greyscale, inverted if dark on
light, its ink cropped, scaled to a box and centred. A picture of exactly the dataset's size is used
as it is; a digit is inverted if dark on light.
"""

import concurrent.futures
import contextlib
import dataclasses
import io
import logging
import math
import os
import warnings

import numpy as np
from PIL import ExifTags, Image, ImageOps
from PIL.TiffImagePlugin import TILELENGTH, TILEWIDTH

from . import plain, tiff

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
IN_WORDS = "PNG, JPEG, WebP, GIF, BMP, TIFF or PNM"
FIRST = "the first of"  # in a remark on a picture with more frames or pages
# of a picture that is taken as it is; 0.7 GB in each thread, 1 GB for a WebP
MOST_PIXELS = 50_000_000
MOST_HALVED = 200_000_000  # of one whose sides are halved, one at a time: 2 GB at most
# their decoders take more memory for a pixel
FEWER_HALVED = {"WEBP": 100_000_000, "TIFF": 100_000_000}
TILE = 2048  # side in pixels of what is converted at once; even
# pixels of a PNM that Pillow reads number by number, a second for each million
MOST_BY_PYTHON = 5_000_000
MOST_COMMENTS = 1000  # in a PNM of text, which Pillow copies for each of them
Image.MAX_IMAGE_PIXELS = MOST_HALVED // 2  # Pillow opens no file of more than twice as many
# Decodes large pictures one at a time; a thread keeps memory that it has used, so that a lock would
# not do.
_of_large = concurrent.futures.ThreadPoolExecutor(1)
# Pillow warns of large pictures and about odd tags. Threads cannot change filters one by one.
warnings.simplefilter("ignore", Image.DecompressionBombWarning)
warnings.filterwarnings("ignore", module=r"PIL\.")
logging.getLogger("PIL").addHandler(logging.NullHandler())

ORIGINAL = 320  # largest side in pixels of the thumbnail of the original
# largest side in pixels of a picture in which ink is searched; larger ones are reduced
WIDEST = 1000
FAINTEST = 24  # least contrast of ink to the background, in grey levels
# share of the largest contrast below which grey counts as background: shadows, paper, noise
NOISE = 0.25


class PictureError(Exception):
    """Short reason why a picture is refused, one line."""


@dataclasses.dataclass(frozen=True)
class Picture:
    """A picture converted to an image of a dataset.

    pixels: uint8 (H, W, C) of the dataset's shape; original: PIL, RGB, upright, no larger than
    ORIGINAL; remarks: the steps of the conversion, in words.
    """

    name: str
    pixels: np.ndarray
    original: Image.Image
    remarks: tuple


@dataclasses.dataclass(frozen=True)
class Digit:
    """Preprocessing of a dataset's digits, or of what else it shows (what): scaled to `box` pixels,
    centred in grid x grid by their centre of mass (of_mass) or their bounding box, then enlarged to
    the dataset's size.
    """

    box: int
    grid: int
    of_mass: bool
    what: str = "digit"


# MNIST's: yann.lecun.com/exdb/mnist. scikit-learn's digits: bitmaps that the digit fills, averaged
# to 8x8.
DIGITS = {
    "mnist": Digit(20, 28, True),
    "mnist_small": Digit(20, 28, True),
    "digits": Digit(8, 8, False),
}
# Fashion-MNIST's garments are preprocessed likewise (Xiao, Rasul and Vollgraf, 2017): trimmed,
# scaled, inverted, centred.
LIGHT_ON_DARK = {**DIGITS, "fashion_mnist": Digit(28, 28, False, "garment")}


# Reading.


def take(source, dataset, shape, name):
    """The Picture of `source`, a path or the bytes of a file, for a dataset; shape: of its images;
    raises PictureError.
    """
    image, remarks = read(source, enough(dataset, shape))
    pixels, steps = fit(image, dataset, shape)
    image.thumbnail((ORIGINAL, ORIGINAL))
    return Picture(name, pixels, image, (*remarks, *steps))


def enough(dataset, shape):
    """Pixels that the shorter side of a picture keeps where its format can be decoded at a smaller
    size, for images of this shape; 0 for all: of a digit the ink is searched.
    """
    return 0 if dataset in LIGHT_ON_DARK else max(ORIGINAL, 2 * max(shape[:2]))


def read(source, least=0):
    """(PIL image, RGB, upright; remarks) of `source`, a path or the bytes of a file; raises
    PictureError. least: as `enough` gives it; the size of the picture is the image's info["size"].
    """
    if isinstance(source, bytes):
        _check("the file is empty" if not source else plain.too_large(len(source)))
        return _decode(io.BytesIO(source), least)
    try:
        _check(plain.refusal(os.stat(source)))
        with open(source, "rb") as file:
            return _decode(file, least)
    except OSError as error:
        raise PictureError(f"cannot be read: {error.strerror}") from error


def _check(refusal):
    if refusal:
        raise PictureError(refusal)


def _decode(file, least):
    try:
        if fault := tiff.fault(file):
            raise PictureError(fault)
        file.seek(0)
        return _opened(Image.open(file, formats=FORMATS), least)
    except PictureError:
        raise
    except Image.UnidentifiedImageError:
        raise PictureError(
            tiff.unidentified(file) or f"not a picture that can be read here ({IN_WORDS})"
        ) from None
    except Image.DecompressionBombError:
        raise PictureError(f"too large: {MOST_HALVED / 1e6:.0f} million pixels at most") from None
    except Exception as error:  # decoders raise many types of errors for damaged files
        words = " ".join("".join(filter(str.isprintable, word)) for word in str(error).split())
        raise PictureError(f"damaged or cut short ({words or type(error).__name__})") from error


def _opened(image, least):
    width, height = image.size
    most = FEWER_HALVED.get(image.format, MOST_HALVED)
    if width * height > most:
        raise PictureError(
            f"too large: {width:,} × {height:,} pixels; {most / 1e6:.0f} million at most"
        )
    if image.format == "PPM":
        _check_pnm(image)
    tags = dict(image.tag_v2) if image.format == "TIFF" else {}
    tile = math.prod(tags.get(side, 1) for side in (TILEWIDTH, TILELENGTH))
    if tile > MOST_PIXELS:  # unpacked whole, however small the picture is
        raise PictureError(
            f"too large: its tiles have {tile:,} pixels; {MOST_PIXELS / 1e6:.0f} million at most"
        )
    remarks = _frames(image)
    if least:
        image.draft(None, (least, least))
    halved = image.width * image.height > MOST_PIXELS
    work = image, tags, 2 if halved else 1
    is_large = width * height > MOST_PIXELS
    rgb, transparent, turned = (
        _of_large.submit(_decoded, *work).result() if is_large else _decoded(*work)
    )
    rgb.info["size"] = width, height
    if halved:
        remarks.append("its sides halved")
    if turned:
        remarks.append("turned as its EXIF says")
    if transparent:
        remarks.append("transparent parts are white")
    return rgb, tuple(remarks)


def _check_pnm(image):
    """Raise PictureError where Pillow, which reads some kinds number by number, would take
    minutes.
    """
    kind = image.tile[0].codec_name
    if kind != "raw" and image.width * image.height > MOST_BY_PYTHON:
        raise PictureError(
            "a PNM of text, or of other than 8 or 16 bits, of more than "
            f"{MOST_BY_PYTHON / 1e6:.0f} million pixels"
        )
    if kind == "ppm_plain":
        begin = image.fp.tell()
        image.fp.seek(0)
        comments = image.fp.read().count(b"#")
        image.fp.seek(begin)
        if comments > MOST_COMMENTS:
            raise PictureError(f"a PNM with {comments:,} comments; {MOST_COMMENTS:,} at most")


def _loaded(image):
    """The picture, decoded; greys of a PNM of more than 8 bits, 0 to 65535, as those of other
    formats.
    """
    image.load()
    return image.convert("I;16") if image.format == "PPM" and image.mode == "I" else image


def _decoded(image, tags, factor):
    """(8-bit RGB image, upright, reduced by a factor; whether any pixel was transparent; whether it
    was turned), with nothing else of the size in memory than the decoded picture; a JPEG is decoded
    at the reduced size.
    """
    # loads a PNG, as Pillow turns a TIFF that it loads
    turned = image.getexif().get(ExifTags.Base.Orientation) in range(2, 9)
    if factor > 1 and image.draft(None, (image.width // factor, image.height // factor)):
        factor = 1
    with contextlib.closing(image):  # before the next one is decoded
        image = _loaded(image)
        whole, transparent = (
            Image.new("RGB", (-(-image.width // factor), -(-image.height // factor))),
            False,
        )
        for top in range(0, image.height, TILE):
            for left in range(0, image.width, TILE):
                tile = image.crop(
                    (left, top, min(left + TILE, image.width), min(top + TILE, image.height))
                )
                rgb, clear = _to_rgb(tile, tags)
                whole.paste(rgb.reduce(factor), (left // factor, top // factor))
                transparent |= clear
        exif = Image.Exif()
        exif[ExifTags.Base.Orientation] = image.getexif().get(ExifTags.Base.Orientation, 1)
    if turned:
        whole.info["exif"] = exif.tobytes()
        ImageOps.exif_transpose(whole, in_place=True)
    return whole, transparent, turned


def _frames(image):
    """A list with the remark on frames or pages that are not read; else an empty one."""
    if image.format == "TIFF":  # to count its pages would take as long as somebody wants it to
        return [f"{FIRST} several pages"] if image.is_animated else []
    # MPO: a camera's JPEG with a preview
    frames = 1 if image.format == "MPO" else getattr(image, "n_frames", 1)
    return [f"animated: {FIRST} {frames} frames"] if frames > 1 else []


def _to_rgb(image, tags):
    """(8-bit RGB image, whether any pixel was transparent); tags: of a TIFF, number -> value."""
    if image.mode.startswith(("I;16", "F")):
        try:
            return Image.fromarray(np.rint(255 * tiff.grey(image, tags)).astype(np.uint8)).convert(
                "RGB"
            ), False
        except ValueError as fault:
            raise PictureError(f"{fault}; {tiff.ADVICE}") from fault
    if image.mode in tiff.UNKNOWN:
        raise PictureError(f"{tiff.UNKNOWN[image.mode]}; {tiff.ADVICE}")
    image = image.convert("LA") if image.mode == "La" else image
    if not image.has_transparency_data:
        return image.convert("RGB"), False
    layer = image.convert("RGBA")
    paper = Image.new("RGBA", layer.size, "white")
    return Image.alpha_composite(paper, layer).convert("RGB"), layer.getextrema()[3][0] < 255


# Fitting.


def fit(image, dataset, shape):
    """(uint8 (H, W, C) of this shape, steps in words) of a PIL RGB image; raises PictureError for a
    blank digit.
    """
    height, width, channels = shape
    if dataset in LIGHT_ON_DARK:
        grey, steps = _digit(_grey(image), LIGHT_ON_DARK[dataset], (height, width))
        return np.repeat(grey[..., None], channels, axis=2), steps
    fitted, steps = _photograph(image, (width, height))
    pixels = np.asarray(fitted if channels == 3 else fitted.convert("L"))
    return pixels.reshape(height, width, channels), steps


def rule(dataset, shape):
    """Description of `fit` for the dataset and the shape of its images, as sentences for a page."""
    height, width, _ = shape
    if dataset not in LIGHT_ON_DARK:
        return (
            f"Each picture is scaled until its shorter side has {min(height, width)} pixels, and cropped around its centre "
            f"to {width} × {height}."
        )
    digit = LIGHT_ON_DARK[dataset]
    placed = "by its centre of mass" if digit.of_mass else "by its middle"
    enlarged = (
        f", which is enlarged to {width} × {height} like the dataset's own"
        if digit.grid != width
        else ""
    )
    return (
        f"The network knows light {digit.what}s on a dark background. Each picture is converted to grey, and inverted if "
        f"its border is brighter than the {digit.what}. Its ink (pixels that differ from the border by more than "
        f"{100 * NOISE:.0f} % of the largest difference) is cut out, scaled to {digit.box} pixels and centred {placed} in "
        f"{digit.grid} × {digit.grid}{enlarged}. A picture of exactly {_sizes(digit, width)} pixels is used as it is, "
        f"inverted if necessary. One picture is one {digit.what}."
    )


def _sizes(digit, width):
    return " or ".join(f"{edge} × {edge}" for edge in sorted({digit.grid, width}))


def _photograph(image, target):
    if image.size == target:
        return image, ()
    steps = (
        ("scaled",)
        if image.width * target[1] == image.height * target[0]
        else ("scaled", "cropped around its centre")
    )
    return ImageOps.fit(image, target, Image.Resampling.BICUBIC), steps


def _grey(image):
    """float64 (H, W), 0 to 255, no larger than WIDEST."""
    grey = image.convert("L")
    grey.thumbnail((WIDEST, WIDEST), Image.Resampling.BOX)  # does not enlarge
    return np.asarray(grey, np.float64)


def _digit(grey, digit, target):
    """(uint8 image of shape `target`, steps in words) of grey: float64 (H, W), 0 to 255."""
    ground, dark = _ground(grey)
    if grey.shape in (target, (digit.grid, digit.grid)):
        taken = 255 - grey if dark else grey
        steps = ("inverted",) if dark else ()
    else:
        ink = ground - grey if dark else grey - ground
        taken = _place(_cut(ink), digit)
        steps = (("inverted",) if dark else ()) + (
            "its ink cut out",
            f"scaled to {digit.box} pixels",
            "centred",
        )
    return np.asarray(_resized(taken, target[::-1])), steps


def _ground(grey):
    """(level of the background, whether the ink is darker) of grey (H, W): the border's median, and
    the side of it with the larger sum of squared differences."""
    height, width = grey.shape
    y, x = max(1, height // 16), max(1, width // 16)
    border = np.concatenate(
        [grey[:y].ravel(), grey[-y:].ravel(), grey[:, :x].ravel(), grey[:, -x:].ravel()]
    )
    level = float(np.median(border))
    off = grey - level
    return level, np.square(off[off < 0]).sum() > np.square(off[off > 0]).sum()


def _cut(ink):
    """The bounding box of ink (H, W), 0 to 1, with noise removed."""
    strongest = ink.max()
    if strongest < FAINTEST:
        raise PictureError("blank: nothing on it stands out from its background")
    ink = np.clip(ink / strongest - NOISE, 0, None) / (1 - NOISE)
    rows, columns = (np.flatnonzero(ink.any(axis=axis)) for axis in (1, 0))
    return ink[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]


def _place(ink, digit):
    """float64 (grid, grid), 0 to 255, of ink (H, W) 0 to 1."""
    height, width = ink.shape
    scale = digit.box / max(height, width)
    small = np.asarray(
        _resized(255 * ink, (max(1, round(width * scale)), max(1, round(height * scale)))),
        np.float64,
    )
    small *= 255 / small.max()  # reduction makes thin lines faint
    placed = np.zeros((digit.grid, digit.grid))
    y, x = (_corner(small.sum(axis=1 - axis), digit) for axis in (0, 1))
    placed[y : y + small.shape[0], x : x + small.shape[1]] = small
    return placed


def _corner(masses, digit):
    """Offset of the ink along an axis that centres it within the grid; masses: sums of its rows or
    columns.
    """
    positions = np.arange(len(masses)) + 0.5
    centre = (masses @ positions) / masses.sum() if digit.of_mass else len(masses) / 2
    return int(np.clip(round(digit.grid / 2 - centre), 0, digit.grid - len(masses)))


def _resized(grey, size):
    """8-bit PIL image of (width, height) = size from values (H, W) 0 to 255."""
    image = Image.fromarray(np.clip(np.rint(grey), 0, 255).astype(np.uint8))
    return image if image.size == size else image.resize(size, Image.Resampling.BILINEAR)
