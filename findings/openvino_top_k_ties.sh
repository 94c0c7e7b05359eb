#!/bin/bash
# Which of equal values TopK names first. ONNX says: the one with the lower index. onnxruntime and the reference evaluator do so;
# OpenVINO does so for few values, and for many it names index 0 last or mixes the indices, so that the nearest neighbours or the
# best classes of one picture change with the number of columns beside them. ArgMax keeps to the rule.
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
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

path = sys.argv[1]


def save(operator, columns, k, attributes):
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, columns])]
    index = helper.make_tensor_value_info("index", TensorProto.INT64, [1, k])
    names = (["x", "k"], ["value", "index"]) if operator == "TopK" else (["x"], ["index"])
    node = helper.make_node(operator, *names, axis=1, **attributes)
    graph = helper.make_graph([node], "g", inputs, [index], [numpy_helper.from_array(np.array([k]), "k")][: len(names[0]) - 1])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)


PROGRAMS = {
    f"onnx {onnx.__version__}, its reference": lambda x: ReferenceEvaluator(path).run(None, {"x": x})[0],
    f"onnxruntime {onnxruntime.__version__}": lambda x: onnxruntime.InferenceSession(path).run(None, {"x": x})[0],
    f"OpenVINO {openvino.__version__[:8]}": lambda x: openvino.Core().compile_model(path, "CPU")({"x": x})["index"],
}
print("indices of the largest of columns that are all 0")
for operator, columns, k, kept in (("TopK", 10, 5, True), ("TopK", 100, 5, True), ("TopK", 1000, 10, False),
                                   ("TopK", 60, 60, False), ("ArgMax", 1000, 1, True)):
    save(operator, columns, k, {"largest": 1, "sorted": 1} if operator == "TopK" else {})
    for program, run in PROGRAMS.items():
        given = np.ravel(run(np.zeros((1, columns), np.float32)))
        print(f"{operator} {k} of {columns:4}: {program:30} {given[:5]} ... {given[-1]}")
        assert np.array_equal(np.sort(given), np.sort(np.unique(given))), "an index stands twice"
        assert np.array_equal(given, np.arange(k)) == (kept or "OpenVINO" not in program)
PYTHON
