"""The encoder of a run, from uint8 images to feature vectors, as nodes of an ONNX graph and as
files for PyTorch.
"""

import dataclasses
import itertools

import numpy as np

from ladder.data.normalization import Statistics
from ladder.export import layers
from ladder.export.graph import FLOAT
from ladder.features import features
from ladder.network import networks, weights
from ladder.network.layers import Layer, avgpool2d, batchnorm, maxpool2d, soft_threshold, to_row

SCALED = "scaled-channels"  # the layer whose statistics are those of the features' channels


@dataclasses.dataclass(frozen=True)
class Part:
    """One of the networks whose features a model has.

    layers      up to the features, those included that do what the transform does up to its pooling
    width       of their output as a vector
    values      name -> array of their tensors, as in a file of weights
    statistics  normalization.Statistics
    transform   features.FeatureTransform
    weight      of these features among those of the other parts
    """

    image: tuple[int, ...]
    layers: tuple[Layer, ...]
    width: int
    values: dict
    statistics: Statistics
    transform: features.FeatureTransform
    weight: float

    @property
    def widths(self):
        """Of the even half of the features and, if there is one, of the odd half."""
        transform, halves = self.transform, 2 if self.transform.flip == "apart" else 1
        if transform.components is None:
            return halves * [self.width]
        return [
            matrix.shape[1] for matrix in (transform.components, transform.odd_components)[:halves]
        ]

    @classmethod
    def from_artifact(cls, artifact, by_version, weight=1.0, layer=None):
        """The part whose features an artifact `features` has; of `evaluate` those that its network
        names, or the scores.

        layer: -1 for the last one of the network.
        """
        spec = artifact.manifest["spec"]
        network = networks.from_params(spec["params"])
        trained, normalized = (
            by_version[spec["parents"][name]] for name in ("weights", "normalized")
        )
        fitted = (
            artifact.tensors(features.FILE) if features.FILE in artifact.manifest["files"] else None
        )
        transform = features.FeatureTransform.from_params(spec["params"], fitted)
        last = (
            network.layers[layer]
            if layer
            else network.layer(spec["params"].get("features_layer", network.features))
        )
        values = weights.read(trained.path(weights.file_name(network)), network)
        values, appended = with_transform(values, transform, last)
        width = int(np.prod(transform.pooled_shape(last.output_shape)))
        return cls(
            network.input_shape,
            (*network.needed_for(last.name), *appended),
            width,
            values,
            Statistics.load(normalized),
            transform,
            weight,
        )


def with_transform(values, transform, last):
    """(values and those of a transform, layers behind the layer `last` that do what it does up to
    its pooling).

    Each of the layers reads the one before.
    """
    if transform.channel_mean is not None:
        statistics = (
            ("weight", transform.channel_scale),
            ("bias", 0 * transform.channel_mean),
            ("running_mean", transform.channel_mean),
            ("running_var", np.ones_like(transform.channel_mean)),
        )
        values = {**values, **{f"{SCALED}.{name}": value for name, value in statistics}}
    cell = [size // transform.max_pool // max(transform.grid, 1) for size in last.output_shape[:2]]
    steps = [
        *([batchnorm(SCALED, epsilon=0.0)] if transform.channel_mean is not None else ()),
        *(
            [soft_threshold("both-signs", transform.threshold)]
            if transform.threshold is not None
            else ()
        ),
        *(
            [maxpool2d("largest-of-each", transform.max_pool, transform.max_pool)]
            if transform.max_pool > 1
            else ()
        ),
        *([avgpool2d("average-of-each", cell, cell)] if transform.grid else ()),
    ]
    return values, [
        dataclasses.replace(step, inputs=(before.name,), input_shapes=(last.output_shape,))
        for before, step in itertools.pairwise([last, *steps])
    ]


def parts(artifact, inputs):
    """The Parts of an artifact `features`, `joined` or `evaluate`; inputs: its ancestors among
    others.
    """
    by_version, spec = (
        {entry.version: entry for entry in inputs.values()},
        artifact.manifest["spec"],
    )
    if spec["stage"] != "joined":
        return [Part.from_artifact(artifact, by_version)]
    return [
        Part.from_artifact(by_version[spec["parents"][f"part{number}"]], by_version, weight)
        for number, weight in enumerate(spec["params"]["weights"], 1)
    ]


# ONNX.


def network_input(graph, image, statistics, offsets=((0, 0),), mirrored=False):
    """What a network reads for the input `images` (N, *image): (copies * N, C, H, W), a copy for
    each of the offsets.

    offsets: (down, to the right) in pixels; mirrored: as many copies follow, left and right
    exchanged.
    """
    x = graph.add("Cast", "images", to=FLOAT)
    if statistics.whitening is not None:
        flat = graph.add("Reshape", x, np.int64([-1, len(statistics.mean)]))
        centred = graph.add("Sub", graph.add("Mul", flat, np.float32(1 / 255)), statistics.mean)
        x = graph.add(
            "Reshape", graph.add("MatMul", centred, statistics.whitening), np.int64([-1, *image])
        )
    copies = [_shifted(graph, x, image, offset) for offset in offsets]
    if mirrored:
        copies += [graph.add("Gather", copy, np.arange(image[1])[::-1], axis=2) for copy in copies]
    x = graph.add("Concat", *copies, axis=0) if len(copies) > 1 else copies[0]
    scaled = graph.add("Add", graph.add("Mul", x, statistics.scale), statistics.offset)
    return graph.add("Transpose", scaled, perm=[0, 3, 1, 2])


def _shifted(graph, x, image, offset):
    for axis, (size, pixels) in enumerate(zip(image, offset, strict=False), 1):
        if pixels:
            x = graph.add("Gather", x, np.clip(np.arange(size) - pixels, 0, size - 1), axis=axis)
    return x


def rows(graph, every, offsets):
    """The names of the even and, if there is one, the odd half of the features of all Parts,
    (copies * N, D).
    """
    halves = [_rows(graph, part, offsets) for part in every]
    joined = [[half[number] for half in halves if number < len(half)] for number in range(2)]
    return [
        graph.add("Concat", *names, axis=1) if len(names) > 1 else names[0]
        for names in joined
        if names
    ]


def _rows(graph, part, offsets):
    """[even half, and the odd one if the transform has it] of one part."""
    transform = part.transform
    x = network_input(graph, part.image, part.statistics, offsets, mirrored=bool(transform.flip))
    flat = graph.add(
        "Reshape", layers.output(graph, part.layers, part.values, x), np.int64([-1, part.width])
    )
    halves = [flat]
    if transform.flip:
        both = graph.add("Split", flat, outputs=2, num_outputs=2, axis=0)
        wanted = ("Add", "Sub") if transform.flip == "apart" else ("Add",)
        halves = [
            graph.add("Mul", graph.add(operator, *both), np.float32(0.5)) for operator in wanted
        ]
    if transform.mean is not None:
        halves[0] = graph.add("Sub", halves[0], transform.mean)
        halves = [graph.add("Mul", half, transform.scale) for half in halves]
    if transform.components is not None:
        halves = [
            graph.add("MatMul", half, components)
            for half, components in zip(
                halves, (transform.components, transform.odd_components), strict=False
            )
        ]
    return [
        graph.add("Mul", half, np.float32(part.weight)) if part.weight != 1 else half
        for half in halves
    ]


# PyTorch.


def described(every):
    """What workflow/resources/model/encoder.py reads beside the tensors, JSON-able: an entry for
    each part.
    """
    return [
        {
            "layers": [to_row(layer) for layer in part.layers],
            "flip": part.transform.flip,
            "weight": part.weight,
        }
        for part in every
    ]


def tensors(every):
    """Name in the state of that file's module -> array, in PyTorch's layouts."""
    state = {}
    for number, part in enumerate(every):
        own = {
            "mean": np.zeros(part.width, np.float32),
            "scale": np.ones(part.width, np.float32),
            **part.transform.tensors(),
            **{
                f"pixel_{name}": value
                for name, value in part.statistics.tensors().items()
                if name != "unwhitening"
            },
            **{
                name: part.values[name]
                for layer in part.layers
                for name in (*layer.parameters, *layer.state)
            },
        }
        state |= {f"{number}.{name}": value for name, value in own.items()}
    return state
