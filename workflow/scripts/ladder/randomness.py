"""Random numbers that depend on a key alone, never on what was drawn before (Philox; Salmon et al., 2011)."""

import numpy as np

# What a stream of numbers is for.
INITIAL_WEIGHTS, SHUFFLE = 1, 2


def generator(seed, stream, index):
    """A NumPy generator of its own for (seed, stream, index)."""
    return np.random.Generator(np.random.Philox(key=(seed, stream), counter=(0, 0, 0, index)))
