"""Operations as tasks (tasks.py): those of small networks, and of all networks those that need
neither BLAS nor blocks.

Each function takes a Table and the operands of the operation of its name, and returns its tasks, or
None if it is done as it is elsewhere: because its arrays are large, when BLAS and blocks that fit
the cache matter more, or in a form not covered here.
"""

import dataclasses
import functools
import math

import numpy as np

from ladder.executors.cpu import layers, products, tasks
from ladder.executors.cpu.convolution import windows_of
from ladder.executors.host import zeros

FLOATS = np.dtype(np.float32), np.dtype(np.float64)
OTHER_TYPES = {
    "images",
    "labels",
    "permutation",
    "counters",
    "scale",
    "offset",
    "learning_rates",
    "losses",
    "hits",
    "index",
}
MOST_WEIGHTS, MOST_WINDOWS = 2**22, 2**11
RESIDENT_WEIGHTS = 2**18  # weights that stay in a core's cache from image to image
MANY_FILTERS, FEW_TAPS = 64, 32  # with as many filters and more taps BLAS over blocks is faster
STRIP = 2**16  # numbers of a gradient that stay in the cache
GROUPS = 16  # of images, each with its own sums; as many threads can share the work
PIECES = 4  # of a task for each thread, so that none waits long for the last piece of another
PIECE_NUMBERS = 2**12  # least numbers of a flat array in a piece


def load_batch(table, images, permutation, counters, scale, offset, batch, flip):
    kinds = {np.dtype(np.uint8): tasks.load_bytes, np.dtype(np.float32): tasks.load_numbers}
    if flip or images.dtype not in kinds:
        return None
    count, height, width, channels = batch.shape
    return [
        table.task(
            kinds[images.dtype],
            "input",
            images=images,
            permutation=permutation,
            counters=counters,
            scale=scale,
            offset=offset,
            y=batch,
            batch=count,
            height=height,
            width=width,
            channels=channels,
            own=4 * width * channels,
        )
    ]


def pad_forward(table, x, y, amount):
    batch, height, width, channels = y.shape
    return [
        table.task(
            tasks.pad,
            SHAPES,
            x=x,
            y=y,
            batch=batch,
            height=height,
            width=width,
            channels=channels,
            rows=amount,
        )
    ]


def flatten_forward(table, x, y):
    return [_turn(table, SHAPES, x, y, len(x), math.prod(x.shape[1:3]), x.shape[3])]


def flatten_backward(table, dy, dx):
    return [_turn(table, SHAPES, dy, dx, len(dx), dx.shape[3], math.prod(dx.shape[1:3]))]


def conv2d_forward(
    table, x, weight, y, stride, padding, relu, bias=None, index=None, image=None, contrast=None
):
    if image is not None:
        return None
    windows = windows_of(x.shape, weight.shape, stride, padding)
    if _has_few_windows(windows, weight, index):
        return _forward_by_matrix(table, windows, x, weight, y, relu, bias)
    if not _fits(weight, bias, padding):
        return None
    filters = len(weight)
    turned = table.array(weight.size)
    steps, framed = _framed(table, FORWARD, x, padding)
    return [
        *steps,
        _turn(table, FORWARD, weight, turned, 1, filters, weight.size // filters),
        table.task(
            tasks.convolve,
            FORWARD,
            **framed,
            **_images(weight, y, stride, relu, index),
            weight=turned,
            bias=bias,
            own=5 * y.shape[2] * filters,
        ),
    ]


def conv2d_backward(
    table, x, weight, y, dy, dweight, stride, padding, relu, dbias=None, index=None, dx=None
):
    windows = windows_of(x.shape, weight.shape, stride, padding)
    if _has_few_windows(windows, weight, index):
        return _backward_by_matrix(table, windows, x, weight, y, dy, dweight, relu, dbias, dx)
    if not _fits(weight, dbias, padding) or (padding and dx is not None):
        return None
    filters, taps, (rows, columns) = len(weight), weight[0].size, y.shape[1:3]
    group = -(-len(x) // GROUPS)
    groups = -(-len(x) // group)
    dweights, dbiases = table.array(groups * weight.size), table.array(groups * filters)
    row = (1 if index is None else 4) * columns * filters  # numbers of a strip of one row
    strip = next(s for s in range(rows, 0, -1) if rows % s == 0 and (s == 1 or s * row <= STRIP))
    steps, framed = _framed(table, BACKWARD, x, padding)
    return [
        *steps,
        table.task(
            tasks.convolve_back,
            BACKWARD,
            **framed,
            **_images(weight, y, stride, relu, index),
            dy=dy,
            dx=dx,
            weight=weight,
            dweights=dweights,
            dbiases=dbiases,
            group=group,
            strip=strip,
            own=strip * row + columns * (filters + taps),
        ),
        table.task(
            tasks.add_groups,
            BACKWARD,
            x=dweights,
            y=dweight,
            batch=groups,
            rows=taps,
            columns=filters,
            waits=False,
        ),
        table.task(
            tasks.add_groups, BACKWARD, x=dbiases, y=dbias, batch=groups, rows=1, columns=filters
        ),
    ]


def add_forward(table, a, b, y, relu=False):
    return [table.task(tasks.add, SHAPES, x=a, dy=b, y=y, columns=y.size, relu=relu)]


def relu_backward(table, y, dy, dx):
    return [table.task(tasks.pass_relu, "ReLU", y=y, dy=dy, dx=dx, columns=y.size)]


def batchnorm_forward(
    table, x, weight, bias, y, mean, inverse, running_mean, running_var, decay, epsilon, relu=False
):
    rows = math.prod(x.shape[:3])
    if rows >= layers.MANY_ROWS * x.shape[3]:
        return None
    return [
        table.task(
            tasks.normalize,
            layers.BATCHNORM,
            x=x,
            weight=weight,
            bias=bias,
            y=y,
            mean=mean,
            inverse=inverse,
            running_mean=running_mean,
            running_var=running_var,
            decay=decay,
            epsilon=epsilon,
            relu=relu,
            rows=rows,
            columns=x.shape[3],
        )
    ]


def batchnorm_backward(
    table, x, weight, mean, inverse, dy, dx, dweight, dbias, bias=None, relu=False
):
    rows = math.prod(x.shape[:3])
    if rows >= layers.MANY_ROWS * x.shape[3]:
        return None
    return [
        table.task(
            tasks.normalize_back,
            layers.BATCHNORM,
            x=x,
            weight=weight,
            mean=mean,
            inverse=inverse,
            dy=dy,
            dx=dx,
            dweights=dweight,
            dbiases=dbias,
            bias=bias if relu else mean,
            relu=relu,
            rows=rows,
            columns=x.shape[3],
        )
    ]


def cross_entropy(table, prediction, labels, permutation, counters, gradient, losses, hits):
    rows = len(prediction)
    return [
        table.task(
            tasks.cross_entropy,
            "loss",
            x=prediction,
            labels=labels,
            permutation=permutation,
            counters=counters,
            dx=gradient,
            losses=losses,
            hits=hits,
            rows=rows,
            columns=prediction.size // rows,
            pieces=1,
        )
    ]


def _update(
    table,
    parameter,
    gradient,
    learning_rates,
    counters,
    weight_decay,
    clip,
    rule,
    mean=None,
    velocity=None,
    square=None,
    momentum=None,
):
    return [
        table.task(
            getattr(tasks, rule),
            "update",
            y=parameter,
            x=gradient,
            rates=learning_rates,
            counters=counters,
            columns=parameter.size,
            pieces=1 + parameter.size // PIECE_NUMBERS,
            weight_decay=weight_decay,
            clip=clip,
            mean=velocity if mean is None else mean,
            square=square,
            momentum=momentum,
        )
    ]


def advance(table, counters, batch):
    return [table.task(tasks.advance, "update", counters=counters, batch=batch, pieces=1)]


OPERATIONS = {
    function.__name__: function
    for function in (
        load_batch,
        pad_forward,
        flatten_forward,
        flatten_backward,
        conv2d_forward,
        conv2d_backward,
        add_forward,
        relu_backward,
        batchnorm_forward,
        batchnorm_backward,
        cross_entropy,
        advance,
    )
}
OPERATIONS |= {
    f"{rule}_update": functools.partial(_update, rule=rule)
    for rule in ("sgd", "momentum", "rmsprop", "adam")
}

FORWARD, BACKWARD, SHAPES = "convolution forward", "convolution backward", "shortcuts and shapes"


class Table:
    """Tasks that a team works through, of operations on arrays of one type.

    tasks: TASK array; steps: see Team.run; labels: (category, pass) of times; arrays: all that the
    tasks have addresses of, which must stay alive.
    """

    def __init__(self, threads, dtype):
        self.dtype, self.arrays, self._added = np.dtype(dtype), [], []
        self._pieces = 1 if threads == 1 else PIECES * threads
        self._product = products.compiled_product(self.dtype).address if self.dtype in FLOATS else 0
        self._used = self._most = 0  # numbers of scratch, of an operation and of the one with most
        self._pass = ""  # of the operation that is added

    def add(self, name, operands, pass_):
        """Add the tasks of an operation of this pass of a plan's Step; False if it is not done by
        tasks.
        """
        self._used, self._pass = 0, pass_
        arrays = {role: value for role, value in operands.items() if isinstance(value, np.ndarray)}
        covered = (
            name in OPERATIONS
            and self.dtype in FLOATS
            and all(
                array.flags.c_contiguous and (array.dtype == self.dtype or role in OTHER_TYPES)
                for role, array in arrays.items()
            )
        )
        added = OPERATIONS[name](self, **operands) if covered else None
        self._added += added or []
        return added is not None

    def array(self, size):
        """Scratch for this many numbers, until the end of the operation."""
        scratch = Scratch(self._used)
        self._used += -(-size // 32) * 32  # so that threads share no cache line
        self._most = max(self._most, self._used)
        return scratch

    def task(self, function, label, own=0, waits=True, pieces=None, **fields):
        """A task; arrays become addresses and None becomes 0. own: numbers of scratch for each
        piece; waits: see Team.run; pieces: at most so many, if given.
        """
        pieces = min(pieces or self._pieces, self._pieces)
        if own:
            apart = -(-own // 32) * 32
            fields |= {"scratch": self.array(apart * pieces), "scratch_numbers": apart}
        self.arrays += [value for value in fields.values() if isinstance(value, np.ndarray)]
        return (label, self._pass), waits, function, pieces, {"product": self._product, **fields}

    @functools.cached_property
    def tasks(self):
        begin = self.scratch.ctypes.data

        def number(value):
            if isinstance(value, Scratch):
                return begin + self.dtype.itemsize * value.place
            return value.ctypes.data if isinstance(value, np.ndarray) else value or 0

        rows = np.zeros(len(self._added), tasks.TASK)
        for row, (*_, fields) in zip(rows, self._added, strict=True):
            for name, value in fields.items():
                row[name] = number(value)
        return rows

    @functools.cached_property
    def scratch(self):
        return zeros((self._most,), self.dtype)

    @functools.cached_property
    def steps(self):
        rows = self.tasks.ctypes.data + self.tasks.itemsize * np.arange(len(self._added))
        return np.array(
            [
                (self.labels.index(label), waits, tasks.address(function, self.dtype), row, pieces)
                for (label, waits, function, pieces, _), row in zip(self._added, rows, strict=True)
            ]
        )

    @functools.cached_property
    def labels(self):
        return sorted({label for label, *_ in self._added})


@dataclasses.dataclass(frozen=True)
class Scratch:
    """Memory of a table, from this number on."""

    place: int


def _has_few_windows(windows, weight, index):
    return index is None and windows.count <= MOST_WINDOWS and weight.size <= MOST_WEIGHTS


def _fits(weight, bias, padding):
    few = weight[0].size <= FEW_TAPS or (len(weight) < MANY_FILTERS and not padding)
    return few and bias is not None and weight.size <= min(MOST_WEIGHTS, RESIDENT_WEIGHTS)


def _framed(table, label, x, padding):
    """(tasks, fields of the images with so many zeros on each side)"""
    shape = np.add(x.shape, (0, 2 * padding, 2 * padding, 0)).tolist()
    size = dict(zip(("batch", "height", "width", "channels"), shape, strict=True))
    if not padding:
        return [], {"x": x, **size}
    frame = table.array(math.prod(shape))
    return [table.task(tasks.pad, label, x=x, y=frame, **size, rows=padding)], {"x": frame, **size}


def _turn(table, label, x, y, *shape):
    batch, rows, columns = shape
    return table.task(tasks.turn, label, x=x, y=y, batch=batch, rows=rows, columns=columns)


def _images(weight, y, stride, relu, index):
    """The fields of a convolution in both directions, but for its images."""
    return {
        "y": y,
        "index": index,
        "filters": len(weight),
        "kernel": weight.shape[1],
        "stride": stride,
        "rows": y.shape[1],
        "columns": y.shape[2],
        "relu": relu,
        "pool": index is not None,
    }


def _geometry(windows, shape):
    """The fields of windows over images of this shape."""
    batch, height, width, channels = shape
    return {
        "batch": batch,
        "height": height,
        "width": width,
        "channels": channels,
        "rows": windows.out[0],
        "columns": windows.out[1],
        "kernel": windows.size[0],
        "taps": windows.size[1],
        "top": windows.begin[0],
        "left": windows.begin[1],
        "stride": windows.stride,
    }


def _taken(windows, weight):
    """As _geometry, of the taps that windows.taken leaves: a window over each filter."""
    filters, kernel, _, channels = weight.shape
    return {
        "batch": filters,
        "height": kernel,
        "width": kernel,
        "channels": channels,
        "rows": 1,
        "columns": 1,
        "kernel": windows.size[0],
        "taps": windows.size[1],
        "top": windows.taps[0].start,
        "left": windows.taps[1].start,
        "stride": 1,
    }


def _gathered(table, label, windows, x, weight):
    """(tasks, the windows as a matrix, the weights as a matrix)"""
    steps, seen, matrix = [], x, weight
    if not windows.are_pixels:
        seen = table.array(windows.count * windows.width)
        steps.append(table.task(tasks.gather, label, x=x, y=seen, **_geometry(windows, x.shape)))
    if not windows.complete:
        matrix = table.array(len(weight) * windows.width)
        steps.append(table.task(tasks.gather, label, x=weight, y=matrix, **_taken(windows, weight)))
    return steps, seen, matrix


def _forward_by_matrix(table, windows, x, weight, y, relu, bias):
    """y = the matrix of windows times that of weights, transposed: the right factor is then that
    with fewer rows.
    """
    count, width, filters = windows.count, windows.width, len(weight)
    steps, seen, matrix = _gathered(table, FORWARD, windows, x, weight)
    turned, product = table.array(count * width), table.array(y.size)
    return [
        *steps,
        _turn(table, FORWARD, seen, turned, 1, count, width),
        table.task(
            tasks.multiply,
            FORWARD,
            x=matrix,
            row=width,
            term=1,
            weight=turned,
            terms=width,
            y=product,
            rows=filters,
            columns=count,
        ),
        table.task(
            tasks.finish, FORWARD, x=product, bias=bias, y=y, rows=count, columns=filters, relu=relu
        ),
    ]


def _backward_by_matrix(table, windows, x, weight, y, dy, dweight, relu, dbias, dx):
    count, width, filters = windows.count, windows.width, len(weight)
    steps, seen, matrix = _gathered(table, BACKWARD, windows, x, weight)
    passed = table.array(dy.size) if relu else dy
    sums = dweight if windows.complete else table.array(filters * width)
    pixels = dx if windows.are_pixels or dx is None else table.array(count * width)
    if relu or dbias is not None:
        steps.append(
            table.task(
                tasks.pass_gradient,
                BACKWARD,
                y=y,
                dy=dy,
                dx=passed,
                dbiases=dbias,
                rows=count,
                columns=filters,
                relu=relu,
            )
        )
    steps.append(
        table.task(
            tasks.multiply,
            BACKWARD,
            x=passed,
            row=1,
            term=filters,
            weight=seen,
            terms=count,
            y=sums,
            rows=filters,
            columns=width,
        )
    )
    if sums is not dweight:
        steps.append(
            table.task(tasks.scatter, BACKWARD, x=sums, dx=dweight, **_taken(windows, weight))
        )
    if dx is not None:
        steps.append(
            table.task(
                tasks.multiply,
                BACKWARD,
                x=passed,
                row=filters,
                term=1,
                weight=matrix,
                terms=filters,
                y=pixels,
                rows=count,
                columns=width,
            )
        )
    if pixels is not dx:
        steps.append(
            table.task(tasks.scatter, BACKWARD, x=pixels, dx=dx, **_geometry(windows, x.shape))
        )
    return steps
