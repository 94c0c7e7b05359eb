"""The tables of the networks: their published sizes, and how layers are connected."""

import collections
import math

import pytest

from ladder.errors import UserError
from ladder.network import layers, networks

MNIST = (28, 28, 1)


def kinds(network):
    return collections.Counter(layer.kind for layer in network.layers)


def convolution(kernel, inputs, filters, bias=True):
    """Number of parameters of a convolution; a dense layer has kernel 1."""
    return kernel * kernel * inputs * filters + bias * filters


def dense(*units):
    return sum(
        convolution(1, inputs, outputs) for inputs, outputs in zip(units, units[1:], strict=False)
    )


# ---- autoencoder


def test_the_autoencoder_has_its_published_size():
    network = networks.build("autoencoder")
    assert network.parameter_count == 751_875
    assert {
        layer.name: layer.output_shape for layer in network.layers if layer.kind == "conv2d"
    } == {
        "enc1": (32, 32, 256),
        "enc2": (16, 16, 128),
        "dec1": (8, 8, 128),
        "dec2": (16, 16, 256),
        "dec3": (32, 32, 3),
    }
    assert network.layer(network.features).output_shape == (8, 8, 128)
    assert network.layers[-1].output_shape == network.input_shape
    assert not network.classifies


def test_the_autoencoder_has_the_published_macs():
    network = networks.build("autoencoder")
    assert sum(layer.macs for layer in network.layers) / 1e6 == pytest.approx(174.6, abs=0.05)


def test_the_autoencoder_takes_other_filters_and_images():
    network = networks.build("autoencoder", (24, 8, 2), filters=(5, 7, 4))
    assert network.parameter_count == sum(
        convolution(3, *pair) for pair in ((2, 5), (5, 7), (7, 4), (4, 4), (4, 7), (7, 5), (5, 2))
    )
    assert network.layer("latent").output_shape == (3, 1, 4)
    assert network.layers[-1].output_shape == (24, 8, 2)


@pytest.mark.parametrize(
    "image, filters, most",
    [(MNIST, (8, 8, 8), 2), ((32, 20, 3), (4,) * 6, 2), ((7, 8, 1), (4,), 0)],
)
def test_an_autoencoder_too_deep_for_its_images_reports_the_largest_depth(image, filters, most):
    with pytest.raises(UserError) as error:
        networks.build("autoencoder", image, filters=filters)
    depth, (height, width, _) = len(filters), image
    assert str(error.value) == (
        f"config: autoencoder_filters has {depth} numbers, so {depth} times a 2x2 pooling, which images of {height}x{width} do "
        f"not survive; at most {most}"
    )
    if most:
        assert (
            networks.build("autoencoder", image, filters=filters[:most]).layers[-1].output_shape
            == image
        )


def test_an_autoencoder_with_norm_has_two_convolutions_for_each_but_the_first():
    network, plain = networks.build("autoencoder", norm=True), networks.build("autoencoder")
    decoder = [layer.name for layer in plain.layers if layer.name.startswith("dec")]
    assert [layer.name for layer in network.layers if layer.name.startswith("dec")] == decoder
    assert {
        name: network.parameters[name] for name in plain.parameters if name.startswith("dec")
    } == {name: shape for name, shape in plain.parameters.items() if name.startswith("dec")}
    assert [layer.name for layer in network.layers[:8]] == [
        "enc1",
        "enc1_relu",
        "enc1_pool",
        "enc2_whiten",
        "enc2_norm",
        "enc2",
        "enc2_relu",
        "latent",
    ]
    assert network.parameter_count == (
        plain.parameter_count
        - convolution(3, 256, 128)
        + convolution(3, 256, 256)
        + convolution(1, 256, 128)
    )
    assert network.layer("latent").output_shape == (8, 8, 128)


def test_noise_and_penalty_of_an_autoencoder_are_layers_before_and_after_its_encoder():
    names = [layer.name for layer in networks.build("autoencoder").layers]
    noisy = networks.build("autoencoder", noise=0.25, penalty=0.5)
    after = names.index("latent") + 1
    assert [layer.name for layer in noisy.layers] == [
        "noise",
        *names[:after],
        "latent_penalty",
        *names[after:],
    ]
    assert noisy.layer("noise").attributes == {"rate": 0.25} and noisy.layer(
        "latent_penalty"
    ).attributes == {"penalty": 0.5}
    assert (
        noisy.features == "latent" and noisy.parameters == networks.build("autoencoder").parameters
    )


def test_a_variational_autoencoder_draws_latent_values_around_means_its_features():
    plain, network = (
        networks.build("autoencoder"),
        networks.build("autoencoder", variational=True, beta=0.5, penalty=2.0),
    )
    names = [layer.name for layer in plain.layers]
    before, after = names[: names.index("latent")], names[names.index("latent") + 1 :]
    assert [layer.name for layer in network.layers] == [
        *before,
        "enc2_pool",
        "mean",
        "log_variance",
        "latent",
        "latent_penalty",
        *after,
    ]
    assert (
        network.features == "mean"
        and network.encoder == ("enc1", "enc2", "mean")
        and not network.fits
    )
    assert network.draws == network.layer("latent") and network.draws.inputs == (
        "mean",
        "log_variance",
    )
    assert network.draws.attributes == {"beta": 0.5} and plain.draws is None
    assert network.layer("mean").inputs == network.layer("log_variance").inputs == ("enc2_pool",)
    assert network.parameter_count == plain.parameter_count + 2 * convolution(1, 128, 128)


def test_the_decoder_reads_the_latent_values_in_place_of_an_image():
    network = networks.build("autoencoder", filters=(6, 4), variational=True, penalty=1.0)
    decoder = networks.decoder(network)
    assert decoder.input_shape == (8, 8, 4) and decoder.layers[-1].output_shape == networks.CIFAR
    assert decoder.parameters == {
        name: shape for name, shape in network.parameters.items() if name.startswith("dec")
    }
    assert networks.decoder(networks.build("autoencoder")) is None


def test_a_decoder_that_reads_more_than_the_latent_values_is_none():
    def network(last):
        return networks.resolve(
            "skipping",
            (4, 4, 2),
            (
                layers.conv2d("mean", 2),
                layers.conv2d("spread", 2, inputs=(networks.INPUT,)),
                layers.sample("latent", ("mean", "spread"), 1.0),
                layers.conv2d("conv", 2),
                layers.add("sum", ("conv", last)),
            ),
            "mean",
            "mse",
        )

    assert networks.decoder(network("input")) is None and networks.decoder(network("mean")) is None
    assert networks.decoder(network("latent")).layers[-1].inputs == ("conv", networks.INPUT)


def test_a_residual_autoencoder_adds_each_blocks_input_to_its_second_convolution():
    network = networks.build("autoencoder", (8, 8, 4), filters=(4, 6), residual=True, noise=0.5)
    assert [layer.name for layer in network.needed_for("latent")] == [
        "noise",
        "enc1",
        "enc1_relu",
        "enc1_second",
        "enc1_sum",
        "enc1_sum_relu",
        "enc1_pool",
        "enc2",
        "enc2_relu",
        "enc2_second",
        "enc2_shortcut",
        "enc2_sum",
        "enc2_sum_relu",
        "latent",
    ]
    # as many channels: the input itself
    assert network.layer("enc1_sum").inputs == ("enc1_second", "noise")
    assert network.layer("enc2_sum").inputs == ("enc2_second", "enc2_shortcut")
    assert network.layer("enc2_shortcut").inputs == ("enc1_pool",) == network.layer("enc2").inputs
    assert (
        network.parameters["enc2_shortcut.weight"] == (6, 1, 1, 4)
        and "enc2_shortcut.bias" not in network.parameters
    )
    plain = networks.build("autoencoder", (8, 8, 4), filters=(4, 6))
    assert network.parameter_count == plain.parameter_count + sum(
        convolution(*one) for one in ((3, 4, 4), (3, 6, 6), (1, 4, 6, False))
    )
    assert network.layer("latent").output_shape == plain.layer("latent").output_shape
    first = networks.build("autoencoder", (8, 8, 4), filters=(4,), residual=True)
    assert first.layer("enc1_sum").inputs == ("enc1_second", networks.INPUT)


def test_attention_is_added_to_the_last_map_of_the_encoder():
    network, plain = (
        networks.build("autoencoder", attentive=True, penalty=0.5),
        networks.build("autoencoder"),
    )
    names = [layer.name for layer in network.layers]
    assert names[names.index("enc2_pool") : names.index("dec1")] == [
        "enc2_pool",
        "attention_parts",
        "attention",
        "attention_out",
        "latent",
        "latent_penalty",
    ]
    assert (
        network.layer("latent").inputs == ("attention_out", "enc2_pool")
        and network.features == "latent"
    )
    assert (
        network.layer("latent").output_shape
        == network.layer("attention").output_shape
        == (8, 8, 128)
    )
    assert network.layer("attention").macs == 2 * 64 * 64 * 128
    assert network.parameter_count == plain.parameter_count + 4 * 128 * 128


def test_latent_values_are_drawn_from_what_attention_adds_up():
    network = networks.build("autoencoder", residual=True, attentive=True, variational=True)
    assert network.layer("mean").inputs == network.layer("log_variance").inputs == ("attended",)
    assert (
        network.layer("attended").inputs == ("attention_out", "enc2_pool")
        and network.features == "mean"
    )
    assert [layer.name for layer in networks.decoder(network).layers][:2] == ["dec1", "dec1_relu"]


@pytest.mark.parametrize("options", [{"residual": True}, {"attentive": True}], ids=str)
def test_what_is_trained_only_is_not_fitted_to_patches(options):
    assert (
        networks.build("autoencoder", **options).fits
        == networks.build("autoencoder_classifier", **options).fits
        == ()
    )


@pytest.mark.parametrize("kernels", [(5, 5), (6, 12), (7, 1)], ids=str)
@pytest.mark.parametrize("image", [MNIST, networks.CIFAR], ids=str)
def test_a_winner_take_all_autoencoder_restores_the_image_from_maps_of_its_filters(image, kernels):
    network = networks.build(
        "wta_autoencoder", image, filters=20, kernels=kernels, winners=3, lifetime=0.5
    )
    assert network.layers[-1].output_shape == image and network.trains and not network.classifies
    side = image[0] - kernels[0] + 1
    assert network.layer(network.features).output_shape == (side, side, 20) and network.encoder == (
        "code",
    )
    assert network.parameter_count == convolution(kernels[0], image[2], 20) + convolution(
        kernels[1], 20, image[2]
    )
    assert network.layer("winners").attributes == {"winners": 3, "lifetime": 0.5}


@pytest.mark.parametrize(
    "name, options, code",
    [
        ("autoencoder", {}, ("latent", 8 * 8 * 128, None)),
        ("autoencoder", {"penalty": 1.0}, ("latent", 8 * 8 * 128, None)),
        ("autoencoder", {"variational": True, "filters": (8, 4)}, ("mean", 8 * 8 * 4, None)),
        ("resnet18", {}, None),
        (
            "wta_autoencoder",
            {"kernels": (12, 12), "filters": 256, "winners": 2},
            ("winners", 21 * 21 * 256, 2 * 256),
        ),
    ],
)
def test_the_code_of_an_autoencoder_is_what_its_output_is_computed_from(name, options, code):
    assert networks.build(name, **options).code == code


def test_features_that_the_output_does_not_depend_on_are_no_code():
    aside = (layers.conv2d("aside", 4), layers.conv2d("out", 2, inputs=(networks.INPUT,)))
    assert networks.resolve("skipping", (4, 4, 2), aside, "aside", "mse").code is None


@pytest.mark.parametrize(
    "image, options, message, most",
    [
        (
            networks.CIFAR,
            {"kernels": (33, 5)},
            "wta_kernels has 33, but images are 32x32; at most 32",
            {"kernels": (32, 6)},
        ),
        (
            (32, 8, 1),
            {"kernels": (9, 5)},
            "wta_kernels has 9, but images are 32x8; at most 8",
            {"kernels": (8, 6)},
        ),
        (
            networks.CIFAR,
            {"kernels": (5, 8)},
            r"wta_kernels is \[5, 8\], but .* both are odd or both even; \[5, 9\]",
            {"kernels": (5, 9)},
        ),
        (
            networks.CIFAR,
            {"winners": 785},
            "wta_winners is 785, but a map has 28x28 pixels; at most 784",
            {"winners": 784},
        ),
    ],
)
def test_a_winner_take_all_autoencoder_that_fits_no_image_names_the_key(
    image, options, message, most
):
    with pytest.raises(UserError, match=f"config: {message}"):
        networks.build("wta_autoencoder", image, **options)
    assert networks.build("wta_autoencoder", image, **most).layers[-1].output_shape == image


# ---- networks that are fitted to patches


@pytest.mark.parametrize(
    "network",
    [
        networks.build("autoencoder"),
        networks.build("autoencoder", norm=True),
        networks.build("patch_net"),
    ],
    ids=["autoencoder", "norm", "patch_net"],
)
def test_every_layer_of_the_encoder_is_fitted_in_order(network):
    assert tuple(fit.layer for fit in network.fits) == network.encoder
    assert network.encoder == tuple(
        layer.name for layer in network.needed_for(network.features) if layer.parameters
    )


def test_the_patch_network_has_its_published_size():
    network = networks.build("patch_net")
    assert network.parameter_count == (
        convolution(6, 3, 800, bias=False)
        + convolution(1, 1600, 256)
        + convolution(3, 256, 400)
        + convolution(1, 400, 1600)
    )
    assert [network.layer(name).output_shape for name in ("pool1", "whiten", "pool2")] == [
        (13, 13, 1600),
        (11, 11, 400),
        (3, 3, 3200),
    ]
    assert not network.classifies and not network.trains


def test_the_patch_network_has_its_published_layers_with_filters_of_another_side():
    network = networks.build("patch_net")
    assert networks.from_params({"network": "patch_net", "image": [32, 32, 3]}) == network
    assert [(layer.name, layer.kind, layer.attributes) for layer in network.layers] == [
        (
            "conv1",
            "conv2d",
            {"filters": 800, "kernel": 6, "padding": 0, "stride": 1, "bias": False},
        ),
        ("contrast", "local_contrast", {"kernel": 6, "epsilon": 10 / 64**2}),
        ("code1", "soft_threshold", {"threshold": 0.25}),
        ("pool1", "avgpool2d", {"window": 3, "stride": 2, "padding": 0}),
        (
            "reduce",
            "conv2d",
            {"filters": 256, "kernel": 1, "padding": 0, "stride": 1, "bias": True},
        ),
        (
            "whiten",
            "conv2d",
            {"filters": 400, "kernel": 3, "padding": 0, "stride": 1, "bias": True},
        ),
        ("norm", "position_norm", {"epsilon": 1e-6}),
        (
            "conv2",
            "conv2d",
            {"filters": 1600, "kernel": 1, "padding": 0, "stride": 1, "bias": True},
        ),
        ("code2", "soft_threshold", {"threshold": 0.25}),
        ("pool2", "avgpool2d", {"window": 5, "stride": 3, "padding": 0}),
    ]


@pytest.mark.parametrize(
    "image, kernel, maps, window, features",
    [
        (networks.CIFAR, 6, [27, 13, 11], 5, (3, 3)),
        (networks.CIFAR, 8, [25, 12, 10], 4, (3, 3)),
        (networks.CIFAR, 20, [13, 6, 4], 4, (1, 1)),
        (MNIST, 6, [23, 11, 9], 5, (2, 2)),
        ((24, 30, 1), 5, [20, 9, 7], 4, (2, 3)),
        ((24, 28, 1), 5, [20, 9, 7], 5, (1, 2)),
    ],
    ids=str,
)
def test_last_windows_of_the_patch_network_are_of_4_where_only_these_cover_or_fit(
    image, kernel, maps, window, features
):
    network = networks.build("patch_net", image, filters=(5, 6, 7, 8), kernel=kernel)
    assert [network.layer(name).output_shape[0] for name in ("conv1", "pool1", "conv2")] == maps
    assert network.layer("pool2").attributes == {"window": window, "stride": 3, "padding": 0}
    assert network.layer("pool2").output_shape == (*features, 16)
    assert network.parameters["conv1.weight"] == (5, kernel, kernel, image[2])


@pytest.mark.parametrize(
    "image, kernel, most",
    [
        (networks.CIFAR, 21, 20),
        (networks.CIFAR, 40, 20),
        (MNIST, 17, 16),
        ((16, 40, 3), 6, 4),
        ((14, 14, 1), 3, 2),
    ],
)
def test_filters_too_large_for_the_patch_network_report_the_largest(image, kernel, most):
    with pytest.raises(UserError) as error:
        networks.build("patch_net", image, kernel=kernel)
    assert str(error.value) == (
        f"config: patch_net_kernel is {kernel}, with which network patch_net cannot read images of "
        f"{image[0]}x{image[1]}; at most {most}"
    )
    assert min(networks.build("patch_net", image, kernel=most).layer("pool2").output_shape[:2]) == 1


def test_images_that_are_too_small_for_any_patch_network_are_named():
    with pytest.raises(
        UserError, match="network patch_net cannot read images of 13x13: layer pool2"
    ):
        networks.build("patch_net", (13, 13, 1), kernel=2)


@pytest.mark.parametrize(
    "filters, message",
    [
        (
            (4, 9, 7, 2),
            "number 2 of patch_net_filters is 9, but there are only 8 principal directions; at most 8",
        ),
        (
            (4, 2, 19, 2),
            "number 3 of patch_net_filters is 19, but there are only 18 principal directions; at most 18",
        ),
    ],
)
def test_a_patch_network_has_no_more_pca_components_than_its_patches_have_values(filters, message):
    with pytest.raises(UserError, match=message):
        networks.build("patch_net", filters=filters)
    assert networks.build("patch_net", filters=(4, 8, 72, 2)).layer("whiten").output_shape[2] == 72


# ---- classifiers


def test_lenet_300_100_has_its_published_size():
    network = networks.build("lenet_300_100", MNIST)
    assert network.parameter_count == dense(28 * 28, 300, 100, 10) == 266_610
    assert network.layer(network.features).output_shape == (1, 1, 100)
    assert networks.build("lenet_300_100", networks.CIFAR).parameter_count == dense(
        32 * 32 * 3, 300, 100, 10
    )


def test_lenet_5_has_its_published_size():
    network = networks.build("lenet_5", MNIST)
    assert (
        network.parameter_count
        == (convolution(5, 1, 6) + convolution(5, 6, 16) + dense(16 * 5 * 5, 120, 84, 10))
        == 61_706
    )
    assert network.layer("padded").output_shape == (32, 32, 1) and network.layer(
        "flat"
    ).output_shape == (1, 1, 400)
    assert network.layer(network.features).output_shape == (1, 1, 84)


def test_lenet_5_does_not_pad_images_of_32x32():
    network = networks.build("lenet_5", networks.CIFAR)
    assert network.layers[0].name == "conv1" and network.layer("flat").output_shape == (1, 1, 400)
    assert network.parameter_count == convolution(5, 3, 6) + convolution(5, 6, 16) + dense(
        400, 120, 84, 10
    )


def test_the_dense_layer_of_small_cnn_reads_the_output_of_its_convolutions():
    network = networks.build("small_cnn", MNIST)
    assert network.parameter_count == convolution(3, 1, 16) + convolution(3, 16, 32) + dense(
        32 * 11 * 11, 128, 10
    )
    assert network.layer(network.features).output_shape == (1, 1, 128)


@pytest.mark.parametrize(
    "name",
    sorted(
        set(networks.NETWORKS)
        - {"autoencoder", "wta_autoencoder", "patch_net", "autoencoder_classifier"}
    ),
)
@pytest.mark.parametrize("image", [MNIST, networks.CIFAR], ids=str)
def test_a_classifier_has_a_score_for_each_class_and_features_of_the_layer_before(name, image):
    network = networks.build(name, image, classes=7)
    assert network.classifies and network.layers[-1].kind == "dense"
    assert network.layers[-1].output_shape == (1, 1, 7) and network.layers[-1].inputs == (
        network.features,
    )
    assert network.needed_for(network.features) == network.layers[:-1]


@pytest.mark.parametrize("depth, parameters", [(11, 9_231_114), (16, 14_728_266)])
def test_vgg_has_the_published_size_but_for_the_biases_before_normalisations(depth, parameters):
    """As counted where each convolution has a bias, which the normalisation after it would subtract
    again.
    """
    network = networks.build(f"vgg{depth}")
    filters = [layer.output_shape[2] for layer in network.layers if layer.kind == "conv2d"]
    assert len(filters) + 3 == depth  # with three dense layers in place of the one here
    assert network.parameter_count == parameters - sum(filters)
    assert network.layer("flat").output_shape == (1, 1, 512)


def test_alexnet_has_the_filters_of_one_tower_and_its_dense_layers_read_4x4_pixels():
    network = networks.build("alexnet")
    convolutions = ((5, 3, 64), (5, 64, 192), (3, 192, 384), (3, 384, 256), (3, 256, 256))
    assert network.parameter_count == sum(convolution(*of) for of in convolutions) + dense(
        4 * 4 * 256, 4096, 4096, 10
    )
    assert [layer.name for layer in network.layers if layer.kind == "dropout"] == ["drop6", "drop7"]
    assert [layer.name for layer in network.layers if layer.kind == "lrn"] == ["lrn1", "lrn2"]


@pytest.mark.parametrize(
    "options",
    [
        {"autoencoder_norm": False},
        {"autoencoder_norm": True},
        {"autoencoder_residual": True, "autoencoder_attention": True},
    ],
    ids=str,
)
def test_an_encoder_with_a_head_has_the_autoencoders_encoder_under_its_names(options):
    params = {
        "network": "autoencoder_classifier",
        "autoencoder_filters": [8, 6],
        "head_units": 20,
        "image": [28, 28, 1],
        "classes": 7,
        **options,
    }
    network, autoencoder = networks.from_params(params), networks.encoder_of(params)
    encoder = len(network.needed_for("latent"))
    assert (
        network.layers[:encoder] == autoencoder.layers[:encoder]
        and network.features == autoencoder.features == "latent"
    )
    assert network.encoder == autoencoder.encoder and network.fits == autoencoder.fits
    assert [layer.kind for layer in network.layers[encoder:]] == [
        "flatten",
        "dense",
        "relu",
        "dense",
    ]
    assert network.parameters["head.weight"] == (20, 1, 1, 7 * 7 * 6) and network.layers[
        -1
    ].output_shape == (1, 1, 7)
    assert networks.encoder_of({"network": "lenet_5", "image": [28, 28, 1]}) is None


def test_lenet_5_pads_smaller_images():
    assert networks.build("lenet_5", (12, 12, 1)).layer("flat").output_shape == (1, 1, 400)


def test_an_error_names_the_layer_for_which_images_are_too_small():
    with pytest.raises(
        UserError,
        match="config: network small_cnn cannot read images of 5x5: layer conv2: a window of 3x3",
    ):
        networks.build("small_cnn", (5, 5, 1))


# ---- residual networks

# Published parameters of the forms for ImageNet (He et al., 2016a, as torchvision counts them), 3
# channels and 1000 classes.
IMAGENET = {18: 11_689_512, 34: 21_797_672, 50: 25_557_032, 101: 44_549_160}
# Layers of 3x3 or, in a bottleneck, 1x1, 3x3 and 1x1, the stem among them; and convolutions on
# shortcuts.
CONVOLUTIONS = {18: 17 + 3, 34: 33 + 3, 50: 49 + 4, 101: 100 + 4}
BLOCKS = {18: 8, 34: 16, 50: 16, 101: 33}


@pytest.mark.parametrize("depth", IMAGENET)
def test_a_resnet_for_mnist_is_the_published_one_but_for_its_first_and_last_layer(depth):
    features = 512 if depth < 50 else 2048
    network = networks.build(f"resnet{depth}", MNIST)
    first = convolution(7, 3, 64, bias=False) - convolution(7, 1, 64, bias=False)
    assert network.parameter_count == IMAGENET[depth] - first - dense(features, 1000) + dense(
        features, 10
    )
    assert kinds(network)["conv2d"] == kinds(network)["batchnorm"] == CONVOLUTIONS[depth]
    assert kinds(network)["add"] == BLOCKS[depth]
    assert network.layer("stem_pool").output_shape == (7, 7, 64)
    assert [network.layer(f"stage{stage}_1").output_shape[:2] for stage in (1, 2, 3, 4)] == [
        (7, 7),
        (4, 4),
        (2, 2),
        (1, 1),
    ]


@pytest.mark.parametrize("depth", IMAGENET)
def test_the_cifar_form_of_a_resnet_normalises_before_each_convolution_of_a_block(depth):
    network = networks.build(f"resnet{depth}")
    blocks, in_block = BLOCKS[depth], 2 if depth < 50 else 3
    assert kinds(network) == {
        "conv2d": CONVOLUTIONS[depth],
        "batchnorm": blocks * in_block + 1,
        "relu": blocks * in_block + 1,
        "add": blocks,
        "global_avgpool": 1,
        "dense": 1,
    }
    assert [network.layer(f"stage{stage}_1").output_shape[:2] for stage in (1, 2, 3, 4)] == [
        (32, 32),
        (16, 16),
        (8, 8),
        (4, 4),
    ]


@pytest.mark.parametrize("depth", IMAGENET)
def test_the_cifar_form_of_a_resnet_has_the_size_that_its_blocks_add_up_to(depth):
    plain = depth < 50
    total, inputs = convolution(3, 3, 64, bias=False), 64
    for stage, count in enumerate(
        {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3)}[depth]
    ):
        filters = 64 * 2**stage
        outputs = filters if plain else 4 * filters
        for _ in range(count):
            sizes = (
                [(3, inputs, filters), (3, filters, filters)]
                if plain
                else [(1, inputs, filters), (3, filters, filters), (1, filters, outputs)]
            )
            total += sum(convolution(*size, bias=False) + 2 * size[1] for size in sizes)
            total += inputs * outputs if inputs != outputs else 0
            inputs = outputs
    assert networks.build(f"resnet{depth}").parameter_count == total + 2 * inputs + dense(
        inputs, 10
    )


def test_a_shortcut_is_a_convolution_only_if_shapes_differ():
    network = networks.build("resnet18")
    shortcuts = [layer for layer in network.layers if layer.name.endswith("_shortcut")]
    assert [
        (layer.name, layer.attributes["stride"], layer.attributes["kernel"]) for layer in shortcuts
    ] == [("stage2_1_shortcut", 2, 1), ("stage3_1_shortcut", 2, 1), ("stage4_1_shortcut", 2, 1)]
    assert network.layer("stage1_2").inputs == ("stage1_2_conv2", "stage1_1")
    assert network.layer("stage2_1").inputs == ("stage2_1_conv2", "stage2_1_shortcut")
    # He et al., 2016b: after the first activation
    assert network.layer("stage2_1_shortcut").inputs == ("stage2_1_relu1",)


# ---- graphs

FORK = (
    layers.conv2d("a", 4, bias=False),
    layers.batchnorm("bn"),
    layers.relu("b"),
    layers.conv2d("c", 4, inputs=("bn",)),
    layers.add("d", ("b", "c")),
    layers.relu("e"),
)


def test_layers_read_the_previous_layer_unless_they_name_others():
    network = networks.resolve(
        "small",
        (9, 7, 2),
        (layers.conv2d("a", 4, kernel=5, padding=1), layers.maxpool2d("b"), layers.upsample2d("c")),
        "b",
        "mse",
    )
    assert [layer.inputs for layer in network.layers] == [("input",), ("a",), ("b",)]
    assert [layer.output_shape for layer in network.layers] == [(7, 5, 4), (3, 2, 4), (6, 4, 4)]
    assert network.parameters == {"a.weight": (4, 5, 5, 2), "a.bias": (4,)}


def test_a_network_knows_the_readers_and_the_dependencies_of_a_layer():
    network = networks.resolve("fork", (4, 4, 3), FORK, "d", "mse")
    assert [layer.name for layer in network.readers("bn")] == ["b", "c"]
    assert [layer.name for layer in network.readers("input")] == ["a"] and network.readers(
        "e"
    ) == []
    assert [layer.name for layer in network.needed_for("c")] == ["a", "bn", "c"]
    assert [layer.name for layer in network.needed_for("d")] == ["a", "bn", "b", "c", "d"]


def test_parameters_and_state_are_in_the_order_of_the_layers():
    network = networks.resolve("fork", (4, 4, 3), FORK, "d", "mse")
    assert list(network.parameters.items()) == [
        ("a.weight", (4, 3, 3, 3)),
        ("bn.weight", (4,)),
        ("bn.bias", (4,)),
        ("c.weight", (4, 3, 3, 4)),
        ("c.bias", (4,)),
    ]
    assert network.state == {"bn.running_mean": (4,), "bn.running_var": (4,)}
    assert network.parameter_count == sum(
        math.prod(shape) for shape in ((4, 3, 3, 3), (4,), (4,), (4, 3, 3, 4), (4,))
    )
