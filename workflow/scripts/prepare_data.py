"""Stage `data`: the images, labels and class names of a dataset.

params: dataset, train_limit; holdout or test_limit; cifar10_sha256 with cifar10; folder_sha256, image_size, image_channels and
test_share with folder.
options: urls (a JSON list: mirrors of a dataset that is one file, else an address for each file) and downloads (the folder of
downloaded files), for datasets that are downloaded; folder, the path of pictures of one's own.
Writes train_images.npy, test_images.npy uint8 (N, height, width, channels) and train_labels.npy, test_labels.npy uint8 (N,);
with holdout, test_images.npy and test_labels.npy are the hold-out set of training rows, and the test set is not read. Of
pictures also skipped.json, [{"file", "reason"}].
"""

import json
import pathlib

from ladder.data import datasets, folder, official
from ladder.data.facts import FACTS, FOLDER
from ladder.errors import UserError
from ladder.files import shown
from ladder.progress import log
from ladder.workflow import stage_script


def make(work, inputs, params, options):
    holdout = params.get("holdout", 0)
    limits = {"train": params["train_limit"], "test": 0 if holdout else params["test_limit"]}
    if params["dataset"] == FOLDER:
        dataset = _pictures(work, params, options, limits)
    else:
        dataset = datasets.limited(_load(params, options, not holdout), limits["train"], "all" if holdout else limits["test"])
    if holdout:
        dataset = datasets.held_out(dataset, holdout)
        log.info("%d training images are held out, %d remain for training", holdout, len(dataset.train_labels))
    for name in ("train_images", "train_labels", "test_images", "test_labels"):
        work.write_array(f"{name}.npy", getattr(dataset, name))
    work.metrics |= {"classes": list(dataset.classes), "train": len(dataset.train_labels),
                    "test": len(dataset.test_labels)}


def _pictures(work, params, options, limits):
    dataset, skipped = folder.load(options["folder"], params, limits, work.folder, work.threads)
    work.write_json("skipped.json", skipped)
    work.metrics = {"folder": shown(pathlib.Path(options["folder"]).expanduser().absolute().name), "skipped": len(skipped)}
    return dataset


def _load(params, options, with_test=True):
    if params["dataset"] == "digits":
        return datasets.digits(with_test)
    if params["dataset"] == "cifar10":
        return datasets.cifar10(json.loads(options["urls"]), options["downloads"], params["cifar10_sha256"], with_test)
    if params["dataset"] == "mnist":
        return datasets.mnist(json.loads(options["urls"]), options["downloads"], with_test)
    if params["dataset"] in official.FILES:
        return official.load(params["dataset"], json.loads(options["urls"]), options["downloads"], with_test)
    raise UserError(f"dataset {params['dataset']} is not known; choose {', '.join(FACTS)}")


if __name__ == "__main__":
    stage_script.run(make)
