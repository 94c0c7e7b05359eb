"""Pictures as the stage `data` prepares them, and as predict.py of an exported model does, in a
process of its own.
"""

import json
import subprocess
import sys

import numpy as np
import onnx
from PIL import Image

import export_model
from ladder.data import folder, listing

SHAPE = (20, 24, 3)
# A stand-in for onnxruntime: it keeps each image that predict.py gives it, and the packages that
# this process has imported.
KEEPER = """
import os, sys, types
class InferenceSession:
    def __init__(self, path):
        self.kept = open("images", "wb")
    def get_modelmeta(self):
        return types.SimpleNamespace(custom_metadata_map={"kernel_ladder": os.environ["FACTS"]})
    def run(self, names, given):
        self.kept.write(given["images"].tobytes())
        self.kept.flush()
        print(*{name.partition(".")[0] for name, module in sys.modules.items()
                if "site-packages" in (getattr(module, "__file__", None) or "") and name[0] != "_"}, file=open("imported", "w"))
        return [[0] if name == "class" else [1.0] for name in names]
"""


def unpack(place):
    """The folder of what a model's archive has of programs, at `place`."""
    for home, pattern in export_model.SOURCES:
        for path in home.glob(pattern):
            target = place / path.relative_to(home)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    (place / "kept").mkdir()
    (place / "kept/onnxruntime.py").write_text(KEEPER)
    (place / "sha256.json").write_text("{}")
    (place / "model.onnx").write_bytes(onnx.ModelProto(ir_version=9).SerializeToString())
    return place


def by_predict(place, files, dataset, shape):
    """({path: its image, or why there is none}, packages imported) of the unpacked predict.py for
    these paths.
    """
    facts = {"classes": ["first"], "dataset": dataset, "image": shape}
    ran = subprocess.run(
        [sys.executable, "../predict.py", *files],
        cwd=place / "kept",
        capture_output=True,
        text=True,
        timeout=600,
        env={"PYTHONPATH": str(place / "kept"), "FACTS": json.dumps(facts)},
    )
    prepared = np.frombuffer((place / "kept/images").read_bytes(), np.uint8).reshape(-1, *shape)
    lines = dict(line.split(": ", 1) for line in ran.stderr.splitlines())
    read = [line.partition(": ")[0] for line in ran.stdout.splitlines()]
    assert len(read) == len(prepared) and ran.returncode == bool(lines), ran.stderr[-2000:]
    return {**dict(zip(read, prepared, strict=True)), **lines}, {
        *(place / "kept/imported").read_text().split()
    }


def by_stage(contents, place, threads=2):
    """{number: its image, or why there is none} by the stage `data` for the bytes of files."""
    for part in ("train/a", "train/b", "test/a", "test/b"):
        (place / part).mkdir(parents=True)
        Image.new("RGB", (30, 30)).save(place / part / "whole.png")
    for number, content in enumerate(contents):
        (place / f"train/a/{number:05d}.png").write_bytes(content)
    listing.source.cache_clear()
    params = {
        "folder_sha256": listing.source(str(place)).digest,
        "image_size": SHAPE[:2],
        "image_channels": SHAPE[2],
    }
    options = {"folder": str(place), "labels": "auto", "leave_out": "none"}
    data, skipped, _ = folder.load(options, params, {"train": "all", "test": "all"}, place, threads)
    found = dict(zip(data.names["train"], data.train_images[:], strict=True)) | {
        entry["file"]: entry["reason"] for entry in skipped
    }
    return [found[f"train/a/{number:05d}.png"] for number in range(len(contents))]


def compare(contents, place):
    """([number of each content that the two prepare otherwise], counts, packages that predict.py
    has imported).
    """
    staged = by_stage(contents, place / "folder")
    files = [str(place / f"folder/train/a/{number:05d}.png") for number in range(len(contents))]
    answered, imported = by_predict(unpack(place / "model"), files, "folder", SHAPE)
    answers = [answered[file] for file in files]
    otherwise = [
        number
        for number, (one, other) in enumerate(zip(staged, answers, strict=True))
        if type(one) is not type(other) or not np.array_equal(one, other)
    ]
    read = sum(isinstance(one, np.ndarray) for one in staged)
    return (
        otherwise,
        {"read": read, "refused": len(staged) - read, "otherwise": len(otherwise)},
        imported,
    )
