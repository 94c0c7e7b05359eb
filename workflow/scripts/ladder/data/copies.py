"""Pictures that are there more than once: images that are equal to the byte, as the stage `data`
writes them.
"""

import collections
import hashlib
import itertools

import numpy as np


def digests(images):
    """The sha256 of each of N images, uint8 (N, H, W, C)."""
    return [hashlib.sha256(np.ascontiguousarray(image)).digest() for image in images]


def first(digests):
    """Of each of N digests the first row with an equal one, int64 (N,)."""
    seen = {}
    return np.array([seen.setdefault(digest, row) for row, digest in enumerate(digests)], np.int64)


def count(digests, labels):
    """Numbers of pictures: those that are there more than once, test pictures that are training
    pictures too, and those that are there with different labels. digests, labels: train, test -> N
    digests, and labels (L,) of the first L.
    """
    rows = [
        row
        for part in digests
        for row in itertools.zip_longest(digests[part], labels[part].tolist())
    ]
    times = collections.Counter(digest for digest, _ in rows)
    labelled = collections.Counter(digest for digest, label in set(rows) if label is not None)
    trained_on = set(digests["train"])
    return {
        "pictures": sum(times[digest] > 1 for digest, _ in rows),
        "in_both_parts": sum(digest in trained_on for digest in digests["test"]),
        "with_different_labels": sum(labelled[digest] > 1 for digest, _ in rows),
    }


def sentence(counts, scored_on):
    """What `count` has found, in words; scored_on: what the test part is called."""
    return (
        f"{counts['pictures']:,} pictures are there more than once, equal when scaled; {scored_on} pictures that are "
        f"training pictures too: {counts['in_both_parts']:,}; pictures with different labels: "
        f"{counts['with_different_labels']:,}"
    )
