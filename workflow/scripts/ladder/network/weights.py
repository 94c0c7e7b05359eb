"""Initial weights and weights files.

Autoencoders, whose only parameters are weights and biases of convolutions, use weights.bin, which
other programs can read with `struct` and `numpy.frombuffer`: int32 0xAE2024, int32 version 1, then
float32 weight and bias of each convolution in order, little endian.
Other networks use weights.safetensors, running statistics included, with the names 'layer.weight',
'layer.bias', 'layer.running_mean', 'layer.running_var'.

In files, weights of convolutions are (filters, channels, kernel, kernel) ('OIHW') and of dense
layers (units, inputs); in memory they are (filters, kernel, kernel, channels) and (units, 1, 1,
inputs).
"""

import math
import struct

import numpy as np

from ladder import files
from ladder.arithmetic import randomness
from ladder.errors import UserError
from ladder.store import artifacts

MAGIC, VERSION = 0xAE2024, 1
HEADER = struct.Struct("<ii")
START = {"running_mean": 0, "running_var": 1}  # initial running statistics


def initialize(network, seed):
    """He initialisation: parameter name -> float32 array; weights are normal with standard
    deviation sqrt(2 / fan_in) (He et al., 2015), biases zero.

    Weights of batch normalisation are 1, but 0 in the last one of a residual branch, so the block
    starts as the identity (Goyal et al., 2017).
    """
    parameters, at = {}, 0
    closing = {name for layer in network.layers if layer.kind == "add" for name in layer.inputs[:1]}
    for layer in network.layers:
        for name, shape in layer.parameters.items():
            if name.endswith(".bias"):
                parameters[name] = np.zeros(shape, np.float32)
            elif layer.kind == "batchnorm":
                parameters[name] = np.full(shape, 0 if layer.name in closing else 1, np.float32)
            else:
                deviation = math.sqrt(2 / math.prod(shape[1:]))
                normal = randomness.generator(seed, randomness.INITIAL_WEIGHTS, at).standard_normal(
                    shape
                )
                parameters[name] = (deviation * normal).astype(np.float32)
            at += 1
    return parameters


def initial_state(network):
    """Name -> float32 array of the running statistics before the first step."""
    return {
        name: np.full(shape, START[name.rpartition(".")[2]], np.float32)
        for name, shape in network.state.items()
    }


def shapes(network):
    """Name -> shape in memory of all tensors in a weights file of the network."""
    return {
        name: shape
        for layer in network.layers
        for name, shape in {**layer.parameters, **layer.state}.items()
    }


def file_name(network):
    """'weights.bin' or 'weights.safetensors'."""
    plain = all(
        layer.kind == "conv2d" and layer.attributes["bias"]
        for layer in network.layers
        if layer.parameters
    )
    return "weights.bin" if network.loss == "mse" and plain else "weights.safetensors"


def save(path, network, values):
    """Write values (name -> float32 array as in memory, for all of `shapes`) in the format of
    file_name(network).
    """
    tensors = {
        name: np.ascontiguousarray(_to_file(values[name]).reshape(shape), "<f4")
        for name, shape in _file_shapes(network).items()
    }
    if file_name(network) == "weights.safetensors":
        artifacts.save_tensors(path, tensors)
        return
    with open(path, "wb") as file:
        file.write(HEADER.pack(MAGIC, VERSION))
        for value in tensors.values():
            file.write(value.tobytes())


def load(path, network):
    """Name -> float32 array as in memory, from a weights file of the network; raises UserError as
    read(), for NaN and Inf.
    """
    tensors = read(path, network)
    for name, values in tensors.items():
        if not np.isfinite(values).all():
            raise UserError(
                f"{path} does not hold weights: {name} has NaN, Inf, or numbers beyond float32"
            )
    return {
        name: np.ascontiguousarray(_to_memory(tensors[name], shape))
        for name, shape in shapes(network).items()
    }


def of_artifact(artifact, network):
    """load() of the weights file in an artifact (artifacts.Artifact) of the network."""
    return load(artifact.path(file_name(network)), network)


def read(path, network):
    """Name -> float32 array as in the file, in the network's order; either format is accepted for
    any network.

    Raises UserError for anything but a weights file of the network.
    """
    stored, wanted = contents(path), _file_shapes(network)
    if isinstance(stored, np.ndarray):
        if len(stored) != value_count(network):
            raise UserError(
                f"{path} is {HEADER.size + stored.nbytes} bytes long; the weights of this {network.name} are "
                f"{HEADER.size + 4 * value_count(network)}"
            )
        return named(stored, network)
    for name in [*wanted, *stored]:
        here, there = (
            stored[name].shape if name in stored else "missing",
            wanted.get(name, "absent"),
        )
        if here != there:
            raise UserError(
                f"{path} does not hold the weights of this {network.name}: {name} is {here} there and {there} in "
                "the network"
            )
    with np.errstate(over="ignore"):  # load() refuses what is infinite in float32
        return {name: stored[name].astype(np.float32) for name in wanted}


def is_of(path, network):
    """Whether the file is one of this autoencoder, or like a weights.bin of no other kind of
    network.

    Raises UserError if it is no weights file at all.
    """
    stored = contents(path)
    return isinstance(stored, np.ndarray) or {
        name: array.shape for name, array in stored.items()
    } == _file_shapes(network)


def contents(path):
    """What a weights file holds by itself: all values in a row, float32, of a weights.bin; name ->
    array of safetensors.

    Raises UserError for anything else.
    """
    import safetensors.numpy  # here: nothing else in this module needs it

    data = files.read(path)
    if data[: HEADER.size] == HEADER.pack(MAGIC, VERSION):
        if len(data) % 4:
            raise UserError(
                f"{path} is {len(data)} bytes long, which is not a whole number of float32 values"
            )
        return np.frombuffer(data, "<f4", offset=HEADER.size).astype(np.float32)
    try:
        tensors = safetensors.numpy.load(data)
    # the library raises its own error, KeyError for types that NumPy lacks, and others
    except Exception as error:
        raise UserError(
            f"{path} is not a weights file: it neither begins with 0xAE2024 and version 1 nor is it safetensors "
            f"({ascii(str(error)[:200])[1:-1]})"
        ) from error
    if not tensors:
        raise UserError(f"{path} is not a weights file: it holds no tensors")
    for name, tensor in tensors.items():
        if tensor.dtype.kind != "f":
            raise UserError(
                f"{path} is not a weights file: its {ascii(name[:80])} is {tensor.dtype}, but weights are float16, "
                "float32 or float64"
            )
    return tensors


def value_count(network):
    """Number of values in a weights file of the network."""
    return sum(math.prod(shape) for shape in _file_shapes(network).values())


def named(values, network):
    """Name -> array as in the file, from the values of `contents`, of which there are
    value_count(network).
    """
    shaped = _file_shapes(network)
    ends = np.cumsum([math.prod(shape) for shape in shaped.values()])
    return {
        name: part.reshape(shape)
        for (name, shape), part in zip(shaped.items(), np.split(values, ends[:-1]), strict=True)
    }


def movement(before, after):
    """Layer -> |after - before| / |before| over the layer's weights; tensors that start at zero,
    e.g. biases, are omitted.
    """

    def norm(values):
        return float(np.linalg.norm(values.astype(np.float64)))  # whose squares are finite

    return {
        name.removesuffix(".weight"): norm(after[name] - before[name]) / norm(before[name])
        for name in before
        if name.endswith(".weight") and before[name].any()
    }


def _file_shapes(network):
    """The same as `shapes`, with the shapes in a file."""
    file_shapes = {}
    for layer in network.layers:
        for name, shape in {**layer.parameters, **layer.state}.items():
            file_shapes[name] = (
                (shape[0], shape[3])
                if layer.kind == "dense" and len(shape) == 4
                else _channels_second(shape)
            )
    return file_shapes


def _channels_second(shape):
    return (shape[0], shape[3], *shape[1:3]) if len(shape) == 4 else tuple(shape)


def _to_file(value):
    return value.transpose(0, 3, 1, 2) if value.ndim == 4 else value


def _to_memory(value, shape):
    return (
        value.reshape(_channels_second(shape)).transpose(0, 2, 3, 1) if len(shape) == 4 else value
    )
