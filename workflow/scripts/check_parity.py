"""Stage `parity`: a comparison of all rungs that this machine can run with the cpu rung, in
results, time and memory.

params: network, batch_size, rungs, machine (host and GPU, so that each machine has its own
artifact), predictions, measured (rungs/counted.py).
Writes parity.html, and parity.json, from which `variant: auto` selects the fastest rung that
passed.
"""

from ladder import progress
from ladder.errors import UserError
from ladder.network import networks
from ladder.pages import parity
from ladder.stage import stage_script
from ladder.training import parameters
from ladder.verify import measure_rungs


def make(work, inputs, params):
    batch = parameters.read(parameters.StepParameters, params).batch_size
    with measure_rungs.apart(params, batch, work.threads) as run:
        summary = measure_rungs.compare(networks.from_params(params), params["rungs"], batch, run)
    if summary["machine"] != params["machine"]:
        raise UserError(
            f"planned for {params['machine']}, but this is {summary['machine']}; run it again"
        )
    timestamp = progress.utc()
    work.write_json("parity.json", {**summary, "made": timestamp})
    page = parity.page(summary, timestamp, params["predictions"], params["measured"])
    work.write_bytes("parity.html", page.encode())
    work.metrics = {
        "fastest": summary["fastest"],
        "passed": {rung["name"]: rung.get("passed", False) for rung in summary["rungs"]},
    }


if __name__ == "__main__":
    stage_script.run(make)
