"""A network of a person's own: a YAML file with a table of layers, checked line by line before
anything runs.

    loss: cross_entropy          # the last layer scores the classes; mse: it rebuilds the image
    features: hidden_relu        # the layer whose output is the feature vector
    layers:
      - {layer: conv1, kind: conv2d, filters: 16, kernel: 3}
      - {layer: conv1_relu, kind: relu}
      - {layer: flat, kind: flatten}
      - {layer: hidden, kind: dense, units: 64}
      - {layer: hidden_relu, kind: relu}
      - {layer: scores, kind: dense, units: classes}

A row's other keys are the arguments of the kind's function in ladder/network/layers.py. A layer
reads the layer above it or those named by `inputs`, of which `input` is the image. In place of a
number of filters or units, `classes` is the data set's number of classes and `channels` that of the
image's channels.
"""

import functools
import inspect
import itertools
import json
import pathlib
from collections.abc import Collection
from typing import Annotated, Any, Literal, cast

import yaml
from pydantic import Field, TypeAdapter

from ladder import files
from ladder.errors import UserError, excerpt
from ladder.network import layers, networks
from ladder.workflow.values import (
    INTEGER,
    LISTED,
    NUMBER,
    TEXT,
    Flag,
    Text,
    expected,
    nearest,
    read,
)

ENDINGS = (".yaml", ".yml")
MOST_BYTES, MOST_LAYERS = 10**6, 1000
MOST_TEXT = 60_000  # characters of a table, which is part of a command line
KEYS = ("loss", "features", "layers")
# Names of a plan's buffers and of its input, which a layer cannot have too.
TAKEN = {
    networks.INPUT,
    "images",
    "labels",
    "permutation",
    "counters",
    "scale",
    "offset",
    "losses",
    "hits",
    "divergences",
    "learning_rates",
    "augmentation",
    "jitter",
}
COUNT = Annotated[int, Field(ge=1, le=65536), INTEGER] | Literal["classes", "channels"]
SIDE = Annotated[int, Field(ge=1, le=128), INTEGER]
POSITIVE, SHARE = (
    Annotated[float, Field(gt=0, le=1e9), NUMBER],
    Annotated[float, Field(ge=0, lt=1), NUMBER],
)
# Argument of a layer -> what it may be; one that is not named here is a positive number.
ARGUMENTS = {
    **{name: POSITIVE for kind in layers.KINDS for name in layers.arguments(kind)},
    "filters": COUNT,
    "units": COUNT,
    "kernel": SIDE,
    "stride": SIDE,
    "padding": Annotated[int, Field(ge=0, le=128), INTEGER],
    "bias": Flag,
    "window": Annotated[int, Field(ge=1, le=15), INTEGER],
    "amount": SIDE,
    "size": SIDE,
    "winners": Annotated[int, Field(ge=1, le=16384), INTEGER],
    "rate": SHARE,
    "decay": SHARE,
    "threshold": Annotated[float, Field(ge=0, lt=1e9), NUMBER],
    "lifetime": Annotated[float, Field(gt=0, le=1), NUMBER],
}
# What else a file has -> what it may be.
KINDS: dict[str, Any] = {
    "loss": Literal["cross_entropy", "mse"],
    "features": Text,
    "kind": Literal[tuple(layers.KINDS)],
    "layer": Annotated[
        str,
        Field(pattern=r"^[A-Za-z][A-Za-z0-9_]{0,63}$"),
        expected("a letter, then at most 63 letters, digits and underscores"),
        TEXT,
    ],
    "inputs": Annotated[
        list[Text],
        Field(min_length=1, max_length=2),
        expected("one or two names of layers"),
        LISTED,
    ],
    **ARGUMENTS,
}


def is_file(name: str) -> bool:
    """Whether a value of the key `network` is a path and not one of our own networks."""
    return name.endswith(ENDINGS)


def params(path: str, image: tuple[int, ...], classes: int) -> dict[str, Any]:
    """The parameters of networks.from_params, but for image and classes, of the network in a file.

    image: (H, W, C); classes: of the data set. Raises UserError with the file, the line, and the
    nearest right value.
    """
    try:
        text = files.read(path, MOST_BYTES)
    except UserError as error:
        raise UserError(f"config: network: {error}") from error
    return {
        "network": pathlib.Path(path).name,
        "table": _table(files.shown(path), text, tuple(image), classes),
    }


@functools.lru_cache(maxsize=64)
def _table(path: str, text: bytes, image: tuple[int, int, int], classes: int) -> dict[str, Any]:
    return _Reader(path, image, classes).table(text)


class _Reader:
    """Reads one file; lines: layer -> the line of its row."""

    def __init__(self, path: str, image: tuple[int, int, int], classes: int) -> None:
        self.path, self.image, self.numbers = (
            path,
            image,
            {"classes": classes, "channels": image[2]},
        )
        self.lines: dict[str, int] = {}

    def table(self, text: bytes) -> dict[str, Any]:
        """The table of networks.from_table, with a value for every argument of every layer."""
        root = self._composed(text)
        fields = self._fields(root, KEYS, "the file")
        for key in KEYS:
            if key not in fields:
                raise self._error(root, f"the key {key} is missing")
        loss = self._value("loss", fields["loss"])
        rows = [self._row(node) for node in self._nodes("layers", fields["layers"])]
        features = self._value("features", fields["features"])
        if features not in self.lines:
            raise self._error(
                fields["features"],
                f"features is {excerpt(features)}, but no layer is called that"
                f"{nearest(features, self.lines)}",
            )
        table = {"layers": rows, "features": features, "loss": loss}
        if len(json.dumps(table)) > MOST_TEXT:
            raise self._error(
                fields["layers"],
                f"layers is a table of {len(json.dumps(table)):,} characters; at most "
                f"{MOST_TEXT:,}, with shorter names",
            )
        self._check(table)
        return table

    # What is written.

    def _composed(self, text: bytes) -> yaml.Node:
        try:
            root = yaml.compose(text, yaml.SafeLoader)  # marks of lines, and no object is made
        except yaml.MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else 1
            raise UserError(f"{self.path} line {line}: it is not YAML: {error.problem}") from error
        except Exception as error:  # of encodings and depths, many types
            raise UserError(
                f"{self.path}: it is not YAML: {' '.join(str(error).split())[:200]}"
            ) from error
        if root is None:
            raise UserError(f"{self.path}: it is empty; it must have the keys {', '.join(KEYS)}")
        return root

    def _fields(self, node: yaml.Node, known: Collection[str], what: str) -> dict[str, yaml.Node]:
        """Key -> node of a mapping with these keys only."""
        if not isinstance(node, yaml.MappingNode):
            raise self._error(node, f"{what} is no mapping of keys to values{_only(known)}")
        fields = {}
        for key, value in node.value:
            name = key.value if isinstance(key, yaml.ScalarNode) else "?"
            if name not in known:
                raise self._error(
                    key, f"{what} has no key {excerpt(name)}{nearest(name, known) or _only(known)}"
                )
            if name in fields:
                raise self._error(key, f"{what} has the key {name} twice")
            fields[name] = value
        return fields

    def _nodes(self, key: str, node: yaml.Node) -> list[yaml.Node]:
        if not isinstance(node, yaml.SequenceNode) or not 0 < len(node.value) <= MOST_LAYERS:
            raise self._error(
                node,
                f"{key} must be a list of 1 to {MOST_LAYERS:,} rows, "
                "such as - {layer: conv1, kind: conv2d, filters: 16}",
            )
        return cast(list[yaml.Node], node.value)

    def _value(self, key: str, node: yaml.Node) -> Any:
        """The value of a scalar, or of a list of them, as KINDS has it for the key."""
        return read(key, self._plain(key, node), _adapter(key), f"{self.path} line {_line(node)}")

    def _plain(self, key: str, node: yaml.Node) -> Any:
        if isinstance(node, yaml.SequenceNode) and len(node.value) <= 10:
            return [
                self._plain(key, item) for item in node.value if isinstance(item, yaml.ScalarNode)
            ]
        if not isinstance(node, yaml.ScalarNode):
            raise self._error(node, f"{key} must be a single value or a list of names")
        try:
            return yaml.SafeLoader("").construct_object(node)
        except Exception as error:  # of a tag, or of a date that is none
            raise self._error(
                node, f"{key} is {excerpt(node.value)}, which is not a number, text, true or false"
            ) from error

    def _row(self, node: yaml.Node) -> dict[str, Any]:
        """One layer, with a value for each argument; its place among the lines is noted."""
        fields = self._fields(node, ("layer", "kind", "inputs", *ARGUMENTS), "a layer")
        for key in ("layer", "kind"):
            if key not in fields:
                raise self._error(node, f"the layer's key {key} is missing")
        name = self._value("layer", fields["layer"])
        if name in self.lines or name in TAKEN:
            where = (
                f"the layer in line {self.lines[name]}" if name in self.lines else "something else"
            )
            free = next(
                f"{name}_{number}"
                for number in itertools.count(2)
                if f"{name}_{number}" not in self.lines
            )
            raise self._error(
                fields["layer"], f"layer is {excerpt(name)}, as {where} is called; {free} is free"
            )
        kind = self._value("kind", fields["kind"])
        inputs = self._inputs(kind, node, fields.get("inputs"))
        arguments = self._arguments(
            kind,
            node,
            {key: field for key, field in fields.items() if key not in ("layer", "kind", "inputs")},
        )
        self.lines[name] = _line(node)
        return {"layer": name, "kind": kind, "inputs": inputs, **arguments}

    def _inputs(self, kind: str, row: yaml.Node, node: yaml.Node | None) -> list[str]:
        wanted, before = layers.KINDS[kind].inputs, [networks.INPUT, *self.lines]
        inputs = before[-1:] if node is None else self._value("inputs", node)
        if len(inputs) != wanted:
            raise self._error(
                node or row,
                f"a layer of kind {kind} has {wanted} inputs, not {len(inputs)}; set inputs to "
                f"[{', '.join(before[-wanted:])}]",
            )
        for name in inputs:
            if name not in before:
                raise self._error(
                    node or row,
                    f"inputs has {excerpt(name)}, but no layer above is called that"
                    f"{nearest(name, before)}",
                )
        return inputs

    def _arguments(self, kind: str, row: yaml.Node, given: dict[str, yaml.Node]) -> dict[str, Any]:
        taken = layers.arguments(kind)
        for key, node in given.items():
            if key not in taken:
                raise self._error(
                    node,
                    f"a layer of kind {kind} has no key {key}{nearest(key, taken) or _only(taken)}",
                )
        arguments = {}
        for key, default in taken.items():
            if key in given:
                value = self._value(key, given[key])
                arguments[key] = self.numbers.get(value, value)
            elif default is inspect.Parameter.empty:
                raise self._error(row, f"a layer of kind {kind} needs the key {key}")
            else:
                arguments[key] = default
        return arguments

    # What it means.

    def _check(self, table: dict[str, Any]) -> None:
        """That shapes fit, every layer is read, and the network can be trained for its loss."""
        try:
            network = networks.from_table(self.path, self.image, table)
        except networks.Unreadable as error:
            height, width, channels = self.image
            raise self._at(
                error.layer,
                f"layer {error.layer}, for images of {height}x{width}x{channels}: {error.reason}",
            ) from error
        last = network.layers[-1]
        read = {
            layer.name
            for name in (last.name, network.features)
            for layer in network.needed_for(name)
        }
        for layer in network.layers:
            if layer.name not in read:
                raise self._at(
                    layer.name,
                    f"nothing reads layer {layer.name}; remove it, or name it in the inputs of a later "
                    "layer",
                )
        wanted = (1, 1, self.numbers["classes"]) if network.classifies else self.image
        if last.output_shape != wanted:
            advice = (
                "one score for each class: end with {kind: dense, units: classes}"
                if network.classifies
                else "the shape of the image: end with {kind: conv2d, filters: channels}"
            )
            raise self._at(
                last.name,
                f"layer {last.name}, the last, puts out {_sides(last.output_shape)}, but loss "
                f"{network.loss} needs {_sides(wanted)}, {advice}",
            )
        for layer in network.needed_for(last.name):
            if not layers.KINDS[layer.kind].has_gradient:
                raise self._at(
                    layer.name,
                    f"layer {layer.name} of kind {layer.kind} has no gradient; only features may "
                    "read it",
                )
        drawn = [layer.name for layer in network.layers if layer.kind == "sample"]
        if len(drawn) > 1:
            raise self._at(
                drawn[1],
                f"layer {drawn[1]} of kind sample is one too many: a network draws latent values once",
            )
        if not network.parameters:
            raise self._at(
                last.name,
                "no layer has parameters, so there is nothing to train; add a conv2d or dense",
            )

    def _at(self, layer: str, text: str) -> UserError:
        return UserError(f"{self.path} line {self.lines[layer]}: {text}")

    def _error(self, node: yaml.Node, text: str) -> UserError:
        return UserError(f"{self.path} line {_line(node)}: {text}")


@functools.cache
def _adapter(key: str) -> TypeAdapter[Any]:
    return TypeAdapter(KINDS[key])


def _line(node: yaml.Node) -> int:
    return node.start_mark.line + 1


def _only(names: Collection[str]) -> str:
    return f"; it has {', '.join(names)}" if 0 < len(names) < 10 else ""


def _sides(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))
