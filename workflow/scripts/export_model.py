"""Stage `model`: what answers for a run as files for other programs, in one archive.

params: products, what the run's test multiplies with (it has to be float32).
inputs: report, data, and all that the run's predictions are made from (chains.prediction_roles), by
their roles; and shifted1, shifted2, ... if the primary classifier decides by shifted images.
Writes model.zip: model.onnx (images to features, decisions, class and margin; from 1 GB on with
model.onnx.data), sha256.json of the files that predict.py reads, the encoder as encoder.safetensors
and encoder.json, the files of workflow/resources/model that read these, the package
ladder.data.reading, which prepares pictures here and there, and README.md, the model card.
Metrics: how far the answers of onnxruntime for all test images are from the run's own.
"""

import json
import pathlib

from ladder import sources
from ladder.data.reading import pictures
from ladder.errors import UserError
from ladder.machine import requirements
from ladder.progress import log, size
from ladder.stage import stage_script
from ladder.store import artifacts, disk, zips

FOLDER = "kernel_ladder_model"  # that the archive unpacks
LIST = "sha256.json"  # of the files that predict.py reads, which it compares with theirs
READING = pathlib.Path(pictures.__file__).parent
# copied as they are
SOURCES = (
    (sources.ROOT / "workflow/resources/model", "*.py"),
    (READING.parent, f"{READING.name}/*.py"),
)


def make(work, inputs, params):
    if reason := requirements.unavailable(params["products"]):
        raise UserError(reason)
    # those that no manifest names go when it is written
    files, work.metrics = write(work.folder, inputs, work.threads)
    with work.file("model.zip") as path:
        zips.pack(path, {f"{FOLDER}/{name}": file for name, file in files.items()})
    deviations = " and ".join(
        f"{name} by up to {value:.1e}" for name, value in work.metrics["deviations"].items()
    )
    log.info(
        "%d of %d classes differ from the run's, and in units of the largest %s",
        work.metrics["classes_that_differ"],
        work.metrics["images"],
        deviations,
    )


def write(folder, inputs, threads):
    """Write the files of the archive that are no source files; returns ({name in it: path of each},
    metrics).
    """
    from ladder.export import alike, card, encoder, model  # they need what `requirements` asks for

    answering, images = model.Answering(inputs), inputs["data"].array("test_images.npy")
    facts = {
        "classes": answering.classes,
        "labels": answering.labels.tolist(),
        "answered_by": answering.name,
        "image": list(images.shape[1:]),
        "dataset": inputs["data"].manifest["spec"]["params"]["dataset"],
        "version": folder.name,
    }
    names, measured = model.export(answering, facts, folder, images, threads)
    if "neighbours" in inputs:
        names = [*names, *alike.write(folder, inputs)]
    artifacts.save_tensors(folder / "encoder.safetensors", encoder.tensors(answering.parts))
    (folder / "encoder.json").write_text(
        json.dumps(encoder.described(answering.parts), indent=1) + "\n", "utf-8"
    )
    digests = {name: disk.sha256(folder / name) for name in names}
    (folder / LIST).write_text(json.dumps(digests, indent=1) + "\n", "utf-8")
    files = {name: folder / name for name in (*names, LIST, "encoder.safetensors", "encoder.json")}
    files |= {
        path.relative_to(home).as_posix(): path
        for home, pattern in SOURCES
        for path in home.glob(pattern)
    }
    files = dict(sorted(files.items()))  # the same archive, in whatever order the disk lists them
    described = {
        name: {"bytes": path.stat().st_size, "sha256": disk.sha256(path)}
        for name, path in files.items()
    }
    summary = inputs["report"].json("summary.json")
    (folder / "README.md").write_text(
        card.text(summary, folder.name, facts, measured, described), "utf-8"
    )
    sizes = {name: file["bytes"] for name, file in described.items()}
    log.info("%s", ", ".join(f"{name} {size(count)}" for name, count in sizes.items()))
    return {"README.md": folder / "README.md", **files}, {**measured, "bytes": sizes}


if __name__ == "__main__":
    stage_script.run(make)
