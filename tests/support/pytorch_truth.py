"""Ten training steps of four networks, which PyTorch has made too: what goes into them, and the
record of what PyTorch got.

make_pytorch_truth.py writes the record, pytorch_truth.json; tests/training/test_pytorch_truth.py
compares the rungs with it.

Of each tensor of a weights file the record has how far ten steps moved it: the movement's length,
and SUMS sums of all its elements with random signs, in units of the length. An error anywhere in a
tensor changes each sum by about the error's length (Johnson and Lindenstrauss, 1984), so five
numbers of any tensor show an error of all its elements as well as one of a few.
"""

import dataclasses
import json
import pathlib

import numpy as np

from ladder.network import networks, weights
from ladder.network.optimizers import Optimizer

RECORD = pathlib.Path(__file__).with_name("pytorch_truth.json")
# Of images, labels, their order, and the signs. With seed 6, for example, one ReLU's input lies so
# near 0 that float32 puts it on the other side, which is 2e-4 of a tensor's movement.
SEED = 8
BATCH, IMAGES, EPOCHS = 8, 36, 2  # ten steps; the last batch of an epoch has four images
SUMS = 4


@dataclasses.dataclass(frozen=True)
class Case:
    """One training. options: of the network, as networks.build takes them."""

    network: str
    image: tuple
    options: dict
    optimizer: Optimizer
    learning_rate: float
    gradient_scale: str = "mean"

    def build(self):
        return networks.build(self.network, self.image, 10, **self.options)


# A factor on a gradient shows with momentum alone, as Adam divides it out again. Adam shows its own
# formula, but rounding too: where dead ReLUs make a gradient exactly 0, a Winograd convolution
# leaves up to 5e-8, and Adam makes a step of that. Fewer than 32 filters keep the cpu rung from it;
# the autoencoder with momentum has 32 and more.
ADAM, MOMENTUM = Optimizer("adam"), Optimizer("momentum", momentum=0.9, weight_decay=1e-2)
AUTOENCODER, LENET = ("autoencoder", (16, 16, 3)), ("lenet_5", (28, 28, 1), {})
WINNERS = "wta_autoencoder", (16, 16, 3), {"filters": 20, "kernels": (5, 7)}
CASES = {
    "autoencoder, adam": Case(*AUTOENCODER, {"filters": (20, 12)}, ADAM, 1e-3),
    "autoencoder, momentum": Case(*AUTOENCODER, {"filters": (64, 32)}, MOMENTUM, 1e-2),
    "lenet_5, adam": Case(*LENET, ADAM, 1e-3),
    "lenet_5, momentum": Case(*LENET, MOMENTUM, 2e-2),
    "wta_autoencoder, adam": Case(*WINNERS, dataclasses.replace(ADAM, weight_decay=1e-2), 3e-3),
    "wta_autoencoder, momentum": Case(*WINNERS, MOMENTUM, 5e-5, "batch"),
    "resnet18, momentum": Case("resnet18", (28, 28, 1), {"width": 4}, MOMENTUM, 5e-3),
}


def dataset(case):
    """(images uint8 (IMAGES, H, W, C), labels uint8 (IMAGES,)), from a generator that no release of
    NumPy changes.
    """
    random = np.random.RandomState(SEED)
    return random.randint(0, 256, (IMAGES, *case.image), np.uint8), random.randint(
        0, 10, IMAGES, np.uint8
    )


def in_file(network, values, path):
    """Name -> float64 array as in a weights file, which is PyTorch's layout; the file is written to
    `path` and read.
    """
    weights.save(path, network, values)
    return {name: array.astype(np.float64) for name, array in weights.read(path, network).items()}


def digest(before, after):
    """[length, SUMS sums] of a tensor's movement."""
    movement = (after - before).ravel()
    length = np.linalg.norm(movement)
    return [
        float(f"{length:.6g}"),
        *np.round(_signs(movement.size) @ movement / length, 5).tolist(),
    ]


def deviation(before, after, recorded):
    """An estimate of |after - PyTorch's| / |PyTorch's - before|, from the digest of PyTorch's
    movement.
    """
    length, *sums = recorded
    return float(
        np.linalg.norm(_signs(before.size) @ (after - before).ravel() / length - sums)
        / np.sqrt(SUMS)
    )


def _signs(size):
    return np.random.RandomState(SEED).choice((-1.0, 1.0), (SUMS, size))


def record():
    """Name of a case -> {"losses": of all steps, "movements": {tensor: its digest}}."""
    return json.loads(RECORD.read_text())["cases"]
