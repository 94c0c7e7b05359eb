"""The kernels of gpu_basic against their definitions in float64, watched in the emulator and compiled for every GPU."""

import itertools

import numpy as np
import pytest

import references
from cuda_emulator import KERNELS, check, load
from ladder import nvrtc

FOLDER = KERNELS / "gpu_basic"
UNIT = 2.0 ** -24   # half the distance of 1 to the next float32

# batch, height, width, channels, filters, kernel, padding: more than one block each way, and every size odd or 1 somewhere
CONVOLUTIONS = [
    (1, 1, 1, 1, 1, 1, 0),
    (1, 7, 9, 1, 1, 3, 1),
    (3, 5, 7, 3, 5, 3, 1),
    (2, 6, 5, 4, 17, 5, 2),
    (1, 6, 7, 33, 9, 3, 0),
    (2, 3, 2, 5, 3, 3, 2),
]
IMAGES = [(1, 1, 1, 1), (1, 2, 2, 1), (3, 5, 7, 3), (2, 6, 8, 5), (1, 9, 4, 33)]   # batch, height, width, channels


def kernel(file, name):
    return load(FOLDER / file).get_function(name)


def blocks(count, size=256):
    return -(-count // size)


def integers(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).integers(-4, 5, shape).astype(np.float32)


def normal(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def poisoned(shape, dtype=np.float32):
    """An output before its kernel ran: NaN, or the largest integer."""
    return np.full(shape, np.nan if np.dtype(dtype).kind == "f" else np.iinfo(dtype).max, dtype)


def run(file, name, *arguments, count):
    """Check the kernel with one thread for each of `count` elements; ints and floats are passed as int32 and float32."""
    kinds = {int: np.int32, float: np.float32}
    arguments = tuple(kinds[type(value)](value) if type(value) in kinds else value for value in arguments)
    check(kernel(file, name), (blocks(count),), (256,), arguments)


def gamma(terms):
    """Bound of a sum of `terms` float32 products, relative to the sum of their absolute values (Higham, 2002, 3.1)."""
    return terms * UNIT / (1 - terms * UNIT)


# ---- conv2d

def output_size(shape):
    _, height, width, _, _, size, padding = shape
    return height + 2 * padding - size + 1, width + 2 * padding - size + 1


def conv2d_input_grad(dy, weight, padding, height, width):
    size = weight.shape[1]
    dx = np.zeros((len(dy), height + 2 * padding, width + 2 * padding, weight.shape[3]))
    for row, column in np.ndindex(dy.shape[1:3]):
        dx[:, row:row + size, column:column + size] += np.einsum("no,oklc->nklc", dy[:, row, column].astype(float), weight)
    return dx[:, padding:padding + height, padding:padding + width]


def conv2d_weight_grad(x, dy, padding, size):
    x = np.pad(x.astype(float), ((0, 0), (padding, padding), (padding, padding), (0, 0)))
    return sum(np.einsum("no,nklc->oklc", dy[:, row, column], x[:, row:row + size, column:column + size])
               for row, column in np.ndindex(dy.shape[1:3]))


def convolution(shape, values):
    """x, weight, bias and dy of a convolution."""
    batch, height, width, channels, filters, size, _ = shape
    return (values(batch, height, width, channels), values(filters, size, size, channels, seed=1), values(filters, seed=2),
            values(batch, *output_size(shape), filters, seed=3))


def run_conv2d(name, shape, inputs):
    """What a kernel of conv2d.cu makes of two or three input arrays."""
    batch, height, width, channels, filters, size, _ = shape
    out_height, out_width = output_size(shape)
    pixels = batch * out_height * out_width
    output, grid, block = {
        "conv2d_forward": ((batch, out_height, out_width, filters), (blocks(pixels, 32), blocks(filters, 8)), (8, 32)),
        "conv2d_input_grad": ((batch, height, width, channels), (blocks(batch * height * width * channels),), (256,)),
        "conv2d_weight_grad": ((filters, size, size, channels), (blocks(filters * size * size * channels),), (256,)),
        "conv2d_bias_grad": ((filters,), (blocks(filters, 32),), (32,)),
    }[name]
    out = poisoned(output)
    sizes = (pixels, filters) if name == "conv2d_bias_grad" else shape
    check(kernel("conv2d.cu", name), grid, block, (*inputs, out, *map(np.int32, sizes)))
    return out


@pytest.mark.parametrize("shape", CONVOLUTIONS, ids=str)
def test_conv2d_forward(shape):
    padding, terms = shape[6], shape[5] ** 2 * shape[3] + 1
    x, weight, bias, _ = convolution(shape, integers)
    assert np.array_equal(run_conv2d("conv2d_forward", shape, (x, weight, bias)), references.conv2d(x, weight, bias, padding))

    x, weight, bias, _ = convolution(shape, normal)
    error = np.abs(run_conv2d("conv2d_forward", shape, (x, weight, bias)) - references.conv2d(x, weight, bias, padding))
    assert (error <= gamma(terms) * references.conv2d(np.abs(x), np.abs(weight), np.abs(bias), padding)).all()


@pytest.mark.parametrize("shape", CONVOLUTIONS, ids=str)
def test_conv2d_input_grad(shape):
    _, height, width, _, filters, size, padding = shape

    def expected(dy, weight):
        return conv2d_input_grad(dy, weight, padding, height, width)

    _, weight, _, dy = convolution(shape, integers)
    assert np.array_equal(run_conv2d("conv2d_input_grad", shape, (dy, weight)), expected(dy, weight))

    _, weight, _, dy = convolution(shape, normal)
    error = np.abs(run_conv2d("conv2d_input_grad", shape, (dy, weight)) - expected(dy, weight))
    assert (error <= gamma(size * size * filters) * expected(np.abs(dy), np.abs(weight))).all()


@pytest.mark.parametrize("shape", CONVOLUTIONS, ids=str)
def test_conv2d_weight_and_bias_grad(shape):
    batch, size, padding = shape[0], shape[5], shape[6]
    out_height, out_width = output_size(shape)
    x, _, _, dy = convolution(shape, integers)
    assert np.array_equal(run_conv2d("conv2d_weight_grad", shape, (x, dy)), conv2d_weight_grad(x, dy, padding, size))
    assert np.array_equal(run_conv2d("conv2d_bias_grad", shape, (dy,)), dy.sum(axis=(0, 1, 2)))

    x, _, _, dy = convolution(shape, normal)
    terms = batch * out_height * out_width
    error = np.abs(run_conv2d("conv2d_weight_grad", shape, (x, dy)) - conv2d_weight_grad(x, dy, padding, size))
    assert (error <= gamma(terms) * conv2d_weight_grad(np.abs(x), np.abs(dy), padding, size)).all()
    error = np.abs(run_conv2d("conv2d_bias_grad", shape, (dy,)) - dy.astype(float).sum(axis=(0, 1, 2)))
    assert (error <= gamma(terms) * np.abs(dy).astype(float).sum(axis=(0, 1, 2))).all()


# ---- element by element

@pytest.mark.parametrize("count", [1, 255, 256, 700])
def test_relu(count):
    x, dy = integers(count), normal(count)
    y, dx = poisoned(count), poisoned(count)
    run("relu.cu", "relu_forward", x, y, count, count=count)
    assert np.array_equal(y, references.relu(x))
    run("relu.cu", "relu_backward", y, dy, dx, count, count=count)
    assert np.array_equal(dx, np.where(x > 0, dy, 0))


@pytest.mark.parametrize("shape", IMAGES, ids=str)
def test_maxpool2d(shape):
    batch, height, width, channels = shape
    x = integers(*shape)   # of nine values, so that many windows hold a maximum twice
    expected, place = references.maxpool2d(x)
    y, index = poisoned(expected.shape), poisoned(expected.shape, np.uint8)
    run("maxpool2d.cu", "maxpool2d_forward", x, y, index, *shape, count=max(1, y.size))
    assert np.array_equal(y, expected) and np.array_equal(index, place)

    dy, dx = normal(*y.shape), poisoned(shape)
    run("maxpool2d.cu", "maxpool2d_backward", dy, index, dx, *shape, count=x.size)
    scattered = np.zeros(shape)
    for image, row, column, channel in np.ndindex(y.shape):
        i, j = divmod(int(place[image, row, column, channel]), 2)
        scattered[image, 2 * row + i, 2 * column + j, channel] = dy[image, row, column, channel]
    assert np.array_equal(dx, scattered)


@pytest.mark.parametrize("shape", IMAGES, ids=str)
def test_upsample2d(shape):
    batch, height, width, channels = shape
    x = normal(*shape)
    y = poisoned((batch, 2 * height, 2 * width, channels))
    run("upsample2d.cu", "upsample2d_forward", x, y, *shape, count=y.size)
    assert np.array_equal(y, references.upsample2d(x))

    def backward(dy):
        dx = poisoned(shape)
        run("upsample2d.cu", "upsample2d_backward", dy, dx, *shape, count=dx.size)
        return dx, dy.reshape(batch, height, 2, width, 2, channels).astype(float)

    dx, corners = backward(integers(*y.shape))
    assert np.array_equal(dx, corners.sum(axis=(2, 4)))
    dx, corners = backward(normal(*y.shape))
    assert (np.abs(dx - corners.sum(axis=(2, 4))) <= gamma(4) * np.abs(corners).sum(axis=(2, 4))).all()


@pytest.mark.parametrize("file, name", [("relu.cu", "relu_forward"), ("maxpool2d.cu", "maxpool2d_forward"),
                                        ("update.cu", "sgd_update")])
def test_nan_is_not_lost(file, name):
    """A training that has diverged must show in the loss."""
    if name == "relu_forward":
        out = poisoned(4)
        run(file, name, np.array([1, np.nan, -1, 2], np.float32), out, 4, count=4)
        assert np.isnan(out).tolist() == [False, True, False, False]
    elif name == "maxpool2d_forward":
        out = poisoned((1, 1, 2, 1))
        x = np.array([[1, 2, np.nan, 0], [np.nan, 3, 5, 6]], np.float32).reshape(1, 2, 4, 1)
        run(file, name, x, out, poisoned(out.shape, np.uint8), *x.shape, count=2)
        assert np.isnan(out).all()
    else:
        parameter = np.ones(2, np.float32)
        run(file, name, parameter, np.array([np.nan, 9], np.float32), *step_state(0), 2, 0.0, 1.0, count=2)
        assert np.isnan(parameter).tolist() == [True, False]


# ---- loss, update, input

def counters(step, offset=0, step_of_epoch=0):
    return np.array([step, offset, step_of_epoch], np.int64)


@pytest.mark.parametrize("count, parts", [(1, 1024), (45, 7), (1024, 1024), (3 * 32 * 32 * 3 + 1, 1000)])
def test_mse(count, parts):
    for values, exact in ((integers, True), (normal, False)):
        prediction, target = values(count), values(count, seed=1)
        gradient, partials, losses = poisoned(count), poisoned(parts), poisoned(5, np.float64)
        run("mse.cu", "mse_gradient", prediction, target, gradient, count, 2 / 64, count=count)
        run("mse.cu", "mse_partials", prediction, target, partials, count, parts, count=parts)
        check(kernel("mse.cu", "mse_total"), (1,), (1,),
              (partials, counters(7, 0, 2), losses, np.int32(count), np.int32(parts)))
        difference = prediction.astype(float) - target
        loss = np.mean(difference ** 2)
        assert (np.abs(gradient - 2 / 64 * difference) <= (0 if exact else gamma(2) * np.abs(difference))).all()
        assert abs(losses[2] - loss) <= (loss * 2 ** -50 if exact else gamma(count // parts + 5) * loss)
        assert np.isnan(losses[[0, 1, 3, 4]]).all()


def step_state(step):
    """(learning_rates, counters) as the update kernels take them."""
    rates = np.array([0.01, 0.003, 0.25, 0.07])
    return rates, counters(step)


def updated(name, w, g, state, step, weight_decay, clip, momentum):
    """(parameter, running averages) after one update, in float64, as optimizers.py states it."""
    rate = step_state(step)[0][step]
    g = (np.clip(g, -clip, clip) if clip else g) + weight_decay * w
    if name == "sgd":
        return w - rate * g, []
    if name == "momentum":
        velocity = momentum * state[0] + g
        return w - rate * velocity, [velocity]
    if name == "rmsprop":
        square = 0.99 * state[0] + 0.01 * g * g
        return w - rate * g / (np.sqrt(square) + 1e-8), [square]
    mean, square = 0.9 * state[0] + 0.1 * g, 0.999 * state[1] + 0.001 * g * g
    m, s = mean / (1 - 0.9 ** (step + 1)), square / (1 - 0.999 ** (step + 1))
    return w - rate * m / (np.sqrt(s) + 1e-8), [mean, square]


@pytest.mark.parametrize("clip", [0.0, 0.5])
@pytest.mark.parametrize("weight_decay", [0.0, 0.125])
@pytest.mark.parametrize("name, averages", [("sgd", 0), ("momentum", 1), ("rmsprop", 1), ("adam", 2)])
def test_update(name, averages, weight_decay, clip):
    count = 300
    for step in (0, 3):
        w, g, state = normal(count), normal(count, seed=1), [np.abs(normal(count, seed=2 + i)) for i in range(averages)]
        momentum = [0.5] if name == "momentum" else []
        wanted, wanted_state = updated(name, *(array.astype(float) for array in (w, g)),
                                       [array.astype(float) for array in state], step, weight_decay, clip, *(momentum or [0]))
        rates, count_of = step_state(step)
        run("update.cu", f"{name}_update", w, *state, g, rates, count_of, count, weight_decay, clip, *momentum, count=count)
        # A handful of roundings, none of a difference of large numbers except w's own; sizes here are at most about 5.
        np.testing.assert_allclose(w, wanted, rtol=0, atol=8 * gamma(8))
        for found, average in zip(state, wanted_state, strict=True):
            np.testing.assert_allclose(found, average, rtol=0, atol=8 * gamma(4))


@pytest.mark.parametrize("name, averages", [("rmsprop", 1), ("adam", 2)])
def test_gradients_as_small_as_epsilon_are_not_divided_by_zero(name, averages):
    w, g = np.zeros(3, np.float32), np.array([0, 1e-8, 1e-7], np.float32)
    state = [np.zeros(3, np.float32) for _ in range(averages)]
    wanted, _ = updated(name, w.astype(float), g.astype(float), [average.astype(float) for average in state], 0, 0, 0, 0)
    run("update.cu", f"{name}_update", w, *state, g, *step_state(0), 3, 0.0, 0.0, count=3)
    np.testing.assert_allclose(w, wanted, rtol=1e-5)


def test_adam_corrects_its_start_at_every_step():
    """With a constant gradient and averages that started at 0, the corrected step is the learning rate itself."""
    w, mean, square = (np.zeros(1, np.float32) for _ in range(3))
    rates = np.ones(2000)
    for step in (0, 1, 9, 1999):
        w[...], mean[...], square[...] = 0, 2 * (1 - 0.9 ** step), 4 * (1 - 0.999 ** step)
        run("update.cu", "adam_update", w, mean, square, np.full(1, 2, np.float32), rates, counters(step), 1, 0.0, 0.0, count=1)
        assert abs(w[0] + 1) < 1e-6


def test_advance():
    state = counters(4, 128, 2)
    check(kernel("update.cu", "advance"), (1,), (1,), (state, np.int32(64)))
    assert state.tolist() == [5, 192, 3]


@pytest.mark.parametrize("flip", [0, 1])
@pytest.mark.parametrize("name, dtype", [("load_batch_uint8", np.uint8), ("load_batch_float32", np.float32)])
def test_load_batch_is_what_numpy_gathers_to_the_last_bit(name, dtype, flip):
    images = np.random.default_rng(0).integers(0, 256, (11, 5, 7, 3)).astype(dtype)
    permutation = np.random.default_rng(1).permutation(11)
    scale, offset = np.array([1 / 255, 0.3, 1], np.float32), np.array([0.1, -2, 0], np.float32)
    x = poisoned((4, 5, 7, 3))
    run("load_batch.cu", name, images, permutation, counters(9, 5), scale, offset, x, *x.shape, flip, count=x.size)
    gathered = images[permutation[5:9]][:, :, ::-1 if flip else 1]
    assert np.array_equal(x, gathered * scale + offset)


# ---- what holds for every file

FILES = sorted(path.name for path in FOLDER.glob("*.cu"))


@pytest.mark.skipif(not nvrtc.installed(), reason="NVRTC is not installed (envs/kernels.txt)")
@pytest.mark.parametrize("architecture", nvrtc.ARCHITECTURES)
@pytest.mark.parametrize("file", FILES)
def test_every_gpu_can_run_it(file, architecture):
    compiled = nvrtc.compile_file(FOLDER / file, architecture)
    assert sorted(compiled.kernels) == sorted(load(FOLDER / file).names)
    for name, resources in compiled.kernels.items():
        assert resources.spill_bytes == resources.stack_bytes == 0, name
        assert resources.static_shared_bytes == 0, f"{name}: this rung uses global memory only"
        assert resources.registers * (resources.most_threads or 1) <= 65536, name
        body = compiled.ptx.partition(f".entry {name}(")[2]
        assert "st.global" in body.partition(".entry")[0], f"{name} does nothing on {architecture}"


@pytest.mark.parametrize("file", FILES)
def test_header_says_what_the_ladder_asks(file):
    lines = (FOLDER / file).read_text().splitlines()
    head = "\n".join(itertools.takewhile(lambda line: line.startswith("//"), lines))
    for part in ("Rung:", "Layout", "Launches:", "What bounds it:", "Predicted, not measured", "Measured: "):
        assert part in head, part
