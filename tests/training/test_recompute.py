"""A training step that makes activations again: the bytes of one that keeps them, in less
memory.
"""

import itertools
import os

import pytest

import emulator_executor
import zoo
from ladder.executors import create as executors
from ladder.network import layers, networks
from ladder.rungs.catalog import RUNGS
from ladder.training import parity, plan, recompute
from ladder.training.planning.data import SHARED

VGG = networks.build("vgg11")
# Poolings, batch normalisations, dropout, LRN, a shortcut around a pooling, noise on the images.
POOLED = networks.resolve(
    "pooled",
    (16, 12, 3),
    (
        layers.dropout("noise", 0.2),
        layers.conv2d("a", 6),
        layers.batchnorm("a_bn"),
        layers.relu("a_relu"),
        layers.conv2d("b", 6),
        layers.lrn("b_lrn"),
        layers.dropout("b_drop", 0.5),
        layers.maxpool2d("b_pool"),
        layers.conv2d("c", 5),
        layers.relu("c_relu"),
        layers.add("c_sum", ("c_relu", "c_relu")),
        layers.avgpool2d("c_pool", 2, 2, 0),
        layers.conv2d("side", 5, stride=4, inputs=("a_relu",)),
        layers.add("both", ("c_pool", "side")),
        layers.flatten("flat"),
        layers.dense("scores", 10),
    ),
    "both",
    "cross_entropy",
)


def executor_of(rung):
    """An executor for CPUs or the emulator, whose shared memory holds NaN before the first step."""
    executor = (
        emulator_executor.Executor()
        if RUNGS[rung].executor == "cuda"
        else executors.create(rung, os.cpu_count())
    )
    allocate = executor.allocate

    def poisoned(made, uploaded):
        arrays = allocate(made, uploaded)
        if SHARED in arrays:
            arrays[SHARED][...] = 0xFF
        return arrays

    executor.allocate = poisoned
    return executor


@pytest.mark.parametrize(
    "network", [POOLED, *zoo.NETWORKS.values()], ids=lambda network: network.name
)
@pytest.mark.parametrize("rung", ["cpu", "cpu_sequential", "gpu_basic"])
def test_the_weights_are_those_of_a_training_that_keeps_everything_to_the_bit(
    monkeypatch, network, rung
):
    # also where that saves nothing
    monkeypatch.setattr(recompute, "recomputed", recompute.checkpointed)
    protocol, settings = (
        parity.protocols(network)["momentum"],
        {"augmentation": plan.Augmentation(flip=True, crop=1)},
    )
    kept = parity.train(network, rung, executor_of(rung), protocol, **settings)
    again = parity.train(network, rung, executor_of(rung), protocol, recompute=True, **settings)
    assert kept.keys() == again.keys() and all(
        kept[name].tobytes() == again[name].tobytes() for name in kept
    )


def recomputed(network, rung="cpu_sequential", batch=64):
    return plan.one_step(network, rung, batch, "adam", recompute=True)


def test_each_part_is_made_again_right_before_its_backward_pass():
    steps = [
        f"{step.layer} {step.operation}" for step in recomputed(networks.build("autoencoder")).steps
    ]
    second = [
        len(steps) - steps[::-1].index(f"{layer} conv2d_forward") - 1 for layer in ("enc2", "enc1")
    ]
    assert [steps[number - 1 : number + 3] for number in second] == [
        [
            "latent maxpool2d_backward",
            "enc2 conv2d_forward",
            "enc2_relu relu_forward",
            "enc2_relu relu_backward",
        ],
        [
            "enc1_pool maxpool2d_backward",
            "enc1 conv2d_forward",
            "enc1_relu relu_forward",
            "enc1_relu relu_backward",
        ],
    ]
    assert [
        step.layer
        for step in recomputed(networks.build("autoencoder")).steps
        if step.pass_ == recompute.AGAIN
    ] == [
        # not the decoder, which is after the last pooling
        "enc2",
        "enc2_relu",
        "enc1",
        "enc1_relu",
    ]


@pytest.mark.parametrize(
    "rung, kept, shared, taken",
    [
        ("cpu", 393_626_784, 269_791_352, 232_036_984),
        ("cpu_sequential", 399_273_888, 227_994_488, 216_623_480),
        # whose scratch memory shares the places of others
        ("gpu_basic", 407_728_544, 227_994_488, 216_623_480),
    ],
)
def test_a_step_of_vgg11_takes_less_memory(rung, kept, shared, taken):
    made = plan.one_step(VGG, rung, 64, "adam")
    assert (made.bytes, recompute.shared(made).bytes, recomputed(VGG, rung).bytes) == (
        kept,
        shared,
        taken,
    )


@pytest.mark.parametrize("network", [VGG, POOLED, zoo.ZOO], ids=lambda network: network.name)
def test_memory_is_what_is_in_use_at_once_and_hardly_more(network):
    made = recompute.checkpointed(plan.one_step(network, "cpu_sequential", 64, "adam"))
    again = {
        name
        for step in made.steps
        if step.pass_ == recompute.AGAIN
        for name in step.writes.values()
    }
    begin = next(
        number
        for number, step in enumerate(made.steps)
        if step.operation in ("mse", "cross_entropy")
    )
    in_use = [set() for _ in made.steps]
    for name in made.places:
        uses = [
            number
            for number, step in enumerate(made.steps)
            if name in {*step.reads.values(), *step.writes.values()}
        ]
        parts = (
            [[n for n in uses if n < begin], [n for n in uses if n >= begin]]
            if name in again
            else [uses]
        )
        for part in filter(None, parts):
            for number in range(part[0], part[-1] + 1):
                in_use[number].add(name)
    for names in in_use:
        ends = sorted(
            (made.places[name], made.places[name] + made.buffers[name].bytes) for name in names
        )
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(ends))
    most = max(sum(made.buffers[name].bytes for name in names) for names in in_use)
    assert most <= made.buffers[SHARED].bytes <= 1.1 * most


def test_between_the_passes_only_what_poolings_put_out_and_others_read_is_in_use():
    made = recompute.checkpointed(plan.one_step(POOLED, "cpu_sequential", 64, "adam"))
    again = {
        name
        for step in made.steps
        if step.pass_ == recompute.AGAIN
        for name in step.writes.values()
    }
    activations = {
        name for name, buffer in made.buffers.items() if buffer.kind in ("activation", "mask")
    }
    last_part = {"side", "both", "flat", "scores"}
    assert activations - again - last_part == {
        "input",
        "b_pool",
        "b_pool.index",
        "c_pool",
        "c_sum",
        "a_relu",
    }


def test_where_no_pooling_leaves_anything_to_make_again_memory_is_shared_alone():
    for network, rung in (
        (networks.build("resnet18"), "cpu"),
        (networks.build("autoencoder"), "cpu"),
    ):
        made = recomputed(network, rung)
        assert made.steps == plan.one_step(network, rung, 64, "adam").steps and made.places
