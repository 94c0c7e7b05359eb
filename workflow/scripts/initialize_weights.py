"""Stage `initial`: the network's weights before training, drawn at random or read from a file.

params: network with its options, image, classes if it classifies; seed, or file_sha256.  inputs: none.
options: file (with file_sha256): the path of a weights file.
Writes weights.bin or weights.safetensors (see ladder/network/weights.py).
"""

import hashlib
import pathlib

from ladder.errors import UserError
from ladder.network import networks, weights
from ladder.workflow import stage_script


def make(work, inputs, params, options):
    network = networks.from_params(params)
    if "file_sha256" in params:
        values = from_file(options["file"], params["file_sha256"], network)
    else:
        values = {**weights.initialize(network, params["seed"]), **weights.initial_state(network)}
    with work.file(weights.file_name(network)) as path:
        weights.save(path, network, values)
    work.metrics = {"parameters": network.parameter_count}


def from_file(path, sha256, network):
    values = weights.load(path, network)
    if hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest() != sha256:
        raise UserError(f"{path} changed after this run was planned; run it again")
    return values


if __name__ == "__main__":
    stage_script.run(make)
