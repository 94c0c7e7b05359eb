"""Random draws, whole networks' gradients, and the sequential rung against the cpu rung;
operations: tests/operations.
"""

import math
import statistics

import numpy as np
import pytest

import references
from kernel_checks import normal
from ladder.arithmetic import randomness
from ladder.executors import sequential as numba_executor
from ladder.executors.sequential import OPERATIONS
from ladder.network import networks
from ladder.rungs import cpu_sequential
from ladder.verify import parity

NETWORK = networks.build("autoencoder")


def test_batchnorm_in_float32_keeps_small_variances_of_large_values():
    """E[x^2] - E[x]^2 in float32 would have no digit left, and a sum of 40,000 of them in float32
    would lose the mean.
    """
    x, one = (1000 + normal(4, 100, 100, 1) / 8).astype(np.float32), np.ones(1, np.float32)
    y, mean, inverse = np.full_like(x, np.nan), np.full_like(one, np.nan), np.full_like(one, np.nan)
    OPERATIONS["batchnorm_forward"](
        x, one, 0 * one, y, mean, inverse, 0 * one, one.copy(), decay=0.9, epsilon=1e-5
    )
    expected, expected_mean, expected_inverse = references.batchnorm(x, one, 0 * one, 1e-5)
    assert mean == pytest.approx(expected_mean, rel=1e-7) and inverse == pytest.approx(
        expected_inverse, rel=1e-6
    )
    # half a unit in the mean's last place, over a deviation of 1 / 8
    np.testing.assert_allclose(y, expected, atol=6e-4)


JITTERED = np.array([[0, 0, 0], [0, 0, 1], [2, -1, 0], [-1, 2, 1]], np.int32)


def test_jitter_as_defined_moves_nothing_without_an_angle_and_turns_by_it():
    images, unit = (
        np.random.default_rng(0).integers(1, 256, (4, 5, 5, 2)).astype(np.uint8),
        np.ones(2, np.float32),
    )
    still, quarter = (np.float32([(*angle, 1, 1)] * 4) for angle in ((1, 0), (0, 1)))
    rows, scale, offset = np.arange(4), np.float32([0.5, 1 / 3]), np.float32([1, -3])
    assert np.array_equal(
        references.load_jittered_batch(images, rows, scale, offset, JITTERED, still),
        references.load_augmented_batch(images, rows, scale, offset, JITTERED),
    )
    turned = references.load_jittered_batch(
        images, rows, unit, 0 * unit, np.zeros((4, 3), np.int32), quarter
    )
    assert np.array_equal(turned, np.rot90(images, axes=(2, 1)))
    factors = np.float32([(1, 0, 0.5, 1.25)] * 4)
    coloured = references.load_jittered_batch(
        images, rows, unit, 0 * unit, np.zeros((4, 3), np.int32), factors
    )
    assert np.array_equal(coloured, images * np.float32([0.5, 1.25]))


@pytest.mark.parametrize(
    "seed, step, count, channels, degrees, colour",
    [(0, 0, 5, 3, 15, 0.4), (3, 9, 300, 1, 45, 0), (2**64 - 3, 2**40, 300, 9, 0, 0.9)],
)
def test_jitter_is_the_definition_and_within_its_limits(
    seed, step, count, channels, degrees, colour
):
    drawn = randomness.jitter(
        seed, step, count, channels, math.tan(math.radians(degrees) / 2), colour
    )
    assert drawn.dtype == np.float32
    assert np.array_equal(
        drawn,
        references.jitter(seed, step, count, channels, math.tan(math.radians(degrees) / 2), colour),
    )
    angles, factors = np.degrees(np.arctan2(drawn[:, 1], drawn[:, 0])), drawn[:, 2:]
    assert np.allclose(drawn[:, 0] ** 2 + drawn[:, 1] ** 2, 1, atol=1e-6)
    assert abs(angles).max() <= degrees + 1e-4 and abs(factors - 1).max() <= colour + 1e-6
    if count == 300:
        assert degrees == 0 or angles.min() < -0.9 * degrees and angles.max() > 0.9 * degrees
        assert colour == 0 or factors.min() < 1 - 0.9 * colour and factors.max() > 1 + 0.9 * colour


# ---- random draws


def test_blocks_are_those_of_numpys_philox():
    """And the first known answer of Random123, its authors' library."""
    assert references.philox((0, 0, 0, 0), (0, 0)) == (
        0x16554D9ECA36314C,
        0xDB20FE9D672D0FDC,
        0xD7E772CEE186176B,
        0x7E68B68AEC7BA23B,
    )
    for seed, stream, step in ((0, 16, 0), (5, 3, 2**40), (2**64 - 3, 19, 2**63 + 1)):
        drawn = np.random.Philox(
            key=np.array([seed, stream], np.uint64), counter=np.array([0, 0, 0, step], np.uint64)
        )
        assert drawn.random_raw(12).tolist() == [
            word for block in references.blocks(seed, stream, step, 3) for word in block
        ]


@pytest.mark.parametrize(
    "seed, layer, step, count, rate",
    [
        (0, 0, 0, 1, 0.5),
        (7, 3, 5, 1003, 0.3),
        (2**63 + 5, 2, 9, 64, 0.1),
        (1, 2, 3, 24, 0),
        (1, 1, 2**40, 17, 0.999999),
        (1, 1, 1, 0, 0.5),
    ],
)
def test_dropout_masks_are_the_definitions(seed, layer, step, count, rate):
    mask = randomness.dropout_mask(seed, layer, step, 0, count, rate)
    assert mask.dtype == np.uint8 and np.array_equal(
        mask, references.dropout_mask(seed, layer, step, count, rate)
    )


def test_a_value_whose_number_is_the_rate_is_kept():
    first = references.blocks(3, randomness.LAYER, 0, 1)[0][0] & 0xFFFFFFFF
    assert randomness.dropout_mask(3, 0, 0, 0, 1, first / 2**32) == 1
    assert randomness.dropout_mask(3, 0, 0, 0, 1, (first + 1) / 2**32) == 0


@pytest.mark.parametrize(
    "draw, more",
    [(randomness.dropout_mask, (0.3,)), (randomness.normal, ())],
    ids=["mask", "normal"],
)
def test_shares_of_what_is_drawn_are_the_whole(draw, more):
    shares = [
        draw(7, 3, 5, start, stop - start, *more) for start, stop in ((0, 8), (8, 504), (504, 1003))
    ]
    assert np.array_equal(np.concatenate(shares), draw(7, 3, 5, 0, 1003, *more))
    with pytest.raises(ValueError, match="multiple of 8, not at 12"):
        draw(7, 3, 5, 12, 8, *more)


@pytest.mark.parametrize(
    "seed, stream, step, count",
    [(0, 16, 0, 1), (7, 10, 5, 3001), (2**63 + 5, 18, 2**40, 64), (1, 1, 1, 0)],
)
def test_normal_numbers_are_the_quantiles_of_the_words(seed, stream, step, count):
    drawn = randomness.normal(seed, stream, step, 0, count)
    assert drawn.dtype == np.float32 and drawn.shape == (count,)
    np.testing.assert_allclose(drawn, references.normal(seed, stream, step, count), rtol=5e-7)
    if count > 1000:
        assert (
            abs(drawn).max() > 3
            and drawn.mean() == pytest.approx(0, abs=0.06)
            and drawn.std() == pytest.approx(1, abs=0.04)
        )


def test_normal_numbers_are_the_quantiles_from_end_to_end(monkeypatch):
    """Also where the tails begin, and at the ends."""
    tails = [np.arange(-50, 50) + round(share * 2**24) for share in (0.075, 0.925)]
    upper = np.r_[0:300, 2**24 - 300 : 2**24, 0 : 2**24 : 4001, *tails]
    monkeypatch.setattr(randomness, "_words", lambda *key: (upper << 8 | 0xAB).astype(np.uint32))
    drawn = randomness.normal(0, 0, 0, 0, len(upper))
    expected = [statistics.NormalDist().inv_cdf((2 * int(one) + 1) / 2**25) for one in upper]
    np.testing.assert_allclose(drawn, expected, rtol=5e-7)
    assert drawn.max() == -drawn.min() and 5.41 < drawn.max() < 5.43


@pytest.mark.parametrize(
    "seed, step, count, crop, flip",
    [(0, 0, 5, 4, True), (3, 9, 200, 0, True), (3, 9, 200, 2, False)],
)
def test_augmentations_are_the_definitions(seed, step, count, crop, flip):
    drawn = randomness.augmentation(seed, step, count, crop, flip)
    assert drawn.dtype == np.int32 and np.array_equal(
        drawn, references.augmentation(seed, step, count, crop, flip)
    )
    if count == 200:
        assert {tuple(np.unique(column)) for column in drawn[:, :2].T} == {
            tuple(range(-crop, crop + 1))
        }
        assert set(drawn[:, 2]) == ({0, 1} if flip else {0})


# ---- whole networks


def test_every_layer_is_an_operation_of_its_own_but_where_taps_are_summed_first():
    assert [
        pattern.kinds for pattern in cpu_sequential.RUNG.patterns if len(pattern.kinds) > 1
    ] == [("upsample2d", "conv2d")]
    assert all(
        pattern.decomposes for pattern in cpu_sequential.RUNG.patterns if len(pattern.kinds) > 1
    )


def test_the_seconds_are_those_of_every_kind_of_work():
    executor = numba_executor.Executor(1)
    protocol = parity.PROTOCOLS["sgd"]
    parity.train(NETWORK, "cpu_sequential", executor, protocol)
    assert set(executor.seconds) == {
        "input",
        "convolution forward",
        "convolution backward",
        "ReLU",
        "pooling",
        "upsampling",
        "loss",
        "update",
    }
