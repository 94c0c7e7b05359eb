"""What settings stand for, and whether their keys go together."""

import math
from typing import Any, NamedTuple

from ladder.data import facts as dataset_facts
from ladder.data import normalization
from ladder.data.facts import FOLDER, Facts
from ladder.errors import UserError, excerpt
from ladder.network import networks
from ladder.network.networks import Network
from ladder.rungs import catalog
from ladder.store import targets
from ladder.workflow import network_files, recipe
from ladder.workflow.settings import Settings
from ladder.workflow.values import nearest

# Options of a network -> the values that stay out of its version: they mean "off", or what the
# network was before there was the option.
OFF_IN_NETWORK = {
    "input_noise": 0,
    "latent_penalty": 0,
    "variational": False,
    "autoencoder_residual": False,
    "autoencoder_attention": False,
    "patch_net_kernel": 6,
}
# option -> the option without which it is left out
OF_ANOTHER = {"variational_beta": "variational"}


class Basis(NamedTuple):
    """What settings stand for: facts of the data, and the network with the parameters that make
    it.
    """

    facts: Facts
    params: dict[str, Any]
    network: Network


def check(settings: Settings) -> Basis:
    """The Basis of settings without `auto` (recipe.fill); raises UserError with one line where keys
    do not go together.
    """
    facts = dataset_facts.find(settings)
    _check_data(settings, facts)
    _check_targets(settings)
    params, network = _network(settings, facts)
    _check_labels(settings, facts, network)
    _check_training(settings, network)
    _check_features(settings, facts, network)
    _check_precision(settings)
    return Basis(facts, params, network)


def _check_data(settings: Settings, facts: Facts) -> None:
    least = max(1, facts.classes)
    for key, available in (("train_limit", facts.train), ("test_limit", facts.test)):
        if getattr(settings, key) != "all" and not least <= getattr(settings, key) <= available:
            raise UserError(
                f"config: {key} is {getattr(settings, key)}, but {settings.dataset} has {available} such images"
                f"{f' in {facts.classes} classes' if facts.classes else ''}; {least} to {available}, or all"
            )
    images = facts.train if settings.train_limit == "all" else settings.train_limit
    labelled = images if not facts.classes else min(images, facts.train - facts.unlabelled)
    if settings.validation and not least <= settings.validation <= labelled - least:
        raise UserError(
            f"config: validation is {settings.validation}, but of {labelled} training images in {least} "
            f"class{'es' if least > 1 else ''} it must leave some of each on both sides; "
            f"{least} to {labelled - least}, or 0 for none"
        )
    pixels = math.prod(facts.shape)
    if settings.normalization == "zca" and pixels > normalization.MOST_WHITENED:
        raise UserError(
            f"config: normalization is zca, but an image of {'x'.join(map(str, facts.shape))} has {pixels:,} "
            f"values, at most {normalization.MOST_WHITENED:,} can be whitened; take standardize, or smaller images"
        )
    if settings.patience and not settings.validation:
        raise UserError(
            f"config: patience is {settings.patience}, but there is no validation set to measure the loss on; set "
            "validation to a number of training images, or patience to 0"
        )
    if (
        settings.dataset == FOLDER
        and settings.normalization == "zca"
        and recipe.training_images(settings, facts) <= pixels
    ):
        raise UserError(
            f"config: normalization is zca, but {recipe.training_images(settings, facts):,} training images are no more than "
            f"the {pixels:,} values of one, and whitening needs more; take standardize, smaller images, or more of them"
        )


def _check_labels(settings: Settings, facts: Facts, network: Network) -> None:
    """Check that what learns from labels has them."""
    if network.classifies and facts.unlabelled:
        raise UserError(
            f"config: {network.name} is trained with labels, but {facts.unlabelled:,} of {facts.train:,} training "
            "pictures have none; choose a network that learns without them, as network=autoencoder"
        )
    if settings.search and not facts.classes:
        raise UserError(
            "config: a search ranks runs by their accuracy, and pictures without labels have none; "
            "name labels, or list runs with runs"
        )


def _network(settings: Settings, facts: Facts) -> tuple[dict[str, Any], Network]:
    """The parameters of networks.from_params: name, input, and options or a person's own table; and
    the network.
    """
    params = {**_options(settings, facts), "image": list(facts.shape)}
    network = networks.from_params({**params, "classes": facts.classes})
    return {**params, "classes": facts.classes} if network.classifies else params, network


def _options(settings: Settings, facts: Facts) -> dict[str, Any]:
    if network_files.is_file(settings.network):
        return network_files.params(settings.network, facts.shape, facts.classes)
    off = {key for key, value in OFF_IN_NETWORK.items() if getattr(settings, key) == value}
    options = [
        key
        for key in networks.OPTIONS.get(settings.network, {}).values()
        if key not in off and OF_ANOTHER.get(key) not in off
    ]
    return {key: getattr(settings, key) for key in ("network", *options)}


def _check_targets(settings: Settings) -> None:
    """Check that each metric begins with a number or a group of numbers of summary.json."""
    for target in settings.targets:
        first = target["metric"].partition(".")[0]
        if first not in targets.METRICS:
            raise UserError(
                f"config: targets has the metric {excerpt(target['metric'])}, but summary.json has no such number"
                f"{nearest(first, targets.METRICS) or '; results/summary.json of a run has them all'}"
            )


def _check_training(settings: Settings, network: Network) -> None:
    """Check that the network supports the kind of training."""
    training = settings.training
    if settings.variational and network.name != "autoencoder":
        raise UserError(
            f"config: variational is true, but network is {network.name}; set network to autoencoder, or "
            "variational to false"
        )
    if settings.variational and training != "gradient":
        raise UserError(
            f"config: variational is true, but training is {training}, and distributions cannot be fitted to "
            "patches; set training to gradient, or variational to false"
        )
    for key in ("autoencoder_residual", "autoencoder_attention"):
        having = [name for name, options in networks.OPTIONS.items() if key in options.values()]
        if getattr(settings, key) and network.name not in having:
            raise UserError(
                f"config: {key} is true, but network is {network.name}; set network to {' or '.join(having)}, or "
                f"{key} to false"
            )
        if getattr(settings, key) and training != "gradient":
            raise UserError(
                f"config: {key} is true, but training is {training}, and its layers cannot be fitted to patches; "
                f"set training to gradient, or {key} to false"
            )
    if training != "gradient" and not network.fits:
        raise UserError(
            f"config: training is {training}, but {network.name} has no layers that are fitted to patches; set "
            "training to gradient, or network to autoencoder or patch_net"
        )
    if training != "patches" and not network.trains:
        raise UserError(
            f"config: training is {training}, but {network.name} is fitted to patches alone; set training to "
            "patches"
        )
    if settings.freeze_encoder and settings.network not in networks.HEADED:
        raise UserError(
            f"config: freeze_encoder is true, but {network.name} has no head that could be trained alone; set "
            f"network to {' or '.join(networks.HEADED)}, or freeze_encoder to false"
        )
    key = "epochs" if settings.steps == "none" else "steps"
    if training == "patches_then_gradient" and not getattr(settings, key):
        raise UserError(
            f"config: {key} is 0, but training is {training}; set training to patches to train only the decoder"
        )


def _check_features(settings: Settings, facts: Facts, network: Network) -> None:
    """Check that the features' layer exists and that its output can be pooled as configured."""
    names = [layer.name for layer in network.layers]
    if settings.features_layer not in ("auto", *names):
        raise UserError(
            f"config: features_layer is {excerpt(settings.features_layer)}, but {network.name} has no such layer"
            f"{nearest(settings.features_layer, names) or '; `snakemake results/network.html` draws them all'}"
        )
    if settings.features_flip == "apart" and "ridge" not in settings.evaluations:
        raise UserError(
            "config: features_flip is apart, but only kernel ridge uses both halves; add ridge to evaluations, or "
            "set features_flip to true"
        )
    if layer := features_layer(settings, network):
        _check_maps(settings, network.layer(layer))
        _check_classifiers(settings, facts)
    if settings.classify_shifts != "none":
        _check_shifts(settings.classify_shifts, settings, facts, network)


def _check_shifts(distance: int, settings: Settings, facts: Facts, network: Network) -> None:
    """Check that a classifier of features decides, and that shifted images still show a part of
    what they showed.
    """
    side = min(facts.shape[:2])
    if not features_layer(settings, network):
        raise UserError(
            f"config: classify_shifts is {distance}, but {network.name} classifies by itself, and only classifiers "
            "of features take shifted images; set features_layer to a layer's name, or classify_shifts to none"
        )
    if distance >= side:
        raise UserError(
            f"config: classify_shifts is {distance}, but the images have only {side} pixels on a side; at most "
            f"{side - 1}, or none"
        )


def _check_classifiers(settings: Settings, facts: Facts) -> None:
    images = recipe.training_images(settings, facts)
    if settings.svm_kernel == "none" and "ridge" not in settings.evaluations:
        raise UserError(
            "config: svm_kernel is none, but then kernel ridge has to answer; add ridge to evaluations, or set "
            "svm_kernel to rbf"
        )
    if "ridge" not in settings.evaluations:
        return
    from ladder.classifiers import ridge  # here, because SciPy would delay every command

    if images < ridge.LEAST:
        raise UserError(
            f"config: evaluations has ridge, which needs {ridge.LEAST} training images, but there are {images}; leave "
            "it out"
        )


def _check_maps(settings: Settings, layer: Any) -> None:
    """Check that the output of a layer, (H, W, C), can be pooled and projected as configured."""
    height, width, channels = shape = layer.output_shape
    for key, size, off in (
        ("features_max_pool", features_window(settings, layer), 1),
        ("features_pool", settings.features_pool, "none"),
    ):
        if size != off and (height % size or width % size):
            put_out = (
                f"layer {layer.name} puts out"
                if (height, width) == shape[:2]
                else "features_max_pool leaves"
            )
            raise UserError(
                f"config: {key} is {size}, but {put_out} {height}x{width} pixels, which {size} does not divide"
            )
        if size != off:
            height, width = (
                (size, size) if key == "features_pool" else (height // size, width // size)
            )
    values = height * width * channels * (1 if settings.features_two_polarity == "none" else 2)
    if settings.features_pca != "none" and settings.features_pca > values:
        raise UserError(
            f"config: features_pca is {settings.features_pca}, but there are {values} features; at most {values}, "
            "or none"
        )


def features_window(settings: Settings, layer: Any) -> int:
    """Side of the windows of the features' max-pooling: as configured, or as fits the maps of the
    layer.
    """
    if settings.features_max_pool != "auto":
        return settings.features_max_pool
    if settings.network != "wta_autoencoder" or settings.features_pool != "none":
        return 1
    height, width, _ = layer.output_shape
    return next((side for side in (4, 3, 2) if height % side == width % side == 0), 1)


def _check_precision(settings: Settings) -> None:
    """Check that one key alone says what products are, and that the rung forms such products."""
    precision, variant = settings.precision, settings.variant
    for key in ("multiplier", "test_multiplier"):
        if precision != "float32" and getattr(settings, key) not in ("exact", "same"):
            raise UserError(
                f"config: precision is {precision}, but {key} is {excerpt(getattr(settings, key))}, which says "
                f"what products are too; set precision to float32, or {key} to exact"
            )
    made_for = catalog.RUNGS[variant].precision if variant != "auto" else "float32"
    if made_for not in ("float32", precision):
        raise UserError(
            f"config: variant {variant} multiplies {made_for}, but precision is {precision}; set precision to "
            f"{made_for}, or variant to auto"
        )


def features_layer(settings: Settings, network: Network) -> str | None:
    """The layer whose output the SVM classifies; None if the network classifies by itself and no
    layer is named.
    """
    if settings.features_layer == "auto":
        return (
            None if network.classifies and network.name not in networks.HEADED else network.features
        )
    return settings.features_layer
