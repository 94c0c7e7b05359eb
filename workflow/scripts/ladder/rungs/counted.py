"""What was counted of each GPU rung's training step without a GPU, and its predicted time:
benchmarks/counts.json.

Standard library only.
"""

import json
import math
from typing import Any

from ladder.rungs import catalog
from ladder.sources import ROOT

RECORD = ROOT / "benchmarks/counts.json"
CASE = "autoencoder", 64  # network and batch of the step


def read() -> dict[str, dict[str, dict[str, Any]]]:
    """{"launches": {key: counts}, "rungs": {rung: summary}} as benchmarks/counting.py makes them;
    empty without the record.
    """
    return (
        json.loads(RECORD.read_text("utf-8")) if RECORD.exists() else {"launches": {}, "rungs": {}}
    )


def predictions() -> list[dict[str, Any]]:
    """What pages show of each rung's step on an H200, from the lowest rung on; [] without the
    record.

    name       of the rung
    below      the rung that it builds on
    predicted  least and most microseconds
    bound      what bounds it
    floor      microseconds that its arithmetic or its memory traffic takes at least
    launches   [layer and pass, kernel, FLOP, bytes, microseconds in the middle of the interval,
               what bounds it], one after another
    """
    rows = read()["rungs"]
    return [
        {
            "name": rung,
            "below": described.below,
            "predicted": rows[rung]["predicted"]["H200"],
            "bound": rows[rung]["bound_by"],
            "floor": rows[rung]["floor"],
            "launches": rows[rung]["timeline"],
        }
        for rung, described in catalog.RUNGS.items()
        if rung in rows
    ]


def span(least: float, most: float) -> str:
    """'190-280': two digits each, for more would promise too much; both positive."""
    ends = [float(f"{end:.2g}") for end in (least, most)]
    return "-".join(f"{end:.{max(0, 1 - math.floor(math.log10(end)))}f}" for end in ends)
