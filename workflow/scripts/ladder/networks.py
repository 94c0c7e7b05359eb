"""The networks, as tables of layers."""

import dataclasses
import math

from .layers import KINDS, conv2d, maxpool2d, relu, upsample2d

INPUT = "input"


@dataclasses.dataclass(frozen=True)
class Network:
    """A network with all shapes resolved.

    features: the layer whose output is the feature vector; loss: what training minimises; layers: in execution order.
    """

    name: str
    input_shape: tuple
    layers: tuple
    features: str
    loss: str

    @property
    def parameters(self):
        """Parameter name -> shape, in the order of the layers."""
        return {name: shape for layer in self.layers for name, shape in layer.parameters.items()}

    @property
    def parameter_count(self):
        return sum(math.prod(shape) for shape in self.parameters.values())

    def layer(self, name):
        return next(layer for layer in self.layers if layer.name == name)


# 3-256-128 encoder and its mirror: 751,875 parameters; the latent is 8x8x128 = 8192 features.
AUTOENCODER = {
    "input_shape": (32, 32, 3),
    "layers": (
        conv2d("enc1", 256), relu("enc1_relu"), maxpool2d("enc1_pool"),
        conv2d("enc2", 128), relu("enc2_relu"), maxpool2d("latent"),
        conv2d("dec1", 128), relu("dec1_relu"), upsample2d("dec1_up"),
        conv2d("dec2", 256), relu("dec2_relu"), upsample2d("dec2_up"),
        conv2d("dec3", 3),
    ),
    "features": "latent",
    "loss": "mse",
}

NETWORKS = {"autoencoder": AUTOENCODER}


def build(name):
    """The Network `name` with every layer's inputs and shapes resolved; KeyError for a name that is not in NETWORKS."""
    return resolve(name, **NETWORKS[name])


def resolve(name, input_shape, layers, features, loss):
    """A Network from its table: a layer that names no inputs reads the layer before it."""
    shapes, resolved, previous = {INPUT: input_shape}, [], INPUT
    for layer in layers:
        inputs = layer.inputs or (previous,)
        input_shapes = tuple(shapes[source] for source in inputs)
        output = KINDS[layer.kind].output_shape(layer.attributes, *input_shapes)
        resolved.append(dataclasses.replace(layer, inputs=inputs, input_shapes=input_shapes, output_shape=output))
        shapes[layer.name], previous = output, layer.name
    return Network(name, tuple(input_shape), tuple(resolved), features, loss)
