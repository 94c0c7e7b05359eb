"""Helpers of the kernel tests of all rungs: operands, error bounds and the definition of the updates."""

import numpy as np

UNIT = 2.0 ** -24   # half the distance of 1 to the next float32


def integers(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).integers(-4, 5, shape).astype(np.float32)


def normal(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def poisoned(shape, dtype=np.float32):
    """An output array before its kernel runs: NaN, or the largest integer."""
    return np.full(shape, np.nan if np.dtype(dtype).kind == "f" else np.iinfo(dtype).max, dtype)


def gamma(terms):
    """Bound of a sum of `terms` float32 products, relative to the sum of their absolute values (Higham, 2002, 3.1)."""
    return terms * UNIT / (1 - terms * UNIT)


def counters(step, offset=0, step_of_epoch=0):
    return np.array([step, offset, step_of_epoch], np.int64)


def step_state(step):
    """(learning_rates, counters), arguments of the update kernels."""
    rates = np.array([0.01, 0.003, 0.25, 0.07])
    return rates, counters(step)


def updated(name, w, g, state, step, weight_decay, clip, momentum):
    """(parameter, running averages) after one update, in float64, by the formulas of optimizers.py."""
    rate = step_state(step)[0][step]
    g = (np.clip(g, -clip, clip) if clip else g) + weight_decay * w
    if name == "sgd":
        return w - rate * g, []
    if name == "momentum":
        velocity = momentum * state[0] + g
        return w - rate * velocity, [velocity]
    if name == "rmsprop":
        square = 0.99 * state[0] + 0.01 * g * g
        return w - rate * g / (np.sqrt(square) + 1e-8), [square]
    mean, square = 0.9 * state[0] + 0.1 * g, 0.999 * state[1] + 0.001 * g * g
    m, s = mean / (1 - 0.9 ** (step + 1)), square / (1 - 0.999 ** (step + 1))
    return w - rate * m / (np.sqrt(s) + 1e-8), [mean, square]
