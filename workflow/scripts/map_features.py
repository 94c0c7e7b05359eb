"""Stage `map`: a two-dimensional embedding of the test images' features, for the report.

params: seed (of the sample and of t-SNE); pictures: all, of those without labels.
inputs: features.
Writes rows.npy int64 (n,), the indices of the test rows, or of the training rows and then the test
rows if all are meant, and places.npy float32 (n, 2) in [0, 1]; n
is 0 for too few rows.
"""

import numpy as np

from ladder.features import likeness
from ladder.features import map as feature_map
from ladder.progress import log
from ladder.stage import stage_script


def make(work, inputs, params):
    vectors, most = inputs["features"].array("test.npy"), feature_map.ROWS
    if "pictures" in params:
        vectors = likeness.Stacked(inputs["features"].array("train.npy"), vectors)
        most = feature_map.OF_ALL
    rows = feature_map.rows(len(vectors), params["seed"], most)
    log.info("t-SNE of %d images, which takes seconds", len(rows))
    places = (
        feature_map.layout(vectors[rows], params["seed"])
        if len(rows)
        else np.empty((0, 2), np.float32)
    )
    work.write_array("rows.npy", rows)
    work.write_array("places.npy", places)


if __name__ == "__main__":
    stage_script.run(make)
