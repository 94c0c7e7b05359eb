"""The report's sections of pictures: reconstructions, samples of the prior, and the filters of the first layer."""

import numpy as np

from ladder.network import weights
from ladder.pages import facts, figures

RECONSTRUCTIONS = 16
SAMPLE_COLUMNS = 8
FILTER_LIMIT, UNIT_LIMIT = 256, 64   # filters of a first layer shown, or units if it is dense


def reconstructions(inputs, numbers):
    """Originals, reconstructions and differences as separate pictures; None if the network does not reconstruct."""
    if not facts.reconstructs(inputs):
        return None
    rebuilt = np.asarray(inputs["train"].array("reconstructions.npy"))[:RECONSTRUCTIONS]
    originals = np.asarray(inputs["data"].array("test_images.npy")[:len(rebuilt)])
    classes, labels = inputs["data"].metrics["classes"], inputs["data"].array("test_labels.npy")
    differences, amplified = figures.differences(originals, rebuilt)
    off = np.abs(rebuilt.astype(np.int16) - originals)
    return {
        "gain": amplified,
        "off": float(off.mean()),
        "columns": [{"name": classes[labels[index]], "off": float(off[index].mean()),
                     "original": figures.png_uri(originals[index]), "rebuilt": figures.png_uri(rebuilt[index]),
                     "difference": figures.png_uri(differences[index])} for index in range(len(rebuilt))],
    }


def samples(inputs, numbers):
    """The pictures decoded from samples of the prior, in one picture: {"count", "columns", "image"}; None without any."""
    if "train" not in inputs or "samples.npy" not in inputs["train"].manifest["files"]:
        return None
    pictures = np.asarray(inputs["train"].array("samples.npy"))
    return {"count": len(pictures), "columns": SAMPLE_COLUMNS,
            "image": figures.png_uri(figures.tiles(pictures, SAMPLE_COLUMNS, gap=2))}


def filters(inputs, numbers):
    """The filters of the first layer with weights in one picture; None if its input does not have the images' channels."""
    return filters_of(facts.final(inputs), facts.network(inputs), atoms(inputs))


def filters_of(artifact, network, atoms=None):
    """As `filters`; artifact: with the weights; network: a networks.Network; atoms: the result of `atoms`.

    The units of a dense layer have a weight for every pixel and are shown as images.
    """
    layer = next(layer for layer in network.layers if layer.parameters)
    dense = layer.kind == "dense"
    height, width, channels = network.input_shape
    first = atoms
    if atoms is None:
        first = weights.read(artifact.path(weights.file_name(network)), network)[f"{layer.name}.weight"]
    if dense and first.shape[1] == height * width * channels:
        first = first.reshape(-1, channels, height, width)
    if first.ndim != 4 or first.shape[1] not in (1, 3):
        return None
    shown = figures.filters(first)[:UNIT_LIMIT if dense else FILTER_LIMIT]
    size = shown.shape[1]
    columns = min(len(shown), 16 if len(shown) > UNIT_LIMIT else 8)
    # Enlarged by an integer factor here: a browser would draw some pixels of a scaled image wider than others.
    enlarged = np.kron(shown, np.ones((1, max(2, 24 // size), max(2, 24 // size), 1), np.uint8))
    return {"layer": layer.name, "dense": dense, "fitted": atoms is not None, "colour": first.shape[1] == 3,
            "count": len(first), "shown": len(shown), "columns": columns, "size": " × ".join(map(str, shown.shape[1:3])),
            "image": figures.png_uri(figures.tiles(enlarged, columns, gap=8))}


def atoms(inputs):
    """The patches (filters, channels, kernel, kernel) to which the filters of a fitted first layer respond most.

    None if the layer was not fitted, or was trained afterwards.
    """
    if "patches" not in inputs or ("train" in inputs and not inputs["train"].metrics["parts"][-1]["frozen"]):
        return None
    return np.asarray(inputs["patches"].array("atoms.npy")).transpose(0, 3, 1, 2)
