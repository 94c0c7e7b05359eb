"""Counter-based random numbers: they depend on a key only, not on earlier draws (Philox4x64-10;
Salmon et al., 2011).
"""

import math

import numpy as np

# One stream for each purpose; a layer that draws uses LAYER + its index among the network's layers.
(
    INITIAL_WEIGHTS,
    SHUFFLE,
    AUGMENTATION,
    FEATURE_ROWS,
    CLASSIFIER_VALIDATION,
    PATCHES,
    ATOMS,
    VALIDATION,
    JITTER,
    PRIOR,
    LABELLED_ROWS,
    CHANGES,
) = range(1, 13)
LAYER = 16

WORDS_PER_BLOCK = 8  # 32-bit numbers per counter value


def generator(seed, stream, index):
    """An independent NumPy generator for (seed, stream, index)."""
    return np.random.Generator(_bits(seed, stream, index))


def dropout_mask(seed, stream, step, start, count, rate):
    """uint8 (count,): 0 with probability `rate`, else 1, for the values start, start + 1, ... of a
    batch.

    stream: the layer's index in its network. A part of a batch gets the same mask however the batch
    is divided, which needs a `start` that is a multiple of WORDS_PER_BLOCK; ValueError otherwise.
    """
    return (_words(seed, LAYER + stream, step, start, count) >= np.uint32(int(rate * 2**32))).view(
        np.uint8
    )


def normal(seed, stream, step, start, count):
    """float32 (count,): numbers of the standard normal distribution for the values start, start +
    1, ... of a batch.

    stream: of a layer LAYER + its index, else PRIOR; start: as in dropout_mask. The upper 24 bits k
    of a value's word stand for the probability p = (2 k + 1) / 2^25, whose quantile is computed by
    AS 241's PPND7 (Wichura, 1988), within 5.42 of 0. All in float32, the logarithm included, so
    that any processor rounds alike.
    """
    # of p - 1/2, times 2^25
    odd = 2 * (_words(seed, stream, step, start, count) >> 8).astype(np.int32) + 1 - 2**24
    from_middle = odd.astype(np.float32) * np.float32(2**-25)  # exact
    square = from_middle * from_middle
    quantiles = from_middle * _ratio(np.float32(0.180625) - square, *MIDDLE)
    tails = np.flatnonzero(np.abs(from_middle) > np.float32(0.425))
    outside = (2**24 - np.abs(odd[tails])).astype(np.float32) * np.float32(2**-25)
    quantiles[tails] = np.copysign(
        _ratio(np.sqrt(_minus_log(outside)) - np.float32(1.6), *TAILS), from_middle[tails]
    )
    return quantiles


# Coefficients of AS 241's PPND7, the highest power first: (numerator, denominator).
MIDDLE = (
    (59.109374720, 159.29113202, 50.434271938, 3.3871327179),
    (67.187563600, 78.757757664, 17.895169469, 1),
)
TAILS = (0.17023821103, 1.3067284816, 2.7568153900, 1.4234372777), (0.12021132975, 0.73700164250, 1)


def _ratio(x, above, below):
    """The ratio of two polynomials of x, float32."""
    return _polynomial(x, above) / _polynomial(x, below)


def _polynomial(x, coefficients):
    total = np.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        total = total * x + np.float32(coefficient)
    return total


def _minus_log(x):
    """-log x of float32 below 1: log(m 2^e) with m from 1 to 2, by the series of 2 artanh((m - 1) /
    (m + 1)).
    """
    fraction, exponent = np.frexp(x)
    share = (2 * fraction - 1) / (2 * fraction + 1)
    series = _polynomial(
        share * share, [np.float32(1) / np.float32(odd) for odd in range(15, 0, -2)]
    )
    return (1 - exponent).astype(np.float32) * np.float32(math.log(2)) - 2 * share * series


def augmentation(seed, step, count, crop, flip):
    """int32 (count, 3): (vertical shift, horizontal shift, mirrored) of each image of a batch;
    shifts are -crop to crop.

    mirrored: 0 or 1 with equal probability; 0 without `flip`.
    """
    drawn = _bits(seed, AUGMENTATION, step).random_raw((count, 4))
    shifts = (drawn[:, :2] % np.uint64(2 * crop + 1)).astype(np.int32) - crop
    mirrored = (drawn[:, 2:3] >> np.uint64(63)).astype(np.int32) * bool(flip)
    return np.concatenate((shifts, mirrored), axis=1, dtype=np.int32)


def jitter(seed, step, count, channels, tangent, colour):
    """float32 (count, 2 + channels): (cosine, sine) of the rotation and the factor of each channel,
    for each image of a batch.

    tangent: of half the largest angle; with t drawn evenly from -tangent to tangent, the rotation
    is that by 2 arctan t, whose cosine and sine are (1 - t^2) / (1 + t^2) and 2 t / (1 + t^2).
    colour: factors are drawn evenly from 1 - colour to 1 + colour. All in float32, so that any
    processor rounds alike.
    """
    words = _bits(seed, JITTER, step).random_raw((count, 4)).astype("<u8", copy=False).view("<u4")
    # -1 up to 1, exact
    evenly = ((words >> 8).astype(np.int32) - 2**23).astype(np.float32) * np.float32(2**-23)
    t = np.float32(tangent) * evenly[:, 0]
    square = t * t
    turned = (
        (np.float32(1) - square) / (np.float32(1) + square),
        np.float32(2) * t / (np.float32(1) + square),
    )
    factors = [
        np.float32(1) + np.float32(colour) * evenly[:, 1 + channel % 7]
        for channel in range(channels)
    ]
    return np.stack((*turned, *factors), axis=1)


def _words(seed, stream, step, start, count):
    """uint32 (count,): the random words start, start + 1, ... of a stream in a step."""
    block, within = divmod(start, WORDS_PER_BLOCK)
    if within:
        raise ValueError(
            f"a part of a stream starts at a multiple of {WORDS_PER_BLOCK}, not at {start}"
        )
    drawn = _bits(seed, stream, step, block).random_raw(-(-count // 2))
    return drawn.astype("<u8", copy=False).view("<u4")[:count]


def _bits(seed, stream, index, block=0):
    """The bit generator of (seed, stream, index), starting at a block of four 64-bit numbers."""
    # Typed arrays, because NumPy converts a list with a number beyond int64 to float, which rounds.
    key, counter = np.array([seed, stream], np.uint64), np.array([block, 0, 0, index], np.uint64)
    return np.random.Philox(key=key, counter=counter)
