"""The page of `make gpu-check`, from a record of gpu.py; needs no GPU.

    python benchmarks/gpu_page.py RECORD.json PAGE.html
"""

import pathlib
import sys

import cases
import results
import sanitizer
import table
from cases import CONTENDERS, HEADLINES
from ladder.errors import UserError
from ladder.rungs import counted
from sections import look_name, parity_name, race_name

NO_TIME = "no time"


def page(record):
    """One HTML text. Raises ImportError without Jinja2."""
    from ladder.pages import launches, templates  # here: verdicts need no Jinja2

    rows = {rung: table.measured_row(record, rung) for rung in cases.gpu_rungs()}
    measured = {rung: launches.microseconds(row["median_us"]) for rung, row in rows.items() if row}
    predicted = launches.context(counted.predictions(), measured)
    return templates.render("gpu_check.html", {**context(record), "predicted": predicted})


def context(record):
    """All variables of the template."""
    checked = [name for name in record["sections"] if name.partition(": ")[0] in sanitizer.TOOLS]
    return {
        "record": record, "machine": record["machine"], "verdict": verdict(record),
        "comparisons": [comparison(pair) for pair in results.comparisons(record)],
        "batch": HEADLINES[0].batch, "rungs": rung_rows(record),
        "tools": sanitizer.TOOLS if checked else (),
        "sanitized": [[rung, *(sanitized(record, tool, rung) for tool in sanitizer.TOOLS)]
                      for rung in cases.gpu_rungs()],
        "looks": looks(record), "races": races(record),
        "svm": table.svm_note(record), "streaming": streaming(record),
        "failed": {name: section["failed"] for name, section in record["sections"].items() if "failed" in section},
        "left_out": left_out(record),
        "states": [section["after"] for section in record["sections"].values() if section.get("after")],
    }


def left_out(record):
    """Kind of section -> what it had no time for."""
    kinds = {}
    for name in record["left_out"]:
        kind, _, rest = name.partition(": ")
        kinds.setdefault(kind, []).append(rest or kind)
    return kinds


def verdict(record):
    """The result in a few sentences."""
    tried = [name for name in cases.gpu_rungs() if parity_name(HEADLINES[0], name) in record["sections"]]
    parities = list(filter(None, (results.result(record, parity_name(HEADLINES[0], name)) for name in tried)))
    reference = "NumPy" if any(parity.get("reference") == "NumPy" for parity in parities) else "the cpu rung"
    passed = sum(parity["passed"] for parity in parities)
    sentences = [f"{passed} of {len(tried)} rungs agree with {reference} within their tolerances."]
    if untried := [name for name in cases.gpu_rungs() if name not in tried]:
        sentences.append(f"{len(untried)} were not checked: {', '.join(untried)}.")
    errors = sum((results.result(record, sanitizer.section_name(tool, rung)) or {"errors": 0})["errors"]
                 for tool in sanitizer.TOOLS for rung in cases.gpu_rungs())
    if errors:
        sentences.append(f"compute-sanitizer reports {errors} errors.")
    for pair in results.comparisons(record):
        if pair["ratio"]:
            rung, taken = pair["rung"], pair["ratio"]["median"]
            sentences.append(f"{rung['name']} trains a batch of {pair['batch']} in {rung['median_us']:.0f} µs; the fastest "
                             f"PyTorch in {pair['precision']} takes {taken:.2f} times as long.")
    return " ".join(sentences)


def comparison(pair):
    ratio = pair["ratio"]
    rung, torch = ({"name": row["name"], "time": table.spread(row)} if row else None for row in (pair["rung"], pair["torch"]))
    return {"batch": pair["batch"], "precision": pair["precision"], "rung": rung, "torch": torch,
            "ratio": f"{ratio['median']:.2f} ({ratio['low']:.2f}-{ratio['high']:.2f})" if ratio else ""}


def rung_rows(record):
    """A row for each rung; `gain`: how many times as fast as the rung before it."""
    rows, above = [], None
    for rung in cases.gpu_rungs():
        measured = results.row(record, HEADLINES[0], rung)
        gain = f"{above['median_us'] / measured['median_us']:.2f}" if above and measured else ""
        rows.append({**rung_row(record, rung), "gain": gain})
        above = measured
    return rows


def rung_row(record, rung):
    """A rung's parity, time of a step, of an epoch and of an extraction, as texts."""
    case = HEADLINES[0]
    name, row = parity_name(case, rung), results.row(record, case, rung)
    checked, raced = results.result(record, name), results.result(record, race_name(case))
    failed = record["sections"].get(name, {}).get("failed") or (raced or {"failed": {}})["failed"].get(rung)
    failed = failed or (table.BEYOND if checked and not checked["passed"] else "")
    of_today = not row or table.measured_row(record, rung)   # no prediction beside a measurement of other kernels
    return {
        "name": rung,
        "verdict": "passed" if checked and checked["passed"] else "failed" if checked or failed else NO_TIME,
        "deviations": table.deviations(record, case, rung) if checked else "", "failed": failed,
        "predicted": table.predicted(counted.read()["rungs"].get(rung), record["machine"]["gpu"]) if of_today else "",
        "time": table.spread(row) if row else "", "mhz": f"{row['mhz']:.0f}" if row else "",
        "tflops": f"{row['tflop_per_second']:.1f}" if row and "tflop_per_second" in row else "",
        "epoch": _seconds(record, "epoch", rung), "extraction": _seconds(record, "extraction", rung),
    }


def sanitized(record, tool, rung):
    """'0' or '3: the first error', 'failed', or that there was no time."""
    name = sanitizer.section_name(tool, rung)
    checked = results.result(record, name)
    if checked is None:
        return "failed" if "failed" in record["sections"].get(name, {}) else NO_TIME
    return f"{checked['errors']}: {checked['first']}" if checked["errors"] else "0"


def looks(record):
    """[(contender of PyTorch, microseconds)] of the first looks, fastest first."""
    timings = {name: results.result(record, look_name(name)) for name in CONTENDERS}
    times = {name: sorted(look["us"])[len(look["us"]) // 2] for name, look in timings.items() if look}
    return [(name.removeprefix("PyTorch "), f"{times[name]:.0f}") for name in sorted(times, key=times.get)]


def races(record):
    """[(what raced, [(name, time)] fastest first, {name: why it failed})] of all races."""
    raced_by_name = {name.removeprefix("race: "): section["result"] for name, section in record["sections"].items()
                     if name.startswith("race: ") and "result" in section}
    return [(name, [(row["name"], table.spread(row)) for row in sorted(raced["rows"], key=lambda row: row["median_us"])],
             raced["failed"]) for name, raced in raced_by_name.items()]


def streaming(record):
    """Sentences on the copies of streamed images."""
    streams = {name.removeprefix("streaming: "): section["result"] for name, section in record["sections"].items()
               if name.startswith("streaming: ") and "result" in section}
    return [f"{name}: a step takes {timed['device_us']:.0f} µs with the images on the GPU and {timed['host_us']:.0f} µs with "
            f"images copied batch by batch; a copy takes {timed['copy_us']:.0f} µs, of which the step waits for "
            f"{timed['waited_us']:.0f} µs: {table.percent(timed['hidden_share'])} are hidden behind the computation."
            for name, timed in streams.items()]


def _seconds(record, work, name):
    wholes = results.wholes(record, work)
    return f"{wholes[name]:.2f} s" if name in wholes else ""


def main(source, target):
    try:
        pathlib.Path(target).write_text(page(results.read(pathlib.Path(source))), encoding="utf-8")
    except (UserError, OSError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
