"""Stage `normalized`: the network's input images, and the statistics for the inverse
transformation.

params: normalization (unit, standardize or zca).  inputs: data.
Writes statistics.safetensors, and train.npy and test.npy (N, H, W, C): uint8 pixels for unit and
standardize, whose scale and offset are applied when batches are loaded; whitened float32 values for
zca.
"""

import time

import numpy as np

from ladder import progress
from ladder.data import normalization
from ladder.progress import log
from ladder.stage import stage_script


def make(work, inputs, params):
    data = inputs["data"]
    train, test = data.array("train_images.npy"), data.array("test_images.npy")
    whiten = params["normalization"] == "zca"
    if whiten:
        _estimate(train, test, work.threads)
    statistics = normalization.measure(params["normalization"], train, work.threads)
    work.write_tensors(normalization.FILE, statistics.tensors())
    for name, images in (("train.npy", train), ("test.npy", test)):
        if whiten:
            _write_whitened(work, name, images, statistics)
        else:
            work.write_array(name, images)
    work.metrics = {
        "normalization": params["normalization"],
        **({"zca_epsilon": normalization.ZCA_EPSILON} if whiten else {}),
    }


def _write_whitened(work, name, images, statistics):
    with (
        work.new_array(name, images.shape, np.float32) as out,
        progress.bar(total=len(images), label=f"whitening {name}", unit=" images") as bar,
    ):
        for rows, values in zip(
            normalization.chunks(images), normalization.chunks(out), strict=True
        ):
            statistics.whiten(rows, values, work.threads)
            bar.update(len(rows))


def _estimate(train, test, threads):
    """Log the expected time of whitening, extrapolated from a small matrix product, and its disk
    space.
    """
    values = train[0].size
    sample = np.ones((256, values), np.float32)
    square = np.ones((values, values), np.float32)
    sample @ square  # warm-up
    started = time.perf_counter()
    sample @ square
    per_row = (time.perf_counter() - started) / len(sample)
    # Covariance: half a product per row, by symmetry. Eigenvectors: about the time of 40 matrix
    # products, on one thread.
    seconds = per_row * ((1.5 * len(train) + len(test)) / threads + 40 * values)
    written = 4 * values * (len(train) + len(test) + 2 * values)
    log.info(
        "ZCA of %d values per image: about %s, and %s on disk",
        values,
        progress.duration(seconds),
        progress.size(written),
    )


if __name__ == "__main__":
    stage_script.run(make)
