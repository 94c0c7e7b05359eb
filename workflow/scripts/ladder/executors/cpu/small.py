"""Operations as tasks (tasks.py): those of small networks, and of all networks those that need neither BLAS nor blocks.

Each function takes a Table and the operands of the operation of its name, and returns its tasks, or None if it is done as it is
elsewhere: because its arrays are large, when BLAS and blocks that fit the cache matter more, or in a form not covered here.
"""

import functools
import math

import numpy as np

from ladder.executors.cpu import products, tasks

FLOATS = np.dtype(np.float32), np.dtype(np.float64)
OTHER_TYPES = {"images", "labels", "permutation", "counters", "scale", "offset", "learning_rates", "losses", "hits", "index"}
LINE = 64                # bytes of a cache line
MOST_WEIGHTS = 2 ** 20   # of a layer
GROUPS = 16              # of images, each with its own sums; as many threads can share the work


def load_batch(table, images, permutation, counters, scale, offset, batch, flip):
    kinds = {np.dtype(np.uint8): tasks.LOAD_BYTES, np.dtype(np.float32): tasks.LOAD_NUMBERS}
    if flip or images.dtype not in kinds:
        return None
    count, height, width, channels = batch.shape
    return [table.task(kinds[images.dtype], "input", images=images, permutation=permutation, counters=counters, scale=scale,
                      offset=offset, y=batch, batch=count, height=height, width=width, channels=channels,
                      own=4 * width * channels)]


def pad_forward(table, x, y, amount):
    batch, height, width, channels = y.shape
    return [table.task(tasks.PAD, "shortcuts and shapes", x=x, y=y, batch=batch, height=height, width=width, channels=channels,
                      rows=amount)]


def flatten_forward(table, x, y):
    return [_turn(table, "shortcuts and shapes", x, y, len(x), math.prod(x.shape[1:3]), x.shape[3])]


def flatten_backward(table, dy, dx):
    return [_turn(table, "shortcuts and shapes", dy, dx, len(dx), dx.shape[3], math.prod(dx.shape[1:3]))]


def conv2d_forward(table, x, weight, y, stride, padding, relu, bias=None, index=None):
    if not _fits(x, weight, padding, bias):
        return None
    if x.shape[1:3] == (1, 1):
        return _dense_forward(table, x, weight, y, relu, bias)
    filters, kernel = weight.shape[:2]
    turned = table.array(weight.size)
    _, rows, columns, _ = y.shape
    return [_turn(table, FORWARD, weight, turned, 1, filters, weight.size // filters),
            table.task(tasks.CONVOLVE, FORWARD, **_images(x, weight, y, stride, relu, index), weight=turned, bias=bias,
                      own=5 * columns * filters)]


def conv2d_backward(table, x, weight, y, dy, dweight, stride, padding, relu, dbias=None, index=None, dx=None):
    if not _fits(x, weight, padding, dbias):
        return None
    if x.shape[1:3] == (1, 1):
        return _dense_backward(table, x, weight, y, dy, dweight, relu, dbias, dx)
    filters, taps = len(weight), weight.size // len(weight)
    group = -(-len(x) // GROUPS)
    groups = -(-len(x) // group)
    dweights, dbiases = table.array(groups * weight.size), table.array(groups * filters)
    rows, columns = y.shape[1:3]
    phases = 1 if index is None else 2
    own = columns * (phases ** 2 * rows * filters + filters + taps)
    return [table.task(tasks.CONVOLVE_BACK, BACKWARD, **_images(x, weight, y, stride, relu, index), dy=dy, dx=dx, weight=weight,
                      dweights=dweights, dbiases=dbiases, group=group, own=own),
            table.task(tasks.ADD_GROUPS, BACKWARD, x=dweights, y=dweight, batch=groups, rows=taps, columns=filters, waits=0),
            table.task(tasks.ADD_GROUPS, BACKWARD, x=dbiases, y=dbias, batch=groups, rows=1, columns=filters)]


def cross_entropy(table, prediction, labels, permutation, counters, gradient, losses, hits):
    rows = len(prediction)
    return [table.task(tasks.CROSS_ENTROPY, "loss", x=prediction, labels=labels, permutation=permutation, counters=counters,
                      dx=gradient, losses=losses, hits=hits, rows=rows, columns=prediction.size // rows)]


def sgd_update(table, parameter, gradient, learning_rates, counters, weight_decay, clip):
    return _update(table, tasks.SGD, parameter, gradient, learning_rates, counters, weight_decay, clip)


def momentum_update(table, parameter, velocity, gradient, learning_rates, counters, weight_decay, clip, momentum):
    return _update(table, tasks.MOMENTUM, parameter, gradient, learning_rates, counters, weight_decay, clip, mean=velocity,
                   momentum=momentum)


def rmsprop_update(table, parameter, square, gradient, learning_rates, counters, weight_decay, clip):
    return _update(table, tasks.RMSPROP, parameter, gradient, learning_rates, counters, weight_decay, clip, square=square)


def adam_update(table, parameter, mean, square, gradient, learning_rates, counters, weight_decay, clip):
    return _update(table, tasks.ADAM, parameter, gradient, learning_rates, counters, weight_decay, clip, mean=mean,
                   square=square)


def advance(table, counters, batch):
    return [table.task(tasks.ADVANCE, "update", counters=counters, batch=batch)]


OPERATIONS = {function.__name__: function for function in (
    load_batch, pad_forward, flatten_forward, flatten_backward, conv2d_forward, conv2d_backward, cross_entropy, sgd_update,
    momentum_update, rmsprop_update, adam_update, advance)}

FORWARD, BACKWARD = "convolution forward", "convolution backward"


class Table:
    """Tasks that a team works through, of operations on arrays of one type.

    tasks: TASK array; steps: see Team.run; labels: categories of time; arrays: all that the tasks have addresses of, which must
    stay alive.
    """

    def __init__(self, threads, dtype):
        self.threads, self.dtype, self.arrays, self._made = threads, np.dtype(dtype), [], []
        self._product = products.address_of_product(self.dtype) if self.dtype in FLOATS else 0

    def add(self, name, operands):
        """Add the tasks of an operation; False if it is not done by tasks."""
        arrays = {role: value for role, value in operands.items() if isinstance(value, np.ndarray)}
        covered = name in OPERATIONS and self.dtype in FLOATS and all(
            array.flags.c_contiguous and (array.dtype == self.dtype or role in OTHER_TYPES) for role, array in arrays.items())
        made = OPERATIONS[name](self, **operands) if covered else None
        self._made += made or []
        return made is not None

    def array(self, size):
        """New memory for this many numbers, from the begin of a cache line."""
        memory = np.zeros(self.dtype.itemsize * size + LINE, np.uint8)
        first = -memory.ctypes.data % LINE
        return memory[first:first + self.dtype.itemsize * size].view(self.dtype)

    def task(self, kind, label, own=0, waits=True, **fields):
        """A task; arrays become addresses and None becomes 0. own: numbers of scratch for each thread; waits: see Team.run."""
        if own:
            apart = -(-own // 32) * 32   # numbers, so that threads share no cache line
            fields |= {"scratch": self.array(apart * self.threads), "scratch_numbers": apart}
        self.arrays += [value for value in fields.values() if isinstance(value, np.ndarray)]
        numbers = {name: value.ctypes.data if isinstance(value, np.ndarray) else value or 0 for name, value in fields.items()}
        return label, waits, {"kind": kind, "product": self._product, **numbers}

    @functools.cached_property
    def tasks(self):
        rows = np.zeros(len(self._made), tasks.TASK)
        for row, (_, _, fields) in zip(rows, self._made, strict=True):
            for name, value in fields.items():
                row[name] = value
        return rows

    @functools.cached_property
    def steps(self):
        return np.array([(self.labels.index(label), waits) for label, waits, _ in self._made])

    @functools.cached_property
    def labels(self):
        return sorted({label for label, _, _ in self._made})


def _fits(x, weight, padding, bias):
    return padding == 0 and bias is not None and weight.size <= MOST_WEIGHTS


def _turn(table, label, x, y, batch, rows, columns):
    return table.task(tasks.TURN, label, x=x, y=y, batch=batch, rows=rows, columns=columns)


def _images(x, weight, y, stride, relu, index):
    """The fields of a convolution in both directions."""
    batch, height, width, channels = x.shape
    return {"x": x, "y": y, "index": index, "batch": batch, "height": height, "width": width, "channels": channels,
            "filters": len(weight), "kernel": weight.shape[1], "stride": stride, "rows": y.shape[1], "columns": y.shape[2],
            "relu": relu, "pool": index is not None}


def _dense_forward(table, x, weight, y, relu, bias):
    batch, inputs, units = len(x), x.size // len(x), len(weight)
    turned, product = table.array(x.size), table.array(y.size)
    return [_turn(table, FORWARD, x, turned, 1, batch, inputs),
            table.task(tasks.MULTIPLY, FORWARD, x=weight, row=inputs, term=1, weight=turned, terms=inputs, y=product,
                       rows=units, columns=batch),
            table.task(tasks.FINISH, FORWARD, x=product, bias=bias, y=y, rows=batch, columns=units, relu=relu)]


def _dense_backward(table, x, weight, y, dy, dweight, relu, dbias, dx):
    batch, inputs, units = len(x), x.size // len(x), len(weight)
    passed = table.array(dy.size) if relu else dy
    found = [table.task(tasks.PASS_GRADIENT, BACKWARD, y=y, dy=dy, dx=passed, dbiases=dbias, rows=batch, columns=units,
                        relu=relu),
             table.task(tasks.MULTIPLY, BACKWARD, x=passed, row=1, term=units, weight=x, terms=batch, y=dweight, rows=units,
                       columns=inputs, waits=dx is None)]
    if dx is not None:
        found.append(table.task(tasks.MULTIPLY, BACKWARD, x=passed, row=units, term=1, weight=weight, terms=units, y=dx,
                               rows=batch, columns=inputs))
    return found


def _update(table, kind, parameter, gradient, learning_rates, counters, weight_decay, clip, **more):
    return [table.task(kind, "update", y=parameter, x=gradient, rates=learning_rates, counters=counters, columns=parameter.size,
                      weight_decay=weight_decay, clip=clip, **more)]
