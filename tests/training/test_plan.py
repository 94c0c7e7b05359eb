"""Invariants of plans: order, coverage, FLOP and memory, for any network and batch."""

import dataclasses

import pytest

import zoo
from ladder.errors import UserError
from ladder.network import layers, networks
from ladder.network.optimizers import Optimizer
from ladder.rungs import cpu
from ladder.rungs.variants import VARIANTS
from ladder.training import plan

NETWORK = networks.build("autoencoder")
LENGTH = plan.Length(10, 5)
IMAGES = plan.Dataset(20, "uint8")


def training_plan(network=NETWORK, variant="cpu", batch=4, **settings):
    settings = plan.Settings(network=network, variant=variant, batch_size=batch, **settings)
    return plan.training_plan(settings, plan.Dataset(20, "uint8"), LENGTH)


def inference_plan(until=None):
    return plan.inference_plan(NETWORK, "cpu", 4, plan.Dataset(20, "uint8"), until)


def plans_of(network, variant):
    dataset, augmentation = plan.Dataset(20, "uint8"), plan.Augmentation(crop=1)
    return [training_plan(network, variant, optimizer=Optimizer("adam"), augmentation=augmentation),
            plan.inference_plan(network, variant, 4, dataset),
            plan.inference_plan(network, variant, 4, dataset, network.features)]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("network", [NETWORK, *zoo.NETWORKS.values()], ids=lambda network: network.name)
def test_every_buffer_that_a_step_reads_is_an_input_or_was_written_before(network, variant):
    for made in plans_of(network, variant):
        given = {name for name, buffer in made.buffers.items()
                 if buffer.kind in ("dataset", "control", "parameter", "state", "optimizer")}
        for step in made.steps:
            assert set(step.reads.values()) <= given, step.operation
            given |= set(step.writes.values())
        inside = {name for name, buffer in made.buffers.items() if buffer.kind == "workspace"}   # of a step on a GPU
        assert given | inside == set(made.buffers)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("network", [NETWORK, *zoo.NETWORKS.values()], ids=lambda network: network.name)
def test_every_parameter_is_updated_once_and_each_gradient_written_once(network, variant):
    made, *_ = plans_of(network, variant)
    written = [name for step in made.steps for name in step.writes.values()]
    for name in network.parameters:
        assert written.count(name) == 1
    gradients = [name for name in written if made.buffers[name].kind == "gradient"]
    assert len(gradients) == len(set(gradients))


def test_every_layer_is_covered_once_and_in_order():
    covered = [layer for group, _ in training_plan().kernels for layer in group]
    assert covered == [layer.name for layer in NETWORK.layers]


# ---- networks with branches

def graph(*table, loss="mse", input_shape=(4, 4, 4)):
    return networks.resolve("graph", input_shape, table, table[-1].name, loss)


def steps_of(network, *operations):
    """(layer, reads, writes) of the backward steps with these operations."""
    made = training_plan(network, "cpu_sequential")
    loss = [step.operation for step in made.steps].index("cross_entropy" if network.classifies else "mse")
    return [(step.layer, dict(step.reads), dict(step.writes)) for step in made.steps[loss:] if step.operation in operations]


def test_the_parts_of_a_gradient_are_added_before_it_is_used():
    network = graph(layers.conv2d("a", 4), layers.relu("b"), layers.conv2d("c", 4), layers.add("d", ("b", "c")),
                    layers.add("e", ("d", "b")))
    assert steps_of(network, "add_forward", "relu_backward") == [
        ("b", {"a": "e.gradient", "b": "e.gradient"}, {"y": "b.gradient.sum1"}),
        ("b", {"a": "b.gradient.sum1", "b": "b.gradient.3"}, {"y": "b.gradient.sum2"}),
        ("b", {"y": "b", "dy": "b.gradient.sum2"}, {"dx": "a.gradient"})]


def test_the_gradient_of_a_sum_goes_to_both_terms_even_if_they_are_equal():
    network = graph(layers.conv2d("a", 4), layers.add("b", ("a", "a")))
    assert steps_of(network, "add_forward", "conv2d_weight_grad") == [
        ("a", {"a": "b.gradient", "b": "b.gradient"}, {"y": "a.gradient.sum1"}),
        ("a", {"x": "input", "dy": "a.gradient.sum1"}, {"dweight": "a.weight.gradient"})]


def test_values_that_depend_on_no_parameters_get_no_gradient():
    network = graph(layers.pad("a", 1), layers.maxpool2d("b", 3, 1, 0), layers.conv2d("c", 4), layers.add("d", ("c", "b")))
    made = training_plan(network, "cpu_sequential")
    assert {name for name in made.buffers if name.endswith(".gradient")} == {
        "d.gradient", "c.weight.gradient", "c.bias.gradient"}


@pytest.mark.parametrize("variant", VARIANTS)
def test_frozen_layers_get_no_gradient_and_no_update(variant):
    made = training_plan(variant=variant, optimizer=Optimizer("adam"), frozen=NETWORK.encoder)
    learns = {f"dec{number}.{role}" for number in (1, 2, 3) for role in ("weight", "bias")}
    assert plan.learning(NETWORK, NETWORK.encoder).keys() == learns
    written = {name for step in made.steps for name in step.writes.values()}
    assert written & NETWORK.parameters.keys() == learns
    assert not [name for name, buffer in made.buffers.items()
                if name.startswith(("enc", "latent")) and buffer.kind in ("gradient", "optimizer")]
    assert set(NETWORK.parameters) < set(made.buffers)


def test_a_layer_that_reads_a_trained_layer_cannot_be_frozen():
    with pytest.raises(ValueError, match="layer enc2 cannot be frozen: it reads the output of a trained layer"):
        training_plan(frozen=("enc2",))


def test_a_network_with_a_layer_without_gradient_is_not_trained():
    with pytest.raises(UserError, match=r"network patch_net cannot be trained by gradient: layer contrast \(local_contrast\) "
                                        "has none; set training to patches"):
        training_plan(zoo.FITTED["patch_net"])


def test_inference_omits_dropout_and_only_reads_running_statistics():
    for variant in VARIANTS:
        _, made, _ = plans_of(zoo.ZOO, variant)
        assert not any("dropout" in step.operation or "flatten" in step.operation and step.layer != "flat"
                       for step in made.steps)
        assert {name for step in made.steps for name in step.writes.values()}.isdisjoint(zoo.ZOO.state)
        assert [step.layer for step in made.steps if step.operation == "batchnorm_inference"] == [
            "c7_bn", "left_bn", "right_bn"]


def test_features_need_only_the_layers_that_they_depend_on():
    _, _, made = plans_of(zoo.ZOO, "cpu")
    covered = {layer for group, _ in made.kernels for layer in group}
    assert covered == {layer.name for layer in zoo.ZOO.layers} - {
        "dropped", "units_dropped", "scores_a", "average", "twice", "still_flat", "scores_b", "scores"}
    assert made.output == "units_relu"


WTA = networks.build("wta_autoencoder", (16, 16, 3), filters=40, lifetime=0.3)


@pytest.mark.parametrize("variant", VARIANTS)
def test_training_leaves_out_what_only_features_read(variant):
    made = training_plan(WTA, variant=variant)
    covered = {layer for group, _ in made.kernels for layer in group}
    assert covered == {layer.name for layer in WTA.layers} - {"contrast"} and made.output == "decoder"
    assert "contrast" not in made.buffers


@pytest.mark.parametrize("winners", [1, 3])
def test_the_cpu_rung_stores_no_map_of_a_code_of_winners(winners):
    network = networks.build("wta_autoencoder", (16, 16, 3), filters=40, winners=winners)
    made, dense = (training_plan(network, variant=variant, batch=10) for variant in ("cpu", "cpu_sequential"))
    maps = 10 * 12 * 12 * 40 * 4   # bytes
    assert max(buffer.bytes for buffer in dense.buffers.values()) == maps
    assert max(buffer.bytes for buffer in made.buffers.values()) < maps / 5


ATTENTIVE = networks.build("autoencoder", (16, 12, 3), filters=(5, 4), attentive=True)   # of 12 pixels, 4 channels each


@pytest.mark.parametrize("variant", ["cpu", "cpu_sequential", "gpu_basic", "gpu_opt_v2"])
def test_attention_keeps_its_weights_and_counts_two_products_forward_and_four_backward(variant):
    made = training_plan(ATTENTIVE, variant=variant, batch=10)
    assert made.buffers["attention.weights"].bytes == 4 * 10 * 12 * 12
    assert {step.operation: (step.flop, step.work) for step in made.steps if step.operation.startswith("attention")} == {
        "attention_forward": (10 * 2 * 2 * 12 * 12 * 4, "attention"),
        "attention_backward": (10 * 4 * 2 * 12 * 12 * 4, "attention")}


def test_attention_over_more_pixels_than_a_kernel_can_index_is_refused():
    network = networks.resolve("wide", (128, 128, 3), (layers.conv2d("parts", 9), layers.attention("all")), "all", "mse")
    with pytest.raises(UserError, match="^batch_size 8 gives all.weights more numbers than gpu_basic can index; set batch_size "
                                        "to 7 or less$"):
        training_plan(network, variant="gpu_basic", batch=8)
    assert training_plan(network, variant="gpu_basic", batch=7).buffers["all.weights"].bytes == 4 * 7 * 2 ** 28


@pytest.mark.parametrize("batch, images", [(10, 3), (11, 4), (1, 1), (20, 6)])
def test_the_share_of_images_that_keep_their_winners_is_rounded_up_in_training_and_all_keep_them_afterwards(batch, images):
    (step,) = [step for step in training_plan(WTA, variant="cpu_sequential", batch=batch).steps
               if step.operation == "winner_take_all_forward"]
    assert step.attributes["images"] == images
    after = plan.inference_plan(WTA, "cpu_sequential", batch, plan.Dataset(batch, "uint8"))
    assert [step.attributes["images"] for step in after.steps if step.operation == "winner_take_all_forward"] == [batch]


@pytest.mark.parametrize("scale, divisor", [("mean", 4 * 16 * 16 * 3), ("batch", 4)])
def test_the_penalty_is_divided_as_the_squared_error_is_and_scaled_as_all_gradients_are(scale, divisor):
    network = networks.build("autoencoder", (16, 16, 3), filters=(8, 4), penalty=0.5)
    made = training_plan(network, batch=4, gradient_scale=scale, loss_scale=8)
    (step,) = [step for step in made.steps if step.operation == "l1_penalty_backward"]
    assert step.attributes == {"factor": 0.5 * 8 / divisor} and step.reads == {"x": "latent"}
    (total,) = [step for step in made.steps if step.operation == "add_forward"]
    assert step.writes["dx"] in total.reads.values() and total.layer == "latent"


@pytest.mark.parametrize("scale, divisor", [("mean", 4 * 12 * 10 * 3), ("batch", 4)])
def test_latent_values_are_drawn_in_training_alone_and_their_divergence_is_divided_as_the_squared_error_is(scale, divisor):
    made = training_plan(zoo.DRAWN, batch=4, gradient_scale=scale, loss_scale=8, seed=9)
    forward, backward = (step for step in made.steps if step.operation.startswith("sample"))
    assert dict(forward.attributes) == {"seed": 9, "stream": 5} and dict(backward.attributes) == {"factor": 0.25 * 8 / divisor}
    assert made.buffers["divergences"] == dataclasses.replace(made.buffers["losses"], name="divergences")
    assert (forward.pass_, backward.pass_, forward.work) == ("forward", "backward", "sampling")
    after = plan.inference_plan(zoo.DRAWN, "cpu", 4, plan.Dataset(20, "uint8"))
    assert not [step for step in after.steps if step.operation.startswith("sample")]
    assert "mean" in [name for step in after.steps if step.layer == "dec" for name in step.reads.values()]


def test_each_dropout_has_its_own_stream_and_augmentation_is_drawn_before_the_images_are_loaded():
    made = training_plan(zoo.ZOO, augmentation=plan.Augmentation(flip=True, crop=3), seed=9)
    drops = [step.attributes for step in made.steps if step.operation == "dropout_forward"]
    assert [drop["seed"] for drop in drops] == [9, 9] and drops[0]["stream"] != drops[1]["stream"]
    assert [step.operation for step in made.steps[:2]] == ["draw_augmentation", "load_augmented_batch"]
    assert dict(made.steps[0].attributes) == {"crop": 3, "flip": True, "seed": 9}


def test_rotated_or_coloured_images_are_loaded_by_an_operation_of_their_own():
    made = training_plan(zoo.ZOO, augmentation=plan.Augmentation(rotate=90, colour=0.25), seed=9)
    assert [step.operation for step in made.steps[:3]] == ["draw_augmentation", "draw_jitter", "load_jittered_batch"]
    assert dict(made.steps[1].attributes) == {"tangent": pytest.approx(1), "colour": 0.25, "seed": 9}
    assert made.buffers["jitter"].shape == (made.batch, 5) and {step.work for step in made.steps[:3]} == {"input"}
    assert not plan.Augmentation() and plan.Augmentation(rotate=1) and plan.Augmentation(colour=0.1)


def test_features_stop_at_the_latent():
    made = inference_plan("latent")
    assert made.output == "latent"
    assert made.buffers["latent"].shape == (4, 8, 8, 128)
    assert "dec1.weight" not in made.buffers


def test_the_flop_are_the_published_count_with_upsampled_convolutions_at_four_ninths_and_winograd_ones_at_a_quarter():
    # 758.1 MFLOP per image without the Winograd form of enc2 and dec1, and the loss, four per element
    plain = 2 * 3 * sum(NETWORK.layer(name).macs for name in ("enc2", "dec1"))
    assert training_plan(batch=3).flop / 3 == pytest.approx(758.1e6 - plain * 3 / 4 + 4 * 3072, rel=1e-4)


def test_each_optimizer_keeps_as_many_running_averages_as_its_rule_has():
    weights = 4 * NETWORK.parameter_count
    assert [training_plan(optimizer=Optimizer(name)).bytes_by_kind().get("optimizer", 0)
            for name in ("sgd", "momentum", "rmsprop", "adam")] == [0, weights, weights, 2 * weights]


def test_two_buffers_of_one_name_are_refused(monkeypatch):
    """The partial sums of all batch normalisations in one buffer, of the last one's size."""
    called = plan.Builder.workspace

    def in_one(build, name, *spec):
        return called(build, "partials" if name.endswith(".partials") else name, *spec)

    monkeypatch.setattr(plan.Builder, "workspace", in_one)
    with pytest.raises(ValueError, match=r"^two buffers are called partials: .*shape=\(256, 8\).* and .*shape=\(256, 12\)"):
        training_plan(zoo.ZOO, "gpu_basic")


def test_a_layer_the_variant_has_no_operation_for_is_named(monkeypatch):
    monkeypatch.setattr(cpu, "PATTERNS", [pattern for pattern in cpu.PATTERNS if "maxpool2d" not in pattern.kinds])
    with pytest.raises(ValueError, match=r"cpu has no operation for layer enc1_pool \(maxpool2d\)"):
        training_plan()


def test_a_network_whose_output_is_not_an_image_cannot_be_trained_as_an_autoencoder():
    network = networks.resolve("smaller", (8, 8, 1), (layers.conv2d("a", 1, padding=0),), "a", "mse")
    with pytest.raises(ValueError, match="smaller puts out .* it cannot be trained to rebuild"):
        training_plan(network)
