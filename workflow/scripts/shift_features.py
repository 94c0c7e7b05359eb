"""Stage `shifted`: the feature vectors of the shifted copies of all test images (or of the
validation set).

params: classify_shifts, the distance in pixels; and of the features' parameters variant and
array_library, as far as they have them, for checks of the machine. The transform and its other
options are those of the artifact of features. inputs: features; normalized, and for a network
weights: those that the features were made from.
options: data_residency, multiplier: a name or the file of a table.
Writes shifted.npy, float32 (4, N, dimensions), in the order of shifts.DIAGONALS; of features with
an odd part also shifted_odd.npy of the same shape.
"""

import contextlib
import time

import numpy as np

from extract_features import ENCODERS
from ladder import progress
from ladder.arithmetic import arrays
from ladder.features import features, shifts
from ladder.progress import log
from ladder.stage import stage_script


def make(work, inputs, params, options):
    images, fitted = inputs["normalized"].array("test.npy"), inputs["features"]
    fitted_params = fitted.manifest["spec"]["params"]
    encoder, _ = ENCODERS[fitted_params["encoder"]](inputs, fitted_params, work.threads, options)
    library = arrays.library(fitted_params.get("array_library"), work.threads)
    transform = features.FeatureTransform.from_params(fitted_params, fitted.tensors(features.FILE))
    names = shifts.NAMES if transform.flip == "apart" else shifts.NAMES[:1]
    offsets, dimensions = shifts.offsets(params["classify_shifts"]), fitted.metrics["dimensions"]
    count, written = len(offsets) * len(images), len(names) * dimensions
    log.info(
        "%d feature vectors of %d values of shifted images: %s on disk",
        count,
        written,
        progress.size(4 * count * written),
    )

    together = shifts.CopiesEncoder.from_encoder(encoder, params["classify_shifts"])
    with contextlib.ExitStack() as stack:
        outs = [
            stack.enter_context(
                work.new_array(name, (len(offsets), len(images), dimensions), np.float32)
            )
            for name in names
        ]
        if together:
            log.info(
                "the copies of an image are computed together, from one image of %dx%d pixels",
                *together.encoder.network.input_shape[:2],
            )
            encoder, batch = together, features.BATCH * len(offsets)
            parts = [
                ("shifted images", shifts.Copies(images), [shifts.ByCopy(out) for out in outs])
            ]
        else:
            batch, parts = (
                features.BATCH,
                [
                    (
                        "images shifted {} down, {} right".format(*offset),
                        shifts.Shifted(images, offset),
                        [out[number] for out in outs],
                    )
                    for number, offset in enumerate(offsets)
                ],
            )
        features.prepare(encoder, parts[0][1], transform, library, batch)
        started = time.monotonic()
        for label, copies, places in parts:
            features.extract(encoder, copies, transform, places, f"features of {label}", library)
    work.metrics = {
        "dimensions": dimensions,
        "images_per_second": count / (time.monotonic() - started),
        **library.facts(),
    }


if __name__ == "__main__":
    stage_script.run(make)
