"""Plans of training steps and of forward passes: what is in them, and what is refused."""

import pytest

import zoo
from ladder.errors import UserError
from ladder.network.optimizers import Optimizer
from ladder.plan import plan
from ladder.rungs.catalog import RUNGS
from small_plans import IMAGES, NETWORK, WTA, plans_of, training_plan


@pytest.mark.parametrize("rung", RUNGS)
@pytest.mark.parametrize(
    "network", [NETWORK, *zoo.NETWORKS.values()], ids=lambda network: network.name
)
def test_every_buffer_that_a_step_reads_is_an_input_or_was_written_before(network, rung):
    for made in plans_of(network, rung):
        given = {
            name
            for name, buffer in made.buffers.items()
            if buffer.kind in ("dataset", "control", "parameter", "state", "optimizer")
        }
        for step in (*made.prologue, *made.steps):
            assert set(step.reads.values()) <= given, step.operation
            given |= set(step.writes.values())
        # of a step on a GPU
        inside = {name for name, buffer in made.buffers.items() if buffer.kind == "workspace"}
        assert given | inside == set(made.buffers)


@pytest.mark.parametrize("rung", RUNGS)
@pytest.mark.parametrize(
    "network", [NETWORK, *zoo.NETWORKS.values()], ids=lambda network: network.name
)
def test_every_parameter_is_updated_once_and_each_gradient_written_once(network, rung):
    made, *_ = plans_of(network, rung)
    written = [name for step in made.steps for name in step.writes.values()]
    for name in network.parameters:
        assert written.count(name) == 1
    gradients = [name for name in written if made.buffers[name].kind == "gradient"]
    assert len(gradients) == len(set(gradients))


@pytest.mark.parametrize("rung", RUNGS)
def test_frozen_layers_get_no_gradient_and_no_update(rung):
    made = training_plan(rung=rung, optimizer=Optimizer("adam"), frozen=NETWORK.encoder)
    learns = {f"dec{number}.{role}" for number in (1, 2, 3) for role in ("weight", "bias")}
    assert plan.learning(NETWORK, NETWORK.encoder).keys() == learns
    written = {name for step in made.steps for name in step.writes.values()}
    assert written & NETWORK.parameters.keys() == learns
    assert not [
        name
        for name, buffer in made.buffers.items()
        if name.startswith(("enc", "latent")) and buffer.kind in ("gradient", "optimizer")
    ]
    assert set(NETWORK.parameters) < set(made.buffers)


def test_a_network_with_a_layer_without_gradient_is_not_trained():
    with pytest.raises(
        UserError,
        match=r"network patch_net cannot be trained by gradient: layer contrast \(local_contrast\) "
        "has none; set training to patches",
    ):
        training_plan(zoo.FITTED["patch_net"])


def test_inference_omits_dropout_and_only_reads_running_statistics():
    for rung in RUNGS:
        _, made, _ = plans_of(zoo.ZOO, rung)
        assert not any(
            "dropout" in step.operation or "flatten" in step.operation and step.layer != "flat"
            for step in made.steps
        )
        assert {name for step in made.steps for name in step.writes.values()}.isdisjoint(
            zoo.ZOO.state
        )
        assert [step.layer for step in made.steps if step.operation == "batchnorm_inference"] == [
            "c7_bn",
            "left_bn",
            "right_bn",
        ]


def test_features_need_only_the_layers_that_they_depend_on():
    _, _, made = plans_of(zoo.ZOO, "cpu")
    covered = {layer for group, _ in made.kernels for layer in group}
    assert covered == {layer.name for layer in zoo.ZOO.layers} - {
        "dropped",
        "units_dropped",
        "scores_a",
        "average",
        "twice",
        "still_flat",
        "scores_b",
        "scores",
    }
    assert made.output == "units_relu"


@pytest.mark.parametrize("rung", RUNGS)
def test_training_leaves_out_what_only_features_read(rung):
    made = training_plan(WTA, rung=rung)
    covered = {layer for group, _ in made.kernels for layer in group}
    assert (
        covered == {layer.name for layer in WTA.layers} - {"contrast"} and made.output == "decoder"
    )
    assert "contrast" not in made.buffers


@pytest.mark.parametrize("batch, images", [(10, 3), (11, 4), (1, 1), (20, 6)])
def test_the_share_of_images_that_keep_their_winners_is_rounded_up_in_training(batch, images):
    (step,) = [
        step
        for step in training_plan(WTA, rung="cpu_sequential", batch=batch).steps
        if step.operation == "winner_take_all_forward"
    ]
    assert step.attributes["images"] == images
    after = plan.inference_plan(WTA, "cpu_sequential", batch, plan.Dataset(batch, "uint8"))
    assert [
        step.attributes["images"]
        for step in after.steps
        if step.operation == "winner_take_all_forward"
    ] == [batch]


def test_features_stop_at_the_latent():
    made = plan.inference_plan(NETWORK, "cpu", 4, IMAGES, "latent")
    assert made.output == "latent"
    assert made.buffers["latent"].shape == (4, 8, 8, 128)
    assert "dec1.weight" not in made.buffers


def test_the_flop_are_the_published_count_less_those_that_fewer_products_save():
    # 758.1 MFLOP per image with four ninths of upsampled convolutions; enc2 and dec1 by Winograd's
    # form, dec2 by 25 products; and the loss, four per element
    flop = {name: 2 * 3 * NETWORK.layer(name).macs for name in ("enc2", "dec1", "dec2")}
    saved = (flop["enc2"] + flop["dec1"]) * 3 / 4 + flop["dec2"] * (4 / 9 - 25 / 144)
    assert training_plan(batch=3).flop / 3 == pytest.approx(758.1e6 - saved + 4 * 3072, rel=1e-4)
