"""Every operation in float64, written as its definition reads: slow, and independent of the library."""

import numpy as np


def conv2d(x, weight, bias, padding):
    """x (N, H, W, C), weight (O, K, K, C), bias (O): cross-correlation with zeros around the image."""
    images, height, width, _ = x.shape
    filters, kernel = weight.shape[:2]
    x = np.pad(x.astype(np.float64), ((0, 0), (padding, padding), (padding, padding), (0, 0)))
    out = np.zeros((images, height + 2 * padding - kernel + 1, width + 2 * padding - kernel + 1, filters))
    for row in range(out.shape[1]):
        for column in range(out.shape[2]):
            window = x[:, row:row + kernel, column:column + kernel]
            out[:, row, column] = np.einsum("nklc,oklc->no", window, weight.astype(np.float64)) + bias
    return out


def relu(x):
    return np.where(x > 0, x, 0)


def maxpool2d(x):
    """(maxima, places) of the 2x2 windows; of equal values the first, row by row."""
    images, height, width, channels = x.shape
    out = np.zeros((images, height // 2, width // 2, channels))
    place = np.zeros(out.shape, np.uint8)
    for position in np.ndindex(out.shape):
        image, row, column, channel = position
        window = x[image, 2 * row:2 * row + 2, 2 * column:2 * column + 2, channel].reshape(-1)
        place[position] = np.argmax(window)
        out[position] = window[place[position]]
    return out, place


def upsample2d(x):
    return x.repeat(2, axis=1).repeat(2, axis=2)


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
