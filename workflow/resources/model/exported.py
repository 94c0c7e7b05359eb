"""Whether the files that predict.py reads are those that were exported, with finite constants: by
NumPy alone. An ONNX file is read by the wire format of protobuf; onnx.proto numbers the fields.
"""

import hashlib
import json
import pathlib

import numpy as np

LIST = "sha256.json"  # of the files: name -> digest
GRAPH, CONSTANT, TYPE, NAME, RAW, OUTSIDE = 7, 5, 2, 8, 9, 13
FLOATS = {1: ("<f4", 4), 11: ("<f8", 10)}  # type -> that of NumPy, and the field of its numbers


def fault(folder):
    """What is wrong with the files in a folder, in words, else None; raises OSError and ValueError
    where one cannot be read.
    """
    folder = pathlib.Path(folder)
    for name, digest in json.loads((folder / LIST).read_text("utf-8")).items():
        if hashlib.sha256(np.memmap(folder / name, np.uint8, "r")).hexdigest() != digest:
            return f"{name} is not the file that was exported: unpack model.zip again"
    for name, values in constants(folder / "model.onnx"):
        if values.size and not np.isfinite([values.min(), values.max()]).all():
            return f"the constant {name} of model.onnx holds NaN or Inf: export the model again"
    return None


def constants(path):
    """(name, values) of the constants of an ONNX file that are float32 or float64."""
    graphs = values_of(GRAPH, memoryview(np.memmap(path, np.uint8, "r")))
    for constant in (each for graph in graphs for each in values_of(CONSTANT, graph)):
        parts = dict(fields(constant))
        if parts[TYPE] not in FLOATS:
            continue
        dtype, numbers = FLOATS[parts[TYPE]]
        values = np.frombuffer(parts.get(RAW) or parts.get(numbers, b""), dtype)
        if OUTSIDE in parts:
            entries = [dict(fields(entry)) for entry in values_of(OUTSIDE, constant)]
            place = {str(each[1], "utf-8"): str(each[2], "utf-8") for each in entries}
            count = int(place["length"]) // np.dtype(dtype).itemsize
            data = path.with_name(place["location"])
            values = np.memmap(data, dtype, "r", int(place["offset"]), count)
        yield str(parts[NAME], "utf-8"), values


def values_of(number, message):
    """The values of the field of this number, of which a message may have many."""
    return (value for each, value in fields(message) if each == number)


def fields(message):
    """(number, value) of each field of a message: a whole number or bytes."""
    place = 0
    while place < len(message):
        key, place = varint(message, place)
        if key & 7 == 0:
            value, place = varint(message, place)
        else:
            length, place = (
                varint(message, place) if key & 7 == 2 else ({1: 8, 5: 4}[key & 7], place)
            )
            value, place = message[place : place + length], place + length
        yield key >> 3, value


def varint(message, place):
    """(number, the place after it): seven bits in a byte, the lowest first."""
    number = shift = 0
    while message[place] >= 128:
        number |= (message[place] & 127) << shift
        place, shift = place + 1, shift + 7
    return number | message[place] << shift, place + 1
