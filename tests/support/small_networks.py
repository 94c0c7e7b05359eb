"""Networks that the emulator trains in a moment."""

from ladder.network import networks
from ladder.network.layers import (
    batchnorm,
    conv2d,
    dense,
    dropout,
    flatten,
    maxpool2d,
    relu,
    upsample2d,
)


def autoencoder(input_shape, filters=4):
    """A convolution, pooled, and one of what is upsampled again."""
    table = (
        conv2d("a", filters),
        relu("a_relu"),
        maxpool2d("a_pool"),
        upsample2d("up"),
        conv2d("b", input_shape[2]),
    )
    return networks.resolve("small", input_shape, table, "a_pool", "mse")


def classifier(input_shape, filters=4, stride=1, classes=3, rate=0.5):
    """With all random numbers and all state of a step."""
    table = (
        conv2d("a", filters, stride=stride, bias=False),
        batchnorm("a_bn"),
        relu("a_relu"),
        flatten("flat"),
        dropout("drop", rate),
        dense("scores", classes),
    )
    return networks.resolve("labelled", input_shape, table, "a_relu", "cross_entropy")


PLAIN = autoencoder((4, 4, 3))
LABELLED = classifier((4, 4, 3), stride=2, classes=5)


def build(name, input_shape=None, **options):
    return {"small": PLAIN, "labelled": LABELLED}[name]
