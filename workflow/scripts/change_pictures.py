"""Stage `changed`: the feature vectors of changed copies of test pictures, the first
features/changes.MOST of them.

params: seed, of the changes; and of the features' parameters variant and array_library, as far as
they have them, for checks of the machine. The transform and its other options are those of the
artifact of features. inputs: data; features; normalized, and for a network weights: those that the
features were made from.
options: data_residency, multiplier: a name or the file of a table.
Writes changed.npy, float32 (Q, dimensions): of the copies of the first Q test pictures, the even
part where features have an odd one.
"""

import contextlib

import numpy as np

from extract_features import ENCODERS
from ladder.arithmetic import arrays
from ladder.data.normalization import Statistics
from ladder.features import changes, features
from ladder.stage import stage_script


def make(work, inputs, params, options):
    fitted, statistics = inputs["features"], Statistics.load(inputs["normalized"])
    fitted_params = fitted.manifest["spec"]["params"]
    encoder, _ = ENCODERS[fitted_params["encoder"]](inputs, fitted_params, work.threads, options)
    library = arrays.library(fitted_params.get("array_library"), work.threads)
    transform = features.FeatureTransform.from_params(fitted_params, fitted.tensors(features.FILE))
    pictures = np.asarray(inputs["data"].array("test_images.npy")[: changes.MOST])
    images = stored(changes.changed(pictures, params["seed"]), statistics, work.threads)
    shape = len(images), fitted.metrics["dimensions"]
    with contextlib.ExitStack() as stack:
        outs = [stack.enter_context(work.new_array("changed.npy", shape, np.float32))]
        if transform.flip == "apart":
            outs.append(np.empty((len(images), fitted.metrics["odd_dimensions"]), np.float32))
        features.prepare(encoder, images, transform, library)
        features.extract(encoder, images, transform, outs, "features of changed copies", library)
    work.metrics = {"pictures": len(images), **library.facts()}


def stored(pictures, statistics, threads):
    """Pictures uint8 (N, H, W, C) as the stage `normalized` stores them."""
    if statistics.whitening is None:
        return pictures
    out = np.empty(pictures.shape, np.float32)
    statistics.whiten(pictures, out, threads)
    return out


if __name__ == "__main__":
    stage_script.run(make)
