"""Stage `features`: the feature vectors of all training and test images (or of the validation set).

inputs   normalized, and for a network weights: an artifact with weights
params   encoder: 'network' or 'pixels'
         of a network: network with its options, image, classes if it classifies, variant,
         features_layer (whose output is used), features_standardize, features_pool, features_flip,
         multiplier unless it is exact
         where they are enabled, of pixels too: features_two_polarity, features_polarity_scale,
         features_max_pool, features_pca with array_library, which computes it
         for fits to a sample: features_fit_rows, seed
         of a control: rows, the first training images that are taken
options  data_residency; multiplier: a name or the file of a table

Files:
train.npy, test.npy            float32 (N, dimensions)
train_odd.npy, test_odd.npy    the odd part, of the same shapes, with features_flip apart
features.safetensors           the fitted arrays of features.FeatureTransform
Of an autoencoder whose weights are those of a file, the metric reconstruction_loss is the mean
squared error of the test images, which no training has measured.
"""

import contextlib
import dataclasses
import time

import numpy as np

from ladder import progress
from ladder.arithmetic import arrays, multipliers
from ladder.data.normalization import Statistics
from ladder.features import features
from ladder.network import networks, weights
from ladder.plan import plan
from ladder.progress import log
from ladder.stage import stage_script
from ladder.training.inference import Inference
from ladder.training.validation import Validation


def make(work, inputs, params, options):
    train, test = (inputs["normalized"].array(name) for name in ("train.npy", "test.npy"))
    train = train[: params.get("rows", len(train))]
    encoder, shape = ENCODERS[params["encoder"]](inputs, params, work.threads, options)
    library = arrays.library(params.get("array_library"), work.threads)
    transform, share, known, rows = fit(encoder, train, params, library, work.folder)
    values = int(np.prod(transform.pooled_shape(shape)))
    dimensions = values if transform.components is None else transform.components.shape[1]
    parts = ("", "_odd") if transform.flip == "apart" else ("",)
    odd, rest = dimensions * (len(parts) - 1), np.setdiff1d(np.arange(len(train)), known)
    count = len(train) + len(test)
    written = dimensions + odd
    log.info(
        "%d feature vectors of %d values: %s on disk",
        count,
        written,
        progress.size(4 * count * written),
    )

    with contextlib.ExitStack() as stack:
        train_out, test_out = (
            [
                stack.enter_context(
                    work.new_array(f"{name}{part}.npy", (len(images), dimensions), np.float32)
                )
                for part in parts
            ]
            for name, images in (("train", train), ("test", test))
        )
        if rows is not None:
            features.put(train_out, known, rows)
        further, places = (
            features.Chosen(train, rest),
            [features.Chosen(out, rest) for out in train_out],
        )
        for images in (further, test):
            features.prepare(encoder, images, transform, library)
        started = time.monotonic()
        features.extract(
            encoder, further, transform, places, "features of training images", library
        )
        features.extract(encoder, test, transform, test_out, "features of test images", library)
        seconds = time.monotonic() - started
        if params.get("features_standardize") and transform.mean is None:
            mean, scale = features.moments(train_out[0])
            transform = dataclasses.replace(transform, mean=mean, scale=scale)
            features.standardize(transform, train_out, test_out)
    work.write_tensors(features.FILE, transform.tensors())
    work.metrics = {
        "dimensions": dimensions,
        **({"odd_dimensions": odd} if odd else {}),
        "images_per_second": (len(rest) + len(test)) / seconds,
        **library.facts(),
        **({} if share is None else {"dimensions_before_pca": values, "variance_kept": share}),
        **reconstruction_loss(inputs, params, test, work.threads, options),
    }


def fit(encoder, images, params, library, folder):
    """(features.FeatureTransform fitted to a sample of the images, explained share of the variance,
    indices of the images that PCA was fitted to, their features, which need not be extracted
    again). Without PCA there is no share, no index and no features.
    """
    indices = (
        features.sample(len(images), params["features_fit_rows"], params["seed"])
        if "features_fit_rows" in params
        else np.arange(len(images))
    )
    transform, sampled = (
        features.FeatureTransform.from_params(params),
        features.Chosen(images, indices),
    )
    if "features_polarity_scale" in params:
        transform = features.fit_channels(encoder, sampled, transform)
    if "features_pca" not in params:
        return transform, None, indices[:0], None
    count = min(params["features_pca"], len(sampled) - 1)
    if count < params["features_pca"]:
        log.info(
            "features_pca %d is lowered to %d: so few of the training images could be read",
            params["features_pca"],
            count,
        )
    transform, share, rows = features.fit_components(
        features.rows_for_pca(encoder, sampled, transform, library, folder),
        transform,
        count,
        params.get("features_standardize", False),
        library,
    )
    return transform, share, indices, rows


def network_encoder(inputs, params, threads, options):
    """(encoder, shape of its output)"""
    layer, statistics = params["features_layer"], Statistics.load(inputs["normalized"])
    encoder = Inference.load(params, inputs["weights"], statistics, threads, options, layer)
    return encoder, encoder.network.layer(layer).output_shape


def pixel_encoder(inputs, params, threads, options):
    return features.Pixels(Statistics.load(inputs["normalized"])), inputs["normalized"].array(
        "train.npy"
    ).shape[1:]


def reconstruction_loss(inputs, params, images, threads, options):
    """{"reconstruction_loss": number} of an autoencoder whose weights are those of a file, {} of
    all else.
    """
    of_weights = (
        inputs["weights"].manifest["spec"] if "weights" in inputs else {"stage": "", "params": {}}
    )
    if of_weights["stage"] != "initial" or "file_sha256" not in of_weights["params"]:
        return {}
    network = networks.from_params(params)
    if network.classifies or not network.trains:
        return {}
    settings = plan.TrainingSettings(
        network=network,
        rung=params["variant"],
        batch_size=1,
        multipliers=multipliers.from_params(params, options["multiplier"]),
    )
    measured = Validation(
        settings, images, Statistics.load(inputs["normalized"]), threads, options["data_residency"]
    )
    return {
        "reconstruction_loss": measured.measure(weights.of_artifact(inputs["weights"], network))[0]
    }


ENCODERS = {"network": network_encoder, "pixels": pixel_encoder}


if __name__ == "__main__":
    stage_script.run(make)
