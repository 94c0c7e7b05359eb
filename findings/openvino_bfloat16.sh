#!/bin/bash
# OpenVINO runs a float32 ONNX model in bfloat16 unless told otherwise, on a CPU that has bfloat16: other classes, silently.
# INFERENCE_PRECISION_HINT=f32 is float32; f16 gives bfloat16 too. Ends with status 1 where it no longer does so.
set -euo pipefail
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT
python3 -m venv "$WORK/venv"
"$WORK/venv/bin/pip" install --quiet --disable-pip-version-check openvino==2026.4.1 onnx==1.23.2 \
    onnxruntime==1.32.0 numpy==2.4.6
"$WORK/venv/bin/python" - "$WORK/model.onnx" <<'PYTHON'
import sys

import numpy as np
import onnx
import onnxruntime
import openvino
from onnx import TensorProto, helper, numpy_helper

print("openvino", openvino.__version__, "onnxruntime", onnxruntime.__version__)
core, path = openvino.Core(), sys.argv[1]
if "BF16" not in core.get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
    print("this CPU has no bfloat16, so it cannot be seen here")
    sys.exit()
random = np.random.default_rng(1)
weights = numpy_helper.from_array(random.normal(size=(256, 10)).astype(np.float32), "w")
graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g",
                          [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 256])],
                          [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 10])], [weights])
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
x = random.normal(size=(5000, 256)).astype(np.float32)
(expected,) = onnxruntime.InferenceSession(path).run(None, {"x": x})
differ = {}
for hint in (None, "f32", "f16"):
    model = core.compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": hint} if hint else {})
    given = model({"x": x})["y"]
    differ[hint] = int((given.argmax(1) != expected.argmax(1)).sum())
    print(f"hint {hint}: computes in {model.get_property('INFERENCE_PRECISION_HINT').get_type_name()}, {differ[hint]} of 5000 "
          f"classes differ, values by up to {np.abs(given - expected).max() / np.abs(expected).max():.1e} of the largest")
assert differ[None] > 0 == differ["f32"] and differ["f16"] > 0
PYTHON
