"""The backward pass of a rung, compared with finite differences, for every trained tensor of a
network.

A tensor w is moved by h along a random direction d of length 1, forth and back, and the difference
quotient of the loss L,

    q = (L(w + h d) - L(w - h d)) / 2h,

is compared with <g, d>, where g is the gradient from the rung's backward pass. L is computed in
float64 by the forward pass of the cpu_sequential rung, plain loops as the definitions read, of
which only what follows the tensor's layer runs again. For a random d an error e of g shows as |<e,
d>|, about |e| / sqrt(n) of n elements; so the deviation

    |<g, d> - q| sqrt(n) / |g|

estimates |e| / |g|. Where it is above the tolerance, h is shortened: within a shorter step no ReLU
or maximum switches, which would bend L, while a wrong gradient deviates at any h. The rungs of the
CPU compute g in float64 too, where the two agree to many digits. Those of a GPU compute it in
float32, in which a rounding that moves a value across a ReLU's zero changes the gradients before it
by some percent.
"""

import dataclasses
import math
import re

import numpy as np

from ladder.arithmetic import randomness
from ladder.executors import create as executors
from ladder.plan import plan
from ladder.rungs import catalog
from ladder.verify import parity

REFERENCE = "cpu_sequential"
STEPS, DIRECTIONS = (1e-5, 1e-6, 1e-7), 2
# by what a rung computes with
TOLERANCES = {"float64": 1e-5, "float32": 5e-2, "tf32": 0.1, "bfloat16": 0.2, "float16": 0.1}
# stands for an element of a gradient that is not finite
MOST = 1e9
# share of the loss: derivatives below it are compared with this in place of themselves
NOISE = 1e-6
BIAS = 0.1  # biases are drawn up to this: at 0 a ReLU over zeros would stand on its kink


# Kind of layer -> what it adds to the sum over the batch that training makes small, from its
# attributes and its inputs.
PENALTIES = {
    "l1_penalty": lambda attributes, x: attributes["penalty"] * np.abs(x).sum(),
    "sample": lambda attributes, mean, log_variance: (
        attributes["beta"] * 0.5 * (mean**2 + np.exp(log_variance) - 1 - log_variance).sum()
    ),
}


def check(network, rung, threads):
    """{"precision": that of the rung's backward pass, "losses": of the reference and of the rung,
    without penalties, "tensors": rows of `compare`, "passed": whether all of them have}.
    """
    values = start(network)
    reference = Reference(network, values)
    backward = BackwardPass(network, rung, threads, values)
    random, tensors = (
        randomness.generator(parity.SEED, randomness.INITIAL_WEIGHTS, len(network.layers)),
        [],
    )
    trained = [layer for layer in plan.trained_layers(network) if layer.parameters]
    for layer in trained:
        tensors += [compare(reference, backward, layer, name, random) for name in layer.parameters]
    return {
        "precision": backward.precision,
        "losses": [reference.fitted, backward.loss],
        "tensors": tensors,
        "passed": all(row["passed"] for row in tensors),
    }


def start(network):
    """Name -> float64 array: the parity protocol's parameters and running statistics, with random
    biases.
    """
    values = {name: value.astype(np.float64) for name, value in parity.initial(network).items()}
    for number, layer in enumerate(network.layers):
        if layer.kind in ("conv2d", "dense") and (name := f"{layer.name}.bias") in layer.parameters:
            random = randomness.generator(parity.SEED, randomness.INITIAL_WEIGHTS, number)
            values[name] = (
                random.uniform(-BIAS, BIAS, values[name].shape)
                .astype(np.float32)
                .astype(np.float64)
            )
    return values


def compare(reference, backward, layer, name, random):
    """The row of a parameter: tensor, norm of the gradient, difference, product, deviation, passed.

    difference and product are q and <g, d> of the direction with the larger deviation.
    """
    gradient = backward.gradient(name)
    tolerance, deviations = TOLERANCES[backward.precision], []
    for _ in range(DIRECTIONS):
        direction = random.standard_normal(gradient.shape)
        direction /= np.linalg.norm(direction)
        deviations.append(min(_deviations(reference, gradient, layer, name, direction, tolerance)))
    deviation, difference, product = max(deviations)
    return {
        "tensor": name,
        "norm": float(np.linalg.norm(gradient)),
        "difference": difference,
        "product": product,
        "deviation": deviation,
        "passed": deviation <= tolerance,
    }


def _deviations(reference, gradient, layer, name, direction, tolerance):
    """(deviation, difference, product) of each step, until the first within the tolerance."""
    product, usual = (
        float(np.sum(gradient * direction)),
        float(np.linalg.norm(gradient)) / math.sqrt(gradient.size),
    )
    for step in STEPS:
        difference = reference.slope(layer, name, direction, step)
        deviation = abs(product - difference) / max(
            usual, abs(difference), NOISE * abs(reference.base)
        )
        yield deviation, difference, product
        if deviation <= tolerance:
            return


class Reference:
    """The loss in float64 by the reference rung; base: at the start, and `fitted` without
    penalties.
    """

    def __init__(self, network, values):
        self.executor, self.network = executors.create(REFERENCE, 1), network
        self.plan, self.arrays = _uploaded(self.executor, network, REFERENCE, values, "float64")
        end = next(
            at
            for at, step in enumerate(self.plan.steps)
            if step.operation in ("mse", "cross_entropy")
        )
        self.forward = dataclasses.replace(self.plan, steps=self.plan.steps[: end + 1])
        self.base = self.loss()
        self.fitted = float(self.arrays["losses"][0])

    def loss(self, since=None):
        """The loss; since: the layer from which on the forward pass runs, None: from the images
        on.
        """
        steps = self.forward.steps
        at = next(
            number for number, step in enumerate(steps) if since is None or step.layer == since
        )
        self.executor.run(dataclasses.replace(self.forward, steps=steps[at:]), self.arrays)
        return self.arrays["losses"][0] + self._penalties()

    def slope(self, layer, name, direction, step):
        """The difference quotient of the loss by the parameter `name` of the layer for a step along
        the direction.
        """
        original, losses = self.arrays[name].copy(), []
        for sign in (1, -1):
            self.arrays[name][...] = original + sign * step * direction
            losses.append(self.loss(since=layer.name))
        self.arrays[name][...] = original
        self.loss(since=layer.name)  # the values after the layer, for the layers that come next
        return float((losses[0] - losses[1]) / (2 * step))

    def _penalties(self):
        """What penalties add to the loss: their sums, over the divisor of the loss."""
        elements = self.plan.batch * (
            1 if self.network.classifies else math.prod(self.network.input_shape)
        )
        return sum(
            PENALTIES[layer.kind](layer.attributes, *map(self._value, layer.inputs)) / elements
            for layer in self.network.layers
            if layer.kind in PENALTIES
        )

    def _value(self, name):
        """The output of a layer, which may be the identity, without a step."""
        while name not in self.arrays:
            name = self.network.layer(name).inputs[0]
        return self.arrays[name]


class BackwardPass:
    """The gradients of a rung's backward pass; precision: key of TOLERANCES; loss: of its forward
    pass, without penalties.
    """

    def __init__(self, network, rung, threads, values):
        on_gpu = catalog.uses_gpu(rung)
        self.precision = catalog.RUNGS[rung].precision if on_gpu else "float64"
        self.executor = executors.create(rung, threads)
        step_plan, self.arrays = _uploaded(
            self.executor, network, rung, values, "float32" if on_gpu else "float64"
        )
        self.scale = _settings(network, rung).scale
        self.executor.run(step_plan, self.arrays)
        self.loss = float(self.executor.download(self.arrays["losses"])[0])

    def gradient(self, name):
        """In float64; what is not finite is MOST."""
        gradient = (
            np.asarray(self.executor.download(self.arrays[f"{name}.gradient"]), np.float64)
            / self.scale
        )
        return np.nan_to_num(gradient, nan=MOST, posinf=MOST, neginf=-MOST)


def _uploaded(executor, network, rung, values, dtype):
    """(the plan of a step up to its gradients, its arrays with the values and the parity protocol's
    random images).
    """
    settings = _settings(network, rung)
    batch = settings.batch_size
    step_plan = plan.training_plan(
        settings, plan.Dataset(batch, "uint8"), plan.Length(1, 1), dtype, fuse_update=False
    )
    step_plan = dataclasses.replace(
        step_plan,
        steps=tuple(
            step for step in step_plan.steps if not re.search("_update$|^advance$", step.operation)
        ),
    )
    uploaded = executor.upload(
        {
            **parity.random_images(network, batch),
            "counters": np.zeros(3, np.int64),
            **{name: value.astype(dtype) for name, value in values.items()},
        }
    )
    return step_plan, executor.allocate(step_plan, uploaded)


def _settings(network, rung):
    return plan.TrainingSettings(
        network=network,
        rung=rung,
        batch_size=parity.batch_size(network),
        seed=parity.SEED,
        multipliers=plan.made_for(rung),
    )
