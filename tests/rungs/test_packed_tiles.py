"""The choice of bfloat16 tiles, and of splits of weight gradients, by shape alone."""

import pytest

from ladder.rungs import packed_tiles
from ladder.rungs.packed_tiles import FEW_COLUMNS, FEW_ROWS, LARGE, RECTANGLES, SQUARE, WINDOWS

SHORT, FEW, TALL, NARROW, WIDEST = RECTANGLES
FEW_2, FEW_3, MANY_2, MANY_3 = WINDOWS

# (batch, height, width of y, channels, filters, kernel, stride): tile. The autoencoder's, then
# those without a halo.
CHOSEN = {
    (64, 16, 16, 256, 128, 3, 1): WIDEST,
    (64, 8, 8, 128, 128, 3, 1): NARROW,
    (64, 16, 16, 128, 256, 3, 1): WIDEST,
    (64, 32, 32, 256, 3, 3, 1): FEW,
    (64, 16, 16, 256, 12, 3, 1): SHORT,
    (64, 32, 32, 8, 256, 3, 1): LARGE,
    (64, 16, 16, 64, 128, 1, 1): LARGE,
    (64, 8, 8, 128, 128, 3, 2): SQUARE,
    (64, 4, 4, 512, 512, 3, 1): SQUARE,
    (64, 32, 32, 48, 16, 3, 1): FEW_COLUMNS,
    (64, 16, 16, 64, 128, 7, 1): LARGE,
    (64, 16, 16, 128, 128, 5, 1): NARROW,
    (64, 16, 16, 64, 16, 5, 1): SHORT,
    (256, 16, 16, 64, 16, 5, 1): FEW,
    (64, 14, 14, 64, 64, 3, 1): NARROW,
    (80, 8, 16, 64, 64, 3, 1): TALL,
    (16, 8, 8, 64, 64, 2, 1): NARROW,
}


@pytest.mark.parametrize("shape", CHOSEN, ids=str)
def test_the_tile_of_the_fewest_cycles_is_chosen_by_shape(shape):
    assert packed_tiles.pixel_tile(packed_tiles.Sums(*shape)) == CHOSEN[shape]


# (batch, height, width of y, channels, filters, kernel, stride): tile, splits, steps of one. The
# autoencoder's, then others.
OF_WEIGHTS = {
    (64, 32, 32, 256, 3, 3, 1): (FEW_3, 32, 16),
    (64, 16, 16, 128, 256, 3, 1): (MANY_3, 16, 8),
    (64, 16, 16, 256, 128, 3, 1): (MANY_3, 16, 8),
    (64, 8, 8, 128, 128, 3, 1): (MANY_3, 11, 3),
    (64, 32, 32, 8, 256, 3, 1): (LARGE, 64, 16),
    (64, 16, 16, 128, 128, 1, 1): (LARGE, 64, 4),
    (64, 16, 16, 128, 128, 3, 2): (LARGE, 14, 19),
    (64, 7, 7, 512, 512, 3, 1): (MANY_3, 2, 16),
    (64, 16, 16, 40, 128, 3, 1): (LARGE, 43, 6),
    (64, 16, 16, 40, 3, 3, 1): (FEW_ROWS, 43, 6),
    (64, 2, 2, 512, 512, 3, 1): (LARGE, 1, 4),
    (64, 16, 16, 40, 40, 1, 1): (SQUARE, 128, 2),
    (64, 8, 8, 128, 64, 2, 1): (MANY_2, 16, 2),
}


@pytest.mark.parametrize("shape", OF_WEIGHTS, ids=str)
def test_a_weight_gradients_tile_and_splits_take_the_fewest_cycles(shape):
    sums_of = packed_tiles.Sums(*shape)
    tile = packed_tiles.weight_tile(sums_of)
    assert (tile, *packed_tiles.split(tile, sums_of)) == OF_WEIGHTS[shape]
