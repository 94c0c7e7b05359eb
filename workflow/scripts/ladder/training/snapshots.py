"""What a network makes of a few images, and its first filters, before a training and after 1, 2, 4,
8, ... epochs of it.

A longer training begins with those of a shorter one, so its bytes do not depend on whether it goes
on from that.
"""

import numpy as np

FILE = "epochs.safetensors"
IMAGES = 8  # that are reconstructed


def take(run, reconstruct):
    """Add snapshots of the weights as they are to run.snapshots, if they are due: `EPOCH.filters`
    float32 (O, kH, kW, C), `EPOCH.reconstructions` uint8.

    run: a training.Training; reconstruct: function of values that gives pictures uint8 (IMAGES, H,
    W, C), None for a network that does not reconstruct. The weights of a first layer that is dense
    are left out.
    """
    epoch, within = divmod(run.step, run.length.steps_per_epoch)
    if within or epoch & (epoch - 1):
        return
    values, network = run.values, run.settings.network
    first = next(layer for layer in network.layers if layer.parameters)
    if first.kind == "conv2d":
        # may be the executor's own array
        run.snapshots[f"{epoch}.filters"] = np.array(values[f"{first.name}.weight"])
    if reconstruct:
        run.snapshots[f"{epoch}.reconstructions"] = reconstruct(values)


def kinds(tensors):
    """Kind -> {epoch: tensor} of the tensors of FILE, the epochs in their order."""
    by_kind = {}
    for epoch, kind in sorted(
        (int(name.partition(".")[0]), name.partition(".")[2]) for name in tensors
    ):
        by_kind.setdefault(kind, {})[epoch] = tensors[f"{epoch}.{kind}"]
    return by_kind
