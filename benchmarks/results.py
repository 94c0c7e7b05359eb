"""What the records of gpu_check.py say: used by the tables (table.py) and by the page
(gpu_check.py).
"""

import functools
import json
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "workflow/scripts"))

import spread  # noqa: E402
from cases import CONTENDERS, HEADLINES, PRECISIONS  # noqa: E402
from ladder.errors import UserError  # noqa: E402
from sections import counts, others_name, parity_name, race_name  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
RECORDS = HERE / "gpu"
# Of the H200's record of 2026-11-26, which does not say it: its kernels, their counts, and what was
# predicted of them first.
THEN = HERE / "measured_kernels.json"


def records(folder=RECORDS):
    """The records in `folder`, newest first. Raises UserError, naming the file, for one that is
    none.
    """
    return sorted(
        (read(path) for path in folder.glob("*.json")),
        key=lambda record: record["made"],
        reverse=True,
    )


def read(path):
    """The record at `path`; see `records`."""
    try:
        record = json.loads(path.read_text("utf-8"))
        known = (
            record["kind"] == "gpu"
            and isinstance(record["made"], str)
            and isinstance(record["sections"], dict)
        )
        known = known and isinstance(record["machine"]["gpu"], str)
    except (ValueError, KeyError, TypeError):
        known = False
    if not known:
        raise UserError(
            f"{path.name} in {path.parent.name} is no record of benchmarks/gpu_check.py"
        )
    return record


def by_card(records):
    """{name of a GPU: its newest record}, by name; `records`: the newest first."""
    cards = {}
    for record in records:
        cards.setdefault(record["machine"]["gpu"], record)
    return dict(sorted(cards.items()))


def result(record, name):
    """The result of a section; None where it is not measured."""
    return record.get("sections", {}).get(name, {}).get("result")


def row(record, case, name):
    """The row of a contestant in the races of a case; None where it is not measured."""
    races = (
        result(record, raced) or {"rows": ()} for raced in (race_name(case), others_name(case))
    )
    return next((row for raced in races for row in raced["rows"] if row["name"] == name), None)


def kernels(record, measured):
    """The digest of the kernels that a row of a race is of (step_kernels.py); None where nobody
    knows.
    """
    return measured.get("kernels") or (
        then()["rungs"].get(measured["name"], {}).get("kernels")
        if record["made"] == then()["made"]
        else None
    )


def predicted(record, measured):
    """([least, most] microseconds, the day): what was predicted of the kernels that a row of a race
    is of; (None, "") where nobody knows.
    """
    if record["made"] == then()["made"]:
        row = then()["rungs"].get(measured["name"], {"first": None, "dated": ""})
        return row["first"], row["dated"]
    return measured.get("predicted"), measured.get("dated", "")


def interval(counts, gpu):
    """[least, most] microseconds of a rung's step on a GPU, by its driver's name; None of one
    without a prediction; counts: the rung's row of counts.json.
    """
    return counts["predicted"].get(card(gpu))


def card(gpu):
    """The short name of a GPU (assumptions.NAMES) by its driver's: 'T4' of 'Tesla T4'."""
    return re.sub("NVIDIA |GeForce |Tesla |-.*", "", gpu)


@functools.cache
def then():
    return json.loads(THEN.read_text("utf-8"))


def measured_then(records):
    """Of records, the one whose kernels `then` has; {} without it."""
    return next((record for record in records if record["made"] == then()["made"]), {})


def launch_times(text):
    """{rung: microseconds of its step's launches in their order} of a log of profile_rung.py."""
    parts = re.split(r"^== (\w+)$", text, flags=re.M)[1:]
    return {
        rung: [
            float(time)
            for time in re.findall(
                r"^(?!the step).{13} \S+\s+([\d.]+)\s+(?:fma|tensor) ", part, flags=re.M
            )
        ]
        for rung, part in zip(parts[::2], parts[1::2], strict=True)
    }


def fastest(record, case, precision, torch):
    """The fastest row of a precision in the race of a case, of PyTorch or of the rungs that count;
    None without one.
    """
    raced = result(record, race_name(case))
    rows = [
        row
        for row in (raced["rows"] if raced else ())
        if (row["name"] in CONTENDERS) == torch and row["precision"] == precision and counts(row)
    ]
    return min(rows, key=lambda row: row["median_us"], default=None)


def deviations(record, case, rung):
    """{protocol: {"largest", "tolerance", ...}} of a rung's parity; {} where it is not measured."""
    checked = result(record, parity_name(case, rung))
    return checked["parity"] if checked else {}


def comparisons(record):
    """The fastest rung and the fastest PyTorch of each precision: a dict for each batch of the
    headline and each precision.
    """
    for case in HEADLINES:
        for precision in PRECISIONS:
            rung, torch = (fastest(record, case, precision, which) for which in (False, True))
            if rung or torch:
                yield {
                    "batch": case.batch,
                    "precision": precision,
                    "rung": rung,
                    "torch": torch,
                    "ratio": spread.ratio(torch, rung) if rung and torch else None,
                }


def wholes(record, work):
    """{name of a rung or a contender: seconds} of an epoch or an extraction."""
    return {
        name.removeprefix(f"{work}: "): section["result"]["seconds"]
        for name, section in record.get("sections", {}).items()
        if name.startswith(f"{work}: ") and "result" in section
    }
