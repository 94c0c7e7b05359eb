#!/bin/bash
# Three operators in which onnxruntime and OpenVINO agree with the text of ONNX, and ONNX's own reference evaluator does not: LRN
# looks at as many channels as the batch has pictures, so that a picture's answer depends on the pictures beside it; the L1 norm of
# LpNormalization adds values with their signs; MaxPool with SAME_LOWER loses the last row and column of an odd side.
# Ends with status 1 where one of them does otherwise.
set -euo pipefail
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT
python3 -m venv "$WORK/venv"
"$WORK/venv/bin/pip" install --quiet --disable-pip-version-check onnx==1.23.2 onnxruntime==1.32.0 openvino==2026.4.1 numpy==2.4.6
"$WORK/venv/bin/python" - "$WORK/model.onnx" <<'PYTHON'
import sys

import numpy as np
import onnx
import onnxruntime
import openvino
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

path = sys.argv[1]


def answers(operator, x, **attributes):
    tensors = [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape), helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph([helper.make_node(operator, ["x"], ["y"], **attributes)], "g", tensors[:1], tensors[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    return {
        f"onnx {onnx.__version__}, its reference": ReferenceEvaluator(path).run(None, {"x": x})[0],
        f"onnxruntime {onnxruntime.__version__}": onnxruntime.InferenceSession(path).run(None, {"x": x})[0],
        f"OpenVINO {openvino.__version__[:8]} f32": openvino.Core().compile_model(
            path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})({"x": x})[0],
    }


def show(case, given, exact):
    for program, y in given.items():
        print(f"{case:32} {program:30} {y.shape} {np.ravel(y)[-3:]}")
        right = y.shape == exact.shape and np.allclose(y, exact, rtol=1e-5)
        assert right == ("reference" not in program)


picture = np.float32([3, 1, 2]).reshape(1, 3, 1, 1)
squares = np.float32([3**2 + 1, 3**2 + 1 + 2**2, 1 + 2**2]).reshape(picture.shape)
for batch in (1, 2, 3):
    y = answers("LRN", np.repeat(picture, batch, 0), size=3, alpha=3.0, beta=0.5, bias=1.0)
    first = {program: given[:1] for program, given in y.items()}
    if batch < 3:  # with as many pictures as channels the reference is right as well
        show(f"LRN, a picture of {batch}", first, picture / np.sqrt(1 + squares))
    else:
        assert all(np.allclose(given, picture / np.sqrt(1 + squares)) for given in first.values())
row = np.float32([[1, -2, 3]])
show("LpNormalization, p 1", answers("LpNormalization", row, axis=1, p=1), row / 6)
show("MaxPool, 2 of 5, SAME_LOWER", answers("MaxPool", np.arange(25, dtype=np.float32).reshape(1, 1, 5, 5), kernel_shape=[2, 2],
     strides=[2, 2], auto_pad="SAME_LOWER"), np.float32([[0, 2, 4], [10, 12, 14], [20, 22, 24]])[None, None])
PYTHON
