"""Counter-based random numbers: they depend on a key only, not on earlier draws (Philox4x64-10; Salmon et al., 2011)."""

import numpy as np

# One stream for each purpose; a dropout layer uses DROPOUT + its index among the network's layers.
INITIAL_WEIGHTS, SHUFFLE, AUGMENTATION, FEATURE_ROWS, HELD_OUT_ROWS, PATCHES, ATOMS, HOLD_OUT, JITTER = range(1, 10)
DROPOUT = 16

WORDS_PER_BLOCK = 8   # 32-bit numbers per counter value


def generator(seed, stream, index):
    """An independent NumPy generator for (seed, stream, index)."""
    return np.random.Generator(_bits(seed, stream, index))


def dropout_mask(seed, stream, step, start, count, rate):
    """uint8 (count,): 0 with probability `rate`, else 1, for the values start, start + 1, ... of a batch.

    stream: the layer's index in its network. A part of a batch gets the same mask however the batch is divided, which needs a
    `start` that is a multiple of WORDS_PER_BLOCK; ValueError otherwise.
    """
    block, within = divmod(start, WORDS_PER_BLOCK)
    if within:
        raise ValueError(f"a part of a dropout mask starts at a multiple of {WORDS_PER_BLOCK}, not at {start}")
    drawn = _bits(seed, DROPOUT + stream, step, block).random_raw(-(-count // 2))
    words = drawn.astype("<u8", copy=False).view("<u4")[:count]
    return (words >= np.uint32(int(rate * 2 ** 32))).view(np.uint8)


def augmentation(seed, step, count, crop, flip):
    """int32 (count, 3): (vertical shift, horizontal shift, mirrored) of each image of a batch; shifts are -crop to crop.

    mirrored: 0 or 1 with equal probability; 0 without `flip`.
    """
    drawn = _bits(seed, AUGMENTATION, step).random_raw((count, 4))
    shifts = (drawn[:, :2] % np.uint64(2 * crop + 1)).astype(np.int32) - crop
    mirrored = (drawn[:, 2:3] >> np.uint64(63)).astype(np.int32) * bool(flip)
    return np.concatenate((shifts, mirrored), axis=1, dtype=np.int32)


def jitter(seed, step, count, channels, tangent, colour):
    """float32 (count, 2 + channels): (cosine, sine) of the rotation and the factor of each channel, for each image of a batch.

    tangent: of half the largest angle; with t drawn evenly from -tangent to tangent, the rotation is that by 2 arctan t, whose
    cosine and sine are (1 - t^2) / (1 + t^2) and 2 t / (1 + t^2). colour: factors are drawn evenly from 1 - colour to
    1 + colour. All in float32, so that any processor rounds alike.
    """
    words = _bits(seed, JITTER, step).random_raw((count, 4)).astype("<u8", copy=False).view("<u4")
    evenly = ((words >> 8).astype(np.int32) - 2 ** 23).astype(np.float32) * np.float32(2 ** -23)   # -1 up to 1, exact
    t = np.float32(tangent) * evenly[:, 0]
    square = t * t
    turned = (np.float32(1) - square) / (np.float32(1) + square), np.float32(2) * t / (np.float32(1) + square)
    factors = [np.float32(1) + np.float32(colour) * evenly[:, 1 + channel % 7] for channel in range(channels)]
    return np.stack((*turned, *factors), axis=1)


def _bits(seed, stream, index, block=0):
    """The bit generator of (seed, stream, index), starting at a block of four 64-bit numbers."""
    # Typed arrays, because NumPy converts a list with a number beyond int64 to float, which rounds.
    key, counter = np.array([seed, stream], np.uint64), np.array([block, 0, 0, index], np.uint64)
    return np.random.Philox(key=key, counter=counter)
