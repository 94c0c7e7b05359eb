"""Writes pytorch_truth.json: the losses and weights of ten training steps, as PyTorch computes them
in float64.

    python3 -m venv .venv-torch && .venv-torch/bin/pip install torch==2.13.0 numpy safetensors
    .venv-torch/bin/python tests/support/make_pytorch_truth.py

The networks are written here as their papers describe them, with PyTorch's modules, losses and
optimizers. The project gives the initial weights, by their file, and the order of the images. A
parameter's name is that of the file with dots for some underscores, so that a block of a ResNet can
be a module. Prints for each training how far PyTorch's own float32 is from it.
"""

import json
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "workflow/scripts"))

import numpy as np
import torch
from torch import nn
from torch.nn import functional

import pytorch_truth as truth
from ladder.arithmetic import randomness
from ladder.verify import parity


class Autoencoder(nn.Module):
    """Two 3x3 convolutions with ReLU and 2x2 max-pooling, and the mirrored decoder with
    nearest-neighbour upsampling.
    """

    def __init__(self, channels, filters):
        super().__init__()
        first, second = filters
        self.enc1 = nn.Conv2d(channels, first, 3, padding=1)
        self.enc2 = nn.Conv2d(first, second, 3, padding=1)
        self.dec1 = nn.Conv2d(second, second, 3, padding=1)
        self.dec2 = nn.Conv2d(second, first, 3, padding=1)
        self.dec3 = nn.Conv2d(first, channels, 3, padding=1)
        self.pool, self.up = nn.MaxPool2d(2), nn.Upsample(scale_factor=2, mode="nearest")

    def forward(self, x):
        for conv in (self.enc1, self.enc2):
            x = self.pool(functional.relu(conv(x)))
        for conv in (self.dec1, self.dec2):
            x = self.up(functional.relu(conv(x)))
        return self.dec3(x)


class LeNet5(nn.Module):
    """LeCun et al. (1998) with ReLU and max-pooling; 28x28 pixels with two rows and columns of
    zeros around them.
    """

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5, padding=2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1, self.fc2, self.fc3 = (
            nn.Linear(16 * 5 * 5, 120),
            nn.Linear(120, 84),
            nn.Linear(84, 10),
        )

    def forward(self, x):
        x = functional.max_pool2d(functional.relu(self.conv1(x)), 2)
        x = functional.max_pool2d(functional.relu(self.conv2(x)), 2)
        x = functional.relu(self.fc1(torch.flatten(x, 1)))
        return self.fc3(functional.relu(self.fc2(x)))


class WinnerTakeAll(nn.Module):
    """Makhzani and Frey (2015): the largest value of each map, in a fifth of the batch for each
    filter; a linear decoder.
    """

    def __init__(self, channels, filters, kernels):
        super().__init__()
        kernel, decoder_kernel = kernels
        self.code = nn.Conv2d(channels, filters, kernel)
        self.decoder = nn.Conv2d(
            filters, channels, decoder_kernel, padding=(kernel + decoder_kernel) // 2 - 1
        )

    def forward(self, x):
        code = functional.relu(self.code(x))
        flat = code.flatten(2)  # (N, filters, pixels)
        values, places = flat.max(2, keepdim=True)
        lifetime = torch.topk(values, -(-len(x) // 5), dim=0)  # images, by filter
        stay = torch.zeros_like(values).scatter(0, lifetime.indices, 1.0)
        return self.decoder(torch.zeros_like(flat).scatter(2, places, values * stay).view_as(code))


class Block(nn.Module):
    """The basic block of He et al. (2016), with a projection where the shape changes."""

    def __init__(self, channels, filters, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, filters, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(filters)
        self.conv2 = nn.Conv2d(filters, filters, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(filters)
        self.projects = stride != 1 or channels != filters
        if self.projects:
            self.shortcut = nn.Conv2d(channels, filters, 1, stride, bias=False)
            self.shortcut_bn = nn.BatchNorm2d(filters)

    def forward(self, x):
        y = self.bn2(self.conv2(functional.relu(self.bn1(self.conv1(x)))))
        return functional.relu(y + (self.shortcut_bn(self.shortcut(x)) if self.projects else x))


class ResNet18(nn.Module):
    """He et al. (2016): a 7x7 convolution and a 3x3 max-pooling of stride 2, four stages of two
    blocks, their mean, scores.
    """

    def __init__(self, channels, width):
        super().__init__()
        self.stem = nn.Conv2d(channels, width, 7, 2, padding=3, bias=False)
        self.stem_bn = nn.BatchNorm2d(width)
        self.pool = nn.MaxPool2d(3, 2, padding=1)
        self.stage1_1, self.stage1_2 = Block(width, width, 1), Block(width, width, 1)
        self.stage2_1, self.stage2_2 = Block(width, 2 * width, 2), Block(2 * width, 2 * width, 1)
        self.stage3_1, self.stage3_2 = (
            Block(2 * width, 4 * width, 2),
            Block(4 * width, 4 * width, 1),
        )
        self.stage4_1, self.stage4_2 = (
            Block(4 * width, 8 * width, 2),
            Block(8 * width, 8 * width, 1),
        )
        self.average, self.scores = nn.AdaptiveAvgPool2d(1), nn.Linear(8 * width, 10)

    def forward(self, x):
        x = self.pool(functional.relu(self.stem_bn(self.stem(x))))
        x = self.stage1_2(self.stage1_1(x))
        x = self.stage2_2(self.stage2_1(x))
        x = self.stage3_2(self.stage3_1(x))
        x = self.stage4_2(self.stage4_1(x))
        return self.scores(torch.flatten(self.average(x), 1))


def module(case):
    channels, options = case.image[2], case.options
    return {
        "autoencoder": lambda: Autoencoder(channels, **options),
        "lenet_5": LeNet5,
        "wta_autoencoder": lambda: WinnerTakeAll(channels, **options),
        "resnet18": lambda: ResNet18(channels, **options),
    }[case.network]()


def optimizer(case, parameters):
    rate, decay = case.learning_rate, case.optimizer.weight_decay
    if case.optimizer.name == "adam":
        return torch.optim.Adam(parameters, rate, weight_decay=decay)
    return torch.optim.SGD(parameters, rate, momentum=case.optimizer.momentum, weight_decay=decay)


def loss(case, output, images, labels):
    """(the loss that is reported, the one whose gradient is followed)."""
    if case.build().classifies:
        return 2 * (functional.cross_entropy(output, labels),)
    mean = functional.mse_loss(output, images)
    summed = functional.mse_loss(output, images, reduction="sum") / len(images)
    return mean, {"mean": mean, "batch": summed}[case.gradient_scale]


def batches():
    """The rows of each step's images, in the order of the project's shuffling."""
    for epoch in range(truth.EPOCHS):
        order = randomness.generator(truth.SEED, randomness.SHUFFLE, epoch).permutation(
            truth.IMAGES
        )
        yield from torch.split(torch.from_numpy(order), truth.BATCH)


def train(case, start, dtype=torch.float64):
    """(losses, name in the weights file -> float64 array) of ten steps from `start`, the arrays of
    that file.
    """
    model = module(case).to(dtype)
    names = {
        key: ".".join((key.rpartition(".")[0].replace(".", "_"), key.rpartition(".")[2]))
        for key in model.state_dict()
        if not key.endswith("num_batches_tracked")
    }
    model.load_state_dict(
        {key: torch.from_numpy(start[name]) for key, name in names.items()}, strict=False
    )
    assert set(names.values()) == set(start)
    images, labels = truth.dataset(case)
    images = torch.from_numpy(images).permute(0, 3, 1, 2).to(dtype) / 255
    labels, optimize, losses = (
        torch.from_numpy(labels).long(),
        optimizer(case, model.parameters()),
        [],
    )
    for rows in batches():
        optimize.zero_grad()
        reported, followed = loss(case, model(images[rows]), images[rows], labels[rows])
        followed.backward()
        optimize.step()
        losses.append(reported.item())
    return losses, {name: model.state_dict()[key].double().numpy() for key, name in names.items()}


def in_files(case):
    """The arrays of the weights file that training starts from."""
    network = case.build()
    with tempfile.TemporaryDirectory() as folder:
        return truth.in_file(network, parity.initial(network), pathlib.Path(folder, "weights"))


def main():
    cases = {}
    for title, case in truth.CASES.items():
        start = in_files(case)
        (losses, after), (rough_losses, rough) = (
            train(case, start),
            train(case, start, torch.float32),
        )
        movements = {name: truth.digest(start[name], after[name]) for name in start}
        deviations = {
            name: truth.deviation(start[name], rough[name], movements[name]) for name in start
        }
        tensor = max(deviations, key=deviations.get)
        print(
            f"{title}: in float32 {tensor} deviates by {deviations[tensor]:.1e} of its movement, a loss by "
            f"{np.abs(np.divide(rough_losses, losses) - 1).max():.1e}"
        )
        cases[title] = {
            "losses": [float(f"{value:.9g}") for value in losses],
            "movements": movements,
        }
    rows = ",\n".join(
        f"{json.dumps(title)}: {json.dumps(case, separators=(',', ':'))}"
        for title, case in cases.items()
    )
    truth.RECORD.write_text(f'{{"pytorch": "{torch.__version__}", "cases": {{\n{rows}\n}}}}\n')


if __name__ == "__main__":
    main()
