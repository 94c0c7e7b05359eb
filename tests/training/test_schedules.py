import numpy as np
import pytest

from ladder.data import datasets, normalization
from ladder.network import networks, weights
from ladder.network.optimizers import Optimizer
from ladder.plan import plan
from ladder.training import parameters, phases, schedules, training

PARAMS = {
    "training": "gradient",
    "batch_size": 64,
    "epochs": 10,
    "schedule": "constant",
    "warmup_steps": 150,
    "variant": "cpu",
    "optimizer": "sgd",
    "learning_rate": 0.1,
    "weight_decay": 0,
    "gradient_clip": 0,
    "augment_flip": False,
    "augment_crop": 0,
    "augment_rotate": 0,
    "augment_colour": 0,
    "seed": 0,
}
STEPS = {"schedule": "step", "schedule_step_epochs": 10, "warmup_steps": 0}


def misfits(images, **changes):
    given = parameters.read(parameters.TrainingParameters, {**PARAMS, **changes})
    parts = phases.parts(networks.build("autoencoder", (8, 8, 3)), given)
    return schedules.misfits(given, parts, images)


@pytest.mark.parametrize(
    "changes, images, words",
    [
        (
            {},
            434,
            [
                "warmup_steps 150 is more than the training has (epochs 10, 70 steps); the learning rate rises over the first 7 "
                "steps instead"
            ],
        ),
        (
            {"epochs": 1},
            1200,
            [
                "warmup_steps 150 is more than the training has (epochs 1, 19 steps); the learning rate has its "
                "full value from the first step on"
            ],
        ),
        (
            {"steps": 149},
            434,
            [
                "warmup_steps 150 is more than the training has (steps 149); the learning rate rises over the first "
                "14 steps instead"
            ],
        ),
        ({"steps": 150}, 434, []),
        ({}, 959, []),
        ({"epochs": 0}, 434, []),
        ({"steps": 0}, 434, []),
        ({**STEPS, "epochs": 11}, 434, []),
        (
            STEPS,
            434,
            [
                "schedule step with schedule_step_epochs 10 changes nothing in this training (epochs 10, 70 steps, 7 in an "
                "epoch); the learning rate stays as it is after the warm-up"
            ],
        ),
        ({**STEPS, "schedule": "cosine"}, 434, []),
    ],
)
def test_what_does_not_fit_is_named_with_its_keys(changes, images, words):
    assert misfits(images, **changes) == words


@pytest.mark.parametrize(
    "training, keys",
    [
        ("patches", ["decoder_epochs 2"]),
        ("patches_then_gradient", ["decoder_epochs 2", "epochs 10"]),
    ],
)
def test_each_part_of_a_training_has_the_schedule_for_itself(training, keys):
    lines = misfits(434, training=training, decoder_epochs=2)
    assert [line.partition("(")[2].partition(",")[0] for line in lines] == keys


def test_a_short_training_learns_although_its_warm_up_does_not_fit():
    data = datasets.limited(datasets.digits(), 434, "all")
    network = networks.from_params({"network": "lenet_5", "image": [32, 32, 3], "classes": 10})
    settings = plan.TrainingSettings(
        network=network,
        rung="cpu",
        batch_size=64,
        steps=30,
        optimizer=Optimizer("adam"),
        schedule={"warmup_steps": 150},
        seed=1,
    )
    run = training.Training(
        settings,
        data.train_images,
        normalization.measure("unit", data.train_images),
        weights.initialize(network, 1),
        1,
        labels=data.train_labels,
    )
    while not run.done:
        run.run_epoch()
    assert np.mean(run.history["hits"][-7:]) / 64 > 0.7  # 0.23 with a warm-up of 150 steps
