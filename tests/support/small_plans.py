"""Plans of small batches of the autoencoder, or of another network."""

from ladder.network import networks
from ladder.network.optimizers import Optimizer
from ladder.plan import plan

NETWORK = networks.build("autoencoder")
WTA = networks.build("wta_autoencoder", (16, 16, 3), filters=40, lifetime=0.3)
IMAGES = plan.Dataset(20, "uint8")


def training_plan(network=NETWORK, rung="cpu", batch=4, **settings):
    settings = plan.TrainingSettings(network=network, rung=rung, batch_size=batch, **settings)
    return plan.training_plan(settings, IMAGES, plan.Length(10, 5))


def plans_of(network, rung):
    """Of a training step, of the whole forward pass, and of the features."""
    return [
        training_plan(
            network, rung, optimizer=Optimizer("adam"), augmentation=plan.Augmentation(crop=1)
        ),
        plan.inference_plan(network, rung, 4, IMAGES),
        plan.inference_plan(network, rung, 4, IMAGES, network.features),
    ]


def graph(*table, loss="mse", input_shape=(4, 4, 4)):
    return networks.resolve("graph", input_shape, table, table[-1].name, loss)
