"""Seconds of each training step of a network in PyTorch on the CPU; called by cpu.py.

arguments: a JSON object with network (a name of ladder/network/networks.py), input_shape, batch,
precision (fp32, or bf16: float32 weights, bfloat16 products and activations), layout (channels_last
or contiguous), form (eager or compiled), threads, warm_up and steps; the first of warm_up compiles.
Prints a JSON list of [wall seconds, CPU seconds of all threads]. The module is built from the same
table of layers that the plan is made from.
"""

import json
import pathlib
import sys
import time

import torch
from torch import nn
from torch.nn import functional

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "workflow/scripts"))

from ladder.network import networks  # noqa: E402

MEMORY_FORMATS = {"channels_last": torch.channels_last, "contiguous": torch.contiguous_format}


class Module(nn.Module):
    """A network's table of layers as PyTorch runs it, up to the layer `until` (default: the
    last).
    """

    def __init__(self, network, until=None):
        super().__init__()
        names = [layer.name for layer in network.layers]
        self.layers = network.layers[: names.index(until) + 1 if until else None]
        self.made = nn.ModuleDict({layer.name: MODULES[layer.kind](layer) for layer in self.layers})

    def forward(self, x):
        values = {networks.INPUT: x}
        for layer in self.layers:
            values[layer.name] = self.made[layer.name](*(values[name] for name in layer.inputs))
        return values[self.layers[-1].name]


class Calls(nn.Module):
    """A function without parameters as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


def conv2d(layer):
    take = layer.attributes
    return nn.Conv2d(
        layer.input_shapes[0][2],
        take["filters"],
        take["kernel"],
        take["stride"],
        take["padding"],
        bias=take["bias"],
    )


def window(layer):
    return layer.attributes["window"], layer.attributes["stride"], layer.attributes["padding"]


def pad(layer):
    return Calls(lambda x: functional.pad(x, [layer.attributes["amount"]] * 4))


MODULES = {
    "conv2d": conv2d,
    "dense": lambda layer: nn.Linear(layer.input_shapes[0][2], layer.attributes["filters"]),
    "batchnorm": lambda layer: nn.BatchNorm2d(
        layer.input_shapes[0][2], layer.attributes["epsilon"], 1 - layer.attributes["decay"]
    ),
    "relu": lambda layer: nn.ReLU(),
    "maxpool2d": lambda layer: nn.MaxPool2d(*window(layer)),
    "avgpool2d": lambda layer: nn.AvgPool2d(*window(layer)),
    "global_avgpool": lambda layer: nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten()),
    "upsample2d": lambda layer: nn.Upsample(scale_factor=2),
    "pad": pad,
    "add": lambda layer: Calls(torch.add),
    "flatten": lambda layer: nn.Flatten(),
    "dropout": lambda layer: nn.Dropout(layer.attributes["rate"]),
    "lrn": lambda layer: nn.LocalResponseNorm(
        layer.attributes["size"],
        layer.attributes["alpha"],
        layer.attributes["beta"],
        layer.attributes["k"],
    ),
}


def time_steps(network, input_shape, batch, steps, precision, layout, form, threads, warm_up):
    torch.set_num_threads(threads)
    network = networks.build(network, tuple(input_shape))
    module = Module(network).to(memory_format=MEMORY_FORMATS[layout])
    # all parameters in one pass: its fastest form
    optimizer = torch.optim.Adam(module.parameters(), 1e-3, fused=True)
    forward = torch.compile(module) if form == "compiled" else module
    height, width, channels = input_shape
    seconds = []
    for _ in range(warm_up + steps):
        images = torch.rand(batch, channels, height, width).to(memory_format=MEMORY_FORMATS[layout])
        labels = torch.randint(0, 10, (batch,))
        started = time.perf_counter(), time.process_time()
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            out = forward(images)
        out = out.float()
        loss = (
            functional.cross_entropy(out, labels)
            if network.classifies
            else functional.mse_loss(out, images)
        )
        loss.backward()
        optimizer.step()
        seconds.append((time.perf_counter() - started[0], time.process_time() - started[1]))
    return seconds[warm_up:]


if __name__ == "__main__":
    print(json.dumps(time_steps(**json.loads(sys.argv[1]))))
