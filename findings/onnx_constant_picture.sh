#!/bin/bash
# MeanVarianceNormalization of a picture that has one value everywhere, by three programs that run the same ONNX model. The mean is
# the value, so the answer ought to be 0. onnxruntime gives NaN where the sums are exact and 1 or -1 where they round, OpenVINO in
# float32 0 or nearly 1, and the reference evaluator 0, NaN or 0.0002. Two values that are close (200 and 201) are off by 1 % in the reference.
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
shape = [1, 1, 28, 28]
tensors = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "xy"]
node = helper.make_node("MeanVarianceNormalization", ["x"], ["y"], axes=[2, 3])
graph = helper.make_graph([node], "g", tensors[:1], tensors[1:])
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
PROGRAMS = {
    f"onnx {onnx.__version__}, its reference": lambda x: ReferenceEvaluator(path).run(None, {"x": x})[0],
    f"onnxruntime {onnxruntime.__version__}": lambda x: onnxruntime.InferenceSession(path).run(None, {"x": x})[0],
    f"OpenVINO {openvino.__version__[:8]} f32": lambda x: openvino.Core().compile_model(
        path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})({"x": x})["y"],
}
for value in (1, 255, 0.1, 0.3):
    for program, run in PROGRAMS.items():
        result = np.unique(run(np.full(shape, value, np.float32)))
        print(f"all pixels {value:5}: {program:30} {result}")
        if value >= 1:  # the sums are exact
            assert np.isnan(result) if "runtime" in program else result == 0
        elif "runtime" in program:  # what the others make of rounded sums depends on the width of the processor's vectors
            assert np.abs(result) > 0.5
picture = np.full(shape, 200, np.float32)
picture[0, 0, ::10] = 201
exact = (picture - picture.mean(dtype=np.float64)) / picture.std(dtype=np.float64)
for program, run in PROGRAMS.items():
    error = np.abs(run(picture) / exact - 1).max()
    print(f"200 and 201: {program:30} wrong by {100 * error:.2g} %")
    assert (error > 1e-3) == ("reference" in program)
PYTHON
