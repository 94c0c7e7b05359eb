"""Stage `network`: a drawing of the network with the costs of each layer.

params: network with its options, image, classes if it classifies, batch_size, optimizer, variant
(the rung whose kernels and memory are shown).
Writes network.html.
"""

from ladder.network import networks
from ladder.pages import network as network_page
from ladder.stage import stage_script
from ladder.training import parameters


def make(work, inputs, params):
    network = networks.from_params(params)
    batch = parameters.read(parameters.StepParameters, params).batch_size
    page = network_page.page(network, params["variant"], batch, params["optimizer"])
    work.write_bytes("network.html", page.encode())


if __name__ == "__main__":
    stage_script.run(make)
