"""Small networks that together hold every kind of layer, in every combination that rungs
distinguish.
"""

from ladder.network import layers, networks
from ladder.network.layers import (
    add,
    avgpool2d,
    batchnorm,
    conv2d,
    dense,
    dropout,
    flatten,
    global_avgpool,
    l1_penalty,
    lrn,
    maxpool2d,
    pad,
    position_norm,
    relu,
    sample,
    upsample2d,
    winner_take_all,
)
from operation_cases import ALL_KINDS, reading

# Odd sizes, more pixels than a block takes, kernels of 1, 3 and 5, channels divisible by 4 and
# others, each layer kind of the autoencoder alone and combined.
ODD = networks.resolve(
    "odd",
    (14, 22, 3),
    (
        conv2d("a", 5, kernel=5, padding=2),
        relu("a_relu"),
        maxpool2d("a_pool"),
        upsample2d("up"),
        maxpool2d("pool"),
        relu("b_relu"),
        conv2d("c", 7, kernel=1, padding=0),
        position_norm("c_norm"),
        conv2d("d", 8),
        relu("d_relu"),
        upsample2d("d_up"),
        conv2d("e", 20),
        relu("e_relu"),
        conv2d("f", 3),
    ),
    "pool",
    "mse",
)

# Every kind of layer: convolutions of 1, 3, 5 and 7 with a stride, with bias and without; windows
# that overlap and cross the edge; values with two readers and three; a sum of a value with itself;
# as output, a sum.
ZOO = networks.resolve(
    "zoo",
    (35, 31, 3),
    (
        conv2d("first", 4, bias=False),
        relu("first_relu"),
        maxpool2d("first_pool"),
        pad("padded", 1),
        conv2d("c7", 8, kernel=7, padding=3, stride=2, bias=False),
        batchnorm("c7_bn"),
        relu("c7_relu"),
        maxpool2d("shared", 3, 2, 1),
        conv2d("left", 12, stride=2, bias=False),
        batchnorm("left_bn", decay=0.8, epsilon=1e-3),
        conv2d("right", 12, kernel=1, padding=0, stride=2, bias=False, inputs=("shared",)),
        batchnorm("right_bn"),
        add("sum", ("left_bn", "right_bn")),
        relu("sum_relu"),
        conv2d("mid", 12, kernel=5, padding=2),
        add("mid_sum", ("mid", "sum_relu")),
        reading("shared", avgpool2d("third", 3, 2, 1)),
        maxpool2d("third_max", 3, 1, 1),
        conv2d("third_conv", 12, 1, 0),
        relu("third_relu"),
        add("all_three", ("mid_sum", "third_relu")),
        upsample2d("up"),
        conv2d("up_conv", 10),
        relu("up_relu"),
        maxpool2d("up_pool"),
        conv2d("c5", 10, kernel=5, padding=2, stride=2, inputs=("up_relu",)),
        relu("c5_relu"),
        add("pooled", ("up_pool", "c5_relu")),
        lrn("lrn", size=3, alpha=0.5),
        dropout("dropped", 0.25),
        avgpool2d("small", 2, 1, 0),
        flatten("flat"),
        dense("units", 20),
        relu("units_relu"),
        dropout("units_dropped", 0.5),
        dense("scores_a", 5),
        reading("pooled", global_avgpool("average")),
        add("twice", ("average", "average")),
        flatten("still_flat"),
        dense("scores_b", 5),
        add("scores", ("scores_a", "scores_b")),
    ),
    "units_relu",
    "cross_entropy",
)

# Sparse codes: winners that are never stored but as values and places, and several winners of maps,
# with a penalty on them.
SPARSE = networks.resolve(
    "sparse",
    (13, 12, 3),
    (
        dropout("noise", 0.2),
        conv2d("code", 20, kernel=5, padding=0),
        relu("code_relu"),
        winner_take_all("winners", 1, 0.4),
        conv2d("middle", 6, kernel=7, padding=5),
        relu("middle_relu"),
        l1_penalty("penalty", 0.5),
        winner_take_all("few", 3, 1.0),
        conv2d("last", 3),
    ),
    "code",
    "mse",
)

# Latent values drawn from distributions: the map that both convolutions read has two readers.
DRAWN = networks.resolve(
    "drawn",
    (12, 10, 3),
    (
        conv2d("enc", 6),
        relu("enc_relu"),
        maxpool2d("enc_pool"),
        conv2d("mean", 5, kernel=1, padding=0),
        conv2d("log_variance", 5, kernel=1, padding=0, inputs=("enc_pool",)),
        sample("latent", ("mean", "log_variance"), 0.25),
        l1_penalty("penalty", 0.5),
        conv2d("dec", 4),
        relu("dec_relu"),
        upsample2d("dec_up"),
        conv2d("last", 3),
    ),
    "mean",
    "mse",
)

# A convolution's ReLU that several layers read: only a pooling or an upsampling that is its one
# reader may apply its gradient.
FORKED = networks.resolve(
    "forked",
    (10, 12, 3),
    (
        conv2d("a", 8),
        relu("a_relu"),
        maxpool2d("a_pool"),
        conv2d("a_conv", 8, kernel=2, padding=0, stride=2, inputs=("a_relu",)),
        add("a_sum", ("a_pool", "a_conv")),
        conv2d("b", 8),
        relu("b_relu"),
        upsample2d("b_up"),
        reading("b_relu", upsample2d("b_up_too")),
        add("b_sum", ("b_up", "b_up_too")),
        conv2d("c", 4),
        relu("c_relu"),
        conv2d("d", 3),
        reading("c_relu", conv2d("e", 3)),
        add("e_sum", ("d", "e")),
    ),
    "a_sum",
    "mse",
)

# Convolutions of many channels, which gpu_bf16 copies: behind a pooling, with a stride, behind
# upsamplings, of few filters.
WIDE = networks.resolve(
    "wide",
    (8, 12, 3),
    (
        conv2d("a", 40),
        relu("a_relu"),
        maxpool2d("a_pool"),
        conv2d("b", 48, stride=2, bias=False),
        relu("b_relu"),
        upsample2d("b_up"),
        conv2d("c", 40, kernel=1, padding=0),
        relu("c_relu"),
        conv2d("d", 64, kernel=2, padding=0),
        relu("d_relu"),
        conv2d("e", 40, kernel=2),
        upsample2d("e_up"),
        conv2d("f", 3),
    ),
    "a_pool",
    "mse",
)

# Convolutions of many channels one after the other, pooled and upsampled between: each writes what
# only the next one reads.
DEEP = networks.resolve(
    "deep",
    (8, 12, 3),
    (
        conv2d("a", 40),
        relu("a_relu"),
        conv2d("b", 48),
        relu("b_relu"),
        maxpool2d("b_pool"),
        conv2d("c", 40),
        relu("c_relu"),
        upsample2d("c_up"),
        conv2d("d", 3),
    ),
    "b_pool",
    "mse",
)

# Convolutions of many channels behind upsamplings, of what was pooled and what was not, of many
# filters and of few.
RISING = networks.resolve(
    "rising",
    (8, 12, 3),
    (
        conv2d("a", 40),
        relu("a_relu"),
        maxpool2d("a_pool"),
        conv2d("b", 48),
        relu("b_relu"),
        maxpool2d("b_pool"),
        upsample2d("b_up"),
        conv2d("c", 40),
        relu("c_relu"),
        upsample2d("c_up"),
        conv2d("d", 3),
    ),
    "b_pool",
    "mse",
)

# A convolution of what was upsampled, which is not the layer before it.
ASIDE = networks.resolve(
    "aside",
    (8, 12, 3),
    (
        conv2d("a", 40),
        relu("a_relu"),
        maxpool2d("a_pool"),
        upsample2d("a_up"),
        conv2d("b", 3, inputs=("a_pool",)),
        upsample2d("b_up"),
        conv2d("c", 3, inputs=("a_up",)),
        add("sum", ("b_up", "c")),
    ),
    "a_pool",
    "mse",
)


def _resnet(name, input_shape, form, bottleneck):
    """One block in each of two stages."""
    table = (*form((1, 1), bottleneck, 8), global_avgpool("average"), dense("scores", 10))
    return networks.resolve(name, input_shape, table, "average", "cross_entropy")


def _narrow(name, input_shape, width):
    return networks.resolve(
        name, input_shape, **networks.NETWORKS[name](input_shape, 5, width=width)
    )


NETWORKS = {
    "odd": ODD,
    "zoo": ZOO,
    "forked": FORKED,
    "sparse": SPARSE,
    "drawn": DRAWN,
    "all kinds": ALL_KINDS,
    "lenet_5": networks.build("lenet_5", (28, 28, 1)),
    "alexnet": _narrow("alexnet", (12, 11, 3), 2),
    "vgg11": _narrow("vgg11", (32, 32, 3), 2),
    "preactivation": _resnet("preactivation", (8, 8, 3), networks._preactivation, bottleneck=True),
    "postactivation": _resnet(
        "postactivation", (20, 20, 1), networks._postactivation, bottleneck=False
    ),
}
# Of many channels, for rungs whose kernels no small network runs.
OF_MANY_CHANNELS = {"wide": WIDE, "deep": DEEP}
# Networks without a gradient, which are fitted to patches.
FITTED = {
    "patch_net": networks.build("patch_net", (20, 21, 3), filters=(5, 6, 7, 9)),
    "patch_net of 8x8": networks.build("patch_net", (20, 21, 3), filters=(5, 6, 7, 9), kernel=8),
}
# Kind of layer -> a layer of it.
LAYERS = {
    layer.kind: layer
    for network in (*NETWORKS.values(), *FITTED.values())
    for layer in network.layers
}
assert LAYERS.keys() == layers.KINDS.keys()
