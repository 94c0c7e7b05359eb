"""Stage `features`: the feature vectors of all training and test images (or of the hold-out).

params: encoder ('network' or 'pixels'), network with its options, image, classes where it classifies, variant, features_layer
(whose output it takes), features_standardize, features_pool, features_flip, multiplier where it is not exact (only the encoder
for 'pixels').
inputs: normalized, and for a network weights: an artifact with weights.
options: data_residency, multiplier: a name or the file of a table.
Writes train.npy and test.npy, float32 (N, dimensions), each image's values flattened channel by channel.
"""

import time

import numpy as np

from ladder import features, multipliers, networks, progress, stage, weights
from ladder.inference import Inference
from ladder.normalization import Statistics
from ladder.progress import log


def make(work, inputs, params, options):
    statistics = Statistics.load(inputs["normalized"])
    images = {name: inputs["normalized"].array(name) for name in ("train.npy", "test.npy")}
    encode, dimensions = ENCODERS[params["encoder"]](inputs, params, statistics, work.threads, options)
    count = sum(len(rows) for rows in images.values())
    log.info("%d feature vectors of %d values: %s on disk", count, dimensions, progress.size(4 * count * dimensions))

    started = time.monotonic()
    with work.new_array("train.npy", (len(images["train.npy"]), dimensions), np.float32) as train, \
            work.new_array("test.npy", (len(images["test.npy"]), dimensions), np.float32) as test:
        encode(images["train.npy"], train, "features of training images")
        encode(images["test.npy"], test, "features of images to score")
        seconds = time.monotonic() - started
        if params.get("features_standardize"):
            features.standardize(train, test)
    work.metrics = {"dimensions": dimensions, "images_per_second": count / seconds}


def network_encoder(inputs, params, statistics, threads, options):
    network, layer = networks.from_params(params), params["features_layer"]
    values = weights.load(inputs["weights"].path(weights.file_name(network)), network)
    pool = 0 if params["features_pool"] == "none" else params["features_pool"]
    encoder = Inference(network, params["variant"], values, statistics.scale, statistics.offset, threads,
                        until=layer, data_residency=options["data_residency"],
                        products=multipliers.products(params, options["multiplier"]))

    def encode(images, out, label):
        features.extract(encoder, images, out, pool, params["features_flip"], label)

    return encode, features.dimensions(network.layer(layer).output_shape, pool)


def pixel_encoder(inputs, params, statistics, threads, options):
    def encode(images, out, label):
        features.pixels(images, statistics, out)

    return encode, int(np.prod(inputs["normalized"].array("train.npy").shape[1:]))


ENCODERS = {"network": network_encoder, "pixels": pixel_encoder}


if __name__ == "__main__":
    stage.run(make)
