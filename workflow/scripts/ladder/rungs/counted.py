"""What was counted of each GPU rung's training step without a GPU, and its predicted time: benchmarks/counts.json.

Standard library only.
"""

import json
import math
from typing import Any

from ladder.sources import ROOT

RECORD = ROOT / "benchmarks/counts.json"
CASE = "autoencoder", 64   # network and batch of the step


def read() -> dict[str, dict[str, dict[str, Any]]]:
    """{"launches": {key: counts}, "rungs": {rung: summary}} as benchmarks/counting.py makes them; empty without the record."""
    return json.loads(RECORD.read_text("utf-8")) if RECORD.exists() else {"launches": {}, "rungs": {}}


def predictions() -> dict[str, list[float | str]]:
    """{rung: [least and most predicted microseconds on an H200, what bounds it]}, {} without the record."""
    return {rung: [*row["predicted"]["H200"], row["bound_by"]] for rung, row in read()["rungs"].items()}


def span(least: float, most: float) -> str:
    """'190-280': two digits each, for more would promise too much; both positive."""
    ends = [float(f"{end:.2g}") for end in (least, most)]
    return "-".join(f"{end:.{max(0, 1 - math.floor(math.log10(end)))}f}" for end in ends)
