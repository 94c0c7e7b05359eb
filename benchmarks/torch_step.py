"""Seconds of each training step of the autoencoder in PyTorch, float32, on the CPU; called by cpu.py.

arguments: batch, layout (channels_last or contiguous), threads, warm-up steps, timed steps.  Prints a JSON list.
"""

import json
import sys
import time

import torch
from torch import nn


def main(batch, layout, threads, warm_up, steps):
    torch.set_num_threads(threads)
    memory_format = {"channels_last": torch.channels_last, "contiguous": torch.contiguous_format}[layout]
    network = autoencoder().to(memory_format=memory_format)
    optimizer = torch.optim.Adam(network.parameters(), 1e-3)
    seconds = []
    for _ in range(warm_up + steps):
        images = torch.rand(batch, 3, 32, 32).to(memory_format=memory_format)
        started = time.perf_counter()
        optimizer.zero_grad()
        nn.functional.mse_loss(network(images), images).backward()
        optimizer.step()
        seconds.append(time.perf_counter() - started)
    print(json.dumps(seconds[warm_up:]))


def autoencoder():
    def conv(channels, filters):
        return nn.Conv2d(channels, filters, 3, padding=1)

    return nn.Sequential(conv(3, 256), nn.ReLU(), nn.MaxPool2d(2), conv(256, 128), nn.ReLU(), nn.MaxPool2d(2),
                         conv(128, 128), nn.ReLU(), nn.Upsample(scale_factor=2),
                         conv(128, 256), nn.ReLU(), nn.Upsample(scale_factor=2), conv(256, 3))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:6]))
