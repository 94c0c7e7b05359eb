"""Nearest upsampling by 2, then a 3x3 convolution, on the cpu rung: 25 products per 16 output
pixels, where the convolution itself needs 144.

In one dimension four outputs read the pixels (a, b, b, c, c, d). A Toom-Cook scheme with the points
0, 1, +-i and infinity has six products; the one at -1 vanishes, because pixels repeat. With the
filter g, s = (g0 + g1 + g2) / 2 and the five products

    first = g0 (a - c), all = s (b + c), even = (g0 - s) (c - b), odd = (g2 - s) (c - b),
    last = g2 (d - b)

the outputs are first + all + even, all + odd, all - even and all - odd + last. In two dimensions
these are matrices, as in winograd.py: G (5x3), B (5x4) and A (5x4); even and odd multiply the same
pixels, so 4 x 4 planes of transformed images serve the 5 x 5 products. docs/math.md derives it.

Transformed images are (16, tiles, channels), tiles of 2x2 pixels in NHW order, products and
gradients (25, tiles, filters), transformed filters (25, filters, channels). The loops are compiled
as described in loops.py.
"""

import numpy as np

from ladder.executors.cpu import blocks, products
from ladder.executors.cpu.loops import loop
from ladder.executors.cpu.winograd import LEAST_TILES, from_planes, to_planes

BLOCK_TILES = 256  # per product: with fewer, it spends most of its time loading weights
CHUNK_TILES = 512  # of a backward pass: what they are transformed to is multiplied from the cache
PLANES = 25
ALL = 6  # the plane of (all, all): its gradients are the sums of those of a tile's outputs
# of the transformed images that each product reads
SOURCES = np.array([4 * row + column for row in (0, 1, 2, 2, 3) for column in (0, 1, 2, 2, 3)])


def winograd_upsample_conv2d_weight(executor, weight, transformed):
    """transformed (25, filters, channels) = G g G^T for each filter and channel."""
    to_planes(executor, transform_filters, weight, transformed)


def winograd_upsample_conv2d_forward(executor, x, transformed, bias, y, relu):
    """Nearest upsampling by 2, then a 3x3 convolution and optionally ReLU."""
    tiles, filters = _Tiles(x.shape), y.shape[3]
    work = len(x) * tiles.each * transformed.size
    least = max(LEAST_TILES, len(x) * tiles.each // blocks.pieces(work))
    cut = blocks.cut(len(x), tiles.each, min(BLOCK_TILES, least), work)
    turned = blocks.transposed(executor, transformed)

    def compute(worker, start, stop):
        for block in cut.blocks(start, stop):
            seen = _planes(worker, "seen", 16, tiles.each * len(x[block]), x)
            _transform_images(worker, x[block], tiles, seen, 0)
            out = _planes(worker, "products", PLANES, seen.shape[1], y)
            products.multiply(seen, turned, out, lefts=SOURCES)
            rows = worker.workspace("rows", (4, 5, filters), y.dtype)
            to_outputs(out, 0, y[block], bias, relu, rows)
            worker.lap("convolution forward")

    executor.parallel(len(x), compute, cut.cost, piece=cut.size)


def winograd_upsample_conv2d_backward(
    executor, x, transformed, y, dy, dweight, dbias, relu, dx=None
):
    """dweight and dbias, and dx if given; y is the output of the forward pass.

    The threads first transform a chunk of images, then each multiplies some of the planes: no sums
    over threads.
    """
    tiles = _Tiles(x.shape)
    sums = executor.workspace("plane sums", transformed.shape, x.dtype)
    for chunk in blocks.slices(0, len(x), max(1, CHUNK_TILES // tiles.each)):
        images = _Chunk(executor, tiles, x[chunk], dy[chunk], None if dx is None else dx[chunk])
        images.transform(y[chunk], relu)
        images.multiply(transformed, sums, dbias, chunk.start > 0)

    from_planes(executor, filters_gradient, sums, dweight)


OPERATIONS = (
    winograd_upsample_conv2d_weight,
    winograd_upsample_conv2d_forward,
    winograd_upsample_conv2d_backward,
)


class _Tiles:
    """The tiles of 2x2 pixels of images of this shape; the last ones may extend beyond the edge."""

    def __init__(self, shape):
        self.down, self.across = (-(-size // 2) for size in shape[1:3])
        self.each = self.down * self.across  # tiles per image


class _Chunk:
    """The backward pass of some images."""

    def __init__(self, executor, tiles, x, dy, dx):
        self.executor, self.tiles, self.x, self.dy, self.dx = executor, tiles, x, dy, dx
        count = len(x) * tiles.each
        self.seen = _planes(executor, "images", 16, count, x)
        self.gradients = _planes(executor, "products", PLANES, count, dy)
        self.to_pixels = None if dx is None else _planes(executor, "pixels", PLANES, count, x)

    def transform(self, y, relu):
        """Transform the images and the gradients of the outputs y."""
        x, dy, each = self.x, self.dy, self.tiles.each

        def work(worker, start, stop):
            rows = worker.workspace("gradient rows", (5, 4, dy.shape[3]), dy.dtype)
            for block in blocks.slices(start, stop, max(1, LEAST_TILES // each)):
                first = block.start * each
                _transform_images(worker, x[block], self.tiles, self.seen, first)
                transform_gradient(dy[block], y[block], relu, self.gradients, first, rows)
            worker.lap("convolution backward")

        self.executor.parallel(len(x), work, self.seen.size + self.gradients.size)

    def multiply(self, transformed, sums, dbias, add):
        """The gradients of the transformed filters, in or (if add) added to `sums`, of the bias,
        and of the images.
        """

        def work(worker, start, stop):
            # as in winograd.py
            for plane in blocks.slices(start, stop, 1):
                gradients, source = self.gradients[plane], SOURCES[plane.start]
                left, seen = gradients.transpose(0, 2, 1), self.seen[source : source + 1]
                products.multiply(left, seen, sums[plane], add)
                if self.dx is not None:
                    products.multiply(gradients, transformed[plane], self.to_pixels[plane])
            if start <= ALL < stop:
                total = blocks.bias_gradient(self.gradients[ALL])
                dbias[...] = dbias + total if add else total
            worker.lap("convolution backward")

        def scatter(worker, start, stop):
            down, across = self.tiles.down, self.tiles.across
            rows = worker.workspace("rows", (5, down, 2 * across, self.x.shape[3]), self.x.dtype)
            images_gradient(self.to_pixels, start * self.tiles.each, self.dx[start:stop], rows)
            worker.lap("convolution backward")

        cost = self.seen.size + self.gradients.size
        self.executor.parallel(PLANES, work, cost)
        if self.dx is not None:
            self.executor.parallel(len(self.x), scatter, cost)


def _planes(worker, name, count, tiles, like):
    return worker.workspace(name, (count, tiles, like.shape[3]), like.dtype)


def _transform_images(worker, x, tiles, out, first):
    x = blocks.framed(worker, x, (-1, -1), (2 * tiles.down + 2, 2 * tiles.across + 2))
    transform_images(x, out, first, worker.workspace("rows", (4, *x.shape[2:]), x.dtype))


@loop
def _filter(first, second, third, half):
    """G g"""
    total = half * (first + second + third)
    return first, total, first - total, third - total, third


@loop
def _filter_gradient(first, all_, even, odd, last, half):
    """G^T u"""
    total = half * (all_ - even - odd)
    return first + even + total, total, last + odd + total


@loop
def _image(first, second, third, fourth):
    """B d, without the second of the two that are equal"""
    return first - third, second + third, third - second, fourth - second


@loop
def _output(first, all_, even, odd, last):
    """A^T m"""
    return first + all_ + even, all_ + odd, all_ - even, all_ - odd + last


@loop
def _output_gradient(first, second, third, fourth):
    """A y"""
    return first, (first + second) + (third + fourth), first - third, second - fourth, fourth


@loop
def _put_five(array, first, at, c, values):
    """Store values at one place of five rows or planes."""
    (
        array[first, at, c],
        array[first + 1, at, c],
        array[first + 2, at, c],
        array[first + 3, at, c],
        array[first + 4, at, c],
    ) = values


@loop
def transform_filters(weight, start, stop, out, rows):
    """out (25, filters, channels) = G g G^T of the filters start to stop. rows: workspace (5, 3,
    channels).
    """
    channels, half = weight.shape[3], weight.dtype.type(0.5)
    for o in range(start, stop):
        for j in range(3):
            for c in range(channels):
                taps = weight[o, 0, j, c], weight[o, 1, j, c], weight[o, 2, j, c]
                _put_five(rows, 0, j, c, _filter(*taps, half))
        for k in range(5):
            for c in range(channels):
                taps = rows[k, 0, c], rows[k, 1, c], rows[k, 2, c]
                _put_five(out, 5 * k, o, c, _filter(*taps, half))


@loop
def filters_gradient(planes, start, stop, dweight, rows):
    """dweight = G^T u G of the filters start to stop. rows: workspace (3, 5, channels)."""
    channels, half = dweight.shape[3], dweight.dtype.type(0.5)
    for o in range(start, stop):
        for k in range(5):
            for c in range(channels):
                rows[0, k, c], rows[1, k, c], rows[2, k, c] = _filter_gradient(
                    planes[k, o, c],
                    planes[5 + k, o, c],
                    planes[10 + k, o, c],
                    planes[15 + k, o, c],
                    planes[20 + k, o, c],
                    half,
                )
        for i in range(3):
            for c in range(channels):
                dweight[o, i, 0, c], dweight[o, i, 1, c], dweight[o, i, 2, c] = _filter_gradient(
                    rows[i, 0, c], rows[i, 1, c], rows[i, 2, c], rows[i, 3, c], rows[i, 4, c], half
                )


@loop
def transform_images(x, out, tile, rows):
    """out (16, tiles, channels) = B d B^T of the 4x4 pixels around the tiles of x (N, H, W, C), two
    pixels apart, from `tile` on.

    rows: workspace (4, W, C).
    """
    images, height, width, channels = x.shape
    for n in range(images):
        for r in range(0, height - 2, 2):
            for q in range(width):
                for c in range(channels):
                    rows[0, q, c], rows[1, q, c], rows[2, q, c], rows[3, q, c] = _image(
                        x[n, r, q, c], x[n, r + 1, q, c], x[n, r + 2, q, c], x[n, r + 3, q, c]
                    )
            for k in range(4):
                at = 4 * k
                for q in range(0, width - 2, 2):
                    here = tile + q // 2
                    for c in range(channels):
                        (
                            out[at, here, c],
                            out[at + 1, here, c],
                            out[at + 2, here, c],
                            out[at + 3, here, c],
                        ) = _image(
                            rows[k, q, c], rows[k, q + 1, c], rows[k, q + 2, c], rows[k, q + 3, c]
                        )
            tile += (width - 2) // 2


@loop
def to_outputs(planes, tile, y, bias, relu, rows):
    """y (N, H, W, filters) = A^T m A + bias of the tiles from `tile` on, then ReLU.

    rows: workspace (4, 5, filters). H and W are even, so a tile has two or four rows and columns.
    """
    images, height, width, filters = y.shape
    zero = y.dtype.type(0)
    for n in range(images):
        for r in range(0, height, 4):
            for q in range(0, width, 4):
                for k in range(5):
                    for c in range(filters):
                        rows[0, k, c], rows[1, k, c], rows[2, k, c], rows[3, k, c] = _output(
                            planes[k, tile, c],
                            planes[5 + k, tile, c],
                            planes[10 + k, tile, c],
                            planes[15 + k, tile, c],
                            planes[20 + k, tile, c],
                        )
                for i in range(min(4, height - r)):
                    row = r + i
                    for c in range(filters):
                        first, second, third, fourth = _output(
                            rows[i, 0, c],
                            rows[i, 1, c] + bias[c],
                            rows[i, 2, c],
                            rows[i, 3, c],
                            rows[i, 4, c],
                        )
                        y[n, row, q, c] = zero if relu & (first < zero) else first
                        y[n, row, q + 1, c] = zero if relu & (second < zero) else second
                        if q + 2 < width:
                            y[n, row, q + 2, c] = zero if relu & (third < zero) else third
                            y[n, row, q + 3, c] = zero if relu & (fourth < zero) else fourth
                tile += 1


@loop
def transform_gradient(dy, y, relu, out, tile, rows):
    """out (25, tiles, filters) = A d A^T of the tiles of d (N, H, W, filters), which is dy, with
    relu only where y > 0, from `tile` on.

    rows: workspace (5, 4, filters).
    """
    images, height, width, filters = dy.shape
    for n in range(images):
        for r in range(0, height, 4):
            low = r + 2 < height
            for q in range(0, width, 4):
                for j in range(4):
                    within = q + j < width
                    at = q + j if within else q
                    for c in range(filters):
                        column = (
                            _passed(dy, y, n, r, at, c, relu, within),
                            _passed(dy, y, n, r + 1, at, c, relu, within),
                            _passed(dy, y, n, r + 2 if low else r, at, c, relu, within & low),
                            _passed(dy, y, n, r + 3 if low else r, at, c, relu, within & low),
                        )
                        _put_five(rows, 0, j, c, _output_gradient(*column))
                for k in range(5):
                    for c in range(filters):
                        row = rows[k, 0, c], rows[k, 1, c], rows[k, 2, c], rows[k, 3, c]
                        _put_five(out, 5 * k, tile, c, _output_gradient(*row))
                tile += 1


@loop
def _passed(dy, y, n, row, column, c, relu, within):
    """dy there, or 0 where the ReLU does not pass it or nothing is `within` the image."""
    passes = within & ((not relu) | (y[n, row, column, c] > dy.dtype.type(0)))
    return dy[n, row, column, c] if passes else dy.dtype.type(0)


@loop
def images_gradient(planes, tile, dx, rows):
    """dx (N, H, W, C) = B^T v B of the tiles from `tile` on, added up where they overlap.

    rows: workspace (5, rows of tiles, 2 columns of tiles, C). Loops that add to what they overlap
    are kept apart from those that transform: together they would not be vectorized.
    """
    images, height, width, channels = dx.shape
    _, down, across, _ = rows.shape
    across //= 2
    for n in range(images):
        for k in range(5):
            at = 5 * k
            for r in range(down):
                for q in range(across):
                    here = tile + r * across + q
                    for c in range(channels):
                        both = planes[at + 2, here, c] + planes[at + 3, here, c]
                        middle = planes[at + 1, here, c]
                        rows[k, r, 2 * q, c] = middle - both - planes[at + 4, here, c]
                        rows[k, r, 2 * q + 1, c] = middle + both - planes[at, here, c]
                for q in range(across - 1):
                    here = tile + r * across + q
                    for c in range(channels):
                        rows[k, r, 2 * q + 2, c] += planes[at + 4, here, c]
                        rows[k, r, 2 * q + 1, c] += planes[at, here + 1, c]
        for r in range(down):
            upper, lower = 2 * r, 2 * r + 1
            for q in range(width):
                for c in range(channels):
                    both = rows[2, r, q, c] + rows[3, r, q, c]
                    dx[n, upper, q, c] = rows[1, r, q, c] - both - rows[4, r, q, c]
                    if lower < height:
                        dx[n, lower, q, c] = rows[1, r, q, c] + both - rows[0, r, q, c]
            if r > 0:
                for q in range(width):
                    for c in range(channels):
                        dx[n, upper, q, c] += rows[4, r - 1, q, c]
                        dx[n, upper - 1, q, c] += rows[0, r, q, c]
        tile += down * across
