"""The parity protocol: two ways of running a plan train from the same weights for a few updates, then are compared.

What is compared is each tensor's distance after the updates, relative to how far training moved it: a wrong gradient shows
however small the learning rate is.
"""

import dataclasses

import numpy as np

from . import optimizers, plan, randomness, weights
from .optimizers import Optimizer

BATCH, UPDATES = 3, 5
LENGTH = plan.Length(UPDATES, UPDATES)
SEED = 0


@dataclasses.dataclass(frozen=True)
class Protocol:
    """tolerance: largest |w - w_reference| / |w_reference - w_initial| of any tensor."""

    optimizer: Optimizer
    learning_rate: float
    gradient_scale: str
    tolerance: float


# Plain descent moves the weights so little that rounding them to float32 dominates, hence its tolerance. The second at 1e-3
# makes the loss of the autoencoder grow to 4e4, and the clip then turns roundings of its gradients into whole steps.
PROTOCOLS = {
    "sgd": Protocol(Optimizer("sgd"), 1e-3, "mean", 2e-3),
    "momentum": Protocol(Optimizer("momentum", momentum=0.9, clip=5.0), 3e-4, "batch", 5e-5),
}


def train(network, variant, executor, protocol, dtype="float32"):
    """Parameter name -> array after UPDATES updates on batches of BATCH fixed random images."""
    images = randomness.generator(SEED, randomness.SHUFFLE, 0).integers(
        0, 256, (BATCH * UPDATES, *network.input_shape), dtype=np.uint8)
    made = plan.training_plan(network, variant, BATCH, plan.Dataset(len(images), "uint8"), protocol.optimizer, LENGTH,
                              protocol.gradient_scale, dtype)
    channels = network.input_shape[2]
    arrays = executor.allocate(made, executor.place({
        "images": images, "permutation": np.arange(len(images)), "scale": np.full(channels, 1 / 255, np.float32),
        "learning_rates": optimizers.learning_rates(protocol.learning_rate, LENGTH),
        **{name: value.astype(dtype) for name, value in weights.initialize(network, SEED).items()}}))
    for _ in range(UPDATES):
        executor.run(made, arrays)
    return {name: executor.fetch(arrays[name]) for name in network.parameters}


def deviations(network, trained, reference):
    """Tensor -> |trained - reference| / |reference - initial|."""
    initial = weights.initialize(network, SEED)
    return {name: float(np.linalg.norm(trained[name].astype(np.float64) - reference[name])
                        / np.linalg.norm(reference[name].astype(np.float64) - initial[name])) for name in reference}
