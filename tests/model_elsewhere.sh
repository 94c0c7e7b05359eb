#!/bin/bash
# The model of a small run in environments without Kernel Ladder, each compared with the run's own predictions and features:
# onnxruntime with NumPy and Pillow, the oldest and the newest scikit-learn that docs/use.md names, the programs that it names
# for ONNX, and PyTorch. `make test-all` runs all but PyTorch, which has several GB.
# Usage: [RUN="KEY=VALUE ..."] tests/model_elsewhere.sh [onnx sklearn-oldest sklearn-newest programs torch]
set -euo pipefail
cd "$(dirname "$0")/.."
ROOT=$PWD
[ $# -gt 0 ] || set -- onnx sklearn-oldest sklearn-newest programs torch
WORK=$(mktemp -d "${TMPDIR:-/tmp}/ladder-model.XXXXXX")
trap 'rm -rf "$WORK"' EXIT
SMALL="train_limit=1000 test_limit=500 epochs=2 controls=[] feature_map=false label_counts=[]"
read -r OLDEST NEWEST < <(sed -n 's/.*scikit-learn \([0-9.]*[0-9]\) to \([0-9.]*[0-9]\).*/\1 \2/p' docs/use.md)

envs/install cpu export
cd "$WORK"
# shellcheck disable=SC2086
"$ROOT/.venv/bin/snakemake" -s "$ROOT/Snakefile" --cores 1 model --config ${RUN:-$SMALL} \
    > output 2>&1 || { tail -30 output; exit 1; }
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
for name, version, file in (("images", parents["data"], "test_images"), ("labels", parents["data"], "test_labels"),
                            *((file, answering, file) for file in ("predictions", "decisions")),
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
    "$PYTHON" -m pip install --quiet --disable-pip-version-check --only-binary :all: "${@:2}" 2>pip || { cat pip; exit 1; }
    "$PYTHON" -m pip list --disable-pip-version-check 2>/dev/null |
        grep -iE "^(numpy|onnx|onnxruntime|opencv.*|openvino|pillow|scikit-learn|skops|torch) "
}

onnx() {
    environment onnx onnxruntime numpy pillow
    "$PYTHON" kernel_ladder_model/predict.py {0..9}.png
    "$PYTHON" "$ROOT/tests/support/other_runtimes.py" onnxruntime kernel_ladder_model .
}

sklearn() {
    environment "sklearn-$1" onnxruntime "scikit-learn==$1" skops pandas
    "$PYTHON" -W ignore "$ROOT/tests/support/estimators_used.py" kernel_ladder_model .
    mkdir -p widths
    "$ROOT/.venv/bin/python" "$ROOT/tests/support/width_models.py" widths
    MODELS=widths PYTHONPATH=kernel_ladder_model "$PYTHON" "$ROOT/tests/support/estimator_checks.py"
}
sklearn-oldest() { sklearn "$OLDEST"; }
sklearn-newest() { sklearn "$NEWEST"; }

programs() {
    environment programs onnx openvino opencv-python-headless
    for program in reference openvino opencv; do
        "$PYTHON" "$ROOT/tests/support/other_runtimes.py" $program kernel_ladder_model .
    done
}

torch() {
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
}

for name; do "$name"; done
echo "all passed"
