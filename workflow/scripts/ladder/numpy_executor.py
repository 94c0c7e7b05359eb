"""The cpu rung: one function per operation, NumPy and BLAS, over blocks of images that fit the cache.

Every operation splits the batch evenly over the threads, and each thread walks its images in blocks with BLAS on one
thread: the work between two matrix products (im2col, bias, ReLU, pooling) then runs in parallel too, and on data that is
still in the cache. Sums over images are added up per thread and then in the order of the threads, so the bytes depend on
the number of threads and on nothing else.

Arrays are NHWC; convolution weights (filters, kernel, kernel, channels); `index` holds the place of each maximum in its
2x2 window, row by row, 0 to 3.
"""

import concurrent.futures
import time

import numpy as np
import threadpoolctl

from . import runtime

# Output pixels per block: large enough for BLAS to run at full speed, small enough for the level-2 cache.
BLOCK_PIXELS = 1024


class Executor:
    """Runs plans on the CPU (see executors.py).

    seconds: time spent by kind of work since the start, e.g. {'convolution forward': 1.2}; where threads share an
    operation it is their mean.
    """

    measures_every_step = True

    def __init__(self, threads):
        self.threads = threads
        self.seconds = {}
        self._blas = threadpoolctl.ThreadpoolController()
        self._pool = concurrent.futures.ThreadPoolExecutor(threads)
        self._workers = [_Worker() for _ in range(threads)]

    def place(self, arrays):
        return arrays

    def allocate(self, plan, placed):
        for name, array in placed.items():
            if name in plan.buffers and plan.buffers[name].shape != array.shape:
                raise ValueError(f"buffer {name} is {plan.buffers[name].shape}, not {array.shape}")
        return {name: placed[name] if name in placed else np.zeros(buffer.shape, buffer.dtype)
                for name, buffer in plan.buffers.items()}

    def fill(self, array, values):
        array[...] = values

    def fetch(self, array):
        return array

    def run(self, plan, arrays):
        with self._blas.limit(limits=1, user_api="blas"):
            for step in plan.steps:
                operands = {role: arrays[name] for role, name in (*step.reads.items(), *step.writes.items())}
                OPERATIONS[step.operation](self, **operands, **step.attributes)
        self._collect_seconds()

    def parallel(self, count, work):
        """Call work(worker, start, stop) on every thread with its even share of range(count); returns the results in order."""
        bounds = [count * i // self.threads for i in range(self.threads + 1)]
        shares = [(worker, start, stop) for worker, start, stop in zip(self._workers, bounds, bounds[1:], strict=False)
                  if start < stop]
        for worker, _, _ in shares:
            worker.start_clock()

        def run(share):
            with np.errstate(all="ignore"):   # training stops at a loss that is not finite, and says so
                return work(*share)

        return list(self._pool.map(run, shares))

    def device(self):
        """What runs the steps, in words."""
        return f"cpu: {runtime.machine()['processor']}, {self.threads} threads"

    def workspace_bytes(self):
        """Bytes of the threads' own buffers, apart from the plan's."""
        return sum(array.nbytes for worker in self._workers for array in worker.arrays.values())

    def device_bytes(self):
        return None

    def synchronize(self):
        pass

    def _collect_seconds(self):
        for worker in self._workers:
            for label, seconds in worker.seconds.items():
                self.seconds[label] = self.seconds.get(label, 0.0) + seconds / self.threads
            worker.seconds.clear()


class _Worker:
    """One thread's workspace, allocated on first use, and its clock."""

    def __init__(self):
        self.arrays, self.seconds, self._last = {}, {}, 0.0

    def workspace(self, name, shape, dtype):
        """An array of this shape that keeps its memory from call to call; its content is whatever was there."""
        size = int(np.prod(shape))
        flat = self.arrays.get((name, dtype))
        if flat is None or flat.size < size:
            flat = self.arrays[name, dtype] = np.empty(size, dtype)
        return flat[:size].reshape(shape)

    def start_clock(self):
        self._last = time.perf_counter()

    def lap(self, label):
        """Book the time since the last lap under `label`."""
        now = time.perf_counter()
        self.seconds[label] = self.seconds.get(label, 0.0) + now - self._last
        self._last = now


def _blocks(start, stop, pixels):
    size = max(1, BLOCK_PIXELS // pixels)
    return (slice(i, min(i + size, stop)) for i in range(start, stop, size))


def load_batch(executor, images, permutation, counters, scale, offset, batch, flip):
    rows = permutation[counters[1]:counters[1] + len(batch)]

    def work(worker, start, stop):
        for i in range(start, stop):
            image = images[rows[i]]
            np.multiply(image[:, ::-1] if flip else image, scale, out=batch[i])
            batch[i] += offset
        worker.lap("input")

    executor.parallel(len(batch), work)


def conv2d_forward(executor, x, weight, bias, y, padding, relu, index=None):
    pooled = index is not None
    filters, kernel = weight.shape[:2]
    matrix = weight.reshape(filters, -1).T

    def work(worker, start, stop):
        for block in _blocks(start, stop, _output_pixels(x, kernel, padding)):
            columns, shape = _im2col(worker, x[block], kernel, padding)
            out = worker.workspace("convolved", (*shape, filters), y.dtype) if pooled else y[block]
            np.matmul(columns, matrix, out=out.reshape(-1, filters))
            out += bias
            worker.lap("convolution forward")
            if pooled:
                _maxpool(worker, out, y[block], index[block])
                worker.lap("pooling")
            if relu:   # after the pooling, on a quarter of the values: the maximum of ReLUs is the ReLU of the maximum
                np.maximum(y[block], 0, out=y[block])
                worker.lap("ReLU")

    executor.parallel(len(x), work)


def conv2d_backward(executor, x, weight, y, dy, dweight, dbias, padding, relu, index=None, dx=None):
    filters, kernel, _, channels = weight.shape
    # The input gradient is a convolution of dy with the filters turned by 180 degrees.
    turned = np.ascontiguousarray(weight[:, ::-1, ::-1].transpose(1, 2, 0, 3)).reshape(-1, channels)

    def work(worker, start, stop):
        sums = _Sums(worker, dweight.reshape(filters, -1).shape, dbias.shape, weight.dtype)
        for block in _blocks(start, stop, _output_pixels(x, kernel, padding)):
            gradient = _through_relu(worker, y[block], dy[block]) if relu else dy[block]
            if index is not None:
                shape = _output_shape(x[block], kernel, padding)
                gradient = _unpool(worker, gradient, index[block], (*shape, filters))
            columns, _ = _im2col(worker, x[block], kernel, padding)
            sums.add(gradient.reshape(-1, filters), columns, gradient.reshape(-1, filters))
            if dx is not None:
                columns, _ = _im2col(worker, gradient, kernel, kernel - 1 - padding)
                np.matmul(columns, turned, out=dx[block].reshape(-1, channels))
            worker.lap("convolution backward")
        return sums.totals()

    _add_in_order(executor.parallel(len(x), work), dweight, dbias)


def collapse_weight(executor, weight, collapsed):
    """collapsed[c, t, s, o] = the sum of the 3x3 taps of filter o that tap (t, s) of the 4x4 transposed form stands for."""
    collapsed[...] = np.einsum("tk,sl,oklc->ctso", *_taps(weight.dtype), weight, optimize=True)


def upsample_conv2d_forward(executor, x, collapsed, bias, y, relu):
    channels, filters = len(collapsed), collapsed.shape[3]
    height, width = x.shape[1:3]
    matrix = collapsed.reshape(channels, -1)
    narrow = filters < 16   # then keep each tap's plane together: rows of 3 numbers are too short to add one by one

    def work(worker, start, stop):
        for block in _blocks(start, stop, 4 * height * width):
            pixels, images = x[block].reshape(-1, channels), len(x[block])
            if narrow:
                taps = worker.workspace("taps", (matrix.shape[1], len(pixels)), y.dtype)
                np.matmul(matrix.T, pixels.T, out=taps)
                taps = taps.reshape(4, 4, filters, images, height, width).transpose(3, 4, 5, 0, 1, 2)
                out = worker.workspace("phases", (2, 2, filters, images, height, width), y.dtype).transpose(3, 4, 0, 5, 1, 2)
            else:
                taps = worker.workspace("taps", (len(pixels), matrix.shape[1]), y.dtype)
                np.matmul(pixels, matrix, out=taps)
                taps = taps.reshape(images, height, width, 4, 4, filters)
                out = y[block].reshape(images, height, 2, width, 2, filters)
            _add_taps(taps, out)
            out += bias
            if narrow:
                y[block].reshape(out.shape)[...] = out
            worker.lap("convolution forward")
            if relu:
                np.maximum(y[block], 0, out=y[block])
                worker.lap("ReLU")

    executor.parallel(len(x), work)


def upsample_conv2d_backward(executor, x, collapsed, y, dy, dweight, dbias, relu, dx=None):
    channels, filters = len(collapsed), collapsed.shape[3]
    matrix = collapsed.reshape(channels, -1)

    def work(worker, start, stop):
        sums = _Sums(worker, matrix.shape, dbias.shape, x.dtype)
        for block in _blocks(start, stop, dy.shape[1] * dy.shape[2]):
            gradient = _through_relu(worker, y[block], dy[block]) if relu else dy[block]
            windows = _im2col(worker, gradient, 4, 1, stride=2)[0]
            pixels = x[block].reshape(-1, channels)
            sums.add(pixels, windows, gradient.reshape(-1, filters))
            if dx is not None:
                np.matmul(windows, matrix.T, out=dx[block].reshape(-1, channels))
            worker.lap("convolution backward")
        return sums.totals()

    dcollapsed = np.empty_like(collapsed)
    _add_in_order(executor.parallel(len(x), work), dcollapsed, dbias)
    dweight[...] = np.einsum("tk,sl,ctso->oklc", *_taps(x.dtype), dcollapsed, optimize=True)


def relu_forward(executor, x, y):
    def work(worker, start, stop):
        np.maximum(x[start:stop], 0, out=y[start:stop])
        worker.lap("ReLU")

    executor.parallel(len(x), work)


def relu_backward(executor, y, dy, dx):
    def work(worker, start, stop):
        np.multiply(dy[start:stop], y[start:stop] > 0, out=dx[start:stop])
        worker.lap("ReLU")

    executor.parallel(len(y), work)


def maxpool2d_forward(executor, x, y, index):
    def work(worker, start, stop):
        _maxpool(worker, x[start:stop], y[start:stop], index[start:stop])
        worker.lap("pooling")

    executor.parallel(len(x), work)


def maxpool2d_backward(executor, dy, index, dx):
    def work(worker, start, stop):
        _scatter(dy[start:stop], index[start:stop], dx[start:stop])
        worker.lap("pooling")

    executor.parallel(len(dy), work)


def upsample2d_forward(executor, x, y):
    def work(worker, start, stop):
        for corner in _corners(y[start:stop]):
            corner[...] = x[start:stop]
        worker.lap("upsampling")

    executor.parallel(len(x), work)


def upsample2d_backward(executor, dy, dx):
    def work(worker, start, stop):
        first, *others = _corners(dy[start:stop])
        dx[start:stop] = first
        for corner in others:
            dx[start:stop] += corner
        worker.lap("upsampling")

    executor.parallel(len(dx), work)


def mse(executor, prediction, target, counters, gradient, losses, divisor):
    """losses[this step] = mean squared error over all elements; gradient = 2 (prediction - target) / divisor."""
    def work(worker, start, stop):
        difference = gradient[start:stop]
        np.subtract(prediction[start:stop], target[start:stop], out=difference)
        flat = difference.reshape(len(difference), -1)
        total = sum(float(np.dot(row, row)) for row in flat)
        difference *= 2 / divisor
        worker.lap("loss")
        return total

    losses[counters[2]] = sum(executor.parallel(len(prediction), work)) / prediction.size


def sgd_update(executor, parameter, gradient, learning_rates, counters, weight_decay, clip):
    rate = learning_rates[counters[0]]
    _update(executor, gradient, parameter, weight_decay, clip, lambda g, w: np.subtract(w, rate * g, out=w))


def momentum_update(executor, parameter, velocity, gradient, learning_rates, counters, weight_decay, clip, momentum):
    rate = learning_rates[counters[0]]

    def rule(g, w, v):
        v *= momentum
        v += g
        w -= rate * v

    _update(executor, gradient, parameter, weight_decay, clip, rule, velocity)


def rmsprop_update(executor, parameter, square, gradient, learning_rates, counters, weight_decay, clip):
    rate = learning_rates[counters[0]]

    def rule(g, w, s):
        s *= 0.99
        s += 0.01 * g * g
        w -= rate * g / (np.sqrt(s) + 1e-8)

    _update(executor, gradient, parameter, weight_decay, clip, rule, square)


def adam_update(executor, parameter, mean, square, gradient, learning_rates, counters, weight_decay, clip):
    step = int(counters[0]) + 1
    rate = learning_rates[counters[0]] / (1 - 0.9 ** step)
    debias = 1 / (1 - 0.999 ** step)

    def rule(g, w, m, s):
        m *= 0.9
        m += 0.1 * g
        s *= 0.999
        s += 0.001 * g * g
        w -= rate * m / (np.sqrt(debias * s) + 1e-8)

    _update(executor, gradient, parameter, weight_decay, clip, rule, mean, square)


def advance(executor, counters, batch):
    counters += (1, batch, 1)


OPERATIONS = {function.__name__: function for function in (
    load_batch, conv2d_forward, conv2d_backward, collapse_weight, upsample_conv2d_forward, upsample_conv2d_backward,
    relu_forward, relu_backward, maxpool2d_forward, maxpool2d_backward, upsample2d_forward, upsample2d_backward, mse,
    sgd_update, momentum_update, rmsprop_update, adam_update, advance)}


class _Sums:
    """A thread's share of a weight and a bias gradient, added up block by block."""

    def __init__(self, worker, weight_shape, bias_shape, dtype):
        self.weight = worker.workspace("weight sum", weight_shape, dtype)
        self.bias = worker.workspace("bias sum", bias_shape, dtype)
        self._product = worker.workspace("weight product", weight_shape, dtype)
        self._empty = True

    def add(self, left, right, gradient):
        """Add left^T right to the weight's sum and the column sums of `gradient` to the bias's."""
        if self._empty:
            np.matmul(left.T, right, out=self.weight)
            np.sum(gradient, axis=0, out=self.bias)
            self._empty = False
        else:
            self.weight += np.matmul(left.T, right, out=self._product)
            self.bias += gradient.sum(axis=0)

    def totals(self):
        return self.weight, self.bias


def _add_in_order(totals, dweight, dbias):
    dweight.reshape(totals[0][0].shape)[...] = totals[0][0]
    dbias[...] = totals[0][1]
    for weight, bias in totals[1:]:
        dweight.reshape(weight.shape)[...] += weight
        dbias += bias


def _update(executor, gradient, parameter, weight_decay, clip, rule, *averages):
    """Call rule(gradient, parameter, *averages) on every thread's flat share, the gradient clipped and decayed."""
    flat = [array.reshape(-1) for array in (gradient, parameter, *averages)]

    def work(worker, start, stop):
        g, w, *state = (array[start:stop] for array in flat)
        if clip:
            np.clip(g, -clip, clip, out=g)
        if weight_decay:
            g += weight_decay * w
        rule(g, w, *state)
        worker.lap("update")

    executor.parallel(parameter.size, work)


def _output_shape(x, kernel, padding, stride=1):
    return len(x), *((size + 2 * padding - kernel) // stride + 1 for size in x.shape[1:3])


def _output_pixels(x, kernel, padding):
    _, height, width = _output_shape(x, kernel, padding)
    return height * width


def _im2col(worker, x, kernel, padding, stride=1):
    """The windows of x as a matrix, a row per window in NHW order, columns (row, column, channel); and (N, H, W)."""
    images, height, width, channels = x.shape
    padded = worker.workspace("padded", (images, height + 2 * padding, width + 2 * padding, channels), x.dtype)
    if padding:
        padded[:, :padding] = padded[:, -padding:] = 0
        padded[:, :, :padding] = padded[:, :, -padding:] = 0
    padded[:, padding:padding + height, padding:padding + width] = x
    shape = _output_shape(x, kernel, padding, stride)
    columns = worker.workspace("columns", (*shape, kernel, kernel * channels), x.dtype)
    along_n, along_h, along_w, along_c = padded.strides
    columns[...] = np.lib.stride_tricks.as_strided(   # a window's row is one run of kernel * channels numbers
        padded, columns.shape, (along_n, stride * along_h, stride * along_w, along_h, along_c), writeable=False)
    return columns.reshape(-1, kernel * kernel * channels), shape


def _through_relu(worker, y, dy):
    out = worker.workspace("through relu", dy.shape, dy.dtype)
    np.multiply(dy, y > 0, out=out)
    worker.lap("ReLU")
    return out


def _corners(x):
    """The four (N, H//2, W//2, C) views of x, by place in the 2x2 window, row by row."""
    height, width = x.shape[1] // 2 * 2, x.shape[2] // 2 * 2
    return [x[:, row:height:2, column:width:2] for row in (0, 1) for column in (0, 1)]


def _maxpool(worker, x, y, index):
    """y = maxima of the 2x2 windows, index = their places; of equals the first."""
    a, b, c, d = _corners(x)
    lower = worker.workspace("lower row", y.shape, y.dtype)
    right, right_of_lower, is_lower = (worker.workspace(name, y.shape, np.bool_) for name in ("1", "2", "3"))
    np.greater(b, a, out=right)
    np.greater(d, c, out=right_of_lower)
    np.maximum(a, b, out=y)
    np.maximum(c, d, out=lower)
    np.greater(lower, y, out=is_lower)
    np.maximum(y, lower, out=y)
    right_of_lower ^= right   # right = right_of_lower where is_lower, else right; in byte operations, which are quick
    right_of_lower &= is_lower
    right ^= right_of_lower
    np.multiply(is_lower.view(np.uint8), 2, out=index)
    index |= right.view(np.uint8)


def _unpool(worker, dy, index, shape):
    out = worker.workspace("unpooled", shape, dy.dtype)
    _scatter(dy, index, out)
    worker.lap("pooling")
    return out


def _scatter(dy, index, dx):
    """dx = dy at the place of each maximum, zero elsewhere, also in an odd last row or column."""
    dx[:, index.shape[1] * 2:] = 0
    dx[:, :, index.shape[2] * 2:] = 0
    for place, corner in enumerate(_corners(dx)):
        np.multiply(dy, index == place, out=corner)


def _taps(dtype):
    """Which 3x3 taps (columns) each of the four taps of the transposed form (rows) adds up; for both directions."""
    taps = np.array([[0, 0, 1], [0, 1, 1], [1, 1, 0], [1, 0, 0]], dtype)
    return taps, taps


# Output pixel 2i + phase takes tap t of input pixel i + shift: phase -> ((t, shift), ...).
_PHASES = (((1, 0), (3, -1)), ((2, 0), (0, 1)))


def _add_taps(taps, out):
    """Sum the contributions taps (N, H, W, 4, 4, O) of input pixels into the pixels out (N, H, 2, W, 2, O) around them."""
    height, width = taps.shape[1:3]
    for row_phase in (0, 1):
        for column_phase in (0, 1):
            target = out[:, :, row_phase, :, column_phase]
            for row_tap, row_shift in _PHASES[row_phase]:
                for column_tap, column_shift in _PHASES[column_phase]:
                    to_rows, from_rows = _overlap(height, row_shift)
                    to_columns, from_columns = _overlap(width, column_shift)
                    source = taps[:, from_rows, from_columns, row_tap, column_tap]
                    if row_shift == column_shift == 0:
                        target[...] = source
                    else:
                        target[:, to_rows, to_columns] += source


def _overlap(length, shift):
    """Slices (to, from) of positions i and i + shift that both lie in range(length)."""
    return slice(max(0, -shift), length - max(0, shift)), slice(max(0, shift), length + min(0, shift))
