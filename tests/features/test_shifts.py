"""Shifted images, and rows that are joined as they are read."""

import numpy as np
import pytest

from ladder.features import shifts

IMAGES = np.random.default_rng(0).integers(0, 256, (5, 6, 9, 3), dtype=np.uint8)


def moved(images, down, right):
    """By definition: the window of the padded images."""
    reach = max(abs(down), abs(right))
    padded = np.pad(images, ((0, 0), (reach, reach), (reach, reach), (0, 0)), mode="edge")
    height, width = images.shape[1:3]
    return padded[:, reach - down:reach - down + height, reach - right:reach - right + width]


@pytest.mark.parametrize("images", [IMAGES, IMAGES.astype(np.float32) / 7], ids=["uint8", "float32"])
@pytest.mark.parametrize("distance", [1, 2, 5])
def test_a_shifted_image_is_moved_and_repeats_the_values_at_its_edges(images, distance):
    for offset in shifts.offsets(distance):
        some = shifts.Shifted(images, offset)
        assert len(some) == 5 and some[1:4].dtype == images.dtype and some[1:4].flags.c_contiguous
        np.testing.assert_array_equal(some[1:4], moved(images[1:4], *offset))
    assert moved(IMAGES, 1, 1)[0, 3, 4].tolist() == IMAGES[0, 2, 3].tolist()


def test_the_copies_lie_on_both_diagonals():
    assert shifts.offsets(2) == [(2, 2), (-2, -2), (2, -2), (-2, 2)]
    assert shifts.offsets("none") == []


def test_rows_of_parts_are_joined_as_they_are_read():
    random = np.random.default_rng(1)
    one, other = (random.normal(size=(7, width)).astype(np.float32) for width in (3, 2))
    joined = shifts.Joined([(1, one), (0.3, other)])
    assert joined.shape == (7, 5) and len(joined) == 7 and joined[2:4].dtype == np.float32
    np.testing.assert_array_equal(joined[2:4], np.hstack([one, np.float32(0.3) * other])[2:4])
