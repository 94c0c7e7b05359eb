"""All the plans that a rung may run, as far as they differ in launches: what compilers and limits
of a GPU are asked about.
"""

import functools
import itertools

import zoo
from ladder.network import networks, optimizers
from ladder.network.optimizers import Optimizer
from ladder.plan import plan
from ladder.rungs import catalog

NETWORK = networks.build("autoencoder")
NETWORKS = {"autoencoder": NETWORK, **zoo.NETWORKS}
FORWARD = {**NETWORKS, **zoo.FITTED}  # networks with a forward pass
DEEP = ((networks.build("resnet18"), 128), (networks.build("resnet50", (28, 28, 1)), 32))
AUGMENTED = plan.Augmentation(flip=True, crop=2)
JITTERED = plan.Augmentation(flip=True, crop=2, rotate=10, colour=0.2)
EPOCH = 50_000  # images of CIFAR-10; the last batch of an epoch is a smaller one
BATCHES = sorted({size for batch in (1, 3, 32, 64, 512) for size in (batch, EPOCH % batch) if size})
LENGTH = plan.Length(10, 5)
MOMENTUM = Optimizer("momentum", momentum=0.9)


@functools.cache
def plans(rung):
    """The kinds of plans that a rung may run."""
    made = []
    for network, batch in itertools.product(NETWORKS.values(), BATCHES):
        made += [trained_in(network, rung, batch), *inferred_in(network, rung, batch)]
    for network, (name, fuse) in itertools.product(
        NETWORKS.values(), itertools.product(optimizers.AVERAGES, (True, False))
    ):
        made.append(
            trained_in(
                network,
                rung,
                64,
                "float32",
                fuse,
                optimizer=Optimizer(name, momentum=0.9, clip=5.0),
            )
        )
    for network in NETWORKS.values():
        made += [
            trained_in(network, rung, 64, dtype, augmentation=augmentation)
            for dtype in ("uint8", "float32")
            for augmentation in (AUGMENTED, JITTERED)
        ]
    for network in FORWARD.values():
        made += inferred_in(network, rung, 64, "float32")
    made += [
        trained_in(NETWORK, rung, 64, frozen=NETWORK.encoder),
        *inferred_in(networks.build("patch_net"), rung, 64),
    ]
    made.append(trained_in(NETWORK, rung, 64, loss_scale=1024))
    for network, batch in DEEP:
        made += [trained_in(network, rung, batch), trained_in(network, rung, EPOCH % batch)]
    if catalog.RUNGS[rung].precision in ("bfloat16", "float16"):
        made += [trained_in(network, rung, 64) for network in (zoo.WIDE, zoo.DEEP)]
    return tuple(made)


def trained_in(network, rung, batch, dtype="uint8", fuse_update=True, **settings):
    settings = plan.TrainingSettings(
        **{
            "network": network,
            "rung": rung,
            "batch_size": batch,
            "optimizer": MOMENTUM,
            "multipliers": plan.made_for(rung),
            **settings,
        }
    )
    return plan.training_plan(settings, plan.Dataset(EPOCH, dtype), LENGTH, fuse_update=fuse_update)


def inferred_in(network, rung, batch, dtype="uint8"):
    dataset, multipliers = plan.Dataset(EPOCH, dtype), plan.made_for(rung)
    return [
        plan.inference_plan(network, rung, batch, dataset, multipliers=multipliers),
        plan.inference_plan(
            network, rung, batch, dataset, network.features, flip=True, multipliers=multipliers
        ),
    ]
