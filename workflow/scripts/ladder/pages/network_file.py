"""The text of a network as a file for the key `network`: what a person starts a network of their
own from.
"""

import json

from ladder.network import layers, networks

# YAML reads them as something else than text
WORDS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}


def text(network):
    """The file of a networks.Network with a line for each layer; '' for one that is not trained by
    gradient descent.
    """
    if not network.trains:
        return ""
    rows, previous = [], networks.INPUT
    for layer in network.layers:
        rows.append(
            f"  - {{{', '.join(f'{key}: {_written(value)}' for key, value in _shortest_row(layer, previous).items())}}}"
        )
        previous = layer.name
    return (
        "\n".join(
            (f"loss: {network.loss}", f"features: {_written(network.features)}", "layers:", *rows)
        )
        + "\n"
    )


def _shortest_row(layer, previous):
    """The row of a layer without what need not be said: the layer above as its input, and arguments
    at their defaults.
    """
    row, defaults = layers.to_row(layer), layers.arguments(layer.kind)
    if row["inputs"] == [previous]:
        del row["inputs"]
    return {
        key: value for key, value in row.items() if key not in defaults or value != defaults[key]
    }


def _written(value):
    if isinstance(value, list):
        return f"[{', '.join(map(_written, value))}]"
    return json.dumps(value) if not isinstance(value, str) or value.lower() in WORDS else value
