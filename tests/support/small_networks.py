"""Two networks that the emulator trains in a moment."""

from ladder.network import layers, networks

PLAIN = networks.resolve(
    "small",
    (4, 4, 3),
    (
        layers.conv2d("a", 4),
        layers.relu("a_relu"),
        layers.maxpool2d("a_pool"),
        layers.upsample2d("up"),
        layers.conv2d("b", 3),
    ),
    "a_pool",
    "mse",
)
LABELLED = networks.resolve(
    "labelled",
    (4, 4, 3),
    (
        layers.conv2d("a", 4, stride=2, bias=False),
        layers.batchnorm("a_bn"),
        layers.flatten("flat"),
        layers.dropout("drop", 0.5),
        layers.dense("scores", 5),
    ),
    "flat",
    "cross_entropy",
)


def build(name, input_shape=None, **options):
    return {"small": PLAIN, "labelled": LABELLED}[name]
