"""What was counted of each GPU rung's training step without a GPU, and its predicted time:
benchmarks/counts.json; and what was measured of it: benchmarks/measured_steps.json.

Standard library only.
"""

import json
import math
from typing import Any

from ladder.rungs import catalog
from ladder.sources import ROOT

RECORD = ROOT / "benchmarks/counts.json"
MEASURED = ROOT / "benchmarks/measured_steps.json"
# of a row of the record, what pages show
SHOWN = "kernels", "bound_by", "limiting", "middle", "floor", "timeline"
CASE = "autoencoder", 64  # network and batch of the step


def read() -> dict[str, dict[str, Any]]:
    """{"launches": {key: counts}, "rungs": {rung: summary}, "dates": {rung: day}} as
    benchmarks/count.py writes them; empty without the record.
    """
    return (
        json.loads(RECORD.read_text("utf-8"))
        if RECORD.exists()
        else {"launches": {}, "rungs": {}, "dates": {}}
    )


def measured() -> dict[str, Any]:
    """{"card", "made", "pytorch", "rungs"}: the newest record's steps as benchmarks/table.py writes
    them; empty without one.
    """
    return json.loads(MEASURED.read_text("utf-8")) if MEASURED.exists() else {}


def predictions() -> list[dict[str, Any]]:
    """What pages show of each rung's step on an H200, from the lowest rung on; [] without the
    record.

    name       of the rung
    below      the rung that it builds on
    predicted  least and most microseconds
    dated      the day on which they were first predicted
    kernels    the digest of what they are predicted of (benchmarks/step_kernels.py)
    bound_by   what bounds it
    limiting   the counts behind that (benchmarks/counting.py)
    middle     microseconds in the middle of the interval
    floor      microseconds that its arithmetic or its memory traffic takes at least
    timeline   [layer and pass, kernel, FLOP, bytes, microseconds in the middle of the interval,
               what bounds it], one after another
    """
    record = read()
    return [
        {
            **{key: record["rungs"][rung][key] for key in SHOWN},
            "name": rung,
            "below": described.below,
            "predicted": record["rungs"][rung]["predicted"]["H200"],
            "dated": record["dates"][rung],
        }
        for rung, described in catalog.RUNGS.items()
        if rung in record["rungs"]
    ]


def span(least: float, most: float) -> str:
    """'190-280': two digits each, for more would promise too much; both positive."""
    ends = [float(f"{end:.2g}") for end in (least, most)]
    return "-".join(f"{end:.{max(0, 1 - math.floor(math.log10(end)))}f}" for end in ends)
