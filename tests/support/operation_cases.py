"""The table of cases that every back end must pass: operations, shapes, operands, and results in
float64 with their bounds.

A row of TABLE is a definition, its arguments, and how its arrays are drawn. A definition returns
Cases, one of each operation of a layer: forward, gradients, inference. Of drawn integers results
are exact, so sums show a dependence on their order; of other numbers each has the bound of its
longest sum. The definitions are those of tests/support/references.py. ALL_KINDS is a network with
every kind of layer.
"""

import dataclasses
import functools
from typing import Any

import numpy as np

import references
from kernel_checks import (
    adam_start,
    counters,
    integers,
    normal,
    poisoned,
    rounded_update,
    step_state,
    updated,
)
from ladder.arithmetic import randomness
from ladder.network import layers, networks
from ladder.network.optimizers import AVERAGES
from rung_checks import Convolution


@dataclasses.dataclass(frozen=True)
class Near:
    """A value that may be off by gamma(terms) of `size` (default: itself), and by `slack`: the
    error of differences.
    """

    value: Any
    terms: int
    size: Any = None
    slack: float = 0


@dataclasses.dataclass(frozen=True, eq=False)
class Case:
    """One operation on given arrays.

    reads, writes: {role: array}, of `writes` as before: unwritten, or what is updated;
    wanted(reads): {role: a value, which is exact, Near, or a function of what is found and the unit
    of rounding}; exact: of integers, or to the last bit, so in float32 everywhere; products: the
    roles that a rung for a lower precision rounds; claimed: by GPU rungs alone. What a forward
    operation leaves for its gradient is float64 here.
    """

    operation: str
    reads: dict
    writes: dict
    wanted: Any
    attributes: dict = dataclasses.field(default_factory=dict)
    exact: bool = False
    products: tuple = ()
    claimed: bool = False

    @functools.cache  # noqa: B019 (cases live as long as the table)
    def results(self, rounded=None):
        """What is wanted; rounded: the rounding of the operands of products."""
        return self.wanted(
            {
                role: rounded(array) if rounded and role in self.products else array
                for role, array in self.reads.items()
            }
        )


# ---- how arrays are drawn: functions of a shape and a seed


def with_nan(*shape, seed=0):
    """Normal numbers, of which one of the first array is NaN: a diverged training must show in the
    loss.
    """
    drawn = normal(*shape, seed=seed)
    if seed == 0:
        drawn[(-1, *(size // 2 for size in shape[1:]))] = np.nan
    return drawn


def with_infinities(*shape, seed=0):
    """Ones, and infinities in one channel and one filter: what is added beyond the last product
    must be 0 times 0, not NaN.
    """
    drawn = np.ones(shape, np.float32)
    if seed != 2:  # the bias; 1: the weight
        drawn[(4, ..., 4) if seed == 1 else (..., 4)] = np.inf
    return drawn


def special(*shape, seed=0):
    """Of few values: windows with several NaN, whose first wins, with one, and with nothing but
    minus infinity.
    """
    return np.random.default_rng([seed, *shape]).choice(
        np.float32([np.nan, -np.inf, -np.inf, -np.inf, np.inf, 7]), shape
    )


def special_2x2(*shape, seed=0):
    """As special, a 2x2 window with one NaN at most: of several, gpu_opt_v1 takes another than the
    first.
    """
    (images, height, width, channels), random = shape, np.random.default_rng([seed, *shape])
    drawn = random.choice(np.float32([-np.inf, -np.inf, -np.inf, np.inf, 7]), shape)
    places = (
        random.integers(0, 8, (images, height // 2, width // 2, channels))
        .repeat(2, axis=1)
        .repeat(2, axis=2)
    )
    place = 2 * (np.arange(height) % 2)[:, None, None] + (np.arange(width) % 2)[:, None]
    return np.where(places == place, np.float32(np.nan), drawn)


def with_nans(*shape, seed=0):
    drawn = normal(*shape, seed=seed)
    return np.where(np.random.default_rng(9).random(shape) < 0.1, np.float32(np.nan), drawn)


SPECIAL = special, special_2x2
EXACT = integers, with_infinities, *SPECIAL
BOTH = integers, normal


# ---- the definitions


def unwritten(**shapes):
    return {role: poisoned(shape) for role, shape in shapes.items()}


def sums(draw, value, terms, size):
    """Exact for integers, within the bound of the sum otherwise."""
    return value if draw in EXACT else Near(value, terms, size)


def conv2d(draw, shape, stride=1):
    conv, exact = Convolution(shape, draw, stride), draw in EXACT
    slide = {"stride": stride, "padding": conv.padding, "kernel": conv.kernel}
    y, pixels = references.relu(draw(*conv.output, seed=4)), conv.dy[..., 0].size
    written = {
        "y": conv.output,
        "dx": conv.x.shape,
        "dweight": conv.weight.shape,
        "dbias": conv.bias.shape,
    }
    of_sums = {
        "y": (conv.forward, conv.weight[0].size + 1),
        "dx": (conv.input_grad, conv.kernel**2 * len(conv.weight)),
        "dweight": (conv.weight_grad, pixels),
        "dbias": (lambda dy: dy.sum(axis=(0, 1, 2), dtype=float), pixels),
    }

    def wanted(role, *operands, relu=False):
        function, terms = of_sums[role]
        value = function(*operands)
        return sums(
            draw, references.relu(value) if relu else value, terms, function(*map(np.abs, operands))
        )

    def backward(reads, relu):
        dy = np.where(y > 0, conv.dy, 0) if relu else conv.dy
        return {
            "dx": wanted("dx", dy, conv.weight),
            "dweight": wanted("dweight", conv.x, dy),
            "dbias": wanted("dbias", dy),
        }

    def case(operation, reads, roles, wanted, attributes, products=("x", "dy", "weight")):
        writes = unwritten(**{role: written[role] for role in roles})
        return Case(
            f"conv2d_{operation}",
            {role: getattr(conv, role) if role != "y" else y for role in reads},
            writes,
            wanted,
            attributes,
            exact,
            products,
        )

    return [
        *(
            case(
                "forward",
                ("x", "weight", "bias"),
                ("y",),
                lambda reads, relu=relu: {"y": wanted("y", *reads.values(), relu=relu)},
                {**slide, "relu": relu},
            )
            for relu in (False, True)
        ),
        *(
            case(
                "backward",
                ("x", "weight", "y", "dy"),
                ("dx", "dweight", "dbias"),
                functools.partial(backward, relu=relu),
                {**slide, "relu": relu},
            )
            for relu in (False, True)
        ),
        case(
            "input_grad",
            ("dy", "weight"),
            ("dx",),
            lambda reads: {"dx": wanted("dx", *reads.values())},
            slide,
        ),
        case(
            "weight_grad",
            ("x", "dy"),
            ("dweight", "dbias"),  # the sums of dy are no products
            lambda reads: {
                "dweight": wanted("dweight", *reads.values()),
                "dbias": wanted("dbias", conv.dy),
            },
            slide,
        ),
        case(
            "bias_grad",
            ("dy",),
            ("dbias",),
            lambda reads: {"dbias": wanted("dbias", conv.dy)},
            {},
            (),
        ),
    ]


def dense(draw, batch, inputs, units):
    """The same as the convolution of images of one pixel; its biases' gradients are another
    operation's.
    """
    return [
        dataclasses.replace(
            case,
            operation=case.operation.replace("conv2d", "dense"),
            attributes={},
            writes=dict(list(case.writes.items())[:1]),
        )
        for case in conv2d(draw, (batch, 1, 1, inputs, units, 1, 0))
        if case.operation != "conv2d_backward" and not case.attributes.get("relu")
    ]


def approximate_conv2d(draw, *arguments):
    """By the functions for products by a multiplier, of which this is none."""
    return [
        dataclasses.replace(case, operation=f"approximate_{case.operation}")
        for case in conv2d(draw, *arguments)
    ]


def elementwise(draw, *shape):
    """Some integers are 0, and some of their quarters at the threshold."""
    x, other, dy = draw(*shape), draw(*shape, seed=1), draw(*shape, seed=2)
    y, quarter = references.relu(x), x / np.float32(4)
    return [
        Case("relu_forward", {"x": x}, unwritten(y=shape), lambda reads: {"y": y}, exact=True),
        Case(
            "relu_backward",
            {"y": y, "dy": dy},
            unwritten(dx=shape),
            lambda reads: {"dx": np.where(y > 0, dy, 0)},
            {},
            True,
        ),
        Case(
            "add_forward",
            {"a": x, "b": other},
            unwritten(y=shape),
            lambda reads: {"y": x + other},
            exact=True,
        ),
        Case(
            "scale",
            {"x": x},
            unwritten(y=shape),
            lambda reads: {"y": x / 1024},
            {"factor": 1 / 1024},
            exact=True,
        ),
        Case(
            "l1_penalty_backward",
            {"x": x},
            unwritten(dx=shape),
            lambda reads: {"dx": np.float32(0.3) * np.sign(x)},
            {"factor": 0.3},
            True,
        ),
        Case(
            "soft_threshold_forward",
            {"x": quarter},
            unwritten(y=(*shape[:3], 2 * shape[3])),
            lambda reads: {"y": references.soft_threshold(quarter, 0.25)},
            {"threshold": 0.25},
            True,
        ),
    ]


def quantise(draw, shape, most, factor=1):
    """By the largest magnitude of all, which may be 0, infinite or a NaN."""
    x = draw(*shape) * np.float32(factor)
    largest = np.abs(x).max()
    scale = largest / np.float32(most) or np.float32(1)
    with np.errstate(all="ignore"):
        integers = np.rint(x / scale) if np.isfinite(scale) else np.zeros(shape)
    return [
        Case(
            "quantise",
            {"x": x},
            unwritten(y=shape, scale=(1,)),
            lambda reads: {"y": integers, "scale": np.float32([scale])},
            {"most": most},
            exact=True,
        )
    ]


def rescale(draw, *shape):
    reads = {
        "x": integers(*shape),
        "first": np.float32([0.75]),
        "second": np.float32([1.25]),
        "bias": draw(shape[-1], seed=1),
    }
    wanted = reads["x"].astype(float) * 0.75 * 1.25 + reads["bias"]
    size = np.abs(reads["x"].astype(float)) + np.abs(reads["bias"])
    return [Case("rescale", reads, unwritten(y=shape), lambda reads: {"y": Near(wanted, 3, size)})]


def linear(
    draw, name, shape, terms_forward, terms_backward, forward, backward, attributes, relu=False
):
    """Cases of a layer without parameters; terms: of the longest sums. A mean of integers is
    rounded once.
    """
    x = draw(*shape)
    y_shape = forward(x).shape
    dy = draw(*y_shape, seed=1)

    def value(function, array, terms):
        result = function(array.astype(float))
        size = function(np.abs(array.astype(float)))
        return (
            Near(result, 1, None, terms * size * 2.0**-53)
            if draw in EXACT
            else Near(result, terms, size)
        )

    def wanted_backward(reads, relu):
        found = value(backward, dy, terms_backward)
        if not relu:
            return {"dx": found}
        return {"dx": dataclasses.replace(found, value=np.where(x > 0, found.value, 0))}

    return [
        Case(
            f"{name}_forward",
            {"x": x},
            unwritten(y=y_shape),
            lambda reads: {"y": value(forward, x, terms_forward)},
            attributes,
        ),
        *(
            Case(
                f"{name}_backward",
                {"dy": dy, "x": x},
                unwritten(dx=shape),
                functools.partial(wanted_backward, relu=one),
                {**attributes, "relu": one},
            )
            for one in (False, True)[: relu + 1]
        ),
    ]


def maxpool2d(draw, shape, window, stride, padding):
    # few integers, so many ties; all below the zeros that no padding may have
    x = draw(*shape) - np.float32(9)
    slide = {"window": window, "stride": stride, "padding": padding}
    y, index = references.maxpool2d(x, **slide)
    dy = (integers if draw in SPECIAL else draw)(*y.shape, seed=1)

    def backward(dy, relu):
        found = references.maxpool2d_backward(dy, index, shape, **slide)
        return np.where(x + 9 > 0, found, 0) if relu else found

    def gradients(reads, relu):
        return {"dx": sums(draw, backward(dy, relu), window**2, backward(np.abs(dy), relu))}

    return [
        Case(
            "maxpool2d_forward",
            {"x": x},
            {"y": poisoned(y.shape), "index": poisoned(y.shape, np.uint8)},
            lambda reads: {"y": y, "index": index},
            slide,
            True,
        ),
        *(
            Case(
                "maxpool2d_backward",
                {"dy": dy, "index": index, "y": (y + 9).astype(np.float32)},
                unwritten(dx=shape),
                functools.partial(gradients, relu=relu),
                {**slide, "relu": relu},
                draw in EXACT,
            )
            for relu in (False, True)
            if draw not in SPECIAL
        ),
    ]


def avgpool2d(draw, shape, window, stride, padding):
    """The gradient is divided by the whole window too."""
    slide = {"window": window, "stride": stride, "padding": padding}
    return linear(
        draw,
        "avgpool2d",
        shape,
        window**2,
        window**2,
        lambda x: references.avgpool2d(x, **slide),
        lambda dy: references.avgpool2d_backward(dy, shape, **slide),
        slide,
    )


def resized(draw, name, shape):
    """Averaged to one pixel, with each pixel four times, or flat, channel by channel."""
    forward, backward, of_shape = (
        getattr(references, name),
        getattr(references, f"{name}_backward"),
        name != "upsample2d",
    )
    terms = {
        "global_avgpool": (shape[1] * shape[2] + 1, 2),
        "upsample2d": (0, 4),
        "flatten": (0, 0),
    }[name]
    return linear(
        draw,
        name,
        shape,
        *terms,
        forward,
        lambda dy: backward(dy, shape) if of_shape else backward(dy),
        {},
        relu=name == "upsample2d",
    )


def pad(draw, shape, amount):
    return linear(
        draw,
        "pad",
        shape,
        0,
        0,
        lambda x: references.pad(x, amount),
        lambda dy: references.pad_backward(dy, amount),
        {"amount": amount},
    )


def batchnorm(draw, shape, middle=0, epsilon=1e-5):
    """middle: beside 1000 a variance of 1 is lost to the mean of squares, in float32."""
    channels, axes = shape[3], (0, 1, 2)
    x, weight, bias = (
        draw(*shape) + np.float32(middle),
        normal(channels, seed=1),
        normal(channels, seed=2),
    )
    running, dy = (
        [normal(channels, seed=3), np.abs(normal(channels, seed=4))],
        normal(*shape, seed=5),
    )
    pixels = x[..., 0].size
    terms = -(-pixels // 256) + 4  # at least 256 parts of a sum

    _, mean, inverse = references.batchnorm(x, weight, bias, epsilon)
    reads, size = {"x": x, "weight": weight, "bias": bias}, np.abs(x).mean(axis=axes, dtype=float)

    def of_variance(unit):  # error of the variance: of its sum, and of the mean
        off = np.abs(x.astype(float) - mean) + terms * unit * size
        return terms * unit * np.mean(off**2, axis=axes) + (terms * unit * size) ** 2

    def forward(reads):
        new_mean, new_var = references.running_statistics(
            x, *(array.astype(float) for array in running), 0.75
        )
        return {
            "mean": Near(mean, terms, size),
            "running_mean": Near(new_mean, terms + 1, size + np.abs(new_mean)),
            "inverse": lambda found, unit: (
                inverse,
                inverse * (of_variance(unit) * inverse**2 + unit),
            ),
            "running_var": lambda found, unit: (new_var, 2 * of_variance(unit) + unit * new_var),
            "y": lambda found, unit: (  # normalised by the statistics that it reports
                weight * (x.astype(float) - found["mean"]) * found["inverse"] + bias,
                4
                * unit
                * (
                    np.abs(weight * (np.abs(x) + np.abs(found["mean"])) * found["inverse"])
                    + np.abs(bias)
                ),
            ),
        }

    def backward(reads):
        normalized = (x.astype(float) - reads["mean"]) * reads["inverse"]
        size = (np.abs(x).astype(float) + np.abs(reads["mean"])) * reads["inverse"]
        sizes = np.abs(dy).sum(axis=axes, dtype=float), (np.abs(dy) * size).sum(axis=axes)
        wide = x.astype(float)
        dx = references.gradient(
            lambda: references.batchnorm(wide, weight, bias, epsilon)[0], wide, dy
        )
        return {
            "dbias": Near(dy.sum(axis=axes, dtype=float), terms, sizes[0]),
            "dweight": Near((dy * normalized).sum(axis=axes), terms, sizes[1]),
            "dx": Near(
                dx,
                terms + 10,
                np.abs(weight * reads["inverse"])
                * (np.abs(dy) + (sizes[0] + size * sizes[1]) / pixels),
                1e-7 * reads["inverse"],
            ),
        }

    def inference(reads):
        return {
            "y": Near(
                references.batchnorm_inference(x, weight, bias, *running, epsilon),
                8,
                references.batchnorm_inference(
                    np.abs(x),
                    np.abs(weight),
                    np.abs(bias),
                    -np.abs(running[0]),
                    running[1],
                    epsilon,
                ),
            )
        }

    averages = dict(zip(("running_mean", "running_var"), running, strict=True))
    written = unwritten(y=shape, mean=(channels,), inverse=(channels,))
    cases = [
        Case(
            "batchnorm_forward",
            reads,
            written | averages,
            forward,
            {"decay": 0.75, "epsilon": epsilon},
        ),
        Case(
            "batchnorm_inference",
            {**reads, **averages},
            unwritten(y=shape),
            inference,
            {"epsilon": epsilon},
        ),
    ]
    if draw is normal and not middle:
        cases.append(
            Case(
                "batchnorm_backward",
                {"x": x, "weight": weight, "mean": mean, "inverse": inverse, "dy": dy},
                unwritten(dx=shape, dweight=(channels,), dbias=(channels,)),
                backward,
            )
        )
    return cases


def batchnorm_of_integers(draw):
    """512 pixels, so that means are exact; statistics of integers, and gradients with inverse
    deviations that are powers.
    """
    x, dy, weight, mean = draw(8, 8, 8, 3), draw(8, 8, 8, 3, seed=1), draw(3), draw(3, seed=1)
    inverse, before, expected = (
        np.float32([0.5, 1, 2]),
        np.float32([1, -2, 3]),
        x.mean(axis=(0, 1, 2), dtype=float),
    )
    normalized = (x - mean) * inverse
    dbias, dweight = dy.sum(axis=(0, 1, 2)), (dy * normalized).sum(axis=(0, 1, 2))
    dx = weight * inverse * (dy - dbias / 512 - normalized.astype(float) * dweight / 512)
    writes = unwritten(y=x.shape, mean=(3,), inverse=(3,)) | {
        "running_mean": before,
        "running_var": np.ones(3, np.float32),
    }
    found = {"mean": expected, "running_mean": (expected + before) / 2}
    return [
        Case(
            "batchnorm_forward",
            {"x": x, "weight": normal(3), "bias": normal(3)},
            writes,
            lambda reads: found,
            {"decay": 0.5, "epsilon": 1e-5},
            True,
            claimed=True,
        ),
        Case(
            "batchnorm_backward",
            {"x": x, "weight": weight, "mean": mean, "inverse": inverse, "dy": dy},
            unwritten(dx=x.shape, dweight=(3,), dbias=(3,)),
            lambda reads: {"dbias": dbias, "dweight": dweight, "dx": dx},
            {},
            True,
            claimed=True,
        ),
    ]


def lrn(draw, shape, size, scale):
    """alpha is large enough to matter beside k; an error of the logarithm grows with the scale."""
    settings = {"size": size, "alpha": 0.5, "beta": 0.75, "k": 2.0}
    x, dy = np.float32(scale) * draw(*shape), normal(*shape, seed=1)
    if draw is normal:
        x[..., 0] = 0  # whose gradient is that of the power alone
    y, totals = references.lrn(x, **settings)

    def backward(reads):
        wide = x.astype(float)
        products = np.abs(dy * x) * totals**-1.75
        neighbours = [
            slice(max(0, c - (size - 1) // 2), c + size // 2 + 1) for c in range(shape[3])
        ]
        around = np.stack([products[..., those].sum(axis=3) for those in neighbours], axis=3)
        bound = (size + 12) * np.abs(dy) * totals**-0.75 + (
            2 * size + 24
        ) * size**-1 * 0.75 * np.abs(x) * around
        return {
            "dx": Near(
                references.gradient(lambda: references.lrn(wide, **settings)[0], wide, dy),
                1,
                bound,
                1e-8,
            )
        }

    forward = {"y": Near(y, size + 12), "sums": Near(totals, size + 3)}  # 9 of them for powf
    return [
        Case(
            "lrn_forward", {"x": x}, unwritten(y=shape, sums=shape), lambda reads: forward, settings
        ),
        Case(
            "lrn_backward",
            {"x": x, "sums": totals, "dy": dy},
            unwritten(dx=shape),
            backward,
            settings,
        ),
    ]


def position_norm(draw, *shape):
    x, dy = draw(*shape), normal(*shape, seed=1)
    y, norms = references.position_norm(x, 0.01)

    def backward(reads):
        wide, along = x.astype(float), np.abs(y * dy).sum(axis=3, keepdims=True)
        dx = references.gradient(lambda: references.position_norm(wide, 0.01)[0], wide, dy)
        return {
            "dx": Near(
                dx,
                4 * shape[3] + 16,
                (np.abs(dy) + np.abs(y) * along) / norms[..., None],
                1e-8 + 1e-7 * np.abs(dx),
            )
        }

    forward = {"y": Near(y, shape[3] + 4), "norms": Near(norms, shape[3] + 3)}
    return [
        Case(
            "position_norm_forward",
            {"x": x},
            unwritten(y=shape, norms=shape[:3]),
            lambda reads: forward,
            {"epsilon": 0.01},
        ),
        Case(
            "position_norm_backward",
            {"y": y, "norms": norms, "dy": dy},
            unwritten(dx=shape),
            backward,
            {"epsilon": 0.01},
        ),
    ]


def attention(draw, shape, spread=1, middle=0):
    """middle: of the keys, to queries of 1: exp(200) is infinite, exp(-200) is 0."""
    batch, height, width, channels = shape
    pixels = height * width
    x, dy = np.float32(spread) * draw(batch, height, width, 3 * channels), normal(*shape, seed=1)
    if middle:
        x[..., :channels], x[..., channels : 2 * channels] = (
            1,
            x[..., channels : 2 * channels] + middle,
        )
        x[0, 0, 1, channels] += 100  # so is exp(100)
    y, weights = references.attention(x)
    query, key, value = np.split(
        np.abs(x.astype(float)).reshape(batch, pixels, 3 * channels), 3, axis=2
    )

    def forward(reads):
        scores = query @ key.transpose(0, 2, 1) * channels**-0.5
        if middle:  # one weight of a row is 1
            return {"y": Near(y, 160, slack=1e-30)}
        exact = draw is integers and channels in (1, 4)  # whose roots are exact
        # 2 for expf
        terms = (
            pixels + 6 + (0 if exact else 2 * (channels + 4) * scores.max(axis=2, keepdims=True))
        )
        return {
            "weights": Near(weights, 1, terms * weights, 1e-38),
            "y": Near(y, 1, (((terms + pixels) * weights) @ value).reshape(y.shape), 1e-37),
        }

    def backward(reads):
        wide, passed = x.astype(float), np.abs(dy.astype(float)).reshape(batch, pixels, channels)
        of_weights = passed @ value.transpose(0, 2, 1)
        scores = (
            weights
            * (of_weights + (weights * of_weights).sum(axis=2, keepdims=True))
            * channels**-0.5
        )
        across = weights.transpose(0, 2, 1), scores.transpose(0, 2, 1)
        size = np.concatenate(
            (scores @ key, across[1] @ query, across[0] @ passed), axis=2
        ).reshape(x.shape)
        dx = references.gradient(lambda: references.attention(wide)[0], wide, dy)
        return {"dx": Near(dx, channels + 2 * pixels + 8, size, 1e-8)}

    cases = [
        Case("attention_forward", {"x": x}, unwritten(y=shape, weights=weights.shape), forward)
    ]
    if draw is normal and spread == 1 and not middle:  # of large scores the weights are 0 and 1
        cases.append(
            Case(
                "attention_backward",
                {"x": x, "weights": weights, "dy": dy},
                unwritten(dx=x.shape),
                backward,
            )
        )
    return cases


def local_contrast(draw, image, kernel, values, brightness=0):
    """Of bright windows the mean of squares minus the square of the mean would lose the digits."""
    batch, height, width, _ = image
    x, image = (
        draw(batch, height - kernel + 1, width - kernel + 1, values),
        brightness + normal(*image, seed=1),
    )
    if not brightness:
        image[0, :kernel, :kernel] = 2  # a window without contrast
    terms = 1500 if brightness else 2 * image[0].size + 8
    return [
        Case(
            "local_contrast_forward",
            {"x": x, "image": image.astype(np.float32)},
            unwritten(y=x.shape),
            lambda reads: {
                "y": Near(references.local_contrast(x, reads["image"], kernel, 0.01), terms)
            },
            {"kernel": kernel, "epsilon": 0.01},
        )
    ]


def dropout(draw, shape, seed, at_step, stream, rate):
    x, dy = draw(*shape), normal(*shape, seed=1)
    attributes = {"rate": rate, "seed": seed, "stream": stream}
    mask = references.dropout_mask(seed, stream, at_step, x.size, rate).reshape(shape)
    return [
        Case(
            "dropout_forward",
            {"x": x, "counters": counters(at_step, 64, 1)},
            {"y": poisoned(shape), "mask": poisoned(shape, np.uint8)},
            lambda reads: {"mask": mask, "y": Near(references.dropout(x, mask, rate), 2)},
            attributes,
        ),
        Case(
            "dropout_backward",
            {"dy": dy, "mask": mask},
            unwritten(dx=shape),
            lambda reads: {"dx": Near(references.dropout(dy, mask, rate), 2)},
            {"rate": rate},
        ),
    ]


def winner_take_all(draw, shape, winners, images):
    """To the last bit; NaN wins, of several the first."""
    x, dy = draw(*shape), normal(*shape, seed=1)
    y, kept = references.winner_take_all(x, winners, images)
    return [
        Case(
            "winner_take_all_forward",
            {"x": x},
            {"y": poisoned(shape), "mask": poisoned(shape, np.uint8)},
            lambda reads: {"y": y, "mask": kept},
            {"winners": winners, "images": images},
            True,
        ),
        Case(
            "winner_take_all_backward",
            {"dy": dy, "mask": kept},
            unwritten(dx=shape),
            lambda reads: {"dx": dy * kept},
            {},
            True,
        ),
    ]


def sample(draw, shape, seed, at_step, stream, spread):
    """spread: of the log-variances; if small, 1 taken from their exponentials would leave few
    digits.
    """
    mean, log_variance, dy = (
        draw(*shape),
        np.float32(spread) * normal(*shape, seed=1),
        normal(*shape, seed=2),
    )
    drawn = randomness.normal(seed, randomness.LAYER + stream, at_step, 0, mean.size).reshape(shape)
    _, added = references.sample(mean, log_variance, drawn)
    noise, batch, factor = added.astype(np.float32), shape[0], 0.375

    # expf is within two units in the last place; the sum is that of the noise that it reports
    def forward(reads):
        return {"noise": Near(added, 6), "y": lambda found, unit: (mean + found["noise"], 0)}

    def backward(reads):
        excess = np.expm1(log_variance.astype(float))
        kept = poisoned(4, np.float64)
        kept[2] = references.divergences(mean, log_variance).mean()
        size = (
            (mean.astype(float) ** 2 + np.exp(log_variance) + 1 + np.abs(log_variance)).sum()
            / 2
            / batch
        )
        dmean, dlog_variance = references.sample_gradients(mean, log_variance, noise, dy, factor)
        return {
            "dmean": Near(dmean, 4, np.abs(dy) + factor * np.abs(mean)),
            "divergences": Near(kept, mean.size // 1024 + 12, size),
            "dlog_variance": Near(
                dlog_variance, 10, np.abs(dy * noise) / 2 + factor * np.abs(excess) / 2
            ),
        }

    return [
        Case(
            "sample_forward",
            {"mean": mean, "log_variance": log_variance, "counters": counters(at_step, 64, 1)},
            unwritten(y=shape, noise=shape),
            forward,
            {"seed": seed, "stream": stream},
        ),
        Case(
            "sample_backward",
            {
                "mean": mean,
                "log_variance": log_variance,
                "noise": noise,
                "dy": dy,
                "counters": counters(7, 0, 2),
            },
            {**unwritten(dmean=shape, dlog_variance=shape), "divergences": poisoned(4, np.float64)},
            backward,
            {"factor": factor},
        ),
    ]


def mse(draw, *shape):
    prediction, target, divisor = draw(*shape), draw(*shape, seed=1), 64 if draw in EXACT else 24
    gradient, loss = references.mse(prediction, target, divisor)
    losses = poisoned(5, np.float64)
    losses[2] = loss
    return [
        Case(
            "mse",
            {"prediction": prediction, "target": target, "counters": counters(7, 0, 2)},
            {"gradient": poisoned(shape), "losses": poisoned(5, np.float64)},
            lambda reads: {
                "gradient": sums(draw, gradient, 3, np.abs(gradient)),
                "losses": Near(
                    losses, 0 if draw in EXACT else prediction.size // 1024 + 8, loss, loss * 2**-50
                ),
            },
            {"divisor": divisor},
            draw in EXACT,
        )
    ]


def cross_entropy(draw, batch, classes, spread=1):
    """At an offset into a larger, shuffled data set; every second label is a largest score."""
    scores = draw(batch, 1, 1, classes) * np.float32(spread)
    best = scores.reshape(batch, -1).argmax(axis=1)
    return of_scores(
        scores, np.where(np.arange(batch) % 2, np.arange(batch) % classes, best), draw in EXACT
    )


def of_scores(scores, labels, whole=False):
    """whole: the scores are integers, whose exponentials have no error of an argument; in float32
    on every back end.
    """
    batch, _, _, classes = scores.shape
    permutation, all_labels = (
        np.random.default_rng(0).permutation(batch + 5),
        np.full(batch + 5, 255, np.uint8),
    )
    all_labels[permutation[3 : 3 + batch]] = labels
    gradient, loss, hits = references.cross_entropy(scores, labels)
    spread = np.nan_to_num(np.ptp(scores.astype(float), axis=3)).max()
    # The exponential passes on the error of score - largest, times its size, and adds two
    # roundings.
    terms = classes + 4 + (0 if whole else spread)
    is_label = (np.arange(classes) == np.asarray(labels)[:, None]).reshape(scores.shape)
    losses, all_hits = poisoned(4, np.float64), poisoned(4, np.float64)
    losses[2], all_hits[2] = loss, hits
    # Where the loss is the logarithm of a sum just above 1, that keeps its digits.
    size = min(2 + spread, 1) if classes == 2 and batch == 1 else 2 + spread
    return [
        Case(
            "cross_entropy",
            {
                "prediction": scores,
                "labels": all_labels,
                "permutation": permutation,
                "counters": counters(7, 3, 2),
            },
            {
                "gradient": poisoned(scores.shape),
                "losses": losses * np.nan,
                "hits": all_hits * np.nan,
            },
            lambda reads: {
                "gradient": Near(
                    gradient,
                    2 * terms,
                    np.abs(gradient) + 2 * is_label / batch,
                    np.finfo(np.float32).tiny,
                ),
                "losses": Near(losses, 2 if size == 1 else terms, size),
                "hits": all_hits,
            },
            {},
            whole,
        )
    ]


# (scores, a label for each row): the first of equal scores counts; differences that are no float32;
# sure answers, beyond which the loss is the logarithm of a sum just above 1
SCORES = {
    "tied": ([[5, 5, 1], [5, 5, 1], [1, 5, 5], [1, 5, 5]], [0, 1, 1, 2]),
    "huge": ([[1e4, -1e4, 0], [0, 3e38, -3e38]], [2, 1]),
    **{f"{far} away": ([[0, -far]], [0]) for far in (6, 8, 10)},
}


def named_scores(draw, name):
    scores, labels = SCORES[name]
    return of_scores(np.float32(scores)[:, None, None], labels, name == "huge")


def rows_with_nan(draw, classes):
    """NaN where the search for the largest starts, and at its end; no hit of such a row, nor of one
    of NaN alone.
    """
    scores = draw(5, 1, 1, classes)
    scores[0, 0, 0, 0] = scores[2, 0, 0, -1] = scores[4] = np.nan
    return of_scores(scores, np.nan_to_num(scores, nan=-9).reshape(5, classes).argmax(axis=1))


def update(draw, rule, weight_decay, clip, at_step):
    """Of more values than a block has threads, in several parameters where a rung updates all of
    them in one launch.
    """
    count, momentum = 1500, {"momentum": 0.5} if rule == "momentum" else {}
    arrays = [
        normal(count),
        normal(count, seed=1),
        *(np.abs(normal(count, seed=2 + i)) for i in range(len(AVERAGES[rule]))),
    ]
    w, g, *state = (array.astype(float) for array in arrays)
    wanted, averages = updated(
        rule, w, g, state, at_step, weight_decay, clip, momentum.get("momentum", 0)
    )
    # A handful of roundings, none of a difference of large numbers except w's own; sizes here are
    # at most about 5.
    results = [Near(wanted, 8, 8), *(Near(average, 4, 8) for average in averages)]
    return of_update(
        rule,
        arrays,
        results,
        step_state(at_step),
        {"weight_decay": weight_decay, "clip": clip, **momentum},
    )


def of_update(rule, arrays, results, state, attributes, claimed=False):
    """arrays: the parameter, its gradient, its averages; results: of the parameter and the
    averages.
    """
    roles = ["parameter", *AVERAGES[rule]]
    writes = dict(zip(roles, (arrays[0], *arrays[2:]), strict=True))
    return [
        Case(
            f"{rule}_update",
            {"gradient": arrays[1], "learning_rates": state[0], "counters": state[1]},
            writes,
            lambda reads: dict(zip(roles, results, strict=False)),
            attributes,
            claimed,
            claimed=claimed,
        )
    ]


def update_to_the_last_bit(draw, rule, clip):
    arrays, momentum = (
        [normal(1000, seed=seed) for seed in range(3)],
        {"momentum": 0.9} if rule == "momentum" else {},
    )
    results = rounded_update(*arrays, step_state(3)[0][3], 0.1, clip, momentum.get("momentum", 0))
    return of_update(
        rule,
        arrays[: 2 + bool(momentum)],
        results,
        step_state(3),
        {"weight_decay": 0.1, "clip": clip, **momentum},
        True,
    )


def first_update(draw, rule, gradient, clip):
    """As small as epsilon, a gradient is not divided by zero; NaN is not clipped."""
    gradient = np.float32(gradient)
    zero, momentum = (
        np.zeros(len(gradient), np.float32),
        {"momentum": 0.5} if rule == "momentum" else {},
    )
    wanted, _ = updated(
        rule,
        np.zeros(len(gradient)),
        gradient.astype(float),
        [np.zeros(len(gradient))] * 2,
        0,
        0,
        clip,
        0,
    )
    return of_update(
        rule,
        [zero, gradient, *(zero for _ in AVERAGES[rule])],
        [Near(wanted, 160)],
        step_state(0),
        {"weight_decay": 0.0, "clip": clip, **momentum},
    )


def adams_start(draw, at_step):
    """1 - 0.999^t is a difference of nearly equal numbers in the first steps."""
    gradient, mean, square, wanted = adam_start(at_step)
    return of_update(
        "adam",
        [np.zeros(4, np.float32), gradient, mean, square],
        [Near(wanted, 16)],
        (np.ones(2000), counters(at_step)),
        {"weight_decay": 0.0, "clip": 0.0},
    )


def advance(draw):
    return [
        Case(
            "advance",
            {},
            {"counters": counters(4, 128, 2)},
            lambda reads: {"counters": [5, 192, 3]},
            {"batch": 64},
        )
    ]


SCALE, OFFSET = np.float32([1 / 255, 0.3, 1]), np.float32([0.1, -2, 0])
# (down, right, mirrored): not moved, each way, and nothing of the image left
MOVED = np.array(
    [[0, 0, 0], [0, 0, 1], [1, -2, 0], [-2, 1, 1], [3, 4, 1], [-5, 0, 0], [0, 9, 1], [5, -1, 0]],
    np.int32,
)


def loading(draw, dtype, flip):
    """To the last bit, from a shuffled data set of images of uneven size."""
    images = np.random.default_rng(0).integers(1, 256, (11, 5, 7, 3)).astype(dtype)
    permutation = np.random.default_rng(1).permutation(11)
    jitter = references.jitter(4, 5, 8, 3, 0.4, 0.5)
    jitter[0, :2] = 1, 0  # not turned
    reads = {
        "images": images,
        "permutation": permutation,
        "counters": counters(9, 3),
        "scale": SCALE,
        "offset": OFFSET,
    }
    rows = images, permutation[3:11], SCALE, OFFSET
    writes = unwritten(batch=(8, 5, 7, 3))
    return [
        Case(
            "load_batch",
            reads,
            writes,
            lambda reads: {"batch": references.load_batch(*rows, flip)},
            {"flip": flip},
            True,
        ),
        Case(
            "load_augmented_batch",
            {**reads, "augmentation": MOVED},
            writes,
            lambda reads: {"batch": references.load_augmented_batch(*rows, MOVED)},
            {},
            True,
        ),
        Case(
            "load_jittered_batch",
            {**reads, "augmentation": MOVED, "jitter": jitter},
            writes,
            lambda reads: {"batch": references.load_jittered_batch(*rows, MOVED, jitter)},
            {},
            True,
        ),
    ]


def draw_augmentation(draw, batch, seed, at_step, crop, flip):
    return [
        Case(
            "draw_augmentation",
            {"counters": counters(at_step, 64, 1)},
            {"augmentation": poisoned((batch, 3), np.int32)},
            lambda reads: {
                "augmentation": references.augmentation(seed, at_step, batch, crop, flip)
            },
            {"crop": crop, "flip": flip, "seed": seed},
            True,
        )
    ]


def draw_jitter(draw, batch, seed, at_step, channels, tangent, colour):
    return [
        Case(
            "draw_jitter",
            {"counters": counters(at_step, 64, 1)},
            unwritten(jitter=(batch, 2 + channels)),
            lambda reads: {
                "jitter": references.jitter(seed, at_step, batch, channels, tangent, colour)
            },
            {"tangent": tangent, "colour": colour, "seed": seed},
            True,
        )
    ]


# ---- the table: purposes of shapes are those of every back end that has had a list of its own

# batch, height, width, channels, filters, kernel, padding; stride. Groups of tasks, blocks, splits
# and tiles end within some of these, operands are read by 16 bytes and by 4, sizes are odd or 1.
# Here and below the short run takes the first row, the one in the middle and the last.
CONVOLUTIONS = [
    ((2, 6, 5, 4, 20, 3, 1), 1),
    ((3, 5, 7, 3, 5, 3, 1), 1),
    ((1, 1, 1, 1, 1, 1, 0), 1),
    ((1, 4, 4, 1, 1, 3, 1), 1),
    ((3, 5, 7, 8, 68, 3, 1), 1),  # more filters than a tile has
    ((1, 7, 9, 12, 9, 3, 0), 1),
    ((2, 6, 5, 3, 2, 5, 2), 1),
    ((2, 6, 5, 4, 17, 5, 2), 1),
    ((1, 9, 8, 5, 7, 5, 3), 1),
    ((2, 6, 5, 12, 9, 5, 2), 1),
    ((1, 6, 7, 33, 9, 3, 0), 1),
    ((1, 9, 8, 70, 8, 1, 0), 1),
    ((1, 9, 8, 64, 64, 1, 0), 1),  # whole tiles
    # few filters for tensor cores, many pixels
    ((2, 11, 13, 16, 3, 3, 1), 1),
    # several tiles of pixels, and splits of a weight gradient
    ((1, 19, 17, 4, 3, 3, 1), 1),
    ((1, 17, 16, 3, 4, 3, 1), 1),
    ((1, 5, 4, 3, 132, 1, 0), 1),
    # parts of tiles of 64 each way, and three splits of the pixels with fewer in the last
    ((2, 8, 13, 20, 68, 3, 1), 1),
    ((5, 3, 3, 2, 2, 1, 0), 1),
    # several groups of images, the last one smaller
    ((19, 5, 5, 2, 17, 2, 0), 1),
    ((2, 3, 2, 5, 3, 3, 2), 1),  # more padding than a window needs
    # taps that are over no pixel in any window, and over the first alone
    ((3, 2, 3, 2, 3, 4, 1), 1),
    # windows that overlap
    ((2, 7, 9, 3, 10, 3, 1), 2),
    ((1, 13, 8, 4, 20, 7, 3), 2),
    ((1, 11, 10, 5, 33, 7, 3), 2),
    ((2, 3, 2, 2, 2, 2, 3), 1),  # windows that see no pixel
    # the last row of pixels meets no window's middle
    ((2, 8, 7, 4, 20, 3, 1), 2),
    ((1, 9, 12, 12, 40, 1, 0), 2),
    ((2, 9, 12, 8, 68, 1, 0), 2),  # windows that leave pixels out
    # single elements, more channels than filters
    ((2, 9, 8, 18, 7, 3, 2), 2),
    ((1, 11, 8, 16, 70, 2, 0), 3),
    ((2, 6, 6, 2, 1, 2, 1), 3),
    ((2, 8, 7, 3, 5, 3, 1), 3),  # side by side
    # the last rows and columns are in no window
    ((2, 9, 12, 1, 3, 2, 0), 3),
    ((1, 9, 10, 1, 2, 2, 0), 4),  # windows that do not meet
    ((1, 35, 33, 12, 4, 5, 2), 2),
    ((1, 33, 31, 4, 3, 4, 1), 4),  # of 4 columns, in several blocks
    # dense layers
    ((2, 1, 1, 70, 65, 1, 0), 1),
    ((67, 1, 1, 12, 68, 1, 0), 1),
    ((3, 1, 1, 35, 10, 1, 0), 1),
]
DENSE = [(33, 9, 17), (1, 1, 1), (3, 7, 5), (2, 300, 3)]  # batch, inputs, units
# The last ones: more values than a block has threads, by 4 channels and one by one; as many.
IMAGES = [
    (3, 5, 7, 3),
    (1, 1, 1, 1),
    (1, 2, 2, 1),
    (2, 6, 8, 5),
    (2, 5, 4, 8),
    (1, 9, 7, 36),
    (2, 32, 16, 1),
    (3, 4, 5, 18),
]
COUNTS = [(1, 1, 1, count) for count in (700, 255, 256, 1)]
# window, stride, padding: windows side by side, that overlap, that leave pixels out, and of which
# some are outside in part
POOLS = [(2, 2, 0), (1, 1, 0), (3, 2, 1), (3, 1, 1), (2, 3, 1), (4, 2, 2), (3, 2, 0), (2, 1, 1)]
POOLED = [
    *(
        (shape, *pool)
        for shape in IMAGES[:6]
        for pool in POOLS
        if min(shape[1:3]) + 2 * pool[2] >= pool[0]
    ),
    (IMAGES[6], 2, 2, 0),
    ((2, 9, 7, 1), 3, 4, 1),
    ((1, 3, 4, 1), 15, 1, 7),
    ((1, 15, 16, 17), 15, 1, 0),
]  # the largest window
# One value, one pixel, one channel; as many pixels as there are parts of a sum, more; more channels
# than a block or a row.
NORMALIZED = [
    (4, 3, 5, 2),
    (1, 1, 1, 2),
    (3, 1, 1, 33),
    (1, 5, 3, 1),
    (4, 8, 8, 3),
    (2, 13, 11, 3),
    (12, 4, 3, 2),
]
# shape, seed, step, stream
DRAWS = [
    ((2, 1, 1, 300), 7, 3, 5),
    ((1, 1, 1, 1), 0, 0, 0),
    ((3, 5, 7, 3), 2**63 - 3, 2**40 + 1, 11),
]
SMALL = (2, 6, 5, 3)

# (definition, how arrays are drawn, rows of arguments)
TABLE = [
    (conv2d, BOTH, CONVOLUTIONS),
    (conv2d, (with_infinities,), [((1, 3, 4, channels, 12, 1, 0), 1) for channels in (9, 12)]),
    (
        conv2d,
        (with_nan,),
        [((2, 6, 5, 4, 20, 3, 1), 1), ((2, 8, 7, 4, 20, 3, 1), 2), ((3, 5, 7, 3, 5, 3, 1), 1)],
    ),
    (approximate_conv2d, (integers,), CONVOLUTIONS),
    (dense, BOTH, DENSE),
    (elementwise, BOTH, [*COUNTS, *IMAGES]),
    (elementwise, (with_nan,), [SMALL]),
    (
        quantise,
        (normal,),
        [
            *((shape, most) for shape in (*COUNTS, *IMAGES[:4]) for most in (127, 255)),
            ((1, 1, 1, 9000), 127),
            (SMALL, 127, 0),
            (SMALL, 127, 1e-38),
        ],
    ),
    (quantise, (with_nan, with_infinities), [((3, 4, 4, 5), 127), ((2, 1, 3, 7), 255)]),
    (rescale, (normal,), [*COUNTS, *IMAGES[:6]]),
    (maxpool2d, BOTH, POOLED),
    (maxpool2d, (special,), [((3, 6, 6, 17), *pool) for pool in ((3, 2, 1), (2, 2, 1), (2, 1, 0))]),
    (maxpool2d, (special_2x2,), [(shape, 2, 2, 0) for shape in ((2, 6, 8, 8), (3, 6, 6, 17))]),
    (avgpool2d, BOTH, POOLED),
    (avgpool2d, (with_nan,), [(SMALL, 3, 2, 1)]),
    (pad, BOTH, [(shape, amount) for amount in (1, 3) for shape in IMAGES[:4]]),
    (
        resized,
        BOTH,
        [(name, shape) for name in ("global_avgpool", "upsample2d", "flatten") for shape in IMAGES],
    ),
    (resized, (with_nan,), [(name, SMALL) for name in ("global_avgpool", "upsample2d", "flatten")]),
    (pad, (with_nan,), [(SMALL, 1)]),
    (
        batchnorm,
        (normal,),
        [
            *((shape, middle) for middle in (0, 1000) for shape in NORMALIZED),
            ((3, 5, 4, 2), 0, 1e-2),
        ],
    ),
    (batchnorm_of_integers, (integers,), [()]),
    (batchnorm, (with_nan,), [(SMALL,)]),
    (
        lrn,
        (normal,),
        [
            (shape, size, scale)
            for scale in (1, 100)
            for size in (4, 5, 1, 9)
            for shape in ((2, 3, 2, 7), (1, 1, 1, 1), (3, 5, 7, 3))
        ],
    ),
    (lrn, (with_nan,), [(SMALL, 3, 1)]),
    (position_norm, (normal,), [(2, 3, 2, 7), (1, 1, 1, 1), (3, 10, 9, 3), (2, 3, 3, 65)]),
    (position_norm, (with_nan,), [SMALL]),
    # Pixels beyond a block of rows; channels whose root is exact, so that scores of integers are
    # too, and others.
    (
        attention,
        BOTH,
        [((2, 3, 5, 4),), ((1, 1, 1, 1),), ((3, 2, 2, 3),), ((1, 7, 5, 1),), ((5, 2, 3, 7),)],
    ),
    (attention, (integers,), [((2, 3, 5, 4), 30)]),  # scores of thousands
    (attention, (normal,), [((1, 2, 3, 1), 1, middle) for middle in (200, -200)]),
    (attention, (with_nan,), [(SMALL,)]),
    (
        local_contrast,
        (normal,),
        [
            ((2, 9, 7, 3), 6, 5),
            ((1, 1, 1, 1), 1, 1),
            ((3, 5, 19, 1), 2, 9),
            ((2, 9, 7, 3), 6, 5, 1000),
        ],
    ),
    (local_contrast, (with_nan,), [((2, 7, 6, 1), 2, 3)]),
    (dropout, (normal,), [(*drawn, rate) for rate in (0.1, 0.0, 0.5, 0.875) for drawn in DRAWS]),
    (dropout, (with_nan,), [(SMALL, 0, 0, 0, 0.999)]),
    (
        winner_take_all,
        BOTH,
        [
            ((4, 3, 5, 17), 1, 2),
            ((1, 1, 1, 1), 1, 1),
            ((5, 4, 3, 2), 3, 5),
            ((3, 2, 2, 9), 4, 1),
            ((5, 4, 3, 2), 3, 4),
        ],
    ),
    (winner_take_all, (with_nans,), [((3, 5, 4, 7), 1, 3), ((3, 5, 4, 7), 2, 2)]),
    (
        sample,
        (normal,),
        [(*drawn, spread) for spread in (3, 1e-3) for drawn in (*DRAWS, ((7, 5, 6, 9), 5, 6, 4))],
    ),
    (
        mse,
        BOTH,
        [
            (4, 3, 1, 2),
            (1, 1, 1, 1),
            (1, 1, 1, 45),
            (1, 1, 1, 1024),
            (1, 1, 1, 300 * 1024 + 1),
            (1, 1, 1, 1025),
            (1, 1, 1, 9217),
        ],
    ),  # the large one: more blocks than a block has threads
    (mse, (with_nan,), [(1, 4, 10, 50)]),
    # exp(4 * 30) is infinite; among integers many largest scores are tied
    (
        cross_entropy,
        BOTH,
        [
            (batch, classes, spread)
            for spread in (1, 30)
            for batch, classes in ((5, 10), (1, 2), (40, 33), (9, 100), (300, 3))
        ],
    ),
    (named_scores, (normal,), [(name,) for name in SCORES]),
    (rows_with_nan, (normal,), [(3,), (40,)]),
    (
        update,
        (normal,),
        [
            (rule, *settings)
            for rule in AVERAGES
            for settings in ((0.125, 0.5, 3), (0.0, 0.0, 0), (0.125, 0.0, 3), (0.0, 0.5, 0))
        ],
    ),
    (
        update_to_the_last_bit,
        (normal,),
        [(rule, clip) for rule in ("sgd", "momentum") for clip in (0.5, 0.0)],
    ),
    (first_update, (normal,), [(rule, (0, 1e-8, 1e-7), 0.0) for rule in ("rmsprop", "adam")]),
    (first_update, (normal,), [(rule, (np.nan, 9), 1.0) for rule in AVERAGES]),
    (adams_start, (normal,), [(at_step,) for at_step in (0, 1, 2, 9, 99, 1999)]),
    (advance, (normal,), [()]),
    (
        loading,
        (normal,),
        [(dtype, flip) for dtype in ("uint8", "float32") for flip in (False, True)],
    ),
    (
        draw_augmentation,
        (normal,),
        [
            (*drawn, *how)
            for how in ((4, True), (0, True), (4, False), (100, True))
            for drawn in ((300, 2**63 - 3, 2**40 + 1), (1, 0, 0))
        ],
    ),
    (
        draw_jitter,
        (normal,),
        [
            (*drawn, *how)
            for how in ((3, 0.2, 0.5), (1, 0.4, 0.0), (9, 0.2, 0.9), (3, 0.0, 0.5))
            for drawn in ((300, 2**63 - 3, 2**40 + 1), (1, 0, 0))
        ],
    ),
]


@functools.cache
def rows():
    """(name, {operation: its Cases, of each draw}) of all rows of the table."""
    found = []
    for definition, draws, arguments in TABLE:
        for one in arguments:
            cases = {}
            for draw in draws:
                for case in definition(draw, *one):
                    forward = case.operation.endswith(("_forward", "_inference", "mse"))
                    if draw not in (with_nan, with_nans) or forward:
                        cases.setdefault(case.operation, []).append(case)
            names = [
                definition.__name__,
                str(one),
                *(draw.__name__ for draw in draws if draw not in BOTH),
            ]
            found.append((" ".join(names), cases))
    return found


# ---- a network of them all


def reading(source, layer):
    return dataclasses.replace(layer, inputs=(source,))


# Every kind of layer with a gradient in a small network, whose training all rungs are judged by.
ALL_KINDS = networks.resolve(
    "all kinds",
    (8, 6, 2),
    (
        layers.conv2d("conv1", 4, bias=False),
        layers.batchnorm("bn"),
        layers.relu("relu1"),
        layers.conv2d("parts", 12, 1, 0),
        layers.attention("attention"),
        layers.lrn("lrn", size=3, alpha=0.5, k=1.0),
        layers.position_norm("lengths"),
        layers.maxpool2d("pool", 3, 2, 1),
        layers.pad("padded", 1),
        layers.conv2d("conv2", 3, padding=0),
        layers.conv2d("shortcut", 3, kernel=1, padding=0, inputs=("pool",)),
        layers.add("sum", ("conv2", "shortcut")),
        layers.relu("relu2"),
        layers.sample("drawn", ("relu2", "shortcut"), 0.3),
        layers.upsample2d("up"),
        layers.conv2d("conv3", 3, kernel=2, padding=1, stride=2),
        layers.avgpool2d("average", 3, 2, 1),
        layers.winner_take_all("winners", 2, 0.5),
        layers.l1_penalty("penalty", 0.0),
        layers.dropout("dropout", 0.3),
        layers.global_avgpool("mean"),
        layers.dense("gate", 5),
        reading("dropout", layers.flatten("flat")),
        layers.dense("fc", 5),
        layers.add("scores", ("fc", "gate")),
    ),
    "flat",
    "cross_entropy",
)
