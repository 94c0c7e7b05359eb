"""The report's section on the images: how many there are, the first of each class, and the files
that were skipped.
"""

import numpy as np

from ladder.classifiers import scoring
from ladder.data import copies
from ladder.pages import facts, figures, templates
from ladder.pages.sections.classes import FEW
from ladder.store import lineage

SAMPLES = 8  # training images shown per class
SKIPPED = 50  # pictures that could not be read, listed


def section(inputs, numbers):
    """The metrics of stage `data`, with its images as pictures and names; few: classes that are not
    folded.
    """
    data = inputs["data"]
    return {
        **data.metrics,
        "image": templates.shape(data.array("train_images.npy").shape[1:3]),
        "few": FEW,
        "longest_name": max(map(len, data.metrics["classes"]), default=0),
        "labelled": len(data.array("train_labels.npy")),
        "classified": classified(inputs),
        "samples": samples(data) if numbers["share"] else [],
        "skipped": skipped(data, numbers["share"]),
        "remarks": [
            *(data.metrics.get("remarks", ()) if numbers["share"] else ()),
            *copied(inputs),
        ],
    }


def classified(inputs):
    """Number of training images that classifiers of features are fitted to; of pictures without
    labels that each is compared with.
    """
    if "neighbours" in inputs:
        return inputs["neighbours"].metrics["compared_with"]
    answering = inputs.get(lineage.answering(inputs))
    params = answering.manifest["spec"]["params"] if answering else {}
    return scoring.classified(inputs["data"], params)


def samples(data):
    """A strip of the first SAMPLES training images for each class."""
    images, labels = data.array("train_images.npy"), np.asarray(data.array("train_labels.npy"))
    strips = []
    for label, name in enumerate(data.metrics["classes"]):
        rows = np.flatnonzero(labels == label)[:SAMPLES]
        if len(rows):
            strip = figures.tiles(images[rows], SAMPLES, gap=2)
            strips.append({"name": name, "count": len(rows), "image": figures.png_uri(strip)})
    return strips


def copied(inputs):
    """A list with the sentence on pictures of one's own that are there more than once, or
    without.
    """
    counts = inputs["data"].metrics.get("copies")
    return (
        [copies.sentence(counts, facts.scored_on(inputs))] if counts and counts["pictures"] else []
    )


def skipped(data, share):
    """{"count", "files": the first SKIPPED as {"file", "reason"}} of pictures that were skipped,
    none if they are not to be shared; None without any.
    """
    if not data.metrics.get("skipped"):
        return None
    files = data.json("skipped.json")[:SKIPPED] if share else []
    return {"count": data.metrics["skipped"], "files": files}
