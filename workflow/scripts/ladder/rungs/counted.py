"""What was counted of each GPU rung's training step without a GPU, and its predicted time: benchmarks/counts.json.

Standard library only.
"""

import json
from typing import Any

from ladder.sources import ROOT

RECORD = ROOT / "benchmarks/counts.json"
CASE = "autoencoder", 64   # network and batch of the step


def read() -> dict[str, dict[str, dict[str, Any]]]:
    """{"launches": {key: counts}, "rungs": {rung: summary}} as benchmarks/counting.py makes them; empty without the record."""
    return json.loads(RECORD.read_text("utf-8")) if RECORD.exists() else {"launches": {}, "rungs": {}}


def predictions() -> dict[str, list[float | str]]:
    """{rung: [predicted microseconds on an H200, what bounds it]}, {} without the record."""
    rows = read()["rungs"]
    return {rung: [round(row["microseconds"], 1), row["bound_by"]] for rung, row in rows.items()}
