"""Initial weights and weights files.

Autoencoders, whose only parameters are those of convolutions, use weights.bin, which other programs can read with `struct` and
`numpy.frombuffer`: int32 0xAE2024, int32 version 1, then float32 weight and bias of each convolution in order, little endian.
Other networks use weights.safetensors, running statistics included, with the names 'layer.weight', 'layer.bias',
'layer.running_mean', 'layer.running_var'.

In files, weights of convolutions are (filters, channels, kernel, kernel) ('OIHW') and of dense layers (units, inputs); in
memory they are (filters, kernel, kernel, channels) and (units, 1, 1, inputs).
"""

import math
import pathlib
import struct

import numpy as np
import safetensors
import safetensors.numpy

from ladder.arithmetic import randomness
from ladder.errors import UserError
from ladder.store import artifacts

MAGIC, VERSION = 0xAE2024, 1
HEADER = struct.Struct("<ii")
START = {"running_mean": 0, "running_var": 1}   # initial running statistics


def initialize(network, seed):
    """Parameter name -> float32 array: weights normal with standard deviation sqrt(2 / fan_in) (He et al., 2015), biases zero.

    Weights of batch normalisation are 1, but 0 in the last one of a residual branch, so the block starts as the identity
    (Goyal et al., 2017).
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
                normal = randomness.generator(seed, randomness.INITIAL_WEIGHTS, at).standard_normal(shape)
                parameters[name] = (deviation * normal).astype(np.float32)
            at += 1
    return parameters


def initial_state(network):
    """Name -> float32 array of the running statistics before the first step."""
    return {name: np.full(shape, START[name.rpartition(".")[2]], np.float32) for name, shape in network.state.items()}


def shapes(network):
    """Name -> shape in memory of all tensors in a weights file of the network."""
    return {name: shape for layer in network.layers for name, shape in {**layer.parameters, **layer.state}.items()}


def file_name(network):
    """'weights.bin' or 'weights.safetensors'."""
    return "weights.bin" if network.loss == "mse" else "weights.safetensors"


def save(path, network, values):
    """Write values (name -> float32 array as in memory, for all of `shapes`) in the format of file_name(network)."""
    tensors = {name: np.ascontiguousarray(_to_file(values[name]).reshape(shape), "<f4")
               for name, shape in _file_shapes(network).items()}
    if network.loss != "mse":
        artifacts.save_tensors(path, tensors)
        return
    with open(path, "wb") as file:
        file.write(HEADER.pack(MAGIC, VERSION))
        for value in tensors.values():
            file.write(value.tobytes())


def load(path, network):
    """Name -> float32 array as in memory, from a weights file of the network; raises UserError as read(), for NaN and Inf."""
    tensors = read(path, network)
    for name, values in tensors.items():
        if not np.isfinite(values).all():
            raise UserError(f"{path} does not hold weights: {name} has NaN, Inf, or numbers beyond float32")
    return {name: np.ascontiguousarray(_to_memory(tensors[name], shape)) for name, shape in shapes(network).items()}


def of_artifact(artifact, network):
    """load() of the weights file in an artifact (artifacts.Artifact) of the network."""
    return load(artifact.path(file_name(network)), network)


def read(path, network):
    """Name -> float32 array as in the file, in the network's order; either format is accepted for any network.

    Raises UserError for anything but a weights file of the network.
    """
    path, wanted = pathlib.Path(path), _file_shapes(network)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    if data[:HEADER.size] == HEADER.pack(MAGIC, VERSION):
        return _read_plain(path, data, wanted, network.name)
    try:
        found = safetensors.numpy.load(data)
    except (safetensors.SafetensorError, KeyError, ValueError) as error:
        raise UserError(f"{path} is not a weights file: it neither begins with 0xAE2024 and version 1 nor is it safetensors "
                        f"({error})") from error
    for name in [*wanted, *found]:
        here, there = found[name].shape if name in found else "missing", wanted.get(name, "absent")
        if here != there:
            raise UserError(f"{path} does not hold the weights of this {network.name}: {name} is {here} there and {there} in "
                            "the network")
        if found[name].dtype.kind != "f":
            raise UserError(f"{path} does not hold weights: {name} is {found[name].dtype} there; they are float16, float32 or "
                            "float64")
    with np.errstate(over="ignore"):   # load() refuses what is infinite in float32
        return {name: found[name].astype(np.float32) for name in wanted}


def _read_plain(path, data, wanted, network):
    expected = HEADER.size + 4 * sum(math.prod(shape) for shape in wanted.values())
    if len(data) != expected:
        raise UserError(f"{path} is {len(data)} bytes long; the weights of this {network} are {expected}")
    tensors, offset = {}, HEADER.size
    for name, shape in wanted.items():
        count = math.prod(shape)
        tensors[name] = np.frombuffer(data, "<f4", count, offset).reshape(shape).astype(np.float32)
        offset += 4 * count
    return tensors


def movement(before, after):
    """Layer -> |after - before| / |before| over the layer's weights; tensors that start at zero, e.g. biases, are omitted."""
    return {name.removesuffix(".weight"): float(np.linalg.norm(after[name] - before[name]) / np.linalg.norm(before[name]))
            for name in before if name.endswith(".weight") and before[name].any()}


def _file_shapes(network):
    """The same as `shapes`, with the shapes in a file."""
    found = {}
    for layer in network.layers:
        for name, shape in {**layer.parameters, **layer.state}.items():
            found[name] = (shape[0], shape[3]) if layer.kind == "dense" and len(shape) == 4 else _channels_second(shape)
    return found


def _channels_second(shape):
    return (shape[0], shape[3], *shape[1:3]) if len(shape) == 4 else tuple(shape)


def _to_file(value):
    return value.transpose(0, 3, 1, 2) if value.ndim == 4 else value


def _to_memory(value, shape):
    return value.reshape(_channels_second(shape)).transpose(0, 2, 3, 1) if len(shape) == 4 else value
