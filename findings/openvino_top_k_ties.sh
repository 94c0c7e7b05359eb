#!/bin/bash
# Which of equal values TopK names. ONNX says: those with the lower indices, the lowest first. onnxruntime and the reference evaluator
# do so. OpenVINO does so for two to five values; for one it names another of the largest than its own ArgMax, which keeps to the
# rule; for many of few columns it names other columns, and for many of many the right columns in another order.
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
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [64, columns])]
    index = helper.make_tensor_value_info("index", TensorProto.INT64, [64, k])
    names = (["x", "k"], ["value", "index"]) if operator == "TopK" else (["x"], ["index"])
    node = helper.make_node(operator, *names, axis=1, **attributes)
    graph = helper.make_graph([node], "g", inputs, [index], [numpy_helper.from_array(np.array([k]), "k")][: len(names[0]) - 1])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)


PROGRAMS = {
    f"onnx {onnx.__version__}, its reference": lambda x: ReferenceEvaluator(path).run(None, {"x": x})[0],
    f"onnxruntime {onnxruntime.__version__}": lambda x: onnxruntime.InferenceSession(path).run(None, {"x": x})[0],
    f"OpenVINO {openvino.__version__[:8]}": lambda x: openvino.Core().compile_model(path, "CPU")({"x": x})["index"],
}
print("rows of 64 in which TopK names other columns / the same in another order; values 0, 1 and 2 alone")
x = np.random.default_rng(0).integers(0, 3, (64, 1024)).astype(np.float32)
for operator, columns, k, seen in (("ArgMax", 1024, 1, "right"), ("TopK", 1024, 1, "others"), ("TopK", 1024, 5, "right"),
                                   ("TopK", 1024, 10, "order"), ("TopK", 64, 30, "others")):
    save(operator, columns, k, {"largest": 1, "sorted": 1} if operator == "TopK" else {})
    exact = np.argsort(-x[:, :columns], axis=1, kind="stable")[:, :k]
    for program, run in PROGRAMS.items():
        given = run(x[:, :columns])
        others = (np.sort(given) != np.sort(exact)).any(axis=1).sum()
        order = (given != exact).any(axis=1).sum() - others
        print(f"{operator} {k:2} of {columns:4}: {program:30} {others} / {order}")
        assert (others > 0, order > 0) in {"right": [(False, False)], "others": [(True, False), (True, True)],
                                           "order": [(False, True)]}[seen if "OpenVINO" in program else "right"]
PYTHON
