"""3x3 convolutions with stride 1 on the cpu rung: 16 instead of 36 products per four output pixels (Winograd, F(2x2, 3x3)).

For a tile d of 4x4 input pixels and a filter g, the 2x2 outputs are A^T [(G g G^T) * (B^T d B)] A (Lavin and Gray, 2016):
only the elementwise product in the middle mixes channels and filters, so over all tiles it is 16 matrix products. A, B and G
are small constant matrices of 0, 1, -1 and 1/2. With D = A dy A^T, the gradients are G^T [D * (B^T d B)] G and
B [(G g G^T) * D] B^T.

The 16 planes of transformed arrays are (16, tiles, channels), tiles in NHW order, and (16, filters, channels). The loops are
compiled as described in loops.py.
"""

import numpy as np

from ladder.executors.cpu import blocks
from ladder.executors.cpu.loops import loop

# Least number of tiles per block: with fewer, a matrix product spends most of its time loading weights.
BLOCK_TILES, SUM_TILES = 256, 512
CHUNK_NUMBERS = 2 ** 22   # size of the transformed images and gradients of all threads
FEW_WEIGHTS = 2 ** 13     # weights per plane, up to which groups of images have sums of their own of their gradient
FEW_TILES = 512           # with fewer, threads share the planes instead of the images, each of which needs all weights


def winograd_conv2d_weight(executor, weight, transformed):
    """transformed (16, filters, channels) = G g G^T for each filter and channel."""
    def work(worker, start, stop):
        rows = worker.workspace("rows", (4, 3, weight.shape[3]), weight.dtype)
        transform_filters(weight, start, stop, transformed, rows)
        worker.lap("convolution forward")

    executor.parallel(len(weight), work, transformed.size)


def winograd_conv2d_forward(executor, x, transformed, y, padding, relu, bias=None, index=None):
    """As conv2d_forward."""
    call = _Forward(executor, _Tiles(x.shape, padding), x, transformed, y, bias, relu, index)
    call.by_plane() if call.has_few_tiles() else call.by_image()


def winograd_conv2d_backward(executor, x, transformed, y, dy, dweight, padding, relu, dbias=None, index=None, dx=None):
    """As conv2d_backward."""
    tiles = _Tiles(x.shape, padding)
    gradient = blocks.Gradient(y, dy, relu, index, (*tiles.out, transformed.shape[1]))
    call = _Backward(executor, tiles, x, transformed, gradient, dx, dbias)
    sums = call.by_image() if transformed[0].size <= FEW_WEIGHTS else call.by_plane()

    def work(worker, start, stop):
        rows = worker.workspace("rows", (3, 4, dweight.shape[3]), dweight.dtype)
        filters_gradient(sums, start, stop, dweight, rows)
        worker.lap("convolution backward")

    executor.parallel(len(dweight), work, transformed.size)


OPERATIONS = (winograd_conv2d_weight, winograd_conv2d_forward, winograd_conv2d_backward)


class _Tiles:
    """The 2x2 tiles of a convolution's output; the last row and column of tiles may extend beyond its edge."""

    def __init__(self, shape, padding):
        self.padding = padding
        self.out = tuple(size + 2 * padding - 2 for size in shape[1:3])
        self.rows, self.columns = (-(-size // 2) for size in self.out)
        self.each = self.rows * self.columns   # tiles per image

    def cut(self, images, most, planes):
        """The blocks.Cut of the images into blocks of at most `most` tiles, or one image, for products with these planes."""
        return blocks.cut(images, self.each, most, images * self.each * planes.size)


class _Forward:
    """The operands of one forward pass, and the two ways to distribute it over threads."""

    def __init__(self, executor, tiles, x, transformed, y, bias, relu, index):
        self.executor, self.tiles, self.x, self.y, self.bias, self.relu, self.index = executor, tiles, x, y, bias, relu, index
        self.planes = transformed.transpose(0, 2, 1)

    def has_few_tiles(self):
        """True if there are so few tiles that a product with some of them would mostly wait for the weights."""
        return len(self.x) * self.tiles.each < FEW_TILES and self.planes[0].size > FEW_WEIGHTS

    def by_image(self):
        """Each thread processes its own images."""
        cut = self.tiles.cut(len(self.x), BLOCK_TILES, self.planes)

        def work(worker, start, stop):
            for block in cut.blocks(start, stop):
                seen = _transform_images(worker, self.x[block], self.tiles)
                products = worker.workspace("products", (16, seen.shape[1], self.y.shape[3]), self.y.dtype)
                self._finish(worker, np.matmul(seen, self.planes, out=products), block, 0)

        self.executor.parallel(len(self.x), work, cut.cost, piece=cut.size)

    def by_plane(self):
        """The threads first transform all images, then each multiplies some of the planes."""
        count, each = len(self.x), self.tiles.each
        seen, products = (self.executor.workspace(name, (16, count * each, width), self.x.dtype) for name, width in
                          (("images", self.x.shape[3]), ("products", self.y.shape[3])))

        def transform(worker, start, stop):
            _transform_images(worker, self.x[start:stop], self.tiles, seen, start * each)
            worker.lap("convolution forward")

        def multiply(worker, start, stop):
            np.matmul(seen[start:stop], self.planes[start:stop], out=products[start:stop])
            worker.lap("convolution forward")

        def finish(worker, start, stop):
            self._finish(worker, products, slice(start, stop), start * each)

        for items, work in ((count, transform), (16, multiply), (count, finish)):
            self.executor.parallel(items, work, seen.size + products.size)

    def _finish(self, worker, products, block, first):
        y, index = self.y[block], None if self.index is None else self.index[block]
        out = y if index is None else worker.workspace("convolved", (len(y), *self.tiles.out, y.shape[3]), y.dtype)
        back_to_pixels(products, first, out, worker.workspace("rows", (2, 4, self.tiles.columns, y.shape[3]), y.dtype))
        worker.lap("convolution forward")
        blocks.finish(worker, out, y, self.bias, self.relu, index)


class _Backward:
    """The operands of one backward pass, and the two ways to distribute it over threads. gradient: a blocks.Gradient."""

    def __init__(self, executor, tiles, x, transformed, gradient, dx, dbias):
        self.executor, self.tiles, self.x, self.transformed = executor, tiles, x, transformed
        self.gradient, self.dx, self.dbias = gradient, dx, dbias

    def by_image(self):
        """Each thread sums the planes' gradient over groups of images."""
        cut = self.tiles.cut(len(self.x), SUM_TILES, self.transformed)
        sums = blocks.Sums(self.executor, cut, self.transformed.shape, self.dbias, self.x.dtype)

        def work(worker, start, stop):
            for block in cut.blocks(start, stop):
                gradient = self.gradient.of(worker, block)
                sums.add_bias(block, gradient)
                seen = _transform_images(worker, self.x[block], self.tiles)
                turned = _transform_gradient(worker, gradient, self.tiles)
                sums.add(worker, block, turned.transpose(0, 2, 1), seen)
                if self.dx is not None:
                    self._to_pixels(worker, np.matmul(turned, self.transformed, out=seen), block, 0)
                worker.lap("convolution backward")

        self.executor.parallel(len(self.x), work, cut.cost, piece=cut.group)
        return sums.total()

    def by_plane(self):
        """The threads first transform a chunk of images, then each multiplies some of the planes: no sums over threads."""
        sums = self.executor.workspace("plane sums", self.transformed.shape, self.x.dtype)
        tiles = max(SUM_TILES, CHUNK_NUMBERS // (16 * sum(self.transformed.shape[1:])))
        piece = -(-min(len(self.x), tiles // self.tiles.each) // blocks.MOST_PIECES) or 1
        biases = self.executor.workspace("bias sums", (-(-len(self.x) // piece), sums.shape[1]), self.x.dtype)
        for chunk in blocks.slices(0, len(self.x), max(1, tiles // self.tiles.each // piece) * piece):
            self._chunk(chunk, piece, sums, biases)
        if self.dbias is not None:
            self.dbias[...] = blocks.add_up(self.executor, biases)
        return sums

    def _chunk(self, chunk, piece, sums, biases):
        """Add the planes' gradient of a chunk of images to `sums`; biases: the bias gradient of every `piece` images."""
        count, each, first = chunk.stop - chunk.start, self.tiles.each, chunk.start == 0
        seen, turned = (self.executor.workspace(name, (16, count * each, width), self.x.dtype) for name, width in
                        (("images", self.x.shape[3]), ("products", self.transformed.shape[1])))

        def transform(worker, start, stop):
            for block in blocks.slices(chunk.start + start, chunk.start + stop, piece):
                gradient, tile = self.gradient.of(worker, block), (block.start - chunk.start) * each
                if self.dbias is not None:
                    biases[block.start // piece] = blocks.bias_gradient(gradient)
                _transform_images(worker, self.x[block], self.tiles, seen, tile)
                _transform_gradient(worker, gradient, self.tiles, turned, tile)
            worker.lap("convolution backward")

        def multiply(worker, start, stop):
            for plane in range(start, stop):
                out = sums[plane] if first else worker.workspace("product", sums.shape[1:], sums.dtype)
                np.matmul(turned[plane].T, seen[plane], out=out)
                if not first:
                    sums[plane] += out
                if self.dx is not None:
                    np.matmul(turned[plane], self.transformed[plane], out=seen[plane])
            worker.lap("convolution backward")

        def scatter(worker, start, stop):
            self._to_pixels(worker, seen, slice(chunk.start + start, chunk.start + stop), start * each)
            worker.lap("convolution backward")

        cost = seen.size + turned.size
        self.executor.parallel(count, transform, cost, piece=piece)
        self.executor.parallel(16, multiply, cost)
        if self.dx is not None:
            self.executor.parallel(count, scatter, cost)

    def _to_pixels(self, worker, planes, block, first):
        rows = worker.workspace("rows", (2, 4, 2 * self.tiles.columns + 2, planes.shape[2]), planes.dtype)
        images_gradient(planes, first, self.dx[block], self.tiles.rows, self.tiles.padding, rows)


def _transform_images(worker, x, tiles, out=None, first=0):
    begin, size = -tiles.padding, (2 * tiles.rows + 2, 2 * tiles.columns + 2)
    x = blocks.framed(worker, x, (begin, begin), size)
    out = _planes(worker, "seen", x, tiles) if out is None else out
    transform_images(x, out, first, worker.workspace("rows", (4, *x.shape[2:]), x.dtype))
    return out


def _transform_gradient(worker, dy, tiles, out=None, first=0):
    dy = blocks.framed(worker, dy, (0, 0), (2 * tiles.rows, 2 * tiles.columns))
    out = _planes(worker, "turned", dy, tiles) if out is None else out
    transform_gradient(dy, out, first, worker.workspace("rows", (4, *dy.shape[2:]), dy.dtype))
    return out


def _planes(worker, name, x, tiles):
    return worker.workspace(name, (16, len(x) * tiles.each, x.shape[3]), x.dtype)


@loop
def transform_filters(weight, start, stop, out, rows):
    """out (16, filters, channels) = G g G^T of the filters start to stop. rows: workspace (4, 3, channels)."""
    half = weight.dtype.type(0.5)
    channels = weight.shape[3]
    for o in range(start, stop):
        for j in range(3):
            for c in range(channels):
                outer, inner = half * (weight[o, 0, j, c] + weight[o, 2, j, c]), half * weight[o, 1, j, c]
                rows[0, j, c] = weight[o, 0, j, c]
                rows[1, j, c] = outer + inner
                rows[2, j, c] = outer - inner
                rows[3, j, c] = weight[o, 2, j, c]
        for k in range(4):
            for c in range(channels):
                outer, inner = half * (rows[k, 0, c] + rows[k, 2, c]), half * rows[k, 1, c]
                out[4 * k, o, c] = rows[k, 0, c]
                out[4 * k + 1, o, c] = outer + inner
                out[4 * k + 2, o, c] = outer - inner
                out[4 * k + 3, o, c] = rows[k, 2, c]


@loop
def filters_gradient(planes, start, stop, dweight, rows):
    """dweight = G^T u G of the filters start to stop. rows: workspace (3, 4, channels)."""
    half = planes.dtype.type(0.5)
    channels = dweight.shape[3]
    for o in range(start, stop):
        for k in range(4):
            for c in range(channels):
                both, apart = planes[4 + k, o, c] + planes[8 + k, o, c], planes[4 + k, o, c] - planes[8 + k, o, c]
                rows[0, k, c] = planes[k, o, c] + half * both
                rows[1, k, c] = half * apart
                rows[2, k, c] = planes[12 + k, o, c] + half * both
        for i in range(3):
            for c in range(channels):
                both, apart = rows[i, 1, c] + rows[i, 2, c], rows[i, 1, c] - rows[i, 2, c]
                dweight[o, i, 0, c] = rows[i, 0, c] + half * both
                dweight[o, i, 1, c] = half * apart
                dweight[o, i, 2, c] = rows[i, 3, c] + half * both


@loop
def transform_images(x, out, tile, rows):
    """out (16, tiles, channels) = B^T d B of the 4x4 tiles of x (N, H, W, C), two pixels apart, from `tile` on.

    rows: workspace (4, W, C).
    """
    images, height, width, channels = x.shape
    for n in range(images):
        for r in range(0, height - 2, 2):
            for q in range(width):
                for c in range(channels):
                    first, second, third, fourth = x[n, r, q, c], x[n, r + 1, q, c], x[n, r + 2, q, c], x[n, r + 3, q, c]
                    rows[0, q, c] = first - third
                    rows[1, q, c] = second + third
                    rows[2, q, c] = third - second
                    rows[3, q, c] = second - fourth
            for k in range(4):
                for q in range(width // 2 - 1):
                    for c in range(channels):
                        first, second, third, fourth = (rows[k, 2 * q, c], rows[k, 2 * q + 1, c], rows[k, 2 * q + 2, c],
                                                        rows[k, 2 * q + 3, c])
                        out[4 * k, tile + q, c] = first - third
                        out[4 * k + 1, tile + q, c] = second + third
                        out[4 * k + 2, tile + q, c] = third - second
                        out[4 * k + 3, tile + q, c] = second - fourth
            tile += width // 2 - 1


@loop
def images_gradient(planes, tile, dx, down, padding, rows):
    """dx (N, H, W, C) = B v B^T of the tiles from `tile` on, `down` rows of tiles per image, added up where they overlap.

    rows: workspace (2, 4, width of a row of tiles, C), for this row of tiles and the one above.
    """
    images, height, width, channels = dx.shape
    across = rows.shape[2] // 2 - 1
    zero = dx.dtype.type(0)
    for n in range(images):
        for r in range(down + 1):
            here, above = r % 2, 1 - r % 2
            if r == 0 or r == down:
                none = above if r == 0 else here
                for k in range(4):
                    for q in range(rows.shape[2]):
                        for c in range(channels):
                            rows[none, k, q, c] = zero
            if r < down:
                for k in range(4):
                    _join_across(planes, 4 * k, tile, rows, here, k)
                tile += across
            for i in range(max(0, padding - 2 * r), min(2, height + padding - 2 * r)):
                row = 2 * r + i - padding
                for q in range(width):
                    at = q + padding
                    if i == 0:
                        for c in range(channels):
                            dx[n, row, q, c] = rows[here, 0, at, c] + (
                                rows[above, 1, at, c] + rows[above, 2, at, c] - rows[above, 0, at, c])
                    else:
                        for c in range(channels):
                            dx[n, row, q, c] = rows[here, 1, at, c] - rows[here, 2, at, c] + (
                                rows[here, 3, at, c] - rows[above, 3, at, c])


@loop
def _join_across(planes, plane, tile, rows, here, k):
    """rows[here, k] = the four planes from `plane` on times B^T, the tiles' overlapping columns added."""
    across, channels = rows.shape[2] // 2 - 1, rows.shape[3]
    for c in range(channels):
        rows[here, k, 0, c] = planes[plane, tile, c]
        rows[here, k, 1, c] = planes[plane + 1, tile, c] - planes[plane + 2, tile, c] + planes[plane + 3, tile, c]
    for q in range(1, across):
        left, right = tile + q - 1, tile + q
        for c in range(channels):
            rows[here, k, 2 * q, c] = planes[plane, right, c] + (
                planes[plane + 1, left, c] + planes[plane + 2, left, c] - planes[plane, left, c])
            rows[here, k, 2 * q + 1, c] = planes[plane + 1, right, c] - planes[plane + 2, right, c] + (
                planes[plane + 3, right, c] - planes[plane + 3, left, c])
    last = tile + across - 1
    for c in range(channels):
        rows[here, k, 2 * across, c] = planes[plane + 1, last, c] + planes[plane + 2, last, c] - planes[plane, last, c]
        rows[here, k, 2 * across + 1, c] = -planes[plane + 3, last, c]


@loop
def transform_gradient(dy, out, tile, rows):
    """out (16, tiles, filters) = A d A^T of the 2x2 tiles of dy (N, H, W, filters), from `tile` on.

    rows: workspace (4, W, filters).
    """
    images, height, width, filters = dy.shape
    for n in range(images):
        for r in range(0, height, 2):
            for q in range(width):
                for c in range(filters):
                    upper, lower = dy[n, r, q, c], dy[n, r + 1, q, c]
                    rows[0, q, c] = upper
                    rows[1, q, c] = upper + lower
                    rows[2, q, c] = upper - lower
                    rows[3, q, c] = -lower
            for k in range(4):
                for q in range(width // 2):
                    for c in range(filters):
                        left, right = rows[k, 2 * q, c], rows[k, 2 * q + 1, c]
                        out[4 * k, tile + q, c] = left
                        out[4 * k + 1, tile + q, c] = left + right
                        out[4 * k + 2, tile + q, c] = left - right
                        out[4 * k + 3, tile + q, c] = -right
            tile += width // 2


@loop
def back_to_pixels(planes, tile, y, rows):
    """y (N, H, W, filters) = A^T m A of the tiles from `tile` on. rows: workspace (2, 4, tiles in a row, filters)."""
    images, height, width, filters = y.shape
    across = rows.shape[2]
    for n in range(images):
        for r in range(0, height, 2):
            for k in range(4):
                for q in range(across):
                    for c in range(filters):
                        second, third = planes[4 + k, tile + q, c], planes[8 + k, tile + q, c]
                        rows[0, k, q, c] = planes[k, tile + q, c] + second + third
                        rows[1, k, q, c] = second - third - planes[12 + k, tile + q, c]
            tile += across
            for i in range(min(2, height - r)):
                for q in range(across):
                    for c in range(filters):
                        y[n, r + i, 2 * q, c] = rows[i, 0, q, c] + rows[i, 1, q, c] + rows[i, 2, q, c]
                    if 2 * q + 1 < width:
                        for c in range(filters):
                            y[n, r + i, 2 * q + 1, c] = rows[i, 1, q, c] - rows[i, 2, q, c] - rows[i, 3, q, c]
