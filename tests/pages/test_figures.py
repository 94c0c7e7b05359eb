"""Pictures."""

import base64
import io

import numpy as np
import pytest
from PIL import Image

from ladder.pages import figures


def decoded(uri):
    return np.asarray(
        Image.open(io.BytesIO(base64.b64decode(uri.removeprefix("data:image/png;base64,"))))
    )


def test_a_png_holds_exactly_the_pixels_given():
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    assert np.array_equal(decoded(figures.png_uri(pixels)), pixels)
    assert np.array_equal(decoded(figures.png_uri(pixels[..., :1])), pixels[..., 0])


@pytest.mark.parametrize("channels", [1, 3])
def test_tiles_are_laid_row_by_row_with_transparent_gaps(channels):
    images = np.arange(1, 4, dtype=np.uint8)[:, None, None, None] * np.ones(
        (1, 2, 3, channels), np.uint8
    )
    sheet = figures.tiles(images, columns=2, gap=1)
    assert sheet.shape == (5, 7, 4)
    assert (sheet[0, 0, 0], sheet[0, 4, 0], sheet[3, 0, 0]) == (1, 2, 3)
    assert not sheet[2].any() and not sheet[:, 3].any()  # the gaps
    assert not sheet[3:, 4:].any()  # the place of the fourth image


def test_differences_are_grey_where_equal_and_amplified_as_far_as_they_fit():
    originals = np.full((1, 10, 10, 3), 100, np.uint8)
    others = originals.copy()
    others[0, 0] = 110
    others[0, 1] = 88
    shown, gain = figures.differences(originals, others)
    assert gain == 8
    assert (shown[0, 5, 5, 0], shown[0, 0, 0, 0], shown[0, 1, 0, 0]) == (128, 128 + 80, 128 - 96)


def test_differences_too_large_to_amplify_are_clipped_not_wrapped():
    shown, gain = figures.differences(
        np.zeros((1, 2, 2, 3), np.uint8), np.full((1, 2, 2, 3), 255, np.uint8)
    )
    assert gain == 1
    assert (shown == 255).all()


def test_filters_come_strongest_first_each_scaled_by_its_own_largest_weight():
    weights = np.zeros((3, 3, 3, 3), np.float32)
    weights[0, 0, 0, 0] = 0.1  # a weak filter
    weights[1, 2, 1, 2] = -4.0  # the strongest: blue, row 1, column 2
    pictures = figures.filters(weights)
    assert pictures.shape == (3, 3, 3, 3) and pictures.dtype == np.uint8
    assert pictures[0, 1, 2].tolist() == [128, 128, 1]
    assert pictures[1, 0, 0].tolist() == [255, 128, 128]
    assert (pictures[2] == 128).all()  # all zero: no division by zero


def test_filters_of_one_channel_are_grey():
    pictures = figures.filters(np.ones((2, 1, 3, 3), np.float32))
    assert pictures.shape == (2, 3, 3, 1) and (pictures == 255).all()
