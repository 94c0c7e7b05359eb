"""Random numbers that depend on a key alone, never on what was drawn before (Philox4x64-10; Salmon et al., 2011)."""

import numpy as np

# What a stream of numbers is for; a dropout layer has the stream DROPOUT + its place among the network's layers.
INITIAL_WEIGHTS, SHUFFLE, AUGMENTATION, FEATURE_ROWS, HELD_OUT_ROWS, PATCHES, ATOMS, HOLD_OUT = range(1, 9)
DROPOUT = 16

WORDS_PER_BLOCK = 8   # 32-bit numbers of one counter


def generator(seed, stream, index):
    """A NumPy generator of its own for (seed, stream, index)."""
    return np.random.Generator(_bits(seed, stream, index))


def dropout_mask(seed, stream, step, start, count, rate):
    """uint8 (count,): 1 for each of the batch's values start, start + 1, ... that is kept, 0 with probability `rate`.

    stream: the layer's place in its network. Any share of a batch is drawn alike whoever draws it: ValueError where `start` is
    no multiple of 8, the 32-bit numbers of a block.
    """
    block, within = divmod(start, WORDS_PER_BLOCK)
    if within:
        raise ValueError(f"a share of a dropout mask starts at a multiple of {WORDS_PER_BLOCK}, not at {start}")
    drawn = _bits(seed, DROPOUT + stream, step, block).random_raw(-(-count // 2))
    words = drawn.astype("<u8", copy=False).view("<u4")[:count]
    return (words >= np.uint32(int(rate * 2 ** 32))).view(np.uint8)


def augmentation(seed, step, count, crop, flip):
    """int32 (count, 3): for each row of a batch (rows down, columns right, mirrored); shifts are -crop to crop.

    mirrored: 0 or 1, by a coin; 0 without `flip`.
    """
    drawn = _bits(seed, AUGMENTATION, step).random_raw((count, 4))
    shifts = (drawn[:, :2] % np.uint64(2 * crop + 1)).astype(np.int32) - crop
    mirrored = (drawn[:, 2:3] >> np.uint64(63)).astype(np.int32) * bool(flip)
    return np.concatenate((shifts, mirrored), axis=1, dtype=np.int32)


def _bits(seed, stream, index, block=0):
    """The bits of (seed, stream, index) from a block of four 64-bit numbers on."""
    # As arrays of their type: NumPy makes floats, and roundings, of a list with a number that int64 does not hold.
    key, counter = np.array([seed, stream], np.uint64), np.array([block, 0, 0, index], np.uint64)
    return np.random.Philox(key=key, counter=counter)
