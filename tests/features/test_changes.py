"""Changed copies of pictures."""

import numpy as np
import pytest

from ladder.features import changes

PICTURES = np.random.default_rng(1).integers(0, 256, (40, 32, 24, 3), np.uint8)


def test_they_have_the_shape_of_the_pictures_and_follow_from_the_seed_alone():
    copies = changes.changed(PICTURES, 3)
    assert copies.shape == PICTURES.shape and copies.dtype == np.uint8
    assert np.array_equal(copies, changes.changed(PICTURES, 3))
    assert not np.array_equal(copies, changes.changed(PICTURES, 4))
    assert np.array_equal(copies[:5], changes.changed(PICTURES[:5], 3))
    assert changes.changed(PICTURES[..., :1], 3).shape == (40, 32, 24, 1)


def test_a_picture_of_one_value_changes_in_brightness_by_at_most_three_tenths():
    copies = changes.changed(np.full((200, 16, 16, 3), 100, np.uint8), 1)
    values = copies.reshape(200, -1)
    assert (values == values[:, :1]).all()
    assert 70 <= values.min() < 75 and 125 < values.max() <= 130


@pytest.mark.parametrize(
    "draws, side, top, left",
    [((0, 0, 0), 24, 0, 0), ((0.999999,) * 3, 30, 2, 2), ((0, 0.999999, 0), 24, 8, 0)],
)
def test_the_crop_is_the_part_that_the_numbers_say(draws, side, top, left):
    ramp = np.arange(32, dtype=np.uint8)
    picture = np.stack(np.broadcast_arrays(4 * ramp[:, None], 4 * ramp[None]), axis=2)
    picture = np.concatenate([picture, picture[..., :1]], axis=2)
    copy = changes._changed(picture, *draws, 0.5, 0.5)  # factors of 1
    place = np.clip((np.arange(32) + 0.5) * side / 32 - 0.5, 0, side - 1)
    assert np.abs(copy[:, 0, 0] - 4 * (top + place)).max() <= 2
    assert np.abs(copy[0, :, 1] - 4 * (left + place)).max() <= 2


def test_contrast_changes_the_distance_from_the_mean():
    flat = np.repeat(np.repeat([[90, 110], [110, 90]], 16, 0), 16, 1).astype(np.uint8)[..., None]
    strong, weak = (
        changes._changed(flat, 0.999999, 0.5, 0.5, 0.5, draw).astype(float) for draw in (1, 0)
    )
    assert strong.max() - strong.min() == pytest.approx(26, abs=1)
    assert weak.max() - weak.min() == pytest.approx(14, abs=1)
