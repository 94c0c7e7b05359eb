"""Stage `gradients`: the backward pass of a rung, compared with finite differences, for every layer
of the network.

params: network with its options, image, classes if it classifies, variant (the rung), rungs (that
of the reference). Writes gradients.html, and gradients.json with its numbers.
"""

from ladder.network import networks
from ladder.pages import gradients as page
from ladder.progress import log
from ladder.training import gradients
from ladder.workflow import stage_script


def make(work, inputs, params):
    summary = gradients.check(networks.from_params(params), params["variant"], work.threads)
    log.info("%s", page.verdict(summary))
    work.write_json("gradients.json", summary)
    work.write_bytes("gradients.html", page.page(summary).encode())
    work.metrics = {"passed": summary["passed"]}


if __name__ == "__main__":
    stage_script.run(make)
