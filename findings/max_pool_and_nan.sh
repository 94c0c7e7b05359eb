#!/bin/bash
# What MaxPool makes of a window with NaN in it, and Relu of NaN, by four programs that run the same ONNX model: NaN is lost by
# three, the definition itself keeps it in some windows, and OpenVINO makes -3.4e38 of a window of NaN alone and 0 of Relu(NaN).
# Ends with status 1 where one of them does otherwise.
set -euo pipefail
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT
python3 -m venv "$WORK/venv"
"$WORK/venv/bin/pip" install --quiet --disable-pip-version-check onnx==1.23.2 onnxruntime==1.32.0 openvino==2026.4.1 \
    opencv-python-headless==5.0.0.93 numpy==2.4.6
"$WORK/venv/bin/python" - "$WORK/model.onnx" <<'PYTHON'
import sys

import cv2
import numpy as np
import onnx
import onnxruntime
import openvino
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

path, nan, lost = sys.argv[1], np.nan, float(np.finfo(np.float32).min)
x = np.float32([[nan, 1, 1, nan, 1, 2, nan, nan], [2, 3, 2, 3, nan, 3, nan, nan]])[None, None]
OPERATORS = {"MaxPool": ([1, 1, 1, 4], {"kernel_shape": [2, 2], "strides": [2, 2]}), "Relu": ([1, 1, 2, 8], {})}


def by_opencv():
    network = cv2.dnn.readNetFromONNX(path)
    network.setInput(x)
    return network.forward()


PROGRAMS = {f"onnx {onnx.__version__}, its reference": lambda: ReferenceEvaluator(path).run(None, {"x": x})[0],
            f"onnxruntime {onnxruntime.__version__}": lambda: onnxruntime.InferenceSession(path).run(None, {"x": x})[0],
            f"OpenVINO {openvino.__version__[:8]} f32": lambda: openvino.Core().compile_model(
                path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})({"x": x})["y"],
            f"OpenCV {cv2.__version__}": by_opencv}
SEEN = {"MaxPool": [[nan, 3, 3, nan], [3, 3, 3, nan], [3, 3, 3, lost], [3, 3, 3, nan]],
        "Relu": [[nan, nan], [nan, nan], [0, 0], [nan, nan]]}
print("windows: [nan 1 2 3] [1 nan 2 3] [1 2 nan 3] [nan nan nan nan]")
for operator, (shape, attributes) in OPERATORS.items():
    tensors = [helper.make_tensor_value_info(name, TensorProto.FLOAT, sides) for name, sides in (("x", x.shape), ("y", shape))]
    graph = helper.make_graph([helper.make_node(operator, ["x"], ["y"], **attributes)], "g", tensors[:1], tensors[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    for (program, run), seen in zip(PROGRAMS.items(), SEEN[operator]):
        given = np.ravel(run())[[0, 1, 2, 3] if operator == "MaxPool" else [0, 3]]
        print(f"{operator:8} {program:28} {given}")
        np.testing.assert_array_equal(given, np.float32(seen))
PYTHON
