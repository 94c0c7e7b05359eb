"""Every operation in float64, written as its definition reads: slow.

Those of LOOPS are the plain loops of the rung cpu_sequential, with which no other rung shares code.
The others are independent of the library.

Images are (N, H, W, C), vectors (N, 1, 1, units). Addition is NumPy's own. Gradients come from
`gradient`, by differences.
"""

import itertools
import math
import statistics

import numpy as np

from ladder.executors import sequential

# operations whose loops are the definition; each is one of cpu_sequential's
LOOPS = {
    "conv2d_forward",
    "conv2d_input_grad",
    "conv2d_weight_grad",
    "maxpool2d_forward",
    "maxpool2d_backward",
    "avgpool2d_forward",
    "avgpool2d_backward",
    "winner_take_all_forward",
    "lrn_forward",
    "attention_forward",
    "local_contrast_forward",
}


def computed(operation, arrays, written, **attributes):
    """The arrays that an operation of LOOPS writes in float64, one alone or a tuple.

    arrays: role -> array; written: role -> shape.
    """
    given = {role: np.asarray(array, np.float64) for role, array in arrays.items()}
    made = {role: np.zeros(shape) for role, shape in written.items()}
    sequential.OPERATIONS[operation](**given, **made, **attributes)
    return next(iter(made.values())) if len(made) == 1 else tuple(made.values())


def conv2d(x, weight, bias, padding, stride=1):
    """x (N, H, W, C), weight (O, K, K, C), bias (O): cross-correlation with zeros around the
    image.
    """
    size = slid(*x.shape[1:3], weight.shape[1], stride, padding)
    arrays = {"x": x, "weight": weight, "bias": np.broadcast_to(bias, len(weight))}
    written = {"y": (len(x), *size, len(weight))}
    return computed("conv2d_forward", arrays, written, stride=stride, padding=padding)


def slid(height, width, window, stride, padding):
    """Output height and width of a sliding window."""
    return tuple((size + 2 * padding - window) // stride + 1 for size in (height, width))


def dense(x, weight, bias):
    """x (N, 1, 1, I), weight (O, 1, 1, I), bias (O): (N, 1, 1, O)."""
    return (
        np.einsum("nklc,oklc->no", x.astype(np.float64), weight.astype(np.float64))[:, None, None]
        + bias
    )


def relu(x):
    return np.where(x <= 0, 0, x)


def maxpool2d(x, window=2, stride=2, padding=0):
    """(maxima, places window * row + column) of the windows' pixels in the image; the first if
    tied, NaN first.
    """
    shape = (len(x), *slid(*x.shape[1:3], window, stride, padding), x.shape[3])
    written = {"y": shape, "index": shape}
    slide = {"window": window, "stride": stride, "padding": padding}
    y, places = computed("maxpool2d_forward", {"x": x}, written, **slide)
    return y, places.astype(np.uint8)


def maxpool2d_backward(dy, place, shape, window=2, stride=2, padding=0):
    """dx of this shape: each dy at the pixel its window took, added up where windows overlap."""
    slide = {"window": window, "stride": stride, "padding": padding}
    return computed("maxpool2d_backward", {"dy": dy, "index": place}, {"dx": shape}, **slide)


def avgpool2d(x, window=2, stride=2, padding=0):
    """Sum of each window over window^2; zeros around the image count as pixels."""
    shape = (len(x), *slid(*x.shape[1:3], window, stride, padding), x.shape[3])
    slide = {"window": window, "stride": stride, "padding": padding}
    return computed("avgpool2d_forward", {"x": x}, {"y": shape}, **slide)


def avgpool2d_backward(dy, shape, window, stride, padding):
    slide = {"window": window, "stride": stride, "padding": padding}
    return computed("avgpool2d_backward", {"dy": dy}, {"dx": shape}, **slide)


def global_avgpool(x):
    return x.astype(np.float64).mean(axis=(1, 2), keepdims=True)


def global_avgpool_backward(dy, shape):
    return np.broadcast_to(dy / (shape[1] * shape[2]), shape)


def upsample2d(x):
    return x.repeat(2, axis=1).repeat(2, axis=2)


def upsample2d_backward(dy):
    images, height, width, channels = dy.shape
    return dy.reshape(images, height // 2, 2, width // 2, 2, channels).sum(axis=(2, 4))


def pad(x, amount):
    return np.pad(x, ((0, 0), (amount, amount), (amount, amount), (0, 0)))


def pad_backward(dy, amount):
    return dy[:, amount : dy.shape[1] - amount, amount : dy.shape[2] - amount]


def flatten(x):
    """(N, 1, 1, C * H * W), channel by channel."""
    return x.transpose(0, 3, 1, 2).reshape(len(x), 1, 1, -1)


def flatten_backward(dy, shape):
    images, height, width, channels = shape
    return dy.reshape(images, channels, height, width).transpose(0, 2, 3, 1)


def batchnorm(x, weight, bias, epsilon):
    """(y, mean, inverse): normalised by each channel's own mean and population variance."""
    x = x.astype(np.float64)
    mean = x.mean(axis=(0, 1, 2))
    inverse = 1 / np.sqrt(((x - mean) ** 2).mean(axis=(0, 1, 2)) + epsilon)
    return weight * (x - mean) * inverse + bias, mean, inverse


def running_statistics(x, running_mean, running_var, decay):
    """(running_mean, running_var) after the batch x; variance with divisor n - 1, for one value
    n.
    """
    values = x.astype(np.float64).reshape(-1, x.shape[3])
    variance = values.var(axis=0, ddof=1 if len(values) > 1 else 0)
    return decay * running_mean + (1 - decay) * values.mean(axis=0), decay * running_var + (
        1 - decay
    ) * variance


def batchnorm_inference(x, weight, bias, running_mean, running_var, epsilon):
    return (
        weight
        * (x.astype(np.float64) - running_mean)
        / np.sqrt(running_var.astype(np.float64) + epsilon)
        + bias
    )


def dropout(x, mask, rate):
    return x.astype(np.float64) * mask / (1 - rate)


def winner_take_all(x, winners, images):
    """(y, mask): of each channel of an image the `winners` largest values, in the `images` images
    with the largest; else 0.

    Ties go to the first. NaN counts as infinite.
    """
    written = {"y": x.shape, "mask": x.shape}
    how = {"winners": winners, "images": images}
    y, mask = computed("winner_take_all_forward", {"x": x}, written, **how)
    return y, mask.astype(np.uint8)


def sample(mean, log_variance, drawn):
    """(y, noise): values at `drawn` standard deviations from the mean, and how far that is."""
    noise = np.exp(log_variance.astype(np.float64) / 2) * drawn
    return mean + noise, noise


def divergences(mean, log_variance):
    """Of the normal distributions of each image's values from the standard normal distribution, in
    nats.
    """
    mean, log_variance = (
        values.astype(np.float64).reshape(len(values), -1) for values in (mean, log_variance)
    )
    return (mean**2 + np.exp(log_variance) - 1 - log_variance).sum(axis=1) / 2


def sample_gradients(mean, log_variance, noise, dy, factor):
    """(dmean, dlog_variance) of sum(dy * y) + factor * the sum of the divergences."""
    mean, log_variance, dy = (values.astype(np.float64) for values in (mean, log_variance, dy))
    return dy + factor * mean, (dy * noise + factor * np.expm1(log_variance)) / 2


def lrn(x, size, alpha, beta, k):
    """(y, sums): x over a power of the sum of squares over `size` channels, of which size // 2 are
    before the value's own.
    """
    written = {"y": x.shape, "sums": x.shape}
    return computed("lrn_forward", {"x": x}, written, size=size, alpha=alpha, beta=beta, k=k)


def position_norm(x, epsilon):
    """(y, norms): each pixel's vector over the root of its sum of squares and epsilon."""
    x = x.astype(np.float64)
    norms = np.sqrt((x**2).sum(axis=3) + epsilon)
    return x / norms[..., None], norms


def attention(x):
    """(y, weights): x has queries, keys and values of as many channels; weights (N, pixels,
    pixels), y their sums of values.
    """
    images, height, width, channels = x.shape
    pixels = height * width
    written = {"y": (images, height, width, channels // 3), "weights": (images, pixels, pixels)}
    return computed("attention_forward", {"x": x}, written)


def local_contrast(x, image, kernel, epsilon):
    """x over the root of variance plus epsilon of each of its pixels' windows in `image`."""
    arrays, how = {"x": x, "image": image}, {"kernel": kernel, "epsilon": epsilon}
    return computed("local_contrast_forward", arrays, {"y": x.shape}, **how)


def soft_threshold(x, threshold):
    return np.concatenate((relu(x - threshold), relu(-x - threshold)), axis=3)


def mse(prediction, target, divisor):
    """(gradient, loss): the mean over all elements, its gradient that of the sum over `divisor`."""
    difference = prediction.astype(np.float64) - target
    return 2 * difference / divisor, (difference**2).mean()


def cross_entropy(prediction, labels):
    """(gradient, loss, hits) of scores (N, 1, 1, classes) against a label for each row: the loss is
    a mean over rows.
    """
    scores = prediction.astype(np.float64).reshape(len(prediction), -1)
    scores = scores - scores.max(axis=1, keepdims=True)
    softmax = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    is_label = np.arange(scores.shape[1]) == np.asarray(labels)[:, None]
    loss = np.mean(np.log(np.exp(scores).sum(axis=1)) - scores[is_label])
    hits = sum(
        not np.isnan(row).any() and int(np.argmax(row)) == label
        for row, label in zip(scores, labels, strict=True)
    )
    return ((softmax - is_label) / len(scores)).reshape(prediction.shape), loss, hits


def load_batch(images, rows, scale, offset, flip=False):
    """Values of these rows of the images, in float32 as kept."""
    images = images[rows].astype(np.float32)
    return (images[:, :, ::-1] if flip else images) * scale + offset


def load_augmented_batch(images, rows, scale, offset, augmentation):
    """As load_batch, each image mirrored, then shifted by its own (dy, dx, mirrored), zeros moving
    in.
    """
    height, width = images.shape[1:3]
    batch = np.zeros((len(rows), *images.shape[1:]), np.float32)
    for out, image, (dy, dx, mirrored) in zip(batch, images[rows], augmentation, strict=True):
        image = image[:, ::-1] if mirrored else image
        for row, column in np.ndindex(height, width):
            if 0 <= row + dy < height and 0 <= column + dx < width:
                out[row, column] = image[row + dy, column + dx]
    return batch * scale + offset


def load_jittered_batch(images, rows, scale, offset, augmentation, jitter):
    """As load_augmented_batch, each image then rotated by its own (cosine, sine) and multiplied by
    its channels' factors.

    Every operation is in float32, in this order, so that all rungs can be compared to the last bit.
    """
    f, (height, width, channels) = np.float32, images.shape[1:]
    batch = np.zeros((len(rows), height, width, channels), f)
    for out, image, (dy, dx, mirrored), (cosine, sine, *factors) in zip(
        batch, images[rows].astype(f), augmentation, jitter, strict=True
    ):
        image = image[:, ::-1] if mirrored else image
        for row, column in np.ndindex(height, width):
            y, x = f(row + dy) - f((height - 1) / 2), f(column + dx) - f((width - 1) / 2)
            at = (
                cosine * y - sine * x + f((height - 1) / 2),
                sine * y + cosine * x + f((width - 1) / 2),
            )
            top, left = (math.floor(one) for one in at)
            down, right = at[0] - f(top), at[1] - f(left)
            corners = [
                image[i, j] if 0 <= i < height and 0 <= j < width else np.zeros(channels, f)
                for i in (top, top + 1)
                for j in (left, left + 1)
            ]
            above, below = (a + right * (b - a) for a, b in (corners[:2], corners[2:]))
            out[row, column] = (above + down * (below - above)) * np.array(factors, f)
    return batch * scale + offset


def gradient(forward, x, dy, step=1e-5):
    """Gradient of sum(dy * forward()) by the float64 array x, which `forward` reads.

    For a linear function of integers `step` 1 is exact.
    """
    return numerical_gradient(lambda: np.sum(dy * forward()), x, step)


def numerical_gradient(function, x, step=1e-5):
    """Central differences of a scalar function of the float64 array x, element by element."""
    gradient = np.zeros_like(x)
    for position in np.ndindex(x.shape):
        kept = x[position]
        x[position] = kept + step
        above = function()
        x[position] = kept - step
        gradient[position] = (above - function()) / (2 * step)
        x[position] = kept
    return gradient


# ---- random numbers: Philox4x64-10 (Salmon et al., 2011)

MULTIPLIERS = 0xD2E7470EE14C6C93, 0xCA5A826395121157
WEYL = 0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B  # added to the key from round to round
ROUNDS = 10
MASK = 2**64 - 1


def philox(counter, key):
    """The four 64-bit numbers of one block. counter: four, key: two 64-bit numbers."""
    a, b, c, d = counter
    for number in range(ROUNDS):
        k0, k1 = ((part + number * weyl) & MASK for part, weyl in zip(key, WEYL, strict=True))
        first, second = MULTIPLIERS[0] * a, MULTIPLIERS[1] * c
        a, b, c, d = second >> 64 ^ b ^ k0, second & MASK, first >> 64 ^ d ^ k1, first & MASK
    return a, b, c, d


def blocks(seed, stream, step, count):
    """The first `count` blocks of a stream in a step, as NumPy draws them: it increments the
    counter before each.
    """
    return [philox((block + 1, 0, 0, step), (seed, stream)) for block in range(count)]


def dropout_mask(seed, layer, step, count, rate):
    """uint8: 1 for each of a batch's `count` values that is kept. layer: the layer's number."""
    words = [
        word >> shift & 0xFFFFFFFF
        for block in blocks(seed, 16 + layer, step, -(-count // 8))
        for word in block
        for shift in (0, 32)
    ]
    return np.array([word >= math.floor(rate * 2**32) for word in words[:count]], np.uint8)


def normal(seed, stream, step, count):
    """float64 (count,): the quantile of the standard normal distribution for the upper 24 bits of
    each word.
    """
    words = [
        word >> shift & 0xFFFFFFFF
        for block in blocks(seed, stream, step, -(-count // 8))
        for word in block
        for shift in (0, 32)
    ]
    return np.array(
        [statistics.NormalDist().inv_cdf((2 * (word >> 8) + 1) / 2**25) for word in words[:count]]
    )


def augmentation(seed, step, count, crop, flip):
    """int32 (count, 3): (dy, dx, mirrored) of each row of a batch."""
    return np.array(
        [
            (down % (2 * crop + 1) - crop, right % (2 * crop + 1) - crop, coin >> 63 if flip else 0)
            for down, right, coin, _ in blocks(seed, 3, step, count)
        ],
        np.int32,
    ).reshape(-1, 3)


def jitter(seed, step, count, channels, tangent, colour):
    """float32 (count, 2 + channels): cosine and sine of 2 arctan t and the channels' factors, of 24
    bits of a word each.
    """
    rows = []
    for block in blocks(seed, 9, step, count):
        words = [word >> shift & 0xFFFFFFFF for word in block for shift in (0, 32)]
        t, *evenly = (np.float32(((word >> 8) - 2**23) / 2**23) for word in words)
        t = np.float32(tangent) * t
        turned = (1 - t * t) / (1 + t * t), 2 * t / (1 + t * t)
        rows.append(
            [
                *turned,
                *(1 + np.float32(colour) * evenly[channel % 7] for channel in range(channels)),
            ]
        )
    return np.array(rows, np.float32)


# Rows, or columns, of a 3x3 filter in each of the four of the transposed convolution of the image
# before an upsampling by 2.
SUMMED_TAPS = (2,), (1, 2), (0, 1), (0,)


def decompose_taps(weight):
    """(C, 4, 4, O) of weight (O, 3, 3, C), in its type: sums of the taps that one of the transposed
    convolution replaces.
    """
    return np.stack(
        [
            np.stack(
                [
                    sum(sum(weight[:, row, column] for row in rows) for column in columns).T
                    for columns in SUMMED_TAPS
                ],
                axis=1,
            )
            for rows in SUMMED_TAPS
        ],
        axis=1,
    )


def add_tap_gradients(gradient):
    """The gradient of a weight from that of its phase weights (C, 4, 4, O)."""
    found = np.zeros((gradient.shape[3], 3, 3, gradient.shape[0]))
    for (t, rows), (s, columns) in itertools.product(
        enumerate(SUMMED_TAPS), enumerate(SUMMED_TAPS)
    ):
        for row, column in itertools.product(rows, columns):
            found[:, row, column] += gradient[:, t, s].T
    return found


def conv2d_input_grad(dy, weight, padding, height, width, stride=1):
    written = {"dx": (len(dy), height, width, weight.shape[3])}
    slide = {"stride": stride, "padding": padding}
    return computed("conv2d_input_grad", {"dy": dy, "weight": weight}, written, **slide)


def conv2d_weight_grad(x, dy, padding, size, stride=1):
    written = {"dweight": (dy.shape[3], size, size, x.shape[3])}
    slide = {"stride": stride, "padding": padding}
    return computed("conv2d_weight_grad", {"x": x, "dy": dy}, written, **slide)
