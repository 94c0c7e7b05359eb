"""The page of `make gpu-check`, from its record; needs no GPU.

python benchmarks/gpu_page.py RECORD.json PAGE.html
"""

import math
import pathlib
import sys

import cases
import chain
import profile_rung
import results
import sanitizer
import table
from cases import CONTENDERS, HEADLINES
from ladder.errors import UserError
from ladder.rungs import counted
from sections import launches_name, look_name, others_name, parity_name, race_name

NO_TIME = "no time"
PROFILED = (
    "ncu µs>",
    "pipe %>",
    "L2 %>",
    "DRAM %>",
    "shared %>",
    "issue %>",
    "occupancy %>",
    "conflicts %>",
    "MB from L2>",
)
IN_GRAPHS = "as CUDA graphs"  # Launcher.described


def page(record):
    """One HTML text. Raises ImportError without Jinja2."""
    from ladder.pages import launches, templates  # here: verdicts need no Jinja2

    rows = {rung: table.measured_row(record, rung) for rung in cases.gpu_rungs()}
    measured = {rung: row["median_us"] / 1000 for rung, row in rows.items() if row}
    predicted = launches.context(counted.predictions(), measured)
    return templates.render("gpu_check.html", {**context(record), "predicted": predicted})


def context(record):
    """All variables of the template."""
    checked = [name for name in record["sections"] if name.partition(": ")[0] in sanitizer.TOOLS]
    return {
        "record": record,
        "machine": record["machine"],
        "verdict": verdict(record),
        "comparisons": [comparison(pair) for pair in results.comparisons(record)],
        "batch": HEADLINES[0].batch,
        "rungs": rung_rows(record),
        "tools": sanitizer.TOOLS if checked else (),
        "sanitized": [
            [rung, *(sanitized(record, tool, rung) for tool in sanitizer.TOOLS)]
            for rung in cases.gpu_rungs()
        ],
        "launches": launches(record),
        "profiled": PROFILED,
        "convolutions": convolutions(record),
        "tiles": candidates(record),
        "chains": chains(record),
        "looks": looks(record),
        "races": races(record),
        "svm": table.svm_note(record),
        "streaming": streaming(record),
        "failed": {
            name: section["failed"]
            for name, section in record["sections"].items()
            if "failed" in section
        },
        "left_out": left_out(record),
        "states": [
            section["after"] for section in record["sections"].values() if section.get("after")
        ],
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
    tried = [
        name for name in cases.gpu_rungs() if parity_name(HEADLINES[0], name) in record["sections"]
    ]
    parities = list(
        filter(None, (results.result(record, parity_name(HEADLINES[0], name)) for name in tried))
    )
    reference = (
        "NumPy"
        if any(parity.get("reference") == "NumPy" for parity in parities)
        else "the cpu rung"
    )
    passed = sum(parity["passed"] for parity in parities)
    sentences = [f"{passed} of {len(tried)} rungs agree with {reference} within their tolerances."]
    if untried := [name for name in cases.gpu_rungs() if name not in tried]:
        sentences.append(f"{len(untried)} were not checked: {', '.join(untried)}.")
    errors = sum(
        (results.result(record, sanitizer.section_name(tool, rung)) or {"errors": 0})["errors"]
        for tool in sanitizer.TOOLS
        for rung in cases.gpu_rungs()
    )
    if errors:
        sentences.append(f"compute-sanitizer reports {errors} errors.")
    for pair in results.comparisons(record):
        if pair["ratio"]:
            rung, taken = pair["rung"], pair["ratio"]["median"]
            sentences.append(
                f"{rung['name']} trains a batch of {pair['batch']} in {rung['median_us']:.0f} µs; the fastest "
                f"PyTorch in {pair['precision']} takes {taken:.2f} times as long."
            )
    return " ".join(sentences)


def comparison(pair):
    ratio = pair["ratio"]
    rung, torch = (
        {"name": row["name"], "time": table.spread(row)} if row else None
        for row in (pair["rung"], pair["torch"])
    )
    return {
        "batch": pair["batch"],
        "precision": pair["precision"],
        "rung": rung,
        "torch": torch,
        "ratio": f"{ratio['median']:.2f} ({ratio['low']:.2f}-{ratio['high']:.2f})" if ratio else "",
    }


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
    checked = results.result(record, name)
    lost = [
        raced["failed"]
        for raced in (results.result(record, race(case)) for race in (race_name, others_name))
        if raced
    ]
    lost = next((reasons[rung] for reasons in lost if rung in reasons), None)
    failed = record["sections"].get(name, {}).get("failed") or lost
    failed = failed or (table.BEYOND if checked and not checked["passed"] else "")
    # no prediction beside a measurement of other kernels
    of_today = not row or table.measured_row(record, rung)
    return {
        "name": rung,
        "verdict": "passed"
        if checked and checked["passed"]
        else "failed"
        if checked or failed
        else NO_TIME,
        "deviations": table.deviations(record, case, rung) if checked else "",
        "failed": failed,
        "predicted": table.predicted(counted.read()["rungs"].get(rung), record["machine"]["gpu"])
        if of_today
        else "",
        "time": table.spread(row) if row else "",
        "mhz": f"{row['mhz']:.0f}" if row else "",
        "tflops": f"{row['tflop_per_second']:.1f}" if row and "tflop_per_second" in row else "",
        "launching": row["launching"]
        if row and row.get("launching", IN_GRAPHS) != IN_GRAPHS
        else "",
        "epoch": _seconds(record, "epoch", rung),
        "extraction": _seconds(record, "extraction", rung),
    }


def sanitized(record, tool, rung):
    """[what is shown, further lines]: '0' or '3: the first error', 'failed', or that there was no
    time.
    """
    name = sanitizer.section_name(tool, rung)
    checked = results.result(record, name)
    if checked is None:
        return ["failed" if "failed" in record["sections"].get(name, {}) else NO_TIME, []]
    first, *rest = checked.get("said") or [checked.get("first", "")]
    if checked.get("left_out"):
        rest.append(f"and {checked['left_out']} lines more")
    return [f"{checked['errors']}: {first}", rest] if checked["errors"] else ["0", []]


def launches(record):
    """Of each rung whose launches were timed or profiled: {"rung", "step", "launching", "rows":
    launches, in their order}.
    """
    tables = []
    for rung in cases.gpu_rungs():
        timed, seen = (
            results.result(record, name(rung))
            for name in (launches_name, profile_rung.section_name)
        )
        if not timed and not seen:
            continue
        rows = timed["launches"] if timed else seen["launches"]
        # which begin with copies of weights
        profiled = seen["launches"][-len(rows) :] if seen else [None] * len(rows)
        predicted = _predicted(rung, rows)
        tables.append(
            {
                "rung": rung,
                "step": f"{timed['step_us']:.0f}" if timed else "",
                "launching": timed["launching"] if timed else "",
                "rows": [
                    [
                        row["place"],
                        row["kernel"].partition(" ")[2],
                        time,
                        _time(row),
                        *_profiled(counters),
                    ]
                    for row, time, counters in zip(rows, predicted, profiled, strict=True)
                ],
            }
        )
    return tables


def _predicted(rung, rows):
    """Microseconds of each launch in counts.json; '' where these are of other launches."""
    timeline = counted.read()["rungs"].get(rung, {"timeline": []})["timeline"]
    if [row[:2] for row in timeline] != [[row["place"], row["kernel"]] for row in rows]:
        return [""] * len(rows)
    return [f"{row[4]:.1f}" for row in timeline]


def _time(row):
    if row.get("median_us") is None:
        return ""
    return f"{row['median_us']:.1f} ({row['low_us']:.1f}-{row['high_us']:.1f})"


def _profiled(row):
    """What ncu says of a launch, as PROFILED has it."""
    if row is None:
        return [""] * len(PROFILED)
    pipe = max((name for name in ("tensor", "fma") if name in row), key=row.get, default=None)
    conflicts = 100 * row.get("conflicts", 0) / row["wavefronts"] if row.get("wavefronts") else 0
    shares = [
        f"{row[name]:.0f}" if name in row else "?"
        for name in ("L2", "DRAM", "shared", "issue", "occupancy")
    ]
    moved = row.get("bytes from level 2")
    return [
        f"{row['us']:.1f}",
        f"{pipe} {row[pipe]:.0f}" if pipe else "?",
        *shares,
        f"{conflicts:.0f}",
        "?" if moved is None else f"{moved / 1e6:.1f}",
    ]


def convolutions(record):
    """{"precisions", "rows": [[layer, operation, microseconds in each]]} of cuDNN; None where it
    was not measured.
    """
    tables = {
        name.partition(": ")[2]: section["result"]["rows"]
        for name, section in record["sections"].items()
        if name.startswith("cuDNN: ") and "result" in section
    }
    if not tables:
        return None
    return {
        "precisions": list(tables),
        "rows": [
            [rows[0]["layer"], rows[0]["operation"], *map(_time, rows)]
            for rows in zip(*tables.values(), strict=True)
        ],
    }


def candidates(record):
    """[(rung, microseconds of its step, [[places, its tile, another, how much longer a step
    takes]], the quickest first)].
    """
    timings = {
        name.partition(": ")[2]: section["result"]
        for name, section in record["sections"].items()
        if name.startswith("tiles: ") and "result" in section
    }
    return [
        (
            rung,
            f"{timed['step_us']:.0f}",
            [
                [", ".join(row["places"]), row["own"], row["tile"], _time(row) or row["failed"]]
                for row in sorted(timed["tiles"], key=_by_time)
            ],
        )
        for rung, timed in timings.items()
    ]


def _by_time(row):
    return math.inf if row["median_us"] is None else row["median_us"]


def chains(record):
    """[[run, rung, accuracy, images/s of the training, seconds of all stages, where]] of the chain
    on the GPU and the CPU.
    """
    rows = []
    for name in chain.RUNS:
        for place in ("gpu", "cpu"):
            result = results.result(record, chain.section_name(name, place))
            if result:
                said = result["summary"]
                rows.append(
                    [
                        name,
                        said["variant"],
                        f"{100 * said['test_accuracy']:.1f} %",
                        f"{said['images_per_second']:,.0f}",
                        f"{sum(said['seconds'].values()):.1f}",
                        said["device"]
                        + (", on the machine that prepared" if result["carried"] else ""),
                    ]
                )
    return rows


def looks(record):
    """[(contender of PyTorch, microseconds)] of the first looks, fastest first."""
    timings = {name: results.result(record, look_name(name)) for name in CONTENDERS}
    times = {
        name: sorted(look["us"])[len(look["us"]) // 2] for name, look in timings.items() if look
    }
    return [
        (name.removeprefix("PyTorch "), f"{times[name]:.0f}")
        for name in sorted(times, key=times.get)
    ]


def races(record):
    """[(what raced, [(name, time)] fastest first, {name: why it failed})] of all races."""
    raced_by_name = {
        name.removeprefix("race: "): section["result"]
        for name, section in record["sections"].items()
        if name.startswith("race: ") and "result" in section
    }
    return [
        (
            name,
            [
                (row["name"], table.spread(row))
                for row in sorted(raced["rows"], key=lambda row: row["median_us"])
            ],
            raced["failed"],
        )
        for name, raced in raced_by_name.items()
    ]


def streaming(record):
    """Sentences on the copies of streamed images."""
    streams = {
        name.removeprefix("streaming: "): section["result"]
        for name, section in record["sections"].items()
        if name.startswith("streaming: ") and "result" in section
    }
    return [
        f"{name}: a step takes {timed['device_us']:.0f} µs with the images on the GPU and {timed['host_us']:.0f} µs with "
        f"images copied batch by batch; a copy takes {timed['copy_us']:.0f} µs, of which the step waits for "
        f"{timed['waited_us']:.0f} µs: {table.percent(timed['hidden_share'])} are hidden behind the computation."
        for name, timed in streams.items()
    ]


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
