#!/bin/bash
# The model of a small run in three environments without Kernel Ladder: onnxruntime with NumPy and Pillow, scikit-learn, and
# PyTorch, each compared with the run's own predictions and features. By hand; not a part of `make test`.
# Usage: tests/model_elsewhere.sh [KEY=VALUE...]   settings of the run; the packages are the newest, PyTorch's of several GB
set -euo pipefail
cd "$(dirname "$0")/.."
ROOT=$PWD
[ $# -gt 0 ] || set -- train_limit=1000 test_limit=500 epochs=2
WORK=$(mktemp -d /tmp/ladder-model.XXXXXX)
trap 'rm -rf "$WORK"' EXIT

envs/install cpu export
cd "$WORK"
"$ROOT/.venv/bin/snakemake" -s "$ROOT/Snakefile" --cores 1 model --config "$@" > output 2>&1 || { tail -30 output; exit 1; }
grep "classes differ" output
python3 -m zipfile -e results/model.zip .
# The test images, the run's answers for them, and pictures of the first ten, for programs that know no results folder.
"$ROOT/.venv/bin/python" - <<'PYTHON'
import glob, json, pathlib, shutil
import numpy as np
from PIL import Image

(model,) = (json.loads(pathlib.Path(path).read_text()) for path in glob.glob("results/model/*/manifest.json"))
parents = model["spec"]["parents"]
answering = next(parents[role] for role in ("evaluate", "ridge", "svm") if role in parents)
features = parents.get("joined", parents.get("features"))
for name, version, file in (("images", parents["data"], "test_images"), ("predictions", answering, "predictions"),
                            *((f"features{half}", features, f"test{half}") for half in ("", "_odd"))):
    for path in glob.glob(f"results/*/{version}/{file}.npy"):
        shutil.copyfile(path, f"{name}.npy")
for row, image in enumerate(np.load("images.npy")[:10]):
    Image.fromarray(image.squeeze()).save(f"{row}.png")
PYTHON

# environment NAME PACKAGE...: an empty one with these packages, and $PYTHON its interpreter.
environment() {
    echo "== $1"
    python3 -m venv "$WORK/$1"
    PYTHON=$WORK/$1/bin/python
    "$PYTHON" -m pip install --quiet --disable-pip-version-check "${@:2}"
    "$PYTHON" -m pip list --disable-pip-version-check 2>/dev/null | grep -iE "^(numpy|onnxruntime|pillow|scikit-learn|torch) "
}

environment onnx onnxruntime numpy pillow
"$PYTHON" kernel_ladder_model/predict.py {0..9}.png
"$PYTHON" - <<'PYTHON'
import numpy as np, onnxruntime

session = onnxruntime.InferenceSession("kernel_ladder_model/model.onnx")
classes = session.run(["class"], {"images": np.load("images.npy")})[0]
print("onnxruntime:", (classes != np.load("predictions.npy")).sum(), "of", len(classes), "classes differ")
PYTHON

environment sklearn onnxruntime scikit-learn
PYTHONPATH=kernel_ladder_model "$PYTHON" - <<'PYTHON'
import numpy as np
from model_sklearn import Classifier, Features
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

images, predictions = np.load("images.npy"), np.load("predictions.npy")
print("scikit-learn:", (Classifier().predict(images) != predictions).sum(), "of", len(images), "classes differ")
pipeline = make_pipeline(Features(), LogisticRegression(max_iter=500)).fit(images, predictions)
print("scikit-learn: a pipeline fitted to the predictions gives", f"{(pipeline.predict(images) == predictions).mean():.1%}")
PYTHON

environment torch torch numpy safetensors
PYTHONPATH=kernel_ladder_model "$PYTHON" - <<'PYTHON'
import pathlib
import numpy as np, torch
from encoder import Encoder

with torch.no_grad():
    given = torch.cat([Encoder()(part) for part in torch.from_numpy(np.load("images.npy")).split(100)]).numpy()
own = np.concatenate([np.load(path) for path in ("features.npy", "features_odd.npy") if pathlib.Path(path).exists()], 1)
deviation = np.abs(given - own).max() / np.abs(own).max()
print(f"PyTorch: features {given.shape} differ by up to {deviation:.1e} of the largest")
assert deviation < 1e-4
PYTHON
echo "all passed"
