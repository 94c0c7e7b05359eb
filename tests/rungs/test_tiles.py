"""The choice of tiles: the least time on each GPU, the same bytes on all; and the share of their
loops that multiplies.
"""

import itertools
import re

import numpy as np
import pytest

import needs
from compiled import bodies
from kernel_checks import normal, poisoned
from ladder.executors.cuda import nvrtc
from ladder.machine import driver
from ladder.network import networks
from ladder.plan import plan
from ladder.rungs import gpu_3xtf32, gpu_gemm, gpu_opt_v2, tiles
from ladder.rungs.tiles import LARGE, SQUARE, TALL
from rung_checks import Convolution, run_step, training_plan

GPUS = (132, 108, 128, 28)  # multiprocessors of an H200, A100, RTX 4090 and RTX 3060
NETWORK = networks.build("autoencoder")


# ---- the choice


@pytest.mark.parametrize(
    "rows, columns, products, chosen",
    [  # of the autoencoder at batch 64
        (16384, 128, 1, [LARGE, TALL, LARGE, LARGE]),  # enc2 forward
        (4096, 128, 1, [SQUARE, TALL, SQUARE, TALL]),  # dec1 and dec2's input gradient
        (4096, 256, 4, [LARGE, TALL, LARGE, LARGE]),  # dec2 forward, in gpu_opt_v2
    ],
)
def test_the_quickest_tile_of_each_gpu(rows, columns, products, chosen):
    assert [tiles.quickest(tiles.TIMES, rows, columns, gpu, products) for gpu in GPUS] == chosen


def test_the_fullest_multiprocessor_decides():
    """129 large blocks take as long as 256 on 128 multiprocessors, and 258 of half their size
    less.
    """
    times = {LARGE: 1.0, TALL: 0.6}
    assert tiles.quickest(times, 128 * 128, 128, 128) == LARGE
    assert tiles.quickest(times, 129 * 128, 128, 128) == TALL
    assert (
        tiles.quickest(times, 128 * 128 + 1, 128, 128)
        == tiles.quickest(times, 128 * 128, 129, 128)
        == TALL
    )
    assert tiles.quickest(times, 128 * 128, 128, 64, products=2) == LARGE


def test_of_equal_tiles_the_first_is_taken():
    assert [
        tiles.quickest(dict.fromkeys(order, 1.0), 1, 1, 132)
        for order in ([TALL, LARGE], [LARGE, TALL])
    ] == [TALL, LARGE]


@pytest.mark.parametrize("size, chosen", [(None, LARGE), (driver.Size(108, 0, 0, 0, 0), TALL)])
def test_tiles_are_those_for_the_gpu_of_this_machine_or_an_h200(monkeypatch, size, chosen):
    monkeypatch.setattr(driver, "gpu_size", lambda: size)
    settings = plan.TrainingSettings(network=NETWORK, rung="gpu_gemm", batch_size=64)
    made = plan.training_plan(settings, plan.Dataset(64, "uint8"), plan.Length(1, 1))
    (launch,) = next(
        step for step in made.steps if (step.layer, step.operation) == ("enc2", "conv2d_forward")
    ).launches
    assert set(chosen.defines()) <= set(launch.defines)


def test_a_plan_of_a_cpu_rung_asks_for_no_gpu(monkeypatch):
    monkeypatch.setattr(driver, "gpu_size", lambda: pytest.fail("asked for a GPU"))
    plan.one_step(NETWORK, "cpu", 2, "sgd")


# ---- the bytes


@pytest.mark.parametrize("rung", ["gpu_opt_v2", "gpu_gemm", "gpu_3xtf32"])
def test_splits_and_buffers_are_the_same_on_every_gpu(rung):
    """Splits change the bytes; a checkpoint may be continued on another GPU."""
    plans = [training_plan(rung, NETWORK, multiprocessors=gpu) for gpu in GPUS]
    chosen = {tuple(launch.grid for launch in made.launches) for made in plans}
    assert len(chosen) > 1
    for made in plans:
        assert made.buffers == plans[0].buffers
        for launch, other in zip(made.launches, plans[0].launches, strict=True):
            assert (launch.entry, launch.arguments) == (other.entry, other.arguments)
            if "weight_grad" in launch.entry or not launch.defines:
                assert launch == other


@needs.COMPILER
@pytest.mark.parametrize(
    "rung, operation",
    [
        *(
            (gpu_opt_v2, operation)
            for operation in ("pool", "upsample_conv2d_forward", "upsample_conv2d_input_grad")
        ),
        *itertools.product(
            (gpu_opt_v2, gpu_gemm, gpu_3xtf32), ("conv2d_forward", "conv2d_input_grad")
        ),
    ],
    ids=lambda one: one if isinstance(one, str) else one.__name__.rpartition(".")[2],
)
def test_no_byte_depends_on_the_tile(monkeypatch, rung, operation):
    found = []
    for tile in rung.TIMES:
        monkeypatch.setattr(tiles, "quickest", lambda *_, tile=tile: tile)
        array, launch = computed(rung, operation)
        assert launch.block == (tile.threads,)
        found.append(array)
    assert all(array.tobytes() == found[0].tobytes() for array in found)


def computed(rung, operation):
    """(output, launch) of a step."""
    conv = Convolution((1, 6, 12, 12, 36, 3, 1), normal)
    half, phase_weights = normal(1, 3, 6, 12), normal(36, 4, 4, 12)
    reads, y, attributes = {
        "conv2d_forward": (
            {"x": conv.x, "weight": conv.weight, "bias": conv.bias},
            conv.output,
            {"relu": True},
        ),
        "pool": ({"x": conv.x, "weight": conv.weight, "bias": conv.bias}, (1, 3, 6, 36), {}),
        "conv2d_input_grad": ({"dy": conv.x, "weight": normal(12, 3, 3, 36)}, conv.output, {}),
        "upsample_conv2d_forward": (
            {"x": half, "phase_weights": phase_weights, "bias": conv.bias},
            conv.output,
            {"relu": True},
        ),
        "upsample_conv2d_input_grad": (
            {"dy": normal(1, 12, 24, 12), "weight": normal(12, 4, 4, 36)},
            conv.output,
            {},
        ),
    }[operation]
    output = poisoned(y)
    role = "dx" if operation.endswith("grad") else "y"
    index = {"index": poisoned(y, np.uint8)} if operation == "pool" else {}
    step = rung.RUNG.launches["conv2d_forward" if operation == "pool" else operation]
    (launch,) = run_step(
        step, reads, {role: output, **index}, ("random",), padding=1, stride=1, **attributes
    )
    return output, launch


# ---- the density: products of the instructions of the busiest loop

# least, where every operand is read 16 bytes at a time
DENSITIES = {LARGE: 0.745, TALL: 0.7, SQUARE: 0.68}


def wide_products(rung):
    """{(source, defines, kernel): least density} of what it launches for the autoencoder on an H200
    and an A100.
    """
    launches = {
        (launch.source, launch.defines, launch.entry)
        for gpu in GPUS[:2]
        for launch in training_plan(rung, NETWORK, multiprocessors=gpu).launches
    }
    return {
        launch: least
        for launch in launches
        for tile, least in DENSITIES.items()
        if in_tile(tile, launch[1])
        and not any(re.fullmatch(r"WIDE\w*=0", define) for define in launch[1])
    }


def in_tile(tile, defines):
    return {*tile.defines()} <= {
        *defines
    } or f"TILE={tile.m},{tile.n},{tile.thread_m},{tile.thread_n}" in defines


@needs.DISASSEMBLER
@pytest.mark.parametrize("rung", ["gpu_opt_v1", "gpu_opt_v2", "gpu_gemm"])
def test_most_instructions_of_the_loop_multiply(rung):
    products = {
        launch: least
        for launch, least in wide_products(rung).items()
        if launch[2] not in ("conv2d_add_splits", "decompose_weight")
    }
    assert len(products) >= 3
    for (source, defines, kernel), least in products.items():
        found = bodies(source, defines, nvrtc.ARCHITECTURES[-1])[kernel]
        assert found.products >= least * found.instructions, f"{source} {kernel} {defines}: {found}"
