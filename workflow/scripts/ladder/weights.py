"""Initial weights, and the weights file other programs can read with `struct` and `numpy.frombuffer` alone.

The file: int32 0xAE2024, int32 version 1, then float32 weight and bias of each convolution in order, little endian, weights
as (filters, channels, kernel, kernel) ('OIHW'). In memory weights are (filters, kernel, kernel, channels).
"""

import math
import struct

import numpy as np

from . import randomness
from .errors import UserError
from .networks import build

MAGIC, VERSION = 0xAE2024, 1
HEADER = struct.Struct("<ii")


def initialize(network, seed):
    """Parameter name -> float32 array: weights normal with deviation sqrt(2 / fan_in), biases zero (He et al., 2015)."""
    parameters = {}
    for index, (name, shape) in enumerate(network.parameters.items()):
        if name.endswith(".bias"):
            parameters[name] = np.zeros(shape, np.float32)
        else:
            deviation = math.sqrt(2 / math.prod(shape[1:]))
            normal = randomness.generator(seed, randomness.INITIAL_WEIGHTS, index).standard_normal(shape)
            parameters[name] = (deviation * normal).astype(np.float32)
    return parameters


def write_weights(path, parameters):
    """Write parameters (name -> array as in memory) to `path`."""
    with open(path, "wb") as file:
        file.write(HEADER.pack(MAGIC, VERSION))
        for value in parameters.values():
            file.write(np.ascontiguousarray(_to_file(value), "<f4").tobytes())


def read_weights(path, network="autoencoder"):
    """Parameter name -> float32 array, weights OIHW as in the file; raises UserError for anything but such a file."""
    shapes = {name: _file_shape(shape) for name, shape in build(network).parameters.items()}
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    if len(data) < HEADER.size or HEADER.unpack_from(data) != (MAGIC, VERSION):
        raise UserError(f"{path} is not a weights file (it does not begin with 0xAE2024 and version 1)")
    expected = HEADER.size + 4 * sum(math.prod(shape) for shape in shapes.values())
    if len(data) != expected:
        raise UserError(f"{path} is {len(data)} bytes long; the weights of {network} are {expected}")
    parameters, offset = {}, HEADER.size
    for name, shape in shapes.items():
        count = math.prod(shape)
        parameters[name] = np.frombuffer(data, "<f4", count, offset).reshape(shape).astype(np.float32)
        offset += 4 * count
    return parameters


def read_parameters(path, network):
    """Parameter name -> float32 array as in memory, from a weights file of the Network `network`."""
    return {name: np.ascontiguousarray(_to_memory(value)) for name, value in read_weights(path, network.name).items()}


def movement(before, after):
    """Layer -> |after - before| / |before| over the layer's weights (biases start at zero and are left out)."""
    return {name.removesuffix(".weight"): float(np.linalg.norm(after[name] - before[name]) / np.linalg.norm(before[name]))
            for name in before if name.endswith(".weight")}


def _to_file(value):
    return value.transpose(0, 3, 1, 2) if value.ndim == 4 else value


def _to_memory(value):
    return value.transpose(0, 2, 3, 1) if value.ndim == 4 else value


def _file_shape(shape):
    return (shape[0], shape[3], shape[1], shape[2]) if len(shape) == 4 else shape
