"""The parity protocol: two executors make the same few updates, and the results are compared.

Every update starts from the reference's state, so differences cannot accumulate: with batch
normalisation over a few images, one rounding difference leads to a different training. The measure
is each tensor's distance after an update relative to the size of the update, which reveals a wrong
gradient at any learning rate; the median over the updates counts, because a rounding that moves a
value across a ReLU's zero changes an update by up to 3e-2 in a ResNet. Running statistics and the
optimizer's averages are compared in the same way as parameters.
"""

import dataclasses
import functools

import numpy as np

from ladder.arithmetic import randomness
from ladder.network import optimizers, weights
from ladder.network.optimizers import Optimizer
from ladder.plan import exponents, plan

BATCH, NORMALISED_BATCH, UPDATES = 3, 6, 5
SEED = 0


@dataclasses.dataclass(frozen=True)
class Protocol:
    """tolerance: largest |w - w_reference| / |w_reference - w_before| of any tensor, median over
    the updates.
    """

    optimizer: Optimizer
    learning_rate: float
    gradient_scale: str
    tolerance: float


# The updates of plain SGD are so small that rounding the weights to float32 dominates, hence the
# tolerance. Momentum at 1e-3 increases the loss of the autoencoder to 4e4, where clipping amplifies
# rounding errors of the gradients to whole steps.
PROTOCOLS = {
    "sgd": Protocol(Optimizer("sgd"), 1e-3, "mean", 2e-3),
    "momentum": Protocol(Optimizer("momentum", momentum=0.9, clip=5.0), 3e-4, "batch", 5e-5),
}
# Two float32 programs differ by up to 1e-5 in small networks and 2e-4 in ResNets of 18 to 101
# layers; float32 and float64, whose weights are not rounded, by up to 4e-3 with SGD and 3e-3 with
# momentum. A gradient error of 1 % gives 1e-2 with SGD, and about half of that with momentum, where
# the velocity includes older gradients.
CLASSIFYING = {
    "sgd": Protocol(Optimizer("sgd"), 0.03, "batch", 8e-3),
    "momentum": Protocol(Optimizer("momentum", momentum=0.5, clip=5.0), 0.03, "batch", 4e-3),
}

# Where operands are rounded, another order of a sum can move one of them to the next number, and
# how far that carries depends on the network: the tolerance is so many times the deviation of two
# sums of the cpu rung (measure_rungs.references), and at least ROUNDED. benchmarks/limits.json has
# the deviations of right rungs, with sums as tensor cores truncate them too.
SPREAD = 5
ROUNDED = 3e-3
# Of a rung for float32 on tensor cores, whose sums are cut: gpu_3xtf32 on an H200 deviates by
# 7.9e-5 with momentum.
CUT = 3e-4


def protocols(network, precision="float32"):
    """Name -> Protocol: PROTOCOLS for autoencoders, CLASSIFYING for networks that classify, with
    the precision's tolerance.

    With operands that are rounded nothing is clipped: of an element that is clipped on one side
    only, a rounding makes a whole step.
    """
    chosen = CLASSIFYING if network.classifies else PROTOCOLS
    if precision == "float32":
        return chosen
    sgd, momentum = chosen["sgd"], dataclasses.replace(chosen["momentum"].optimizer, clip=0)
    return {
        "sgd": dataclasses.replace(sgd, tolerance=max(sgd.tolerance, ROUNDED)),
        "momentum": dataclasses.replace(sgd, optimizer=momentum, tolerance=ROUNDED),
    }


def train(
    network, rung, executor, protocol, dtype="float32", follow=None, batches=None, **settings
):
    """Name -> array (updates, ...): parameters, running statistics and the optimizer's averages
    after each update.

    An update that is not finite is repeated as a training's is, with halves of smaller numbers.
    follow: result of the training whose state each update but the first starts from; batches: the
    number of random images of each update, by default UPDATES times batch_size(network); settings:
    more fields of plan.TrainingSettings.
    """
    batches = batches or (batch_size(network),) * UPDATES
    length, images = plan.Length(len(batches), len(batches)), sum(batches)
    settings = functools.partial(
        plan.TrainingSettings,
        network=network,
        rung=rung,
        optimizer=protocol.optimizer,
        gradient_scale=protocol.gradient_scale,
        **settings,
    )
    dataset = plan.Dataset(images, "uint8")
    averages = optimizers.state_shapes(
        protocol.optimizer, plan.learning(network, settings(batch_size=1).frozen)
    )
    start = {name: value.astype(dtype) for name, value in initial(network).items()}
    start |= {name: np.zeros(shape, dtype) for name, shape in averages.items()}
    uploaded = executor.upload(
        {
            **random_images(network, images),
            **start,
            "counters": np.zeros(3, np.int64),
            "learning_rates": optimizers.learning_rates(protocol.learning_rate, length),
        }
    )

    @functools.cache
    def bound(batch, repeats=0):
        step_plan = plan.training_plan(
            settings(batch_size=batch, repeats=repeats), dataset, length, dtype
        )
        return step_plan, executor.allocate(step_plan, uploaded)

    after = {name: np.empty((len(batches), *value.shape), dtype) for name, value in start.items()}
    for update, batch in enumerate(batches):
        states = after if follow is None else follow
        before = {name: states[name][update - 1] for name in start} if update else start
        for repeats in (0, *exponents.repeats_of(bound(batch)[0])):
            done = {"counters": [update, sum(batches[:update]), update], **before}
            for name, values in done.items():
                executor.fill(uploaded[name], values)
            executor.run(*bound(batch, repeats))
            for name in start:
                after[name][update] = executor.download(uploaded[name])
            if all(np.isfinite(after[name][update]).all() for name in start):
                break
    return after


def batch_size(network):
    """Images per update. Batch statistics of a ResNet's last stage, 1x1 pixels for MNIST, need more
    than BATCH images.
    """
    return NORMALISED_BATCH if any(layer.kind == "batchnorm" for layer in network.layers) else BATCH


def random_images(network, rows):
    """The arrays of a plan's dataset of `rows` random images, with random labels if the network
    classifies.
    """
    random = randomness.generator(SEED, randomness.SHUFFLE, 0)
    images = random.integers(0, 256, (rows, *network.input_shape), dtype=np.uint8)
    arrays = {
        "images": images,
        "permutation": np.arange(rows),
        "scale": np.full(network.input_shape[2], 1 / 255, np.float32),
    }
    if network.classifies:
        arrays["labels"] = random.integers(
            0, network.layers[-1].output_shape[2], rows, dtype=np.uint8
        )
    return arrays


def initial(network):
    """Name -> float32 array of the initial parameters and running statistics.

    Weights of batch normalisation are random around 1, and the last weights of every residual
    branch are scaled by 0.1: exactly at 1 and 0, rounding would hide updates and gradients, and
    with all residual branches at full strength the gradients of a deep network are dominated by
    rounding errors.
    """
    values = {**weights.initialize(network, SEED), **weights.initial_state(network)}
    ends = {name for layer in network.layers if layer.kind == "add" for name in layer.inputs[:1]}
    for number, layer in enumerate(network.layers):
        size = np.float32(0.1 if layer.name in ends else 1)
        if layer.kind == "batchnorm":
            random = randomness.generator(SEED, randomness.INITIAL_WEIGHTS, number)
            for role, low in (("weight", 0.5), ("bias", -0.5)):
                shape = layer.parameters[f"{layer.name}.{role}"]
                values[f"{layer.name}.{role}"] = size * random.uniform(low, low + 1, shape).astype(
                    np.float32
                )
        elif layer.kind == "conv2d":
            values[f"{layer.name}.weight"] *= size
    return values


def deviations(network, trained, reference, batches=None):
    """Tensor -> |trained - reference| / |reference - value before the update|, median over all
    updates.

    batches: as in `train`; the median is taken over the updates with as many images, and the
    largest of these counts.
    """
    start, by_tensor = initial(network), {}
    for name, after in reference.items():
        before = [start.get(name, np.zeros_like(after[0])), *after[:-1]]
        distances = np.array(
            [
                _distance(mine, right) / _distance(right, old)
                for mine, right, old in zip(trained[name], after, before, strict=True)
            ]
        )
        sizes = np.array(batches or (0,) * len(distances))
        by_tensor[name] = float(
            np.max([np.median(distances[sizes == size]) for size in set(sizes)])
        )
    return by_tensor


def _distance(a, b):
    return np.linalg.norm((a.astype(np.float64) - b).ravel())
