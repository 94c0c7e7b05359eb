"""The tasks of small networks: compiled work that several threads share, each described by a row
of a table.

The operations of a small network take microseconds, less than Python needs to hand them to a
thread. So they are turned once (small.py) into tables of tasks, and a team of threads (team.py)
works through a table without Python. What a number is computed from depends on a task's shapes
only, not on the pieces that the task is cut into, nor on who takes which.

A function takes a pointer to its task, the number of a piece and the number of pieces, and does
that piece. The fields of a task are addresses of C-contiguous arrays and sizes; the shapes are in
each function's docstring, images NHWC. `like` is a number of the type of all arrays whose type is
not mentioned.
"""

import functools

import numba
import numpy as np
from numba import types

from ladder.executors.cpu import loops
from ladder.executors.cpu.products import (
    Rows,
    Strided,
    add_run,
    bytes_of,
    compiled,
    compiled_function,
    inlined,
    pointer,
    product,
)
from ladder.store import programs

ADDRESSES = (
    "x",
    "y",
    "dx",
    "dy",
    "weight",
    "bias",
    "index",
    "dweights",
    "dbiases",
    "mean",
    "inverse",
    "running_mean",
    "running_var",
    "square",
    "images",
    "labels",
    "permutation",
    "counters",
    "scale",
    "offset",
    "rates",
    "losses",
    "hits",
    "scratch",
)
SIZES = (
    "batch",
    "height",
    "width",
    "channels",
    "filters",
    "kernel",
    "taps",
    "stride",
    "top",
    "left",
    "rows",
    "columns",
    "terms",
    "row",
    "term",
    "group",
    "strip",
    "scratch_numbers",
)
FLAGS = ("relu", "pool")
NUMBERS = ("weight_decay", "clip", "momentum", "decay", "epsilon")
# Numba's cache of a compiled function knows the file of that function, not the files of those that
# it calls. The functions here have a task as argument, whose type has the digests of these sources
# in its name.
_SOURCES = "_".join(
    programs.digest(f"workflow/scripts/ladder/executors/cpu/{name}.py")
    for name in ("loops", "products", "tasks")
)
TASK = np.dtype(
    [
        *((name, np.int64) for name in ("product", *ADDRESSES, *SIZES, *FLAGS)),
        *((name, np.float64) for name in NUMBERS),
        (f"sources_{_SOURCES}", np.int64),
    ]
)

LINE = 16  # numbers of a cache line, shared by no two pieces


@functools.cache
def address(function, dtype):
    """Address of the compiled form of a function below, for arrays of this type; see
    products.compiled_function.
    """
    like = numba.from_dtype(np.dtype(dtype))
    kind = types.void(types.CPointer(numba.from_dtype(TASK)), types.int64, types.int64, like)
    return compiled_function(function, kind).address


def load_bytes(row, piece, pieces, like):
    """`_load` of uint8 images."""
    _load(_task(row), piece, pieces, np.uint8(0), like)


def load_numbers(row, piece, pieces, like):
    """`_load` of float32 images."""
    _load(_task(row), piece, pieces, np.float32(0), like)


@compiled
def _load(task, piece, pieces, pixel, like):
    """y (batch, height, width, channels) = these rows of the images, whose type is pixel's, times
    scale plus offset.
    """
    size = task.width * task.channels
    counters = _array(task.counters, 3, np.int64(0))
    rows = _array(task.permutation, counters[1] + task.batch, np.int64(0))[counters[1] :]
    scale, offset = (
        _array(task.scale, task.channels, np.float32(0)),
        _array(task.offset, task.channels, np.float32(0)),
    )
    factors = numba.carray(pointer(_own(task, piece, like), np.float32(0)), (2, size))
    for k in range(size):
        factors[0, k] = scale[k % task.channels]
        factors[1, k] = offset[k % task.channels]
    # rows are not checked against the 1
    images = numba.carray(pointer(task.images, pixel), (1, task.height, size))
    batch = numba.carray(pointer(task.y, like), (task.batch, task.height, size))
    first, last = _share(task.batch, piece, pieces)
    loops.load(images, rows[first:last], factors[0], factors[1], batch[first:last])


def pad(row, piece, pieces, like):
    """y (batch, height, width, channels) = x with `rows` rows and columns of zeros less on each
    side.
    """
    task = _task(row)
    size, border = task.width * task.channels, task.rows * task.channels
    inside = size - 2 * border
    y = numba.carray(pointer(task.y, like), (task.batch, task.height, size))
    x = numba.carray(pointer(task.x, like), (task.batch, task.height - 2 * task.rows, inside))
    first, last = _share(task.batch, piece, pieces)
    for n in range(first, last):
        for r in range(task.height):
            for k in range(size):
                y[n, r, k] = like
        for r in range(x.shape[1]):
            for k in range(inside):
                y[n, r + task.rows, k + border] = x[n, r, k]


def turn(row, piece, pieces, like):
    """y (batch, columns, rows) = x (batch, rows, columns), each matrix transposed."""
    task = _task(row)
    x = numba.carray(pointer(task.x, like), (task.batch, task.rows, task.columns))
    y = numba.carray(pointer(task.y, like), (task.batch, task.columns, task.rows))
    strips = (task.columns + LINE - 1) // LINE
    first, last = _share(task.batch * strips, piece, pieces)
    for place in range(first, last):
        n, left = place // strips, place % strips * LINE
        for top in range(0, task.rows, LINE):
            for c in range(left, min(task.columns, left + LINE)):
                for r in range(top, min(task.rows, top + LINE)):
                    y[n, c, r] = x[n, r, c]


def multiply(row, piece, pieces, like):
    """y (rows, columns) = the sums over t < terms of x[r row + t term] weight[t, c]; weight:
    (terms, columns).
    """
    task = _task(row)
    top, bottom, left, right = 0, task.rows, 0, task.columns
    if task.rows < task.columns:
        left, right = _lines(task.columns, piece, pieces)
    else:
        top, bottom = _share(task.rows, piece, pieces)
    if top < bottom and left < right:
        size = bytes_of(like)
        product(
            task.product,
            Rows(task.y + size * (top * task.columns + left), task.columns),
            bottom - top,
            right - left,
            Strided(task.x + size * top * task.row, task.row, 0, task.term),
            Rows(task.weight + size * left, task.columns),
            1,
            task.terms,
            False,
            like,
        )


def finish(row, piece, pieces, like):
    """y (rows, columns) = x (columns, rows) transposed, plus bias unless its address is 0, then
    ReLU if `relu`.
    """
    task = _task(row)
    x, y = (
        _matrix(task.x, task.columns, task.rows, like),
        _matrix(task.y, task.rows, task.columns, like),
    )
    bias = _array(task.bias, task.columns, like)
    first, last = _share((task.rows + LINE - 1) // LINE, piece, pieces)
    for top in range(LINE * first, min(task.rows, LINE * last), LINE):
        for left in range(0, task.columns, LINE):
            for r in range(top, min(task.rows, top + LINE)):
                for c in range(left, min(task.columns, left + LINE)):
                    value = x[c, r] + (bias[c] if task.bias != 0 else like)
                    y[r, c] = like if (task.relu != 0) & (value < like) else value


def pass_gradient(row, piece, pieces, like):
    """dx (rows, columns) = dy where y > 0, without relu is dy already; dbiases = the sums of its
    columns unless at 0.
    """
    task = _task(row)
    y, dy, dx = (
        _matrix(task.y, task.rows, task.columns, like),
        _matrix(task.dy, task.rows, task.columns, like),
        _matrix(task.dx, task.rows, task.columns, like),
    )
    first, last = _lines(task.columns, piece, pieces)
    if task.relu != 0:
        for r in range(task.rows):
            for c in range(first, last):
                dx[r, c] = dy[r, c] if y[r, c] > like else like
    if task.dbiases != 0:
        loops.column_sums(
            dx, np.uint64(first), np.uint64(last), _array(task.dbiases, task.columns, like)
        )


def gather(row, piece, pieces, like):
    """y (batch, rows, columns, kernel, taps * channels) = windows of x (batch, height, width,
    channels), zeros outside.

    top, left: position of the first window; they are `stride` apart.
    """
    task = _task(row)
    line, run = task.width * task.channels, task.taps * task.channels
    x = numba.carray(pointer(task.x, like), (task.batch, task.height, line))
    y = numba.carray(pointer(task.y, like), (task.batch, task.rows, task.columns, task.kernel, run))
    first, last = _share(task.batch, piece, pieces)
    for n in range(first, last):
        for r in range(task.rows):
            for q in range(task.columns):
                begin = (q * task.stride + task.left) * task.channels
                before, end = max(0, -begin), min(run, line - begin)
                for i in range(task.kernel):
                    row = r * task.stride + task.top + i
                    if row < 0 or row >= task.height or end <= before:
                        y[n, r, q, i] = like
                        continue
                    y[n, r, q, i, :before] = like
                    y[n, r, q, i, before:end] = x[n, row, begin + before : begin + end]
                    y[n, r, q, i, end:] = like


def scatter(row, piece, pieces, like):
    """dx (batch, height, width, channels) = the sums of the entries of each pixel in windows x, of
    the form of `gather`'s y.
    """
    task = _task(row)
    x = numba.carray(
        pointer(task.x, like),
        (task.batch, task.rows, task.columns, task.kernel, task.taps * task.channels),
    )
    dx = numba.carray(pointer(task.dx, like), (task.batch, task.height, task.width * task.channels))
    first, last = _share(task.batch, piece, pieces)
    loops.col2im(x[first:last], dx[first:last], task.channels, task.top, task.left, task.stride)


def add(row, piece, pieces, like):
    """y = x + dy, flat (columns), then ReLU if `relu`."""
    task = _task(row)
    first, last = _lines(task.columns, piece, pieces)
    loops.add(
        _array(task.x, task.columns, like)[first:last],
        _array(task.dy, task.columns, like)[first:last],
        _array(task.y, task.columns, like)[first:last],
        task.relu != 0,
    )


def pass_relu(row, piece, pieces, like):
    """dx = dy where y > 0, else 0; flat (columns)."""
    task = _task(row)
    first, last = _lines(task.columns, piece, pieces)
    loops.relu_gradient(
        _array(task.y, task.columns, like)[first:last],
        _array(task.dy, task.columns, like)[first:last],
        _array(task.dx, task.columns, like)[first:last],
    )


def normalize(row, piece, pieces, like):
    """Batch normalization of x (rows, columns), one column for each channel, as
    layers.batchnorm_forward.
    """
    task = _task(row)
    x, y = (
        _matrix(task.x, task.rows, task.columns, like),
        _matrix(task.y, task.rows, task.columns, like),
    )
    first, last = _lines(task.columns, piece, pieces)
    if first < last:
        first, last = np.uint64(first), np.uint64(last)
        total, squares, factor = (
            np.empty(task.columns),
            np.empty(task.columns),
            np.empty(task.columns, y.dtype),
        )
        mean, bias = _array(task.mean, task.columns, like), _array(task.bias, task.columns, like)
        loops.moments(x, first, last, total, squares)
        loops.batch_statistics(
            task.rows,
            total,
            squares,
            first,
            last,
            _array(task.weight, task.columns, like),
            mean,
            _array(task.inverse, task.columns, like),
            factor,
            _array(task.running_mean, task.columns, like),
            _array(task.running_var, task.columns, like),
            task.decay,
            task.epsilon,
        )
        loops.normalize(x, first, last, mean, factor, bias, y, task.relu != 0)


def normalize_back(row, piece, pieces, like):
    """Gradients of `normalize`, as layers.batchnorm_backward."""
    task = _task(row)
    x, dy, dx = (
        _matrix(task.x, task.rows, task.columns, like),
        _matrix(task.dy, task.rows, task.columns, like),
        _matrix(task.dx, task.rows, task.columns, like),
    )
    first, last = _lines(task.columns, piece, pieces)
    if first < last:
        mean, inverse = (
            _array(task.mean, task.columns, like),
            _array(task.inverse, task.columns, like),
        )
        weight, bias = (
            _array(task.weight, task.columns, like),
            _array(task.bias, task.columns, like),
        )
        factor, offset = np.empty(task.columns, dx.dtype), np.empty(task.columns, dx.dtype)
        slope = np.empty(task.columns, dx.dtype)
        for c in range(first, last):
            factor[c] = weight[c] * inverse[c]
        first, last = np.uint64(first), np.uint64(last)
        sums, products = np.empty(task.columns), np.empty(task.columns)
        loops.gradient_sums(x, dy, first, last, mean, factor, bias, sums, products, task.relu != 0)
        loops.parameter_gradients(
            task.rows,
            sums,
            products,
            first,
            last,
            inverse,
            _array(task.dweights, task.columns, like),
            _array(task.dbiases, task.columns, like),
            offset,
            slope,
        )
        loops.input_gradient(
            x, dy, first, last, mean, factor, bias, offset, slope, dx, task.relu != 0
        )


def convolve(row, piece, pieces, like):
    """y = windows of x (batch, height, width, channels) times weight (taps, filters), plus bias,
    then pooling and ReLU.

    With pool, y and index are (batch, rows, columns, filters) after 2x2 pooling; even and odd
    columns of windows are products of their own, because pooling is then the same for all numbers
    of a row.
    """
    task = _task(row)
    size, length = bytes_of(like), task.columns * task.filters
    pixel, line = task.channels * task.stride, task.width * task.channels
    phases, scratch = 1 + task.pool, _own(task, piece, like)
    own = numba.carray(pointer(scratch, like), (5, length))
    bias = _array(task.bias, task.filters, like)
    for k in range(length):
        own[4, k] = bias[k % task.filters]
    count = task.batch * task.rows
    y, index = _matrix(task.y, count, length, like), _matrix(task.index, count, length, np.uint8(0))
    first, last = _share(task.batch, piece, pieces)
    for n in range(first, last):
        image = task.x + size * n * task.height * line
        for r in range(task.rows):
            to = n * task.rows + r
            for row in range(phases):
                for column in range(phases):
                    out = (
                        scratch + size * length * (2 * row + column)
                        if task.pool
                        else task.y + size * to * length
                    )
                    window = image + size * (
                        (phases * r + row) * task.stride * line + column * pixel
                    )
                    product(
                        task.product,
                        Rows(out, task.filters),
                        task.columns,
                        task.filters,
                        Strided(window, phases * pixel, line, 1),
                        Rows(task.weight, task.filters),
                        task.kernel,
                        task.kernel * task.channels,
                        False,
                        like,
                    )
            if task.pool:
                loops.maxpool_rows(
                    own[0], own[1], own[2], own[3], own[4], y[to], index[to], task.relu != 0
                )
            else:
                loops.add_bias(
                    y[to : to + 1], np.uint64(0), np.uint64(length), own[4], task.relu != 0
                )


def convolve_back(row, piece, pieces, like):
    """Gradients of `convolve`, with weight as (filters, taps): dx unless its address is 0, and
    parts of the others.

    dweights (groups, taps, filters) and dbiases (groups, filters) are sums over `group` images
    each. `strip` rows of y at a time are passed back through ReLU and pooling, and multiplied while
    they are in the cache.
    """
    task = _task(row)
    size, length, taps = bytes_of(like), task.columns * task.filters, task.kernel * task.channels
    phases, own = 1 + task.pool, _own(task, piece, like)
    gradient = numba.carray(pointer(own, like), (phases, phases * task.strip, length))
    behind = own + size * gradient.size
    sums = _array(behind, length, like)
    count = task.batch * task.rows
    y, dy, index = (
        _matrix(task.y, count, length, like),
        _matrix(task.dy, count, length, like),
        _matrix(task.index, count, length, np.uint8(0)),
    )
    groups = (task.batch + task.group - 1) // task.group
    first, last = _share(groups, piece, pieces)
    for group in range(first, last):
        sums[:] = like
        dweight = task.dweights + size * group * task.kernel * taps * task.filters
        begin = group * task.group * task.rows
        end = min(count, begin + task.group * task.rows)
        for top in range(begin, end, task.strip):
            for r in range(task.strip):
                at = top + r
                if task.pool:
                    loops.maxpool_rows_gradient(
                        dy[at],
                        y[at],
                        index[at],
                        gradient[0, 2 * r],
                        gradient[1, 2 * r],
                        gradient[0, 2 * r + 1],
                        gradient[1, 2 * r + 1],
                        sums,
                        task.relu != 0,
                    )
                else:
                    loops.pass_and_sum(dy[at], y[at], gradient[0, r], sums, task.relu != 0)
            _add_weight_gradient(task, top, own, dweight, top > begin, like)
            if task.dx != 0:
                _image_gradient(task, top, own, behind + size * length, like)
        dbias = _array(task.dbiases + size * group * task.filters, task.filters, like)
        dbias[:] = like
        for k in range(length):
            dbias[k % task.filters] += sums[k]


@compiled
def _first_pixel(task, top):
    """Number of the first pixel of x that row `top` of all images' y reads."""
    n, r = top // task.rows, top % task.rows
    return (n * task.height + (1 + task.pool) * r * task.stride) * task.width


@compiled
def _add_weight_gradient(task, top, gradient, dweight, add, like):
    """dweight (taps, filters) += (if add, else =) the strip's part, from row `top` of y on.

    gradient: (phases, rows, columns, filters).
    """
    size, taps = bytes_of(like), task.kernel * task.channels
    phases, line = 1 + task.pool, task.width * task.channels
    pixel, rows = task.channels * task.stride, phases * task.strip
    x = task.x + size * _first_pixel(task, top) * task.channels
    for i in range(task.kernel):
        for phase in range(phases):
            product(
                task.product,
                Rows(dweight + size * i * taps * task.filters, task.filters),
                taps,
                task.filters,
                Strided(
                    x + size * (i * line + phase * pixel), 1, task.stride * line, phases * pixel
                ),
                Rows(gradient + size * phase * rows * task.columns * task.filters, task.filters),
                rows,
                task.columns,
                add or phase > 0,
                like,
            )


@compiled
def _image_gradient(task, top, gradient, columns, like):
    """The strip's part of dx, zero before an image's first strip; columns: scratch for a row of
    windows, (columns, kernel, kernel * channels).
    """
    size, taps, line = bytes_of(like), task.kernel * task.channels, task.width * task.channels
    phases, first = 1 + task.pool, _first_pixel(task, top)
    rows = phases * task.strip
    if top % task.rows == 0:
        _array(task.dx + size * first * task.channels, task.height * line, like)[:] = like
    for phase in range(phases):
        for r in range(rows):
            product(
                task.product,
                Rows(columns, task.kernel * taps),
                task.columns,
                task.kernel * taps,
                Strided(
                    gradient + size * (phase * rows + r) * task.columns * task.filters,
                    task.filters,
                    0,
                    1,
                ),
                Rows(task.weight, task.kernel * taps),
                1,
                task.filters,
                False,
                like,
            )
            for q in range(task.columns):
                for i in range(task.kernel):
                    pixel = (
                        first
                        + (r * task.stride + i) * task.width
                        + (phases * q + phase) * task.stride
                    )
                    add_run(
                        task.dx + size * pixel * task.channels,
                        columns + size * (q * task.kernel + i) * taps,
                        taps,
                        like,
                    )


def add_groups(row, piece, pieces, like):
    """y (columns, rows) = the sum of x (batch, rows, columns) over the first axis, in order,
    transposed.
    """
    task = _task(row)
    x, y = (
        _matrix(task.x, task.batch, task.rows * task.columns, like),
        _matrix(task.y, task.columns, task.rows, like),
    )
    first, last = _share(task.rows, piece, pieces)
    loops.add_up(x, np.uint64(first * task.columns), np.uint64(last * task.columns))
    for r in range(first, last):
        for c in range(task.columns):
            y[c, r] = x[0, r * task.columns + c]


def cross_entropy(row, piece, pieces, like):
    """dx (rows, columns), losses and hits from the scores x (rows, columns), as the operation
    cross_entropy; one piece.
    """
    task = _task(row)
    if piece == 0:
        counters = _array(task.counters, 3, np.int64(0))
        order = _array(task.permutation, counters[1] + task.rows, np.int64(0))[counters[1] :]
        labels, chosen = pointer(task.labels, np.uint8(0)), np.empty(task.rows, np.uint8)
        for n in range(task.rows):
            chosen[n] = labels[order[n]]
        x, dx = (
            _matrix(task.x, task.rows, task.columns, like),
            _matrix(task.dx, task.rows, task.columns, like),
        )
        loss, hits = loops.cross_entropy(x, chosen, dx)
        _array(task.losses, counters[2] + 1, np.float64(0))[counters[2]] = loss / task.rows
        _array(task.hits, counters[2] + 1, np.float64(0))[counters[2]] = hits


def sgd(row, piece, pieces, like):
    """One step of the flat parameter y (columns) with gradient x; rates: learning rates of all
    steps, float64.
    """
    task = _task(row)
    (parameter, gradient, _, _), (rate, decay, clip), _ = _operands(task, piece, pieces, like)
    loops.sgd(parameter, gradient, parameter.dtype.type(rate), decay, clip)


def momentum(row, piece, pieces, like):
    """As `sgd`, with the velocity as mean."""
    task = _task(row)
    (parameter, gradient, velocity, _), (rate, decay, clip), _ = _operands(
        task, piece, pieces, like
    )
    loops.momentum(
        parameter,
        gradient,
        velocity,
        parameter.dtype.type(rate),
        decay,
        clip,
        parameter.dtype.type(task.momentum),
    )


def rmsprop(row, piece, pieces, like):
    """As `sgd`, with the running average square."""
    task = _task(row)
    (parameter, gradient, _, square), (rate, decay, clip), _ = _operands(task, piece, pieces, like)
    number = parameter.dtype.type
    loops.rmsprop(
        parameter,
        gradient,
        square,
        number(rate),
        decay,
        clip,
        number(0.99),
        number(0.01),
        number(1e-8),
    )


def adam(row, piece, pieces, like):
    """As `sgd`, with the running averages mean and square."""
    task = _task(row)
    (parameter, gradient, mean, square), (rate, decay, clip), step = _operands(
        task, piece, pieces, like
    )
    number = parameter.dtype.type
    loops.adam(
        parameter,
        gradient,
        mean,
        square,
        number(rate / (1 - 0.9**step)),
        decay,
        clip,
        number(0.9),
        number(0.1),
        number(0.999),
        number(0.001),
        number(1 / (1 - 0.999**step)),
        number(1e-8),
    )


@compiled
def _operands(task, piece, pieces, like):
    """A piece's share of (parameter, gradient, mean, square), (rate, weight decay, clip), and the
    step's number from 1 on.
    """
    step = _array(task.counters, 3, np.int64(0))[0]
    first, last = _lines(task.columns, piece, pieces)
    parameter, gradient = (
        _array(task.y, task.columns, like)[first:last],
        _array(task.x, task.columns, like)[first:last],
    )
    mean, square = (
        _array(task.mean, task.columns, like)[first:last],
        _array(task.square, task.columns, like)[first:last],
    )
    number = parameter.dtype.type
    rate = _array(task.rates, step + 1, np.float64(0))[step]
    return (
        (parameter, gradient, mean, square),
        (rate, number(task.weight_decay), number(task.clip)),
        step + 1.0,
    )


def advance(row, piece, pieces, like):
    task = _task(row)
    if piece == 0:
        counters = _array(task.counters, 3, np.int64(0))
        counters[0] += 1
        counters[1] += task.batch
        counters[2] += 1


@inlined
def _task(row):
    return numba.carray(row, 1)[0]


@inlined
def _share(count, piece, pieces):
    """(first, end) of a piece's share of range(count)."""
    return count * piece // pieces, count * (piece + 1) // pieces


@compiled
def _lines(count, piece, pieces):
    """As _share, in whole cache lines."""
    first, last = _share((count + LINE - 1) // LINE, piece, pieces)
    return LINE * first, min(count, LINE * last)


@inlined
def _own(task, piece, like):
    """Address of the piece's own scratch."""
    return task.scratch + bytes_of(like) * piece * task.scratch_numbers


@inlined
def _array(address, size, like):
    return numba.carray(pointer(address, like), size)


@compiled
def _matrix(address, rows, columns, like):
    return numba.carray(pointer(address, like), (rows, columns))
