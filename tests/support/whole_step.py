"""A training step of the whole autoencoder, 32x32x3 images and 256 and 128 filters, on packed
operands against float64.

    python tests/support/whole_step.py RUNG [--batch 64]

Prints a line for each tensor: how many elements differ where they must not, and its deviation from
the float64 cpu rung.

The first is of a step whose weights are few and -1 or 1, and whose pixels, biases and factors are
small integers and powers of two. Every operand then has at most the 8 significant bits of bfloat16
and every sum fewer than 24, so that no rounding and no order of a sum changes a number, and the
step is by definition: no layer fused, no phase weights. The second is of parity's random images and
weights, operands rounded on both sides, relative to the size of the update. Kernels and tiles are
those of a batch of 64, whatever the batch; 32 images of gpu_bf16 take two minutes of CPU time for
both.
"""

import argparse
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "workflow/scripts"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "emulator/src"))

import numpy as np

import emulator_executor
import references
import rung_checks
from ladder.arithmetic.multipliers import to_bfloat16
from ladder.executors import create as executors
from ladder.network import networks
from ladder.plan import plan
from ladder.rungs import gpu_bf16_sm90, packed_tiles
from ladder.rungs.interface import implementation
from ladder.verify import parity

RUNGS = "gpu_3xtf32_packed", "gpu_tf32", "gpu_bf16", "gpu_bf16_sm90", "gpu_3xf16_sm90"
BATCH = 64  # of the training whose kernels these are
NETWORK = networks.build("autoencoder")
RATE = 2.0**-8
# Layer -> weights of a filter that are not 0, and the range of the biases: so few that no operand
# needs a ninth bit, which `step` asserts, and so many that 7 % and more of what each convolution
# reads is not 0.
SPARSE = {
    "enc1": (3, (-3, 1)),
    "enc2": (4, (-4, 0)),
    "dec1": (3, (-3, 0)),
    "dec2": (2, (-2, 0)),
    "dec3": (12, (0, 3)),
}
PIXELS = 3  # values of a pixel, 0 included


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rung", choices=RUNGS)
    parser.add_argument("--batch", type=int, default=BATCH, help="a power of two")
    arguments = parser.parse_args()
    rung, batch = arguments.rung, arguments.batch
    on_a_gpu_for(batch, setattr)
    differ, deviations = differences(rung, batch), rounded_deviations(rung, batch)
    for name, shape in NETWORK.parameters.items():
        print(
            f"{name:12} {differ[name]} of {np.prod(shape)} elements differ, deviates by {deviations[name]:.1e} of its update"
        )


# ---- a step in which nothing is rounded


def differences(rung, batch):
    """Tensor -> number of its elements that differ after a step from those of float64. batch: a
    power of two.
    """
    images, values = small_integers(batch)
    wanted, found = step(images, values), trained(rung, images, values)
    return {name: int(np.count_nonzero(found[name] != wanted[name])) for name in wanted}


def small_integers(batch):
    """(uint8 images, {parameter: float32})."""
    random, values = np.random.default_rng(0), {}
    for name, (count, biases) in SPARSE.items():
        weight = np.zeros(NETWORK.parameters[f"{name}.weight"], np.float32)
        for filter_ in weight:
            filter_.flat[random.choice(filter_.size, count, replace=False)] = random.choice(
                (-1, 1), count
            )
        values |= {
            f"{name}.weight": weight,
            f"{name}.bias": random.integers(*biases, len(weight)).astype(np.float32),
        }
    return random.integers(0, PIXELS, (batch, *NETWORK.input_shape), dtype=np.uint8), values


def trained(rung, images, values):
    """Parameter -> its value after a step of the rung in the emulator, of images whose pixels are
    integers.
    """
    settings = plan.TrainingSettings(
        network=NETWORK,
        rung=rung,
        batch_size=len(images),
        gradient_scale="batch",
        multipliers=plan.made_for(rung),
        repeats=int(implementation(rung).in_halves),  # gradients up to 396 exceed a half at first
    )
    made = plan.training_plan(settings, plan.Dataset(len(images), "uint8"), plan.Length(1, 1))
    executor = emulator_executor.Executor()
    uploaded = executor.upload(
        {
            **values,
            "images": images,
            "permutation": np.arange(len(images)),
            "scale": np.ones(3, np.float32),
            "learning_rates": np.array([RATE]),
        }
    )
    arrays = executor.allocate(made, uploaded)
    executor.run(made, arrays)
    check_copies(made, executor, arrays)
    return {name: executor.download(uploaded[name]) for name in values}


def check_copies(made, executor, arrays):
    """Assert that the update has left the copies that a launch of their own makes of the new
    weights.
    """
    copies = {
        name: array.copy() for name, array in arrays.items() if made.buffers[name].kind == "copy"
    }
    assert copies
    for launch in made.prologue[0].launches:
        executor.launch(launch, arrays)
    for name, copy in copies.items():
        assert copy.tobytes() == arrays[name].tobytes(), name


# ---- its definition


def step(images, values):
    """Parameter -> float64 value after a step of SGD; AssertionError if an operand needs more than
    the bits of bfloat16.
    """
    x, seen = images.astype(float), []
    for layer in NETWORK.layers:
        seen.append(x)
        x = forward(layer, x, values)
    dy, after = 2 * (x - images) / len(images), {}
    for layer, x in reversed(list(zip(NETWORK.layers, seen, strict=True))):
        dy, gradients = backward(layer, x, dy, values)
        after |= {name: values[name] - RATE * gradient for name, gradient in gradients.items()}
    return {name: after[name] for name in values}


def forward(layer, x, values):
    if layer.kind == "conv2d":
        assert_unrounded(x)
        weight, taps = values[f"{layer.name}.weight"], windows(x)
        return (
            sum(taps[place] @ weight[:, *place].T.astype(float) for place in taps)
            + values[f"{layer.name}.bias"]
        )
    return {
        "relu": references.relu,
        "maxpool2d": lambda x: by_windows(x).max(axis=-1),
        "upsample2d": references.upsample2d,
    }[layer.kind](x)


def backward(layer, x, dy, values):
    """(dx, {parameter: gradient})."""
    if layer.kind == "relu":
        return dy * (x > 0), {}
    if layer.kind == "maxpool2d":  # to the first of the largest
        found, windows_of_x = np.zeros((*dy.shape, 4)), by_windows(x)
        np.put_along_axis(found, windows_of_x.argmax(axis=-1)[..., None], dy[..., None], axis=-1)
        return from_windows(found), {}
    if layer.kind == "upsample2d":
        return by_windows(dy).sum(axis=-1), {}
    assert_unrounded(dy)
    weight = values[f"{layer.name}.weight"].astype(float)
    dx, dweight, taps = (
        np.zeros((len(x), x.shape[1] + 2, x.shape[2] + 2, x.shape[3])),
        np.zeros(weight.shape),
        windows(x),
    )
    for (row, column), window in taps.items():
        dweight[:, row, column] = np.tensordot(dy, window, ((0, 1, 2), (0, 1, 2)))
        dx[:, row : row + x.shape[1], column : column + x.shape[2]] += dy @ weight[:, row, column]
    return dx[:, 1:-1, 1:-1], {
        f"{layer.name}.weight": dweight,
        f"{layer.name}.bias": dy.sum(axis=(0, 1, 2)),
    }


def windows(x):
    """{(row, column) of a tap of 3x3: the pixels of x that it meets, for each pixel of y}, x with a
    border of one zero.
    """
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    return {
        (row, column): padded[:, row : row + x.shape[1], column : column + x.shape[2]]
        for row, column in np.ndindex(3, 3)
    }


def by_windows(x):
    """(N, H / 2, W / 2, C, 4): the pixels of each window of 2x2, row by row."""
    images, height, width, channels = x.shape
    split = x.reshape(images, height // 2, 2, width // 2, 2, channels)
    return split.transpose(0, 1, 3, 5, 2, 4).reshape(images, height // 2, width // 2, channels, 4)


def from_windows(x):
    """What `by_windows` makes x of."""
    images, height, width, channels, _ = x.shape
    split = x.reshape(images, height, width, channels, 2, 2).transpose(0, 1, 4, 2, 5, 3)
    return split.reshape(images, 2 * height, 2 * width, channels)


def assert_unrounded(operand):
    assert np.array_equal(to_bfloat16(operand.astype(np.float32)), operand), np.abs(operand).max()


# ---- a step whose operands are rounded


def rounded_deviations(rung, batch):
    """Tensor -> parity's deviation of a step from that of the cpu rung in float64, operands rounded
    likewise.
    """
    protocol, settings = (
        parity.protocols(NETWORK)["sgd"],
        {"batches": (batch,), "multipliers": plan.made_for(rung)},
    )
    reference = parity.train(
        NETWORK, "cpu", executors.create("cpu", 2), protocol, "float64", **settings
    )
    found = parity.train(NETWORK, rung, emulator_executor.Executor(), protocol, **settings)
    return parity.deviations(NETWORK, found, reference)


# ---- the same kernels of fewer images


def launched(rung, batch):
    """(file, kernel, definitions) of the launches of a step, without the loss scale, which may
    depend on the batch.
    """
    made = rung_checks.training_plan(rung, NETWORK, batch)
    return [
        (
            launch.source,
            launch.entry,
            [define for define in launch.defines if not define.startswith("GRADIENT_FACTOR=")],
        )
        for launch in made.launches
    ]


def on_a_gpu_for(batch, put):
    """The tiles of so few images become those of BATCH: of GPUs whose multiprocessors are as many
    fewer. put: as setattr.
    """
    for module, name in ((packed_tiles, "SPLIT_MULTIPROCESSORS"), (gpu_bf16_sm90, "LARGE_TILES")):
        put(module, name, getattr(module, name) * batch / BATCH)
    put(
        packed_tiles,
        "MULTIPROCESSORS",
        tuple(number * batch / BATCH for number in packed_tiles.MULTIPROCESSORS),
    )


if __name__ == "__main__":
    main()
