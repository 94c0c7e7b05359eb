"""Helpers of the kernel tests of all rungs: operands, error bounds, the definition of the updates,
and what PTX may fuse.
"""

import re

import numpy as np

UNIT = 2.0**-24  # half the distance of 1 to the next float32


def integers(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).integers(-4, 5, shape).astype(np.float32)


def normal(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def poisoned(shape, dtype=np.float32):
    """An output array before its kernel runs: NaN, or the largest integer."""
    return np.full(shape, np.nan if np.dtype(dtype).kind == "f" else np.iinfo(dtype).max, dtype)


def gamma(terms):
    """Bound of a sum of `terms` float32 products, relative to the sum of their absolute values
    (Higham, 2002, 3.1).
    """
    return terms * UNIT / (1 - terms * UNIT)


def check_channel_sums(partials, values, terms):
    """The partial sums add up to each channel's sum of the values, of which a partial sum has
    `terms` at most.
    """
    axes = tuple(range(values.ndim - 1))
    error = np.abs(partials.sum(axis=0, dtype=float) - values.sum(axes, dtype=float))
    assert (error <= gamma(terms) * np.abs(values).sum(axes, dtype=float)).all()


def counters(step, offset=0, step_of_epoch=0):
    return np.array([step, offset, step_of_epoch], np.int64)


def step_state(step):
    """(learning_rates, counters), arguments of the update kernels."""
    rates = np.array([0.01, 0.003, 0.25, 0.07])
    return rates, counters(step)


def updated(name, w, g, state, step, weight_decay, clip, momentum):
    """(parameter, running averages) after one update, in float64, by the formulas of
    optimizers.py.
    """
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


def adam_start(step):
    """(gradient, mean, square, weight after the update) of Adam's update number `step` with the
    rate 1, from weight 0.

    All gradients before were 2. The weight is that of the formula in float64.
    """
    gradient = np.array([2, 0.5, -2, 8], np.float32)
    before = [
        np.full(4, 2 * (1 - 0.9**step), np.float32),
        np.full(4, 4 * (1 - 0.999**step), np.float32),
    ]
    g, mean, square = (array.astype(float) for array in (gradient, *before))
    mean, square = 0.9 * mean + 0.1 * g, 0.999 * square + 0.001 * g**2
    return (
        gradient,
        *before,
        -(mean / (1 - 0.9 ** (step + 1))) / (np.sqrt(square / (1 - 0.999 ** (step + 1))) + 1e-8),
    )


def rounded_update(w, g, velocity, rate, weight_decay, clip, momentum):
    """(parameter, velocity) of sgd (momentum 0) and momentum to the bit: float32 after each
    operation, the last in float64.
    """
    w, g, velocity = (np.asarray(array, np.float32) for array in (w, g, velocity))
    weight_decay, momentum = np.float32(weight_decay), np.float32(momentum)
    velocity = momentum * velocity + (
        (np.clip(g, -np.float32(clip), np.float32(clip)) if clip else g) + weight_decay * w
    )
    return (w - rate * velocity.astype(np.float64)).astype(np.float32), velocity


def fused(ptx, kernel):
    """Instructions of a kernel's PTX in which a product is added without being rounded, or may be.

    `fma` is; an `add` or `sub` of a `mul`'s result may be, unless both are marked .rn: the
    assembler fuses them too.
    """
    body = ptx.partition(f".entry {kernel}(")[2].partition(".entry ")[0]
    products = set(re.findall(r"\bmul\.f(?:32|64)\s+(%\w+),", body))
    sums = re.findall(r"\b(?:add|sub)\.f(?:32|64)\s+[^;]*;", body)
    return re.findall(r"\bfma\.rn\.f(?:32|64)[^;]*;", body) + [
        each for each in sums if products & set(re.findall(r"%\w+", each)[1:])
    ]
