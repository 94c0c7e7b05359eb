"""Stage `initial`: the network's weights before training.

params: network, seed.  inputs: none.  Writes weights.bin (see ladder/weights.py).
"""

from ladder import networks, stage, weights


def make(work, inputs, params):
    network = networks.build(params["network"])
    with work.file("weights.bin") as path:
        weights.write_weights(path, weights.initialize(network, params["seed"]))
    work.metrics = {"parameters": network.parameter_count}


if __name__ == "__main__":
    stage.run(make)
