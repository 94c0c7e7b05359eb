"""Stage `neighbours`: what the features of pictures without labels say of them, for the report and
the table.

params: seed, of samples and clusters; classify_rows, how many pictures each is compared with unless
they are likeness.GALLERY, and at least those whose changed copies are sought (likeness.gallery).
inputs: data, features, and changed1, changed2, ...: of the parts of the features; with the ends
_random and _pixels the same of the controls that there are.
The number of a picture counts the training pictures first, then the test pictures; N: of all.
Writes:
neighbours.npy  int32 (N, K), the numbers of the most alike pictures, the most alike first
likeness.npy    float32 (N, K), their cosines
clusters.npy    int32 (N,), from 0, of enough pictures
first.npy       int64 (N,): of those with the same pixels the number of the one whose name is the
                shortest, of these the first
found.npy       uint8 (Q, kinds): whether the changed copy of each test picture finds its original
                first, by the features of each of the metric `kinds`
page.npy        int64 (M,): the pictures that the report shows
nearest.npy     int32 (M, L): their neighbours among these, as places in page.npy
Metrics:
kinds          of the features, as in found.npy
found          share of the copies that find their original, by kind
compared_with  number of pictures that each one is compared with
clusters       their number
near           [number, number, cosine] of each pair of near copies, the most alike first, the
               first MOST_NEAR of near_count
near_from      the cosine from which on a pair is one of near copies
outliers       the OUTLIERS pictures whose K-th neighbour is the least alike, the least first
"""

import numpy as np

from ladder.data import copies, names
from ladder.features import changes, features, likeness, shifts
from ladder.features import map as feature_map
from ladder.progress import log
from ladder.stage import stage_script
from ladder.store.roles import CONTROLS, Role

MOST_NEAR, OUTLIERS = 100, 24
ON_PAGE = 12  # neighbours of a picture in the report


def make(work, inputs, params):
    metrics, first = inputs["data"].metrics, first_copies(inputs["data"])
    queries = metrics["train"] + np.arange(min(changes.MOST, metrics["test"]))
    most = params.get("classify_rows", likeness.GALLERY)
    rows = likeness.gallery(metrics["train"], metrics["test"], len(queries), most)
    if len(rows) < len(first):
        log.info("each of %d pictures is compared with %d of them", len(first), len(rows))
    controls = [kind for kind in CONTROLS if str(Role("features", kind)) in inputs]
    hits_by_kind = []  # kind after kind, because the features of one fill the memory
    for kind in (*controls, ""):
        encoded = Encoded.from_artifacts(inputs, kind, rows)
        hits, of_changed = hits_of(encoded, rows, queries, first, work.threads)
        hits_by_kind.append(hits)
    neighbours, cosines = encoded.neighbours(rows, work.threads)
    near, near_from = near_copies(neighbours, cosines, first, of_changed)
    outliers = np.argsort(cosines[:, -1], kind="stable")[:OUTLIERS]
    page = shown(first, near[:MOST_NEAR, :2], outliers, params["seed"])
    clusters = likeness.clusters(len(first))
    if clusters:
        log.info("k-means of %d pictures: %d clusters", len(rows), clusters)
        centres = likeness.centres(encoded.others, clusters, params["seed"])
        work.write_array("clusters.npy", likeness.clustered(encoded.vectors, centres, work.threads))
    kinds = ["", *controls]
    columns = np.stack([hits_by_kind[-1], *hits_by_kind[:-1]], axis=1)
    for name, array in (
        ("neighbours", neighbours.astype(np.int32)),
        ("likeness", cosines),
        ("first", first),
        ("found", columns.astype(np.uint8)),
        ("page", page),
        ("nearest", encoded.nearest_of(page, work.threads).astype(np.int32)),
    ):
        work.write_array(f"{name}.npy", array)
    work.metrics = {
        "kinds": kinds,
        "found": dict(zip(kinds, columns.mean(axis=0).tolist(), strict=True)),
        "compared_with": len(rows),
        "clusters": clusters,
        "near": [[int(a), int(b), float(cosine)] for a, b, cosine in near[:MOST_NEAR]],
        "near_count": len(near),
        "near_from": near_from,
        "outliers": outliers.tolist(),
    }


class Encoded:
    """All pictures as one kind of features sees them.

    vectors: likeness.Directions of all; others: those of the pictures that all are compared with,
    in memory; changed: those of the changed copies.
    """

    def __init__(self, rows, changed, compared):
        middle = likeness.mean(rows[compared])
        self.vectors = likeness.Directions(rows, middle)
        self.others = self.vectors[compared]
        self.changed = likeness.Directions(changed, middle)

    @classmethod
    def from_artifacts(cls, inputs, kind, compared):
        """Of the stage's inputs; compared: the numbers of the pictures that all are compared with.
        A control has the features of the first training pictures alone.
        """
        artifact, end = inputs[str(Role("features", kind))], f"_{kind}" if kind else ""
        weights = artifact.manifest["spec"]["params"].get("weights", [1])
        parts = [
            (weight, inputs[f"changed{number}{end}"].array("changed.npy"))
            for number, weight in enumerate(weights, 1)
        ]
        train, all_train = artifact.array("train.npy"), inputs["data"].metrics["train"]
        rows = likeness.Stacked(train, artifact.array("test.npy"))
        there = compared - np.where(compared < all_train, 0, all_train - len(train))
        return cls(rows, shifts.Joined(parts), there)

    def neighbours(self, compared, threads):
        """(numbers of the most alike pictures, their cosines), (N, K) each."""
        places = np.full(len(self.vectors), -1)
        places[compared] = np.arange(len(compared))
        count = min(likeness.NEIGHBOURS, len(compared) - 1)
        nearest, cosines = likeness.nearest(self.vectors, self.others, count, threads, places)
        return compared[nearest], cosines

    def nearest_of(self, page, threads):
        """(M, L): of M pictures, whose numbers are `page`, the places of the neighbours there."""
        vectors, places = self.vectors[page], np.arange(len(page))
        count = min(ON_PAGE, len(page) - 1)
        return likeness.nearest(vectors, vectors, count, threads, places)[0]


def first_copies(data):
    """Of each picture the number of the one with the same pixels whose name is the shortest, of
    these the first: int64 (N,).
    """
    parts = "train", "test"
    digests = [
        digest for part in parts for digest in copies.digests(data.array(f"{part}_images.npy"))
    ]
    files = [name for part in parts for name in names.read(data, part)]
    by_name = sorted(range(len(files)), key=lambda number: (len(files[number]), files[number]))
    first = copies.first([digests[number] for number in by_name])
    out = np.empty(len(files), np.int64)
    out[by_name] = np.array(by_name)[first]
    return out


def hits_of(encoded, rows, queries, first, threads):
    """(whether each changed copy finds its original, or one that has the same pixels, first;
    cosine of each copy and its original), (Q,) each.
    """
    originals = np.searchsorted(rows, queries)
    places, _ = likeness.nearest(encoded.changed, encoded.others, 1, threads)
    vectors = encoded.changed[:]
    cosines = np.einsum("nd,nd->n", vectors, encoded.others[originals])
    return first[rows[places[:, 0]]] == first[queries], cosines


def near_copies(neighbours, cosines, first, of_changed):
    """([number, number, cosine] of each pair, the most alike first; the least cosine): pictures
    of other pixels that are more alike than nine in ten changed copies and their originals.
    """
    least = float(np.quantile(of_changed, 0.9))
    rows, ranks = np.nonzero(cosines >= least)
    others, values = neighbours[rows, ranks], cosines[rows, ranks]
    differ = first[rows] != first[others]
    pairs = np.sort(np.stack([rows[differ], others[differ]], axis=1), axis=1)
    pairs, at = np.unique(pairs, axis=0, return_index=True)
    order = np.argsort(-values[differ][at], kind="stable")
    return np.column_stack([pairs, values[differ][at]])[order], least


def shown(first, pairs, outliers, seed):
    """Ascending numbers of the pictures of the report: those of its map, and those of pairs and
    lists.
    """
    twice = np.flatnonzero(np.bincount(first)[first] > 1)[:MOST_NEAR]
    return np.unique(
        np.concatenate(
            [
                features.sample(len(first), feature_map.OF_ALL, seed),
                pairs.ravel().astype(int),
                outliers,
                twice,
            ]
        )
    )


if __name__ == "__main__":
    stage_script.run(make)
