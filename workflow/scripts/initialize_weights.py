"""Stage `initial`: the network's weights before training, drawn at random or read from a file.

params: network with its options, image, classes if it classifies; seed, or file_sha256.  inputs: none.
options: file (with file_sha256): the path of a weights file, which the metrics name (without folders outside of the project).
Writes weights.bin or weights.safetensors (see ladder/network/weights.py).
"""

import hashlib
import pathlib

from ladder.errors import UserError
from ladder.network import networks, weights
from ladder.sources import ROOT
from ladder.workflow import stage_script


def make(work, inputs, params, options):
    network = networks.from_params(params)
    if "file_sha256" in params:
        values = from_file(options["file"], params["file_sha256"], network)
    else:
        values = {**weights.initialize(network, params["seed"]), **weights.initial_state(network)}
    with work.file(weights.file_name(network)) as path:
        weights.save(path, network, values)
    work.metrics = {"parameters": network.parameter_count, "network": network.table,
                    **({"file": named(options["file"])} if "file_sha256" in params else {})}


def named(path):
    """The path below the project's folder; of a file elsewhere the name alone, since reports are passed on."""
    path = pathlib.Path(path).resolve()
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name


def from_file(path, sha256, network):
    values = weights.load(path, network)
    if hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest() != sha256:
        raise UserError(f"{path} changed after this run was planned; run it again")
    return values


if __name__ == "__main__":
    stage_script.run(make)
