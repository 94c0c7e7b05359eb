"""Made-up models of rows of 1 to 30 numbers and 2 to 5 classes, for estimator_checks.py: python
width_models.py FOLDER.
"""

import json
import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "workflow/scripts"))
from ladder.export import classifier  # noqa: E402
from ladder.export.graph import FLOAT, Graph  # noqa: E402


def model(width, count):
    """The onnx.ModelProto of linear features and a linear SVM of so many classes, with random
    numbers.
    """
    graph, random, pairs = Graph(), np.random.default_rng(width), count * (count - 1) // 2
    flat = graph.add("Reshape", graph.add("Cast", "images", to=FLOAT), np.int64([-1, width]))
    graph.put_out(
        "features",
        graph.add("MatMul", flat, random.normal(size=(width, 4)).astype(np.float32)),
        np.float32,
        4,
    )
    decisions = graph.add("MatMul", flat, random.normal(size=(width, pairs)).astype(np.float32))
    place, margin = classifier.by_votes(graph, decisions, count)
    graph.put_out("decisions", decisions, np.float32, pairs)
    for name, value, dtype in (("class", place, np.int64), ("margin", margin, np.float32)):
        graph.put_out(name, graph.add("Reshape", value, np.int64([-1])), dtype)
    facts = {"labels": list(range(count)), "image": [1, width, 1], "answered_by": "svm"}
    return graph.model((1, width, 1), {"kernel_ladder": json.dumps(facts)})


def write(folder):
    for width in range(1, 31):
        for count in range(2, 6):
            (folder / f"{width}-{count}.onnx").write_bytes(model(width, count).SerializeToString())


if __name__ == "__main__":
    write(pathlib.Path(sys.argv[1]))
