"""Stage `data`: the images, labels and class names of a dataset.

params   dataset, train_limit; validation or test_limit; cifar10_sha256 with cifar10; folder_sha256,
         image_size, image_channels and test_share with folder
options  urls, downloads      of a dataset that is downloaded: a JSON list, of mirrors of a dataset
                              that is one file, else of an address for each file; and the folder
                              of downloaded files
         folder               the path of pictures of one's own
         labels, leave_out    data/listing.py
Files, with N rows of which the first L have labels (L is N but for one's own pictures):
train_images.npy, test_images.npy   uint8 (N, height, width, channels)
train_labels.npy, test_labels.npy   uint8 (L,)
skipped.json                        [{"file", "reason"}] of pictures
names.json                          {"train": [...], "test": [...]} of pictures: the path of each
                                    row's picture below the folder, or its row in the .npz file
                                    (data/names.py)
With validation the test files hold the validation set of training rows, and the test set is not
read. Metrics: the class names, none where no picture has a label; of pictures also what the folders
were taken for (remarks), how many pictures are there more than once (copies), and which keys name
lists of pictures (given).
"""

import dataclasses
import json
import pathlib

import numpy as np

from ladder.data import copies, datasets, folder, names, official
from ladder.data.facts import FACTS, FOLDER
from ladder.errors import UserError
from ladder.files import shown
from ladder.progress import log
from ladder.stage import stage_script

BLOCK = 1000  # images that are written together
LISTS = {"labels": "auto", "leave_out": "none"}  # options beside the folder -> their defaults


def make(work, inputs, params, options):
    validation = params.get("validation", 0)
    limits = {"train": params["train_limit"], "test": 0 if validation else params["test_limit"]}
    if params["dataset"] == FOLDER:
        dataset = _pictures(work, params, options, limits)
    else:
        dataset = datasets.limited(
            _load(params, options, not validation),
            limits["train"],
            "all" if validation else limits["test"],
        )
    images, pictures = {"train": dataset.train_images, "test": dataset.test_images}, dataset.names
    if validation:  # of the numbers of rows: the images may be a map of a large file
        rows = np.arange(len(images["train"]))
        first = copies.first(copies.digests(images["train"])) if pictures else None
        dataset = datasets.with_validation(
            dataclasses.replace(dataset, train_images=rows), validation, first
        )
        images = {
            "train": datasets.Rows(images["train"], dataset.train_images),
            "test": datasets.Rows(images["train"], dataset.test_images),
        }
        if pictures:
            pictures = {
                part: [pictures["train"][row] for row in images[part].numbers] for part in images
            }
        log.info(
            "%d training images are for validation, %d remain for training",
            validation,
            len(images["train"]),
        )
    seen = {part: [] for part in images}
    for part, array in images.items():
        with work.new_array(f"{part}_images.npy", array.shape, array.dtype) as out:
            for start in range(0, len(out), BLOCK):
                out[start : start + BLOCK] = block = array[start : start + BLOCK]
                seen[part] += copies.digests(block) if pictures else []
        work.write_array(f"{part}_labels.npy", getattr(dataset, f"{part}_labels"))
    if pictures:
        work.write_json(names.FILE, pictures)
        work.metrics["copies"] = counts = copies.count(
            seen, {part: getattr(dataset, f"{part}_labels") for part in seen}
        )
        if counts["pictures"]:
            log.info("%s", copies.sentence(counts, "validation" if validation else "test"))
    work.metrics |= {
        "classes": list(dataset.classes),
        **{part: len(array) for part, array in images.items()},
    }


def _pictures(work, params, options, limits):
    dataset, skipped, remarks = folder.load(options, params, limits, work.folder, work.threads)
    work.write_json("skipped.json", skipped)
    work.metrics = {
        "folder": shown(pathlib.Path(options["folder"]).expanduser().absolute().name),
        "skipped": len(skipped),
        "remarks": remarks,
        "given": [key for key, usual in LISTS.items() if options[key] != usual],
    }
    return dataset


def _load(params, options, with_test=True):
    if params["dataset"] == "mnist_small":
        return official.mnist_small(with_test)
    if params["dataset"] == "digits":
        return datasets.digits(with_test)
    if params["dataset"] in official.FILES:
        return official.load(
            params["dataset"],
            json.loads(options["urls"]),
            options["downloads"],
            with_test,
            params.get("cifar10_sha256"),
        )
    raise UserError(f"dataset {params['dataset']} is not known; choose {', '.join(FACTS)}")


if __name__ == "__main__":
    stage_script.run(make)
