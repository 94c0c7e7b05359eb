"""An exported model in another program beside the run's own answers: python other_runtimes.py
PROGRAM MODEL RUN.

PROGRAM: of PROGRAMS; MODEL: the folder with model.onnx; RUN: one with images.npy, predictions.npy
and decisions.npy of the run.
"""

import sys

import numpy as np

OUTPUTS = ["features", "decisions", "class", "margin"]
BATCHES = 13, 50  # the number of images changes from call to call
MOST = 1e-4  # of the largest decision


def onnxruntime(path):
    import onnxruntime

    session = onnxruntime.InferenceSession(path)
    return lambda images: session.run(OUTPUTS, {"images": images})


def reference(path):
    from onnx.reference import ReferenceEvaluator

    session = ReferenceEvaluator(path)
    return lambda images: session.run(OUTPUTS, {"images": images})


def openvino(path):
    import openvino

    model = openvino.Core().compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})

    def run(images):
        given = model({"images": images})
        return [given[name].copy() for name in OUTPUTS]

    return run


def opencv(path):
    import cv2

    network = cv2.dnn.readNetFromONNX(path)

    def run(images):
        network.setInput(images, "images")
        return [values.copy() for values in network.forward(OUTPUTS)]

    return run


PROGRAMS = {program.__name__: program for program in (onnxruntime, reference, openvino, opencv)}


def answers(program, path, images):
    """{output: values} for uint8 images (N, H, W, C)."""
    run, cut = PROGRAMS[program](str(path)), min(BATCHES[0], len(images))
    parts = [
        images[:cut],
        *(images[at : at + BATCHES[1]] for at in range(cut, len(images), BATCHES[1])),
    ]
    outputs = zip(*(run(part) for part in parts), strict=True)
    return dict(zip(OUTPUTS, map(np.concatenate, outputs), strict=True))


def main(program, model, run):
    images, predictions, decisions = (
        np.load(f"{run}/{name}.npy") for name in ("images", "predictions", "decisions")
    )
    given = answers(program, f"{model}/model.onnx", images)
    differ = int((given["class"] != predictions).sum())
    deviation = np.abs(given["decisions"] - decisions).max() / np.abs(decisions).max()
    print(
        f"{program}: {differ} of {len(images)} classes differ, decisions by up to {deviation:.1e} of the largest"
    )
    assert given["class"].shape == predictions.shape and given["decisions"].shape == decisions.shape
    assert all(np.isfinite(values).all() for values in given.values())
    assert differ <= max(1, len(images) // 1000) and deviation <= MOST


if __name__ == "__main__":
    main(*sys.argv[1:])
