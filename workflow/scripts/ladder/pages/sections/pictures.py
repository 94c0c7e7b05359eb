"""The report's sections of pictures: reconstructions, samples of the prior, and the filters of the
first layer.
"""

import numpy as np

from ladder.data import names as picture_names
from ladder.files import shown as one_line
from ladder.network import weights
from ladder.pages import facts, figures
from ladder.training import snapshots

RECONSTRUCTIONS = 16
SAMPLE_COLUMNS = 8
FILTER_LIMIT, UNIT_LIMIT = 256, 64  # filters of a first layer shown, or units if it is dense


def reconstructions(inputs, numbers):
    """Originals, reconstructions and differences as separate pictures; None if the network does not
    reconstruct.
    """
    if not (facts.reconstructs(inputs) and numbers["share"]):
        return None
    rebuilt = np.asarray(inputs["train"].array("reconstructions.npy"))[:RECONSTRUCTIONS]
    originals = np.asarray(inputs["data"].array("test_images.npy")[: len(rebuilt)])
    names = _names(inputs["data"], len(rebuilt))
    differences, amplified = figures.differences(originals, rebuilt)
    off = np.abs(rebuilt.astype(np.int16) - originals)
    return {
        "epochs": _reconstructions_by_epoch(inputs),
        "gain": amplified,
        "off": float(off.mean()),
        "columns": [
            {
                "name": names[index],
                "off": float(off[index].mean()),
                "original": figures.png_uri(originals[index]),
                "rebuilt": figures.png_uri(rebuilt[index]),
                "difference": figures.png_uri(differences[index]),
            }
            for index in range(len(rebuilt))
        ],
    }


def _names(data, count):
    """What the first `count` test images are called: by their classes, or without labels by their
    files.
    """
    classes = data.metrics["classes"]
    if not classes:
        return list(map(one_line, picture_names.read(data, "test")[:count]))
    return [classes[label] for label in data.array("test_labels.npy")[:count]]


def samples(inputs, numbers):
    """The pictures decoded from samples of the prior, in one picture: {"count", "columns",
    "image"}; None without any.
    """
    if "train" not in inputs or "samples.npy" not in inputs["train"].manifest["files"]:
        return None
    pictures = np.asarray(inputs["train"].array("samples.npy"))
    return {
        "count": len(pictures),
        "columns": SAMPLE_COLUMNS,
        "image": figures.png_uri(figures.tiles(pictures, SAMPLE_COLUMNS, gap=2)),
    }


def filters(inputs, numbers):
    """The filters of the first layer with weights in one picture; None if its input does not have
    the images' channels.
    """
    shown = filters_of(facts.final(inputs), facts.network(inputs), atoms(inputs))
    return shown and {**shown, "epochs": _filters_by_epoch(inputs)}


def by_epoch(inputs, kind):
    """{name of an epoch: array} of a kind of snapshots (training/snapshots.py); {} without any."""
    if "train" not in inputs or snapshots.FILE not in inputs["train"].manifest["files"]:
        return {}
    taken = snapshots.kinds(inputs["train"].tensors(snapshots.FILE)).get(kind, {})
    return {f"epoch {epoch}": array for epoch, array in taken.items()}


def _reconstructions_by_epoch(inputs):
    """Frames [{"name", "image"}] of the first images above their reconstructions; [] without
    snapshots.
    """
    if not (taken := by_epoch(inputs, "reconstructions")):
        return []
    originals = np.asarray(inputs["data"].array("test_images.npy")[: snapshots.IMAGES])
    taken["the end"] = np.asarray(inputs["train"].array("reconstructions.npy"))[: snapshots.IMAGES]
    return [
        {
            "name": name,
            "image": figures.png_uri(
                figures.tiles(np.concatenate([originals, rebuilt]), len(originals), gap=2)
            ),
        }
        for name, rebuilt in taken.items()
    ]


def _filters_by_epoch(inputs):
    """Frames of the first layer's filters, each filter where it is at the end."""
    taken, network = by_epoch(inputs, "filters"), facts.network(inputs)
    if not taken or atoms(inputs) is not None:
        return []
    layer = next(layer.name for layer in network.layers if layer.parameters)
    taken["the end"] = last = weights.of_artifact(inputs["train"], network)[f"{layer}.weight"]
    order = np.argsort(-np.square(last).sum(axis=(1, 2, 3)), kind="stable")[:FILTER_LIMIT]
    return [
        {
            "name": name,
            "image": figures.png_uri(rows(figures.scaled(each[order].transpose(0, 3, 1, 2)))),
        }
        for name, each in taken.items()
    ]


def filters_of(artifact, network, atoms=None):
    """As `filters`; artifact: with the weights; network: a networks.Network; atoms: the result of
    `atoms`.

    The units of a dense layer have a weight for every pixel and are shown as images.
    """
    layer = next(layer for layer in network.layers if layer.parameters)
    dense = layer.kind == "dense"
    height, width, channels = network.input_shape
    first = atoms
    if atoms is None:
        first = weights.read(artifact.path(weights.file_name(network)), network)[
            f"{layer.name}.weight"
        ]
    if dense and first.shape[1] == height * width * channels:
        first = first.reshape(-1, channels, height, width)
    if first.ndim != 4 or first.shape[1] not in (1, 3):
        return None
    shown = figures.filters(first)[: UNIT_LIMIT if dense else FILTER_LIMIT]
    return {
        "pictures": shown,
        "layer": layer.name,
        "dense": dense,
        "fitted": atoms is not None,
        "colour": first.shape[1] == 3,
        "count": len(first),
        "shown": len(shown),
        "columns": min(len(shown), _columns(shown)),
        "size": " × ".join(map(str, shown.shape[1:3])),
        "image": figures.png_uri(rows(shown)),
    }


def _columns(shown):
    return 16 if len(shown) > UNIT_LIMIT else 8


def rows(shown, columns=None):
    """uint8 (H, W, 4): pictures of filters in rows of at most so many.

    Enlarged by an integer factor here: a browser would draw some pixels of a scaled image wider
    than others.
    """
    size, columns = shown.shape[1], min(len(shown), columns or _columns(shown))
    enlarged = np.kron(shown, np.ones((1, max(2, 24 // size), max(2, 24 // size), 1), np.uint8))
    return figures.tiles(enlarged, columns, gap=8)


def atoms(inputs):
    """The patches (filters, channels, kernel, kernel) to which the filters of a fitted first layer
    respond most.

    None if the layer was not fitted, or was trained afterwards.
    """
    if "patches" not in inputs or (
        "train" in inputs and not inputs["train"].metrics["parts"][-1]["frozen"]
    ):
        return None
    return np.asarray(inputs["patches"].array("atoms.npy")).transpose(0, 3, 1, 2)
