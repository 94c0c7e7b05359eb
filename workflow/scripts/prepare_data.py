"""Stage `data`: the images, labels and class names of a dataset.

params: dataset, train_limit; holdout or test_limit; cifar10_sha256 with cifar10.
options: urls (a JSON list: mirrors of a dataset that is one file, else an address for each file) and downloads (the folder of
downloaded files), for datasets that are downloaded.
Writes train_images.npy, test_images.npy uint8 (N, height, width, channels) and train_labels.npy, test_labels.npy uint8 (N,);
with holdout, test_images.npy and test_labels.npy are the hold-out set of training rows, and the test set is not read.
"""

import json

from ladder.data import datasets, official
from ladder.data.facts import FACTS
from ladder.errors import UserError
from ladder.progress import log
from ladder.workflow import stage_script


def make(work, inputs, params, options):
    holdout = params.get("holdout", 0)
    dataset = datasets.limited(_load(params, options, not holdout), params["train_limit"], params.get("test_limit", "all"))
    if holdout:
        dataset = datasets.held_out(dataset, holdout)
        log.info("%d training images are held out, %d remain for training", holdout, len(dataset.train_labels))
    for name in ("train_images", "train_labels", "test_images", "test_labels"):
        work.write_array(f"{name}.npy", getattr(dataset, name))
    work.metrics = {"classes": list(dataset.classes), "train": len(dataset.train_labels),
                    "test": len(dataset.test_labels)}


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
