"""3x3 convolutions with stride 1 on the cpu rung: 36 instead of 144 products per 16 output pixels
(Winograd, F(4x4, 3x3)).

For a tile d of 6x6 input pixels and a filter g, the 4x4 outputs are A^T [(G g G^T) * (B^T d B)] A
(Lavin and Gray, 2016): only the elementwise product in the middle mixes channels and filters, so
over all tiles it is 36 matrix products. A, B and G are small constant matrices, of a Toom-Cook
scheme with the points 0, +-5/8, +-3/2 and infinity, whose rounding error is less than half of that
with +-1 and +-2. With D = A dy A^T, the gradients are G^T [D * (B^T d B)] G and B [(G g G^T) * D]
B^T.

The 36 planes of transformed arrays are (36, tiles, channels), tiles in NHW order, and (36, filters,
channels). The loops are compiled as described in loops.py.
"""

import math

import numpy as np

from ladder.executors.cpu import blocks, products
from ladder.executors.cpu.loops import loop

# Tiles per block: with fewer, a matrix product spends most of its time loading weights; the blocks
# of a sum fit the cache.
BLOCK_TILES, SUM_TILES = 256, 128
# per block, of a convolution with so few tiles that a thread would get none
LEAST_TILES = 64
CHUNK_NUMBERS = 2**22  # size of the transformed images and gradients of all threads
# weights per plane, up to which groups of images have sums of their own of their gradient
FEW_WEIGHTS = 2**13
# with fewer, threads share the planes instead of the images, each of which needs all weights
FEW_TILES = 512


def winograd_conv2d_weight(executor, weight, transformed):
    """transformed (36, filters, channels) = G g G^T for each filter and channel."""
    to_planes(executor, transform_filters, weight, transformed)


def winograd_conv2d_forward(executor, x, transformed, y, padding, relu, bias=None, index=None):
    """As conv2d_forward."""
    call = _Forward(executor, _Tiles(x.shape, padding), x, transformed, y, bias, relu, index)
    call.by_plane() if call.has_few_tiles() else call.by_image()


def winograd_conv2d_backward(
    executor, x, transformed, y, dy, dweight, padding, relu, dbias=None, index=None, dx=None
):
    """As conv2d_backward."""
    tiles = _Tiles(x.shape, padding)
    gradient = blocks.Gradient(y, dy, relu, index, (*tiles.out, transformed.shape[1]))
    call = _Backward(executor, tiles, x, transformed, gradient, dx, dbias)
    sums = call.by_image() if transformed[0].size <= FEW_WEIGHTS else call.by_plane()

    from_planes(executor, filters_gradient, sums, dweight)


def to_planes(executor, loop_of_filters, weight, planes):
    """planes (n n, filters, channels) of a weight by a loop such as transform_filters."""

    def work(worker, start, stop):
        shape = math.isqrt(len(planes)), 3, weight.shape[3]
        rows = worker.workspace("rows", shape, weight.dtype)
        loop_of_filters(weight, start, stop, planes, rows)
        worker.lap("convolution forward")

    executor.parallel(len(weight), work, planes.size)


def from_planes(executor, loop_of_filters, planes, dweight):
    """dweight of planes (n n, filters, channels) by a loop such as filters_gradient."""

    def work(worker, start, stop):
        shape = 3, math.isqrt(len(planes)), dweight.shape[3]
        rows = worker.workspace("rows", shape, dweight.dtype)
        loop_of_filters(planes, start, stop, dweight, rows)
        worker.lap("convolution backward")

    executor.parallel(len(dweight), work, planes.size)


OPERATIONS = (winograd_conv2d_weight, winograd_conv2d_forward, winograd_conv2d_backward)


class _Tiles:
    """The 4x4 tiles of a convolution's output; the last row and column of tiles may extend beyond
    its edge.
    """

    def __init__(self, shape, padding):
        self.padding = padding
        self.out = tuple(size + 2 * padding - 2 for size in shape[1:3])
        self.rows, self.columns = (-(-size // 4) for size in self.out)
        self.each = self.rows * self.columns  # tiles per image

    def cut(self, images, most, planes):
        """The blocks.Cut of the images into blocks of at most `most` tiles, or one image, for
        products with these planes.
        """
        tiles, work = images * self.each, images * self.each * planes.size
        return blocks.cut(
            images, self.each, min(most, max(LEAST_TILES, tiles // blocks.pieces(work))), work
        )


class _Forward:
    """The operands of one forward pass, and the two ways to distribute it over threads."""

    def __init__(self, executor, tiles, x, transformed, y, bias, relu, index):
        self.executor, self.tiles, self.x, self.y, self.bias, self.relu, self.index = (
            executor,
            tiles,
            x,
            y,
            bias,
            relu,
            index,
        )
        self.planes = blocks.transposed(executor, transformed)

    def has_few_tiles(self):
        """True if there are so few tiles that a product with some of them would mostly wait for the
        weights.
        """
        return len(self.x) * self.tiles.each < FEW_TILES and self.planes[0].size > FEW_WEIGHTS

    def by_image(self):
        """Each thread processes its own images."""
        cut = self.tiles.cut(len(self.x), BLOCK_TILES, self.planes)

        def work(worker, start, stop):
            for block in cut.blocks(start, stop):
                seen = _transform_images(worker, self.x[block], self.tiles)
                out = worker.workspace(
                    "products", (36, seen.shape[1], self.y.shape[3]), self.y.dtype
                )
                products.multiply(seen, self.planes, out)
                self._finish(worker, out, block, 0)

        self.executor.parallel(len(self.x), work, cut.cost, piece=cut.size)

    def by_plane(self):
        """The threads first transform all images, then each multiplies some of the planes."""
        count, each = len(self.x), self.tiles.each
        seen, out = (
            self.executor.workspace(name, (36, count * each, width), self.x.dtype)
            for name, width in (("images", self.x.shape[3]), ("products", self.y.shape[3]))
        )

        def transform(worker, start, stop):
            _transform_images(worker, self.x[start:stop], self.tiles, seen, start * each)
            worker.lap("convolution forward")

        def multiply(worker, start, stop):
            products.multiply(seen[start:stop], self.planes[start:stop], out[start:stop])
            worker.lap("convolution forward")

        def finish(worker, start, stop):
            self._finish(worker, out, slice(start, stop), start * each)

        for items, work in ((count, transform), (36, multiply), (count, finish)):
            self.executor.parallel(items, work, seen.size + out.size)

    def _finish(self, worker, planes, block, first):
        y, index = self.y[block], None if self.index is None else self.index[block]
        out = (
            y
            if index is None
            else worker.workspace("convolved", (len(y), *self.tiles.out, y.shape[3]), y.dtype)
        )
        back_to_pixels(planes, first, out, worker.workspace("rows", (4, 6, y.shape[3]), y.dtype))
        worker.lap("convolution forward")
        blocks.finish(worker, out, y, self.bias, self.relu, index)


class _Backward:
    """The operands of one backward pass, and the two ways to distribute it over threads. gradient:
    a blocks.Gradient.
    """

    def __init__(self, executor, tiles, x, transformed, gradient, dx, dbias):
        self.executor, self.tiles, self.x, self.transformed = executor, tiles, x, transformed
        self.gradient, self.dx, self.dbias = gradient, dx, dbias

    def by_image(self):
        """Each thread sums the planes' gradient over groups of images."""
        cut = self.tiles.cut(len(self.x), SUM_TILES, self.transformed)
        sums = blocks.Sums(self.executor, cut, self.transformed.shape, self.dbias, self.x.dtype)

        def work(worker, start, stop):
            for block in cut.blocks(start, stop):
                gradient = self.gradient.of_block(worker, block)
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
        """The threads first transform a chunk of images, then each multiplies some of the planes:
        no sums over threads.
        """
        sums = self.executor.workspace("plane sums", self.transformed.shape, self.x.dtype)
        tiles = max(SUM_TILES, CHUNK_NUMBERS // (36 * sum(self.transformed.shape[1:])))
        piece = -(-min(len(self.x), tiles // self.tiles.each) // blocks.MOST_PIECES) or 1
        biases = self.executor.workspace(
            "bias sums", (-(-len(self.x) // piece), sums.shape[1]), self.x.dtype
        )
        for chunk in blocks.slices(
            0, len(self.x), max(1, tiles // self.tiles.each // piece) * piece
        ):
            self._chunk(chunk, piece, sums, biases)
        if self.dbias is not None:
            self.dbias[...] = blocks.add_up(self.executor, biases)
        return sums

    def _chunk(self, chunk, piece, sums, biases):
        """Add the planes' gradient of a chunk of images to `sums`; biases: the bias gradient of
        every `piece` images.
        """
        count, each, first = chunk.stop - chunk.start, self.tiles.each, chunk.start == 0
        seen, turned = (
            self.executor.workspace(name, (36, count * each, width), self.x.dtype)
            for name, width in (
                ("images", self.x.shape[3]),
                ("products", self.transformed.shape[1]),
            )
        )

        def transform(worker, start, stop):
            for block in blocks.slices(chunk.start + start, chunk.start + stop, piece):
                gradient, tile = (
                    self.gradient.of_block(worker, block),
                    (block.start - chunk.start) * each,
                )
                if self.dbias is not None:
                    biases[block.start // piece] = blocks.bias_gradient(gradient)
                _transform_images(worker, self.x[block], self.tiles, seen, tile)
                _transform_gradient(worker, gradient, self.tiles, turned, tile)
            worker.lap("convolution backward")

        def multiply(worker, start, stop):
            # plane by plane: the second product finds in the cache what the first has read
            for plane in blocks.slices(start, stop, 1):
                left = turned[plane].transpose(0, 2, 1)
                products.multiply(left, seen[plane], sums[plane], not first)
                if self.dx is not None:
                    products.multiply(turned[plane], self.transformed[plane], seen[plane])
            worker.lap("convolution backward")

        def scatter(worker, start, stop):
            self._to_pixels(
                worker, seen, slice(chunk.start + start, chunk.start + stop), start * each
            )
            worker.lap("convolution backward")

        cost = seen.size + turned.size
        self.executor.parallel(count, transform, cost, piece=piece)
        self.executor.parallel(36, multiply, cost)
        if self.dx is not None:
            self.executor.parallel(count, scatter, cost)

    def _to_pixels(self, worker, planes, block, first):
        tiles, channels = self.tiles, planes.shape[2]
        frame = worker.workspace(
            "frame", (4 * tiles.rows + 2, 4 * tiles.columns + 2, channels), planes.dtype
        )
        rows = worker.workspace("rows", (6, 6 * tiles.columns, channels), planes.dtype)
        images_gradient(planes, first, self.dx[block], tiles.rows, tiles.padding, frame, rows)


def _transform_images(worker, x, tiles, out=None, first=0):
    out = _planes(worker, "seen", x, tiles) if out is None else out
    rows = worker.workspace("rows", (6, 4 * tiles.columns + 2, x.shape[3]), x.dtype)
    transform_images(x, tiles.rows, tiles.padding, out, first, rows)
    return out


def _transform_gradient(worker, dy, tiles, out=None, first=0):
    dy = blocks.framed(worker, dy, (0, 0), (4 * tiles.rows, 4 * tiles.columns))
    out = _planes(worker, "turned", dy, tiles) if out is None else out
    transform_gradient(dy, out, first, worker.workspace("rows", (6, *dy.shape[2:]), dy.dtype))
    return out


def _planes(worker, name, x, tiles):
    return worker.workspace(name, (36, len(x) * tiles.each, x.shape[3]), x.dtype)


# The matrices times a vector. These numbers are exact in both precisions; G's, which are not, are
# quotients of them.
NEAR, FAR = np.float32(5 / 8), np.float32(3 / 2)
NEAR_2, FAR_2, NEAR_3, FAR_3 = NEAR**2, FAR**2, NEAR**3, FAR**3
BOTH, EITHER = NEAR_2 * FAR_2, NEAR_2 + FAR_2
NEAR_DIVISOR, FAR_DIVISOR = 2 * NEAR_2 * (NEAR_2 - FAR_2), 2 * FAR_2 * (FAR_2 - NEAR_2)


@loop
def _filter(first, second, third):
    """G g"""
    near, far = (first + NEAR_2 * third) / NEAR_DIVISOR, (first + FAR_2 * third) / FAR_DIVISOR
    odd_near, odd_far = NEAR * second / NEAR_DIVISOR, FAR * second / FAR_DIVISOR
    return first / BOTH, near + odd_near, near - odd_near, far + odd_far, far - odd_far, third


@loop
def _filter_gradient(first, second, third, fourth, fifth, sixth):
    """G^T u"""
    near, far = (second + third) / NEAR_DIVISOR, (fourth + fifth) / FAR_DIVISOR
    odd = NEAR * (second - third) / NEAR_DIVISOR + FAR * (fourth - fifth) / FAR_DIVISOR
    return first / BOTH + near + far, odd, NEAR_2 * near + FAR_2 * far + sixth


@loop
def _image(first, second, third, fourth, fifth, sixth):
    """B^T d"""
    near, odd_near = fifth - FAR_2 * third, NEAR * (fourth - FAR_2 * second)
    far, odd_far = fifth - NEAR_2 * third, FAR * (fourth - NEAR_2 * second)
    return (
        BOTH * first - EITHER * third + fifth,
        near + odd_near,
        near - odd_near,
        far + odd_far,
        far - odd_far,
        BOTH * second - EITHER * fourth + sixth,
    )


@loop
def _image_gradient(first, second, third, fourth, fifth, sixth):
    """B v"""
    near, odd_near, far, odd_far = (
        second + third,
        NEAR * (second - third),
        fourth + fifth,
        FAR * (fourth - fifth),
    )
    return (
        BOTH * first,
        BOTH * sixth - FAR_2 * odd_near - NEAR_2 * odd_far,
        -EITHER * first - FAR_2 * near - NEAR_2 * far,
        odd_near + odd_far - EITHER * sixth,
        first + near + far,
        sixth,
    )


@loop
def _output(first, second, third, fourth, fifth, sixth):
    """A^T m"""
    near, odd_near, far, odd_far = second + third, second - third, fourth + fifth, fourth - fifth
    return (
        first + near + far,
        NEAR * odd_near + FAR * odd_far,
        NEAR_2 * near + FAR_2 * far,
        NEAR_3 * odd_near + FAR_3 * odd_far + sixth,
    )


@loop
def _output_gradient(first, second, third, fourth):
    """A y"""
    near, odd_near = first + NEAR_2 * third, NEAR * second + NEAR_3 * fourth
    far, odd_far = first + FAR_2 * third, FAR * second + FAR_3 * fourth
    return first, near + odd_near, near - odd_near, far + odd_far, far - odd_far, fourth


@loop
def _six(array, first, step, at, c):
    """The values at one place of six rows or planes, `step` apart."""
    return (
        array[first, at, c],
        array[first + step, at, c],
        array[first + 2 * step, at, c],
        array[first + 3 * step, at, c],
        array[first + 4 * step, at, c],
        array[first + 5 * step, at, c],
    )


@loop
def _six_along(array, row, at, c):
    """The values of six pixels of a row."""
    return (
        array[row, at, c],
        array[row, at + 1, c],
        array[row, at + 2, c],
        array[row, at + 3, c],
        array[row, at + 4, c],
        array[row, at + 5, c],
    )


@loop
def _put_six(array, first, at, c, values):
    """Store values at one place of six rows or planes."""
    (
        array[first, at, c],
        array[first + 1, at, c],
        array[first + 2, at, c],
        array[first + 3, at, c],
        array[first + 4, at, c],
        array[first + 5, at, c],
    ) = values


@loop
def transform_filters(weight, start, stop, out, rows):
    """out (36, filters, channels) = G g G^T of the filters start to stop. rows: workspace (6, 3,
    channels).
    """
    channels = weight.shape[3]
    for o in range(start, stop):
        for j in range(3):
            for c in range(channels):
                taps = weight[o, 0, j, c], weight[o, 1, j, c], weight[o, 2, j, c]
                _put_six(rows, 0, j, c, _filter(*taps))
        for k in range(6):
            for c in range(channels):
                taps = rows[k, 0, c], rows[k, 1, c], rows[k, 2, c]
                _put_six(out, 6 * k, o, c, _filter(*taps))


@loop
def filters_gradient(planes, start, stop, dweight, rows):
    """dweight = G^T u G of the filters start to stop. rows: workspace (3, 6, channels)."""
    channels = dweight.shape[3]
    for o in range(start, stop):
        for k in range(6):
            for c in range(channels):
                rows[0, k, c], rows[1, k, c], rows[2, k, c] = _filter_gradient(
                    *_six(planes, k, 6, o, c)
                )
        for i in range(3):
            for c in range(channels):
                dweight[o, i, 0, c], dweight[o, i, 1, c], dweight[o, i, 2, c] = _filter_gradient(
                    *_six_along(rows, i, 0, c)
                )


@loop
def transform_images(x, down, padding, out, tile, rows):
    """out (36, tiles, channels) = B^T d B of the 6x6 tiles of x (N, H, W, C) with zeros around it,
    four pixels apart, from `tile` on; `down` rows of tiles per image.

    rows: workspace (6, 4 columns of tiles + 2, C).
    """
    images, _, width, channels = x.shape
    across = rows.shape[1] // 4
    rows[:, :padding] = 0
    rows[:, padding + width :] = 0
    for n in range(images):
        image = x[n]
        for r in range(down):
            top = 4 * r - padding
            for q in range(width):
                for c in range(channels):
                    column = (
                        _pixel(image, top, q, c),
                        _pixel(image, top + 1, q, c),
                        _pixel(image, top + 2, q, c),
                        _pixel(image, top + 3, q, c),
                        _pixel(image, top + 4, q, c),
                        _pixel(image, top + 5, q, c),
                    )
                    _put_six(rows, 0, q + padding, c, _image(*column))
            for k in range(6):
                for q in range(across):
                    here, left = tile + q, 4 * q
                    for c in range(channels):
                        _put_six(out, 6 * k, here, c, _image(*_six_along(rows, k, left, c)))
            tile += across


@loop
def _pixel(image, row, column, c):
    """The value there, 0 above and below the image."""
    within = (row >= 0) & (row < image.shape[0])
    return image[row if within else 0, column, c] if within else image.dtype.type(0)


@loop
def images_gradient(planes, tile, dx, down, padding, frame, rows):
    """dx (N, H, W, C) = B v B^T of the tiles from `tile` on, `down` rows of tiles per image, added
    up where they overlap.

    Workspaces: frame (4 rows of tiles + 2, 4 columns of tiles + 2, C), rows (6, 6 columns of tiles,
    C). Loops that add to what they overlap are kept apart from those that transform: together they
    would not be vectorized.
    """
    images, height, width, channels = dx.shape
    across = frame.shape[1] // 4
    zero = dx.dtype.type(0)
    for n in range(images):
        for q in range(frame.shape[1]):
            for c in range(channels):
                frame[0, q, c] = zero
                frame[1, q, c] = zero
        for r in range(down):
            for k in range(6):
                for q in range(across):
                    left, here = 6 * q, tile + q
                    for c in range(channels):
                        (
                            rows[k, left, c],
                            rows[k, left + 1, c],
                            rows[k, left + 2, c],
                            rows[k, left + 3, c],
                            rows[k, left + 4, c],
                            rows[k, left + 5, c],
                        ) = _image_gradient(*_six(planes, 6 * k, 1, here, c))
                for q in range(1, across):
                    left = 6 * q
                    for c in range(channels):
                        rows[k, left, c] += rows[k, left - 2, c]
                        rows[k, left + 1, c] += rows[k, left - 1, c]
            tile += across
            top = 4 * r
            for q in range(frame.shape[1]):
                at = q + 2 * min(q // 4, across - 1)
                for c in range(channels):
                    first, second, third, fourth, fifth, sixth = _image_gradient(
                        *_six(rows, 0, 1, at, c)
                    )
                    frame[top, q, c] += first
                    frame[top + 1, q, c] += second
                    frame[top + 2, q, c] = third
                    frame[top + 3, q, c] = fourth
                    frame[top + 4, q, c] = fifth
                    frame[top + 5, q, c] = sixth
        for r in range(height):
            for q in range(width):
                for c in range(channels):
                    dx[n, r, q, c] = frame[r + padding, q + padding, c]


@loop
def transform_gradient(dy, out, tile, rows):
    """out (36, tiles, filters) = A d A^T of the 4x4 tiles of dy (N, H, W, filters), from `tile` on.

    rows: workspace (6, W, filters).
    """
    images, height, width, filters = dy.shape
    across = width // 4
    for n in range(images):
        for r in range(0, height, 4):
            for q in range(width):
                for c in range(filters):
                    column = (
                        dy[n, r, q, c],
                        dy[n, r + 1, q, c],
                        dy[n, r + 2, q, c],
                        dy[n, r + 3, q, c],
                    )
                    _put_six(rows, 0, q, c, _output_gradient(*column))
            for k in range(6):
                for q in range(across):
                    here, left = tile + q, 4 * q
                    for c in range(filters):
                        row = (
                            rows[k, left, c],
                            rows[k, left + 1, c],
                            rows[k, left + 2, c],
                            rows[k, left + 3, c],
                        )
                        _put_six(out, 6 * k, here, c, _output_gradient(*row))
            tile += across


@loop
def back_to_pixels(planes, tile, y, rows):
    """y (N, H, W, filters) = A^T m A of the tiles from `tile` on. rows: workspace (4, 6,
    filters).
    """
    images, height, width, filters = y.shape
    for n in range(images):
        for r in range(0, height, 4):
            for q in range(0, width, 4):
                for k in range(6):
                    for c in range(filters):
                        rows[0, k, c], rows[1, k, c], rows[2, k, c], rows[3, k, c] = _output(
                            *_six(planes, k, 6, tile, c)
                        )
                for i in range(min(4, height - r)):
                    row = r + i
                    for c in range(filters):
                        first, second, third, fourth = _output(*_six_along(rows, i, 0, c))
                        y[n, row, q, c] = first
                        if q + 1 < width:
                            y[n, row, q + 1, c] = second
                        if q + 2 < width:
                            y[n, row, q + 2, c] = third
                        if q + 3 < width:
                            y[n, row, q + 3, c] = fourth
                tile += 1
