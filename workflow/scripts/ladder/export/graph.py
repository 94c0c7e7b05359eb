"""An ONNX graph that grows node by node."""

import hashlib

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from ladder.errors import RunFailed

OPSET, IR = 18, 9  # versions of 2023, which every onnxruntime since 1.15 reads
FLOAT = TensorProto.FLOAT


class Graph:
    """Nodes, and constants, each of which is there once however often it is asked for.

    real: np.float32 or np.float64, the type of decisions.
    """

    def __init__(self, real=np.float32):
        self.real = real
        self._nodes, self._outputs, self._constants, self._names = [], [], [], {}

    def constant(self, array, name="constant"):
        """The name of a constant of these values; a number becomes an array of one element.

        Raises RunFailed for NaN and Inf, which programs lose in different ways.
        """
        array = np.ascontiguousarray(array)
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise RunFailed(
                f"model: {name} holds NaN or Inf: the encoder diverged; train it with a lower learning_rate"
            )
        key = array.dtype.str, array.shape, hashlib.sha256(array).digest()
        if key not in self._names:
            self._names[key] = f"{len(self._names)}.{name}"
            self._constants.append(numpy_helper.from_array(array, self._names[key]))
        return self._names[key]

    def add(self, operator, *inputs, outputs=1, **attributes):
        """The name of a new node's output, or the names of several; inputs: names, and arrays that
        become constants.
        """
        names = [f"{operator.lower()}{len(self._nodes)}.{number}" for number in range(outputs)]
        read = [value if isinstance(value, str) else self.constant(value) for value in inputs]
        self._nodes.append(helper.make_node(operator, read, names, **attributes))
        return names[0] if outputs == 1 else names

    def real_from(self, value):
        """A float32 value as one of the type `real`."""
        return value if self.real == np.float32 else self.add("Cast", value, to=_type(self.real))

    def put_out(self, name, value, dtype, *shape):
        """Make `value` the model's output `name`, an array of N rows of this shape."""
        self._nodes.append(helper.make_node("Identity", [value], [name]))
        self._outputs.append(_rows(name, dtype, shape))

    def model(self, image, facts):
        """The onnx.ModelProto with the input `images`, uint8 (N, *image); facts: its metadata, name
        -> text.
        """
        images = _rows("images", np.uint8, image)
        graph = helper.make_graph(
            self._nodes, "kernel_ladder", [images], self._outputs, self._constants
        )
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR,
            producer_name="Kernel Ladder",
        )
        helper.set_model_props(model, facts)
        return model


def _rows(name, dtype, shape):
    return helper.make_tensor_value_info(name, _type(dtype), ["N", *shape])


def _type(dtype):
    return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
