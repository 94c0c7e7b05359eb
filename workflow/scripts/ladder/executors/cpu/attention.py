"""The cpu rung's attention: the products of each image by BLAS, on one thread."""

import math

import numpy as np

from ladder.executors.cpu import blocks

LABEL = "attention"


def attention_forward(executor, x, y, weights):
    """weights (N, pixels, pixels): the softmax of each pixel's scores, in a row."""
    x, y = _by_pixel(x), _by_pixel(y)
    root = _root(y)

    def attend(x, y, shares):
        query, key, value = _parts(x)
        np.matmul(query, key.T, out=shares)
        shares /= root
        shares -= shares.max(axis=1, keepdims=True)  # so that no exponential overflows
        np.exp(shares, out=shares)
        shares /= shares.sum(axis=1, keepdims=True)
        np.matmul(shares, value, out=y)

    executor.each(LABEL, blocks.cost(2 * weights.size * y.shape[2]), attend, x, y, weights)


def attention_backward(executor, x, weights, dy, dx):
    x, dy, dx = _by_pixel(x), _by_pixel(dy), _by_pixel(dx)
    root = _root(dy)

    def work(worker, start, stop):
        dscores = worker.workspace("score gradient", weights.shape[1:], x.dtype)
        for n in range(start, stop):
            (query, key, value), (dquery, dkey, dvalue), shares = (
                _parts(x[n]),
                _parts(dx[n]),
                weights[n],
            )
            np.matmul(shares.T, dy[n], out=dvalue)
            np.matmul(dy[n], value.T, out=dscores)
            dscores -= np.einsum("pq,pq->p", shares, dscores)[:, None]
            dscores *= shares
            dscores /= root
            np.matmul(dscores, key, out=dquery)
            np.matmul(dscores.T, query, out=dkey)
        worker.lap(LABEL)

    executor.parallel(len(x), work, blocks.cost(4 * weights.size * dy.shape[2]))


OPERATIONS = attention_forward, attention_backward


def _by_pixel(images):
    """Images (N, H, W, C) as (N, H W, C)."""
    return images.reshape(len(images), -1, images.shape[3])


def _parts(pixels):
    """Views of the queries, keys and values (pixels, channels) of one image."""
    channels = pixels.shape[1] // 3
    return tuple(pixels[:, place : place + channels] for place in (0, channels, 2 * channels))


def _root(y):
    return y.dtype.type(math.sqrt(y.shape[2]))
