"""Every kind of layer as nodes of an ONNX graph, as in inference: a row for each row of
network.layers.KINDS.

Images are (N, channels, height, width) here, vectors (N, units, 1, 1).
"""

import math

import numpy as np

from ladder.network import networks


def int64s(*values):
    return np.array(values, np.int64)


def output(graph, layers, values, x):
    """The name of the output of the last of these layers for the network's input x.

    values: name -> array, as weights.read gives them.
    """
    outputs = {networks.INPUT: x}
    for layer in layers:
        tensors = [
            graph.constant(_spread(values[name]), name)
            for name in (*layer.parameters, *layer.state)
        ]
        inputs = [outputs[name] for name in layer.inputs]
        outputs[layer.name] = LAYERS[layer.kind](
            graph.add, layer.attributes, layer, *inputs, *tensors
        )
    return outputs[layers[-1].name]


def _spread(value):
    """The weight of a dense layer as that of a 1x1 convolution."""
    return value[:, :, None, None] if value.ndim == 2 else value


def _slid(at, window=None):
    """The attributes of a window; its sides and strides are numbers, or lists of those down and to
    the right.
    """
    sides = {"strides": at["stride"], **({"kernel_shape": window} if window else {})}
    both = {name: 2 * [side] if isinstance(side, int) else side for name, side in sides.items()}
    return {"pads": 4 * [at["padding"]], **both}


def _upsample2d(add, at, layer, x):
    return add(
        "Resize",
        x,
        "",
        np.array([1, 1, 2, 2], np.float32),
        mode="nearest",
        nearest_mode="floor",
        coordinate_transformation_mode="asymmetric",
    )


def _lrn(add, at, layer, x):
    """By a convolution that adds up the neighbours of each channel: ONNX's own LRN has another
    window where `size` is even.
    """
    channels = layer.output_shape[2]
    offsets = np.arange(channels) - np.arange(channels)[:, None]
    within = (-(at["size"] // 2) <= offsets) & (offsets <= (at["size"] - 1) // 2)
    weight, bias = (
        np.float32(at["alpha"] / at["size"] * within)[..., None, None],
        np.full(channels, at["k"], np.float32),
    )
    return add(
        "Mul", x, add("Pow", add("Conv", add("Mul", x, x), weight, bias), np.float32(-at["beta"]))
    )


def _divided(add, x, squares, epsilon):
    return add("Div", x, add("Sqrt", add("Add", squares, np.float32(epsilon))))


def _position_norm(add, at, layer, x):
    return _divided(add, x, add("ReduceSumSquare", x, int64s(1)), at["epsilon"])


def _local_contrast(add, at, layer, x, image):
    """The windows become channels, whose variance about their own mean loses no digits."""
    kernel, channels = at["kernel"], layer.input_shapes[1][2]
    numbers = kernel * kernel * channels
    windows = add(
        "Conv", image, np.eye(numbers, dtype=np.float32).reshape(numbers, channels, kernel, kernel)
    )
    centred = add("Sub", windows, add("ReduceMean", windows, int64s(1)))
    squares = add("ReduceSumSquare", centred, int64s(1))
    return _divided(add, x, add("Div", squares, np.float32(numbers)), at["epsilon"])


def _winner_take_all(add, at, layer, x):
    height, width, channels = layer.output_shape
    maps = add("Reshape", x, int64s(-1, channels, height * width))
    largest, places = add("TopK", maps, int64s(at["winners"]), outputs=2)
    alone = add("ScatterElements", add("Mul", maps, np.float32(0)), places, largest, axis=2)
    return add("Reshape", alone, int64s(-1, channels, height, width))


def _attention(add, at, layer, x):
    height, width, channels = layer.output_shape
    parts = add("Reshape", x, int64s(-1, 3 * channels, height * width))
    queries, keys, values = add(
        "Split", parts, int64s(channels, channels, channels), outputs=3, axis=1
    )
    scores = add("MatMul", add("Transpose", queries, perm=[0, 2, 1]), keys)
    shares = add("Softmax", add("Div", scores, np.float32(math.sqrt(channels))), axis=2)
    attended = add("MatMul", values, add("Transpose", shares, perm=[0, 2, 1]))
    return add("Reshape", attended, int64s(-1, channels, height, width))


# Kind -> a function of Graph.add, the layer's attributes, the layer, the names of its inputs and of
# its tensors, parameters before state; it returns the name of the output.
LAYERS = {
    "conv2d": lambda add, at, layer, *read: add("Conv", *read, **_slid(at)),
    "dense": lambda add, at, layer, *read: add("Conv", *read, **_slid(at)),
    "batchnorm": lambda add, at, layer, *read: add(
        "BatchNormalization", *read, epsilon=at["epsilon"]
    ),
    "relu": lambda add, at, layer, x: add("Relu", x),
    "maxpool2d": lambda add, at, layer, x: add("MaxPool", x, **_slid(at, at["window"])),
    "avgpool2d": lambda add, at, layer, x: add(
        "AveragePool", x, count_include_pad=1, **_slid(at, at["window"])
    ),
    "global_avgpool": lambda add, at, layer, x: add("GlobalAveragePool", x),
    "upsample2d": _upsample2d,
    "dropout": lambda add, at, layer, x: x,
    "l1_penalty": lambda add, at, layer, x: x,
    "sample": lambda add, at, layer, mean, log_variance: mean,
    "lrn": _lrn,
    "position_norm": _position_norm,
    "local_contrast": _local_contrast,
    "soft_threshold": lambda add, at, layer, x: add(
        "Relu", add("Sub", add("Concat", x, add("Neg", x), axis=1), np.float32(at["threshold"]))
    ),
    "winner_take_all": _winner_take_all,
    "attention": _attention,
    "pad": lambda add, at, layer, x: add("Pad", x, int64s(*2 * [0, 0, at["amount"], at["amount"]])),
    "add": lambda add, at, layer, *read: add("Add", *read),
    "flatten": lambda add, at, layer, x: add("Reshape", x, int64s(-1, layer.output_shape[2], 1, 1)),
}
