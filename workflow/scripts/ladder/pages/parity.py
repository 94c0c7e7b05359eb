"""The page of the comparison of rungs (verify/measure_rungs.py)."""

from ladder.pages import launches, templates
from ladder.pages.sections import timing
from ladder.rungs.counted import CASE
from ladder.verify.measure_rungs import PARTS, REFERENCE, WORK


def page(summary, timestamp, predictions=()):
    """The page of `summary` as one HTML text; timestamp: as in a manifest; predictions: see
    rungs/counted.py.
    """
    return templates.render("parity.html", context(summary, timestamp, predictions))


def context(summary, timestamp, predictions):
    """All variables of the template."""
    ran = [rung for rung in summary["rungs"] if "fault" not in rung]
    elsewhere = _elsewhere(summary["unavailable"])
    return {
        "summary": summary,
        "made": timestamp,
        "ran": ran,
        "faults": {rung["name"]: rung["fault"] for rung in summary["rungs"] if "fault" in rung},
        "failed": [rung["name"] for rung in ran if not rung["passed"]],
        "devices": sorted({rung["device"] for rung in ran}),
        "protocols": ran[0]["parity"] if ran else {},
        "checks": [_check_row(rung, ran[0]) for rung in ran],
        "rounded": [rung["name"] for rung in ran if rung["precision"] != "float32"],
        "times": _step_bars(ran),
        "work": _work_table(ran),
        "memory": _memory_table(ran),
        "kernels": _kernel_table(ran),
        "elsewhere": elsewhere,
        "not_here": sum(map(len, elsewhere.values())),
        "predicted": launches.context(predictions, _measured(summary, ran)),
    }


def _elsewhere(unavailable):
    """Reason -> the rungs that it keeps from running here; reasons of rungs/catalog.py begin with
    the key and the rung.

    A rung without a reason could run here and was not asked for.
    """
    by_reason = {}
    for rung, reason in unavailable.items():
        if reason:
            by_reason.setdefault(reason.removeprefix(f"variant {rung} "), []).append(rung)
    return by_reason


def _check_row(rung, first):
    """limit: the tolerance, where it is not the one in the table's head."""
    cells = [
        {
            "text": f"{check['largest']:.1e}",
            "share": check["largest"] / check["tolerance"],
            "tensor": check["tensor"],
            "limit": f"at most {check['tolerance']:.0e}"
            if check["tolerance"] != first["parity"][name]["tolerance"]
            else "",
        }
        for name, check in rung["parity"].items()
    ]
    return {
        "name": rung["name"],
        "reference": rung["name"] == REFERENCE,
        "cells": cells,
        "same_bytes": rung["same_bytes"],
        "passed": rung["passed"],
    }


def _step_bars(ran):
    """Bars of the time of a step, with notes of the speed relative to the cpu rung."""
    slowest = max((rung["step"] for rung in ran), default=1)
    reference = next((rung["step"] for rung in ran if rung["name"] == REFERENCE), None)
    return [
        {
            "name": rung["name"],
            "value": rung["step"],
            "length": round(100 * rung["step"] / slowest, 2),
            "text": launches.milliseconds(rung["step"]),
            "note": f"{_times(reference / rung['step'])}× {REFERENCE}" if reference else "",
        }
        for rung in ran
    ]


def _times(ratio):
    """A ratio with two digits: '0.018', '1.5', '180'."""
    return f"{float(f'{ratio:.2g}'):g}"


def _work_table(ran):
    """Rows by kind of work, cells by rung: milliseconds and the share of all kernels of a step."""
    rows = []
    shortcuts = any(
        group["operation"] == "add_forward" for rung in ran for group in rung["kernels"]
    )
    for work in WORK:
        if any(rung["work"].get(work) for rung in ran):
            name = timing.SHAPES if work == timing.SHORTCUTS and not shortcuts else work
            rows.append(
                {"work": name, "cells": [_work_cell(rung["work"].get(work), rung) for rung in ran]}
            )
    totals = [launches.milliseconds(sum(rung["work"].values())) for rung in ran]
    rates = [f"{rung['flop'] / rung['step'] / 1e6:,.3g} GFLOP/s" for rung in ran]
    return {
        "rows": rows,
        "totals": totals,
        "steps": [launches.milliseconds(rung["step"]) for rung in ran],
        "rates": rates,
    }


def _work_cell(value, rung):
    if not value:
        return {"text": "", "share": ""}
    return {
        "text": launches.milliseconds(value),
        "share": templates.percent(value / sum(rung["work"].values())),
    }


def _memory_table(ran):
    parts = [part for part in PARTS if any(rung["memory"].get(part) for rung in ran)]
    rows = [
        {"part": part, "cells": [templates.size(rung["memory"].get(part, 0)) for rung in ran]}
        for part in parts
    ]
    return {
        "rows": rows,
        "totals": [templates.size(sum(rung["memory"].values())) for rung in ran],
        "driver": [
            templates.size(rung["driver_bytes"]) if rung["driver_bytes"] is not None else "–"
            for rung in ran
        ],
    }


def _kernel_table(ran):
    """Rows by layer: its forward operation, None within a group that began above.

    of: the rung of its kernels if it is not the column's rung.
    """
    columns = [
        {
            group["layers"][0]: {
                "operation": group["operation"],
                "rows": len(group["layers"]),
                "of": group["rung"] if group["rung"] != rung["name"] else "",
            }
            for group in rung["kernels"]
        }
        for rung in ran
    ]
    layers = [layer for group in ran[0]["kernels"] for layer in group["layers"]] if ran else []
    return [
        {"layer": layer, "cells": [column.get(layer) for column in columns]} for layer in layers
    ]


def _measured(summary, ran):
    """{rung: milliseconds of a step here}, where it is the step that was predicted."""
    same_step = (summary["network"], summary["batch"]) == CASE
    return {rung["name"]: rung["step"] for rung in ran} if same_step else {}
