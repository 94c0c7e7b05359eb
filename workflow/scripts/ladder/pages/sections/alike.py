"""The report's sections on pictures without labels: a map, the neighbours of any picture, copies,
pictures that are like no other, and clusters.

inputs are artifacts by role, as in report.py. A place is that of a picture on the page, in page.npy
of the stage `neighbours`; the names are left out where numbers["share"] is false.
"""

import numpy as np

from ladder.data import names as picture_names
from ladder.files import shown as one_line
from ladder.pages import charts, figures

BESIDE = 5  # neighbours that the map shows beside a picture
GROUPS = 24  # groups of copies, pairs and pictures of a cluster that are shown


class Pictures:
    """The pictures of a run as its page has them; None attributes where they are not shared."""

    def __init__(self, inputs, share):
        self.data, self.artifact, self.share = inputs["data"], inputs["neighbours"], share
        self.page = np.asarray(self.artifact.array("page.npy"))
        self.first = np.asarray(self.artifact.array("first.npy"))
        self.files = [
            name for part in ("train", "test") for name in picture_names.read(self.data, part)
        ]
        self._places = {int(row): place for place, row in enumerate(self.page)}

    def place(self, row):
        """The place of a picture by its number; None if the page does not have it."""
        return self._places.get(int(row))

    def name(self, row):
        return one_line(self.files[row]) if self.share else f"picture {row}"

    def entry(self, row):
        """A picture for a template: {"place", "name"}."""
        return {"place": self.place(row), "name": self.name(row)}

    def clusters(self):
        """int32 (N,), None of few pictures."""
        wanted = self.artifact.metrics["clusters"]
        return np.asarray(self.artifact.array("clusters.npy")) if wanted else None

    def images(self):
        """uint8 (M, H, W, C): those of the page."""
        train = self.data.array("train_images.npy")
        test = self.data.array("test_images.npy")
        of_test = self.page >= len(train)
        return np.concatenate([train[self.page[~of_test]], test[self.page[of_test] - len(train)]])

    def leave_out(self, rows):
        """The list of names for the key leave_out; '' where there is none to give."""
        whole = [self.files[row] for row in rows]
        return "\n".join(name for name in whole if self.share and name.isprintable())


def _pictures(inputs, numbers):
    return Pictures(inputs, numbers["share"]) if "neighbours" in inputs else None


def numbers(inputs):
    """Sizes of the clusters, and the pairs of near copies, JSON-able; None of pictures with
    labels.
    """
    if "neighbours" not in inputs:
        return None
    metrics = inputs["neighbours"].metrics
    sizes = []
    if metrics["clusters"]:
        members = np.asarray(inputs["neighbours"].array("clusters.npy"))
        sizes = np.bincount(members, minlength=metrics["clusters"]).tolist()
    return {
        "clusters": sizes,
        "near_copies": metrics["near_count"],
        "near_from": metrics["near_from"],
    }


def section(inputs, numbers):
    """The sheet of pictures, the map, and what the search for a picture needs; None of pictures
    with labels.
    """
    if (pictures := _pictures(inputs, numbers)) is None:
        return None
    clusters, nearest = pictures.clusters(), pictures.artifact.array("nearest.npy")
    sheet = figures.sheet(pictures.images()) if pictures.share else None
    return {
        "sheet": sheet,
        "count": len(pictures.page),
        "of": len(pictures.first),
        "map": _map(inputs, pictures, sheet),
        "pictures": {
            "names": [pictures.name(row) for row in pictures.page],
            "nearest": nearest.tolist(),
            "clusters": clusters[pictures.page].tolist() if clusters is not None else [],
        },
    }


def _map(inputs, pictures, sheet):
    """The pictures in the plane, as sections/features.feature_map has them, in the colours of
    their clusters; None without a map.
    """
    if "map" not in inputs or not len(inputs["map"].array("rows.npy")):
        return None
    rows = np.asarray(inputs["map"].array("rows.npy"))
    x, y = np.asarray(inputs["map"].array("places.npy"), np.float64).T
    clusters = pictures.clusters()[rows]
    series = []
    for cluster in np.unique(clusters):
        own = np.flatnonzero(clusters == cluster)
        series.append(
            {
                "name": f"cluster {cluster + 1}",
                "key": f"cluster {cluster}",
                "colour": int(cluster) + 1 if cluster < charts.COLOURS else "rest",
                "points": [
                    {
                        "x": float(x[at]),
                        "y": float(1 - y[at]),
                        "picture": pictures.place(rows[at]),
                        "text": pictures.name(rows[at]),
                    }
                    for at in own
                ],
            }
        )
    side = charts.number_axis("", ends=(-0.03, 1.03))  # a margin for the points at the edges
    chart = charts.scatter("Map of the features", series, side, side, square=True)
    if sheet:
        nearest = pictures.artifact.array("nearest.npy")[:, :BESIDE].tolist()
        # an empty address stands for the sheet of the page
        chart |= {"sheet": {**sheet, "image": ""}, "nearest": nearest}
    return {"chart": chart, "count": len(rows)}


def copied(inputs, numbers):
    """Groups of exact copies and pairs of near copies; None without any."""
    pictures = _pictures(inputs, numbers)
    if pictures is None:
        return None
    metrics, groups = pictures.artifact.metrics, {}
    for row in np.flatnonzero(pictures.first != np.arange(len(pictures.first))):
        groups.setdefault(int(pictures.first[row]), []).append(int(row))
    if not groups and not metrics["near"]:
        return None
    pairs = metrics["near"]
    return {
        "count": sum(map(len, groups.values())),
        "groups": [
            [pictures.entry(row) for row in (first, *others)] for first, others in groups.items()
        ][:GROUPS],
        "group_count": len(groups),
        "near": [
            {"pictures": [pictures.entry(a), pictures.entry(b)], "likeness": likeness}
            for a, b, likeness in pairs[:GROUPS]
        ],
        "near_count": metrics["near_count"],
        "near_from": metrics["near_from"],
        "leave_out": pictures.leave_out(row for rows in groups.values() for row in rows),
        "leave_out_near": pictures.leave_out(dict.fromkeys(b for _, b, _ in pairs)),
    }


def outliers(inputs, numbers):
    """The pictures that are like no other; None of few pictures, of which that says nothing."""
    pictures = _pictures(inputs, numbers)
    if pictures is None or not pictures.artifact.metrics["clusters"]:
        return None
    rows, likeness = pictures.artifact.metrics["outliers"], pictures.artifact.array("likeness.npy")
    return {
        "neighbour": likeness.shape[1],
        "pictures": [{**pictures.entry(row), "likeness": float(likeness[row, -1])} for row in rows],
        "leave_out": pictures.leave_out(rows),
    }


def clusters(inputs, numbers):
    """Each cluster with its first pictures; None of few pictures."""
    pictures = _pictures(inputs, numbers)
    if pictures is None or (own := pictures.clusters()) is None:
        return None
    return [
        {
            "name": f"cluster {number + 1}",
            "count": int((own == number).sum()),
            "pictures": [pictures.entry(row) for row in pictures.page if own[row] == number][
                :GROUPS
            ],
        }
        for number in range(pictures.artifact.metrics["clusters"])
    ]
