"""The steps around those of the layers: batches are loaded, losses and penalties scaled, parameters
updated.
"""

import dataclasses

import pytest

import zoo
from ladder.network import layers, networks
from ladder.network.optimizers import Optimizer
from ladder.plan import plan
from small_plans import IMAGES, NETWORK, training_plan


@pytest.mark.parametrize("scale, divisor", [("mean", 4 * 16 * 16 * 3), ("batch", 4)])
def test_the_penalty_is_divided_as_the_squared_error_and_scaled_as_all_gradients(scale, divisor):
    network = networks.build("autoencoder", (16, 16, 3), filters=(8, 4), penalty=0.5)
    made = training_plan(network, batch=4, gradient_scale=scale, loss_scale=8)
    (step,) = [step for step in made.steps if step.operation == "l1_penalty_backward"]
    assert step.attributes == {"factor": 0.5 * 8 / divisor} and step.reads == {"x": "latent"}
    (total,) = [step for step in made.steps if step.operation == "add_forward"]
    assert step.writes["dx"] in total.reads.values() and total.layer == "latent"


@pytest.mark.parametrize("scale, divisor", [("mean", 4 * 12 * 10 * 3), ("batch", 4)])
def test_latent_values_are_drawn_in_training_alone_with_a_divided_divergence(scale, divisor):
    made = training_plan(zoo.DRAWN, batch=4, gradient_scale=scale, loss_scale=8, seed=9)
    forward, backward = (step for step in made.steps if step.operation.startswith("sample"))
    assert dict(forward.attributes) == {"seed": 9, "stream": 5} and dict(backward.attributes) == {
        "factor": 0.25 * 8 / divisor
    }
    assert made.buffers["divergences"] == dataclasses.replace(
        made.buffers["losses"], name="divergences"
    )
    assert (forward.pass_, backward.pass_, forward.work) == ("forward", "backward", "sampling")
    after = plan.inference_plan(zoo.DRAWN, "cpu", 4, IMAGES)
    assert not [step for step in after.steps if step.operation.startswith("sample")]
    assert "mean" in [
        name for step in after.steps if step.layer == "dec" for name in step.reads.values()
    ]


def test_each_dropout_has_its_own_stream_and_augmentation_is_drawn_before_loading():
    made = training_plan(zoo.ZOO, augmentation=plan.Augmentation(flip=True, crop=3), seed=9)
    drops = [step.attributes for step in made.steps if step.operation == "dropout_forward"]
    assert [drop["seed"] for drop in drops] == [9, 9] and drops[0]["stream"] != drops[1]["stream"]
    assert [step.operation for step in made.steps[:2]] == [
        "draw_augmentation",
        "load_augmented_batch",
    ]
    assert dict(made.steps[0].attributes) == {"crop": 3, "flip": True, "seed": 9}


def test_rotated_or_coloured_images_are_loaded_by_an_operation_of_their_own():
    made = training_plan(zoo.ZOO, augmentation=plan.Augmentation(rotate=90, colour=0.25), seed=9)
    assert [step.operation for step in made.steps[:3]] == [
        "draw_augmentation",
        "draw_jitter",
        "load_jittered_batch",
    ]
    assert dict(made.steps[1].attributes) == {
        "tangent": pytest.approx(1),
        "colour": 0.25,
        "seed": 9,
    }
    assert made.buffers["jitter"].shape == (made.batch, 5) and {
        step.work for step in made.steps[:3]
    } == {"input"}
    assert not plan.Augmentation() and plan.Augmentation(rotate=1) and plan.Augmentation(colour=0.1)


def test_each_optimizer_keeps_as_many_running_averages_as_its_rule_has():
    weights = 4 * NETWORK.parameter_count
    assert [
        training_plan(optimizer=Optimizer(name)).bytes_by_kind().get("optimizer", 0)
        for name in ("sgd", "momentum", "rmsprop", "adam")
    ] == [0, weights, weights, 2 * weights]


def test_a_network_whose_output_is_not_an_image_cannot_be_trained_as_an_autoencoder():
    network = networks.resolve(
        "smaller", (8, 8, 1), (layers.conv2d("a", 1, padding=0),), "a", "mse"
    )
    with pytest.raises(ValueError, match="smaller puts out .* it cannot be trained to rebuild"):
        training_plan(network)
