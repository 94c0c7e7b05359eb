"""Stage `model`: what answers for a run as files for other programs, in one archive.

params: products, what the run's test multiplies with (it has to be float32).
inputs: report, data, and all that the run's predictions are made from (chains.prediction_roles), by their roles; and shifted1,
shifted2, ... if the primary classifier decides by shifted images.
Writes model.zip: model.onnx (images to features, decisions, class and margin; from 1 GB on with model.onnx.data), the encoder
as encoder.safetensors and encoder.json, the files of workflow/resources/model that read these, and README.md, the model card.
Metrics: how far the answers of onnxruntime for all test images are from the run's own.
"""

import json
import shutil

from ladder import sources
from ladder.data.pictures import LIGHT_ON_DARK
from ladder.errors import UserError
from ladder.export import requirements
from ladder.progress import log, size
from ladder.store import artifacts, disk, zips
from ladder.workflow import stage_script

FOLDER = "kernel_ladder_model"   # that the archive unpacks
READERS = sources.ROOT / "workflow/resources/model"


def make(work, inputs, params):
    if reason := requirements.unavailable(params["products"]):
        raise UserError(reason)
    names, work.metrics = write(work.folder, inputs, work.threads)   # files that no manifest names: they go when it is written
    with work.file("model.zip") as path:
        zips.pack(path, {f"{FOLDER}/{name}": work.folder / name for name in names})
    deviations = " and ".join(f"{name} by up to {value:.1e}" for name, value in work.metrics["deviations"].items())
    log.info("%d of %d classes differ from the run's, and in units of the largest %s", work.metrics["classes_that_differ"],
             work.metrics["images"], deviations)


def write(folder, inputs, threads):
    """Write the files of the archive; returns (their names, metrics)."""
    from ladder.export import card, encoder, model  # they need what `requirements` asks for

    answering, images = model.Answering(inputs), inputs["data"].array("test_images.npy")
    dataset = inputs["data"].manifest["spec"]["params"]["dataset"]
    light_on_dark, image = dataset in LIGHT_ON_DARK, list(images.shape[1:])
    facts = {"classes": answering.classes, "image": image, "mode": "L" if light_on_dark or image[2] == 1 else "RGB",
             "light_on_dark": light_on_dark, "version": folder.name}
    names = model.save(answering.onnx(images.shape[1:], facts), folder)
    measured = model.compared(folder / model.FILE, answering, images, threads)
    artifacts.save_tensors(folder / "encoder.safetensors", encoder.tensors(answering.parts))
    (folder / "encoder.json").write_text(json.dumps(encoder.described(answering.parts), indent=1) + "\n", "utf-8")
    for reader in READERS.glob("*.py"):
        shutil.copyfile(reader, folder / reader.name)
        names.append(reader.name)
    names = sorted([*names, "encoder.safetensors", "encoder.json"])
    files = {name: {"bytes": (folder / name).stat().st_size, "sha256": disk.sha256(folder / name)} for name in names}
    summary = inputs["report"].json("summary.json")
    (folder / "README.md").write_text(card.text(summary, folder.name, facts, measured, files), "utf-8")
    log.info("%s", ", ".join(f"{name} {size(file['bytes'])}" for name, file in files.items()))
    return ["README.md", *names], {**measured, "bytes": {name: file["bytes"] for name, file in files.items()}}


if __name__ == "__main__":
    stage_script.run(make)
