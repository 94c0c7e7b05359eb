"""What an exported model of pictures without labels needs to find those of its run that are most
like a new one.
"""

import json

import numpy as np

from ladder.data import names
from ladder.features import likeness

MOST_BYTES = 100_000_000  # of the pictures' features
MEAN, VECTORS, NAMES, MAP = FILES = ("mean.npy", "pictures.npy", "pictures.json", "map.npy")


def write(folder, inputs):
    """Write FILES into a folder and return their names: the mean of the features, float32 (D,);
    the unit vectors around it, float16 (N, D), of as many pictures as MOST_BYTES have room for;
    their names, or their numbers where the names are not shared; and their places on the map,
    float32 (N, 2), NaN of those that are not on it.
    """
    features = inputs.get("joined") or inputs["features"]
    parts = "train", "test"
    rows = likeness.Stacked(*(features.array(f"{part}.npy") for part in parts))
    mean = likeness.mean(rows[: likeness.GALLERY])
    vectors = likeness.Directions(rows, mean)[: MOST_BYTES // (2 * len(mean))]
    files = [name for part in parts for name in names.read(inputs["data"], part)]
    share = inputs["report"].json("summary.json")["share"]
    named = [name if share else f"picture {number}" for number, name in enumerate(files)]
    places = np.full((len(vectors), 2), np.nan, np.float32)
    if "map" in inputs:
        rows = np.asarray(inputs["map"].array("rows.npy"))
        there = rows < len(vectors)
        places[rows[there]] = inputs["map"].array("places.npy")[there]
    np.save(folder / MAP, places)
    np.save(folder / MEAN, mean)
    np.save(folder / VECTORS, vectors.astype(np.float16))
    (folder / NAMES).write_text(json.dumps(named[: len(vectors)]) + "\n", "utf-8")
    return list(FILES)
