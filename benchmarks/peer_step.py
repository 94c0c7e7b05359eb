"""Seconds of each training step of a network in TensorFlow or JAX on the CPU; called by cpu.py.

arguments: a JSON object with library (tensorflow or jax), network (a name of
ladder/network/networks.py), input_shape, batch, precision (fp32, or bf16: float32 weights, bfloat16
products and activations), threads, warm_up and steps; the first of warm_up compiles. Prints a JSON
list of [wall seconds, CPU seconds of all threads]. The network is built from the same table of
layers that the plan is made from, NHWC, as one compiled function with Adam.
"""

import importlib
import json
import os
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "workflow/scripts"))

from ladder.network import networks, weights  # noqa: E402, I001 (before NumPy: see ladder/__init__.py)
import numpy as np  # noqa: E402

RATE, KEEP, KEEP_SQUARE, SMALL = 1e-3, 0.9, 0.999, 1e-8  # Adam's


class TensorFlow:
    """The operations of layers in TensorFlow, which computes by oneDNN."""

    def __init__(self, threads):
        os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
        self.tf = tf = importlib.import_module("tensorflow")
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(1)
        self.xp, self.relu, self.mean, self.sqrt = tf, tf.nn.relu, tf.reduce_mean, tf.sqrt
        self.repeat, self.reshape, self.bfloat16 = tf.repeat, tf.reshape, tf.bfloat16

    def cast(self, x, kind):
        return self.tf.cast(x, kind)

    def padded(self, x, amount):
        return self.tf.pad(x, [[0, 0], [amount] * 2, [amount] * 2, [0, 0]])

    def convolve(self, x, weight, stride):
        return self.tf.nn.conv2d(x, weight, stride, "VALID")

    def largest(self, x, window, stride, padding):
        around = [[0, 0], [padding] * 2, [padding] * 2, [0, 0]]
        return self.tf.nn.max_pool2d(x, window, stride, around if padding else "VALID")

    def average(self, x, window, stride):
        return self.tf.nn.avg_pool2d(x, window, stride, "VALID")

    def log_softmax(self, x):
        return self.tf.nn.log_softmax(x)

    def step(self, loss, state):
        """A function (images, labels, step's number) that updates `state`, {name: [parameter, mean,
        square]}.
        """
        tf = self.tf
        held = {name: [tf.Variable(value) for value in values] for name, values in state.items()}

        @tf.function
        def update(images, labels, number):
            parameters = {name: values[0] for name, values in held.items()}
            with tf.GradientTape() as tape:
                value = loss(parameters, images, labels)
            for name, gradient in tape.gradient(value, parameters).items():
                for variable, new in zip(
                    held[name], adam(self, held[name], gradient, number), strict=True
                ):
                    variable.assign(new)
            return value

        return lambda images, labels, number: float(
            update(tf.constant(images), tf.constant(labels), tf.constant(number, tf.float32))
        )


class Jax:
    """The operations of layers in JAX, which XLA compiles."""

    def __init__(self, threads):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
        self.jax = jax = importlib.import_module("jax")
        self.xp = xp = jax.numpy
        self.relu, self.mean, self.sqrt = jax.nn.relu, xp.mean, xp.sqrt
        self.repeat, self.reshape, self.bfloat16 = xp.repeat, xp.reshape, xp.bfloat16

    def cast(self, x, kind):
        return x.astype(kind)

    def padded(self, x, amount):
        return self.xp.pad(x, [(0, 0), (amount, amount), (amount, amount), (0, 0)])

    def convolve(self, x, weight, stride):
        order = ("NHWC", "HWIO", "NHWC")
        return self.jax.lax.conv_general_dilated(
            x, weight, (stride, stride), "VALID", dimension_numbers=order
        )

    def _reduced(self, x, start, function, window, stride, padding=0):
        sizes, strides = (1, window, window, 1), (1, stride, stride, 1)
        around = ((0, 0), (padding, padding), (padding, padding), (0, 0))
        return self.jax.lax.reduce_window(x, start, function, sizes, strides, around)

    def largest(self, x, window, stride, padding):
        start = np.array(-np.inf, x.dtype)
        return self._reduced(x, start, self.jax.lax.max, window, stride, padding)

    def average(self, x, window, stride):
        start = np.array(0, x.dtype)
        return self._reduced(x, start, self.jax.lax.add, window, stride) / window**2

    def log_softmax(self, x):
        return self.jax.nn.log_softmax(x)

    def step(self, loss, state):
        """As TensorFlow.step."""

        @self.jax.jit
        def update(state, images, labels, number):
            parameters = {name: values[0] for name, values in state.items()}
            value, gradients = self.jax.value_and_grad(loss)(parameters, images, labels)
            return {name: adam(self, state[name], gradients[name], number) for name in state}, value

        def run(images, labels, number):
            nonlocal state
            state, value = update(state, images, labels, float(number))
            self.jax.block_until_ready(state)
            return float(value)

        return run


def adam(library, values, gradient, number):
    parameter, mean, square = values
    mean = KEEP * mean + (1 - KEEP) * gradient
    square = KEEP_SQUARE * square + (1 - KEEP_SQUARE) * gradient * gradient
    root = library.sqrt(square / (1 - KEEP_SQUARE**number)) + SMALL
    return parameter - RATE * (mean / (1 - KEEP**number)) / root, mean, square


def sliding(library, layer, x, parameters):
    take = {"stride": 1, "padding": 0, **layer.attributes}
    weight = library.cast(parameters[f"{layer.name}.weight"], x.dtype)
    out = library.convolve(library.padded(x, take["padding"]), weight, take["stride"])
    if f"{layer.name}.bias" not in parameters:
        return out
    return out + library.cast(parameters[f"{layer.name}.bias"], x.dtype)


def batchnorm(library, layer, x, parameters):
    wide = library.cast(x, library.xp.float32)
    mean = library.mean(wide, (0, 1, 2))
    variance = library.mean((wide - mean) ** 2, (0, 1, 2))
    scale = parameters[f"{layer.name}.weight"] / library.sqrt(
        variance + layer.attributes["epsilon"]
    )
    return library.cast((wide - mean) * scale + parameters[f"{layer.name}.bias"], x.dtype)


def window(layer):
    return layer.attributes["window"], layer.attributes["stride"]


# kind of layer -> function (library, layer, x, parameters)
LAYERS = {
    "conv2d": sliding,
    "dense": sliding,
    "batchnorm": batchnorm,
    "relu": lambda library, layer, x, parameters: library.relu(x),
    "maxpool2d": lambda library, layer, x, parameters: library.largest(
        x, *window(layer), layer.attributes["padding"]
    ),
    "avgpool2d": lambda library, layer, x, parameters: library.average(x, *window(layer)),
    "global_avgpool": lambda library, layer, x, parameters: library.reshape(
        library.mean(x, (1, 2)), (x.shape[0], 1, 1, -1)
    ),
    "upsample2d": lambda library, layer, x, parameters: library.repeat(
        library.repeat(x, 2, 1), 2, 2
    ),
    "pad": lambda library, layer, x, parameters: library.padded(x, layer.attributes["amount"]),
    "flatten": lambda library, layer, x, parameters: library.reshape(x, (x.shape[0], 1, 1, -1)),
}
LIBRARIES = {"tensorflow": TensorFlow, "jax": Jax}


def loss_of(library, network, precision):
    """A function (parameters, images, labels) -> the loss."""

    def loss(parameters, images, labels):
        kind = library.bfloat16 if precision == "bf16" else library.xp.float32
        values = {networks.INPUT: library.cast(images, kind)}
        for layer in network.layers:
            inputs = [values[name] for name in layer.inputs]
            values[layer.name] = (
                inputs[0] + inputs[1]
                if layer.kind == "add"
                else LAYERS[layer.kind](library, layer, inputs[0], parameters)
            )
        out = library.cast(values[network.layers[-1].name], library.xp.float32)
        if not network.classifies:
            return library.mean((out - images) ** 2)
        scores = library.log_softmax(library.reshape(out, labels.shape))
        return -library.mean(scores * labels) * labels.shape[1]

    return loss


def time_steps(library, network, input_shape, batch, steps, precision, threads, warm_up):
    """[[wall seconds, CPU seconds of all threads]] of each timed step."""
    library, network = LIBRARIES[library](threads), networks.build(network, tuple(input_shape))
    state = {}
    for name, value in weights.initialize(network, 0).items():
        value = (
            value.transpose(1, 2, 3, 0) if value.ndim == 4 else value
        )  # (kernel, kernel, in, out)
        if name.endswith(".weight") and value.ndim == 2:
            value = value.T[None, None]
        state[name] = (value.copy(), np.zeros_like(value), np.zeros_like(value))
    step, random = (
        library.step(loss_of(library, network, precision), state),
        np.random.default_rng(0),
    )
    times = []
    for number in range(1, warm_up + steps + 1):
        images = random.random((batch, *input_shape), np.float32)
        labels = np.eye(10, dtype=np.float32)[random.integers(0, 10, batch)]
        started = time.perf_counter(), time.process_time()
        step(images, labels, number)
        times.append((time.perf_counter() - started[0], time.process_time() - started[1]))
    return times[warm_up:]


if __name__ == "__main__":
    print(json.dumps(time_steps(**json.loads(sys.argv[1]))))
