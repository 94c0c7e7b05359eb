"""What a plan promises: order, coverage, work and memory, for any network and batch."""

import math

import pytest

from ladder import networks, plan
from ladder.errors import UserError
from ladder.optimizers import Optimizer
from ladder.rungs import cpu
from ladder.variants import VARIANTS

NETWORK = networks.build("autoencoder")
LENGTH = plan.Length(10, 5)


def training_plan(batch=4, optimizer="adam"):
    return plan.training_plan(NETWORK, "cpu", batch, plan.Dataset(20, "uint8"), Optimizer(optimizer), LENGTH)


def inference_plan(until=None):
    return plan.inference_plan(NETWORK, "cpu", 4, plan.Dataset(20, "uint8"), until)


@pytest.mark.parametrize("made", [training_plan(), inference_plan(), inference_plan("latent")],
                         ids=["train", "all", "features"])
def test_every_buffer_a_step_reads_was_written_before_it_or_is_given(made):
    given = {name for name, buffer in made.buffers.items() if buffer.kind in ("dataset", "control", "parameter", "optimizer")}
    for step in made.steps:
        assert set(step.reads.values()) <= given, step.operation
        given |= set(step.writes.values())
    assert given == set(made.buffers)


def test_every_layer_is_covered_once_and_in_order():
    covered = [layer for group, _ in training_plan().kernels for layer in group]
    assert covered == [layer.name for layer in NETWORK.layers]


def test_features_stop_at_the_latent():
    made = inference_plan("latent")
    assert made.output == "latent"
    assert made.buffers["latent"].shape == (4, 8, 8, 128)
    assert "dec1.weight" not in made.buffers


def test_the_work_is_the_published_count_with_the_upsampled_convolutions_at_four_ninths():
    # 758.1 MFLOP per image, and the loss, four per element
    assert training_plan(batch=3).flop / 3 == pytest.approx(758.1e6 + 4 * 3072, rel=1e-4)


def test_each_optimizer_keeps_as_many_running_averages_as_its_rule_has():
    weights = 4 * NETWORK.parameter_count
    assert [training_plan(optimizer=name).bytes_by_kind().get("optimizer", 0) for name in ("sgd", "momentum", "rmsprop", "adam")
            ] == [0, weights, weights, 2 * weights]


@pytest.mark.parametrize("variant", [name for name, variant in VARIANTS.items() if variant.executor == "cuda"])
def test_a_batch_whose_layers_32_bits_do_not_index_is_refused_on_a_gpu(variant):
    def made(batch):
        return plan.inference_plan(NETWORK, variant, batch, plan.Dataset(20, "uint8"))

    assert max(math.prod(buffer.shape) for buffer in made(8191).buffers.values()) < 2**31
    with pytest.raises(UserError, match="batch_size 8192 gives layer enc1 more .*; set batch_size to 8191 or less"):
        made(8192)


def test_a_layer_the_variant_has_no_operation_for_is_named(monkeypatch):
    monkeypatch.setattr(cpu, "PATTERNS", [pattern for pattern in cpu.PATTERNS if "maxpool2d" not in pattern.kinds])
    with pytest.raises(ValueError, match=r"cpu has no operation for layer enc1_pool \(maxpool2d\)"):
        plan.training_plan(NETWORK, "cpu", 4, plan.Dataset(20, "uint8"), Optimizer("sgd"), LENGTH)
