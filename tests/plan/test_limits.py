"""Plans with more numbers than kernels can index, or more blocks than a GPU takes, are refused."""

import functools
import math

import pytest

from ladder.errors import UserError
from ladder.network import layers, networks
from ladder.plan import plan
from ladder.rungs.catalog import RUNGS

NETWORK = networks.build("autoencoder")
IMAGES = plan.Dataset(20, "uint8")


def training_plan(network, rung, batch):
    settings = plan.TrainingSettings(network=network, rung=rung, batch_size=batch)
    return plan.training_plan(settings, IMAGES, plan.Length(10, 5))


ON_GPU = [name for name, entry in RUNGS.items() if entry.executor == "cuda"]
# (network, rungs, batch that is refused, the buffer that is too large, largest batch): a layer,
# which gpu_opt_v2 never writes; the images, larger than any layer; a rung's workspace.
TOO_LARGE = [
    (NETWORK, ON_GPU, 8192, "enc1", 8191),
    (
        networks.resolve(
            "reduced",
            (64, 64, 3),
            (
                layers.conv2d("a", 3, kernel=4, padding=0, stride=4),
                layers.flatten("flat"),
                layers.dense("scores", 2),
            ),
            "a",
            "cross_entropy",
        ),
        ON_GPU,
        180_000,
        "input",
        174_762,
    ),
    (
        networks.resolve(
            "enlarged",
            (16, 16, 8),
            (layers.conv2d("a", 8), layers.upsample2d("up"), layers.conv2d("b", 8)),
            "a",
            "cross_entropy",
        ),
        ["gpu_opt_v2"],
        70_000,
        "up.taps",
        65_535,
    ),
]


@pytest.mark.parametrize(
    "network, rung, batch, buffer, most",
    [
        (network, rung, batch, buffer, most)
        for network, rungs, batch, buffer, most in TOO_LARGE
        for rung in rungs
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_batch_too_large_for_32_bit_indices_is_refused_on_a_gpu(
    network, rung, batch, buffer, most
):
    for planned in (
        training_plan,
        lambda network, rung, batch: plan.inference_plan(network, rung, batch, IMAGES),
    ):
        buffers = planned(network, rung, most).buffers.values()
        assert (
            max(
                math.prod(each.shape) for each in buffers if each.kind not in ("dataset", "control")
            )
            < 2**31
        )
        for refused in (most + 1, batch):
            with pytest.raises(
                UserError,
                match=f"^batch_size {refused} gives {buffer} more numbers than {rung} can index; "
                f"set batch_size to {most} or less$",
            ):
                planned(network, rung, refused)


def test_weights_too_large_for_32_bit_indices_are_refused_with_any_batch():
    network = networks.resolve(
        "wide",
        (256, 256, 1),
        (layers.flatten("flat"), layers.dense("units", 40_000)),
        "units",
        "cross_entropy",
    )
    with pytest.raises(
        UserError,
        match="^batch_size 2 gives units.weight more numbers than gpu_basic can index; no batch_size "
        "is small enough$",
    ):
        plan.inference_plan(network, "gpu_basic", 2, IMAGES)


def test_a_layer_whose_grid_no_gpu_takes_is_refused():
    """gpu_basic has a block in y for every 8 filters or units."""

    def planned(layer):
        network = networks.resolve("wide", (1, 1, 1), (layer,), layer.name, "cross_entropy")
        return plan.inference_plan(network, "gpu_basic", 1, IMAGES)

    for layer in (layers.dense, functools.partial(layers.conv2d, kernel=1, padding=0)):
        assert (
            max(
                launch.grid[1]
                for step in planned(layer("a", 524_280)).steps
                for launch in step.launches
                if len(launch.grid) > 1
            )
            == 65_535
        )
        refused = (
            "layer a is too large for gpu_basic, whose (dense|conv2d)_forward would need a grid of 1 x 65536 blocks; "
            "make the layer smaller or set variant to cpu"
        )
        with pytest.raises(UserError, match=f"^{refused}$"):
            planned(layer("a", 524_281))


def test_a_data_set_may_have_more_numbers_than_32_bits_index():
    made = plan.inference_plan(NETWORK, "gpu_basic", 4, plan.Dataset(2**30, "uint8"))
    assert math.prod(made.buffers["images"].shape) > 2**31
