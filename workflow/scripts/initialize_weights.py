"""Stage `initial`: the network's weights before training, drawn at random or read from a file.

params: network with its options, image, classes if it classifies; seed, or file_sha256, or both for
a network with a head, which is drawn where the file holds the encoder's network.  inputs: none.
options: file (with file_sha256): the path of a weights file, which the metrics name (without
folders outside of the project). Writes weights.bin or weights.safetensors (see
ladder/network/weights.py). The metric `part` names the encoder's network where the file holds that
one.
"""

import hashlib
import pathlib

from ladder.errors import UserError
from ladder.network import networks, weights
from ladder.sources import ROOT
from ladder.stage import stage_script


def make(work, inputs, params, options):
    network = networks.from_params(params)
    drawn = (
        {**weights.initialize(network, params["seed"]), **weights.initial_state(network)}
        if "seed" in params
        else {}
    )
    part, values = (
        from_file(options["file"], params, network, drawn)
        if "file_sha256" in params
        else (None, drawn)
    )
    with work.file(weights.file_name(network)) as path:
        weights.save(path, network, values)
    work.metrics = {
        "parameters": network.parameter_count,
        "network": network.table,
        "part": part,
        **({"file": named(options["file"])} if "file_sha256" in params else {}),
    }


def named(path):
    """The path below the project's folder; of a file elsewhere the name alone, since reports are
    passed on.
    """
    path = pathlib.Path(path).resolve()
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name


def from_file(path, params, network, drawn):
    """(name of the network whose encoder was taken, None if all of the file was; the values)."""
    encoder, sha256 = networks.encoder_of(params), params["file_sha256"]
    if encoder and weights.is_of(path, encoder):
        part, stored = encoder.name, weights.load(path, encoder)
        values = {
            name: stored[name] if name.rpartition(".")[0] in network.encoder else value
            for name, value in drawn.items()
        }
    else:
        part, values = None, weights.load(path, network)
    if hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest() != sha256:
        raise UserError(f"{path} changed after this run was planned; run it again")
    return part, values


if __name__ == "__main__":
    stage_script.run(make)
