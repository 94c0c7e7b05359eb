"""The page of `make gpu-check`, from its record; needs no GPU.

python benchmarks/gpu_page.py RECORD.json PAGE.html
"""

import math
import pathlib
import sys

import cases
import chain
import prediction_tables
import profile_rung
import results
import roofline
import sanitizer
import table
from cases import CONTENDERS, HEADLINES
from ladder.errors import UserError
from ladder.rungs import counted, tiles
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
    from ladder.pages import ladder, launches, templates  # here: verdicts need no Jinja2

    gpu, predictions = record["machine"]["gpu"], counted.predictions()
    measured = table.measured_steps(record, cases.gpu_rungs())
    steps = ladder.steps(rows_of(gpu, predictions), measured, {})
    title = f"A training step of the {HEADLINES[0].name}, {HEADLINES[0].batch} images, on {gpu}"
    if clock := prediction_tables.CLOCKS.get(results.card(gpu)):
        title += f", predicted for {clock}"
    return templates.render(
        "gpu_check.html",
        {
            **context(record),
            "of": ladder.context(steps, title, measured),
            "predicted": launches.context(predictions),
        },
    )


def rows_of(gpu, predictions):
    """The predictions (counted.predictions) for this card, of the user's own rungs too, which have
    none.
    """
    counts, known = counted.read()["rungs"], {row["name"]: row for row in predictions}
    nothing = {"dated": "", "kernels": "", "predicted": None}
    return [
        {**known[rung], "predicted": results.interval(counts[rung], gpu)}
        if rung in known
        else {"name": rung, **nothing}
        for rung in cases.gpu_rungs()
    ]


def context(record):
    """All variables of the template but those of the ladder."""
    checked = [name for name in record["sections"] if name.partition(": ")[0] in sanitizer.TOOLS]
    tested = {name.partition(": ")[2] for name in checked}
    rungs = cases.gpu_rungs()
    rows = [rung_row(record, rung) for rung in rungs]
    return {
        "record": record,
        "machine": record["machine"],
        "verdicts": verdicts(record),
        "comparisons": [
            (pair, *(of_limit(record, pair["rung"]) if pair["rung"] else ("", "")))
            for pair in results.comparisons(record)
        ],
        "rungs": [row for row in rows if row["verdict"] != NO_TIME],
        "unchecked": [row["name"] for row in rows if row["verdict"] == NO_TIME],
        "tools": sanitizer.TOOLS if checked else (),
        "sanitized": [
            [rung, *(sanitized(record, tool, rung) for tool in sanitizer.TOOLS)]
            for rung in rungs
            if rung in tested
        ],
        "untested": [rung for rung in rungs if rung not in tested],
        "launches": launches(record),
        "profiled": PROFILED,
        "convolutions": convolutions(record),
        "tiles": candidates(record),
        "chains": chains(record),
        "looks": looks(record),
        "races": races(record),
        "svm": results.result(record, "svm") and table.svm_note(record),
        "streaming": streaming(record),
        "left_out": left_out(record),
        "in_graphs": IN_GRAPHS,
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
    return " ".join(f"{head}: {sentence}" for head, sentence in verdicts(record).items())


def verdicts(record):
    """{what is asked: the answer}: whether the rungs are right, how fast against PyTorch, and how
    near to what the card can.
    """
    pairs = [
        pair
        for pair in results.comparisons(record)
        if pair["rung"] and pair["batch"] == HEADLINES[0].batch
    ]
    beside = [
        f"{pair['ratio']['median']:.2f} times as long as {pair['rung']['name']} in {pair['precision']}"
        for pair in pairs
        if pair["ratio"]
    ]
    limits = {pair["rung"]["name"]: of_limit(record, pair["rung"]) for pair in pairs}
    near = [f"{name} {percent} %" for name, (_, percent) in limits.items() if percent]
    answers = {
        "Right": right(record),
        "Against PyTorch": beside and f"PyTorch takes {', '.join(beside)}.",
        "Of the limit": near
        and f"{', '.join(near)} of the speed that this card’s own rates allow.",
    }
    return {head: answer for head, answer in answers.items() if answer}


def right(record):
    """Whether the rungs agree with their reference, in a sentence or two."""
    checks = {
        rung: results.result(record, parity_name(HEADLINES[0], rung)) for rung in cases.gpu_rungs()
    }
    tried = [rung for rung in checks if parity_name(HEADLINES[0], rung) in record["sections"]]
    wrong = [rung for rung in tried if not (checks[rung] and checks[rung]["passed"])]
    by_numpy = any(check and check.get("reference") == "NumPy" for check in checks.values())
    sentences = [
        f"{len(tried) - len(wrong)} of {len(tried)} rungs agree with {'NumPy' if by_numpy else 'the cpu rung'} within "
        f"their tolerances and give the same bytes twice{', not ' + ', '.join(wrong) if wrong else ''}."
    ]
    sanitized = {
        (rung, tool): section["errors"]
        for rung in checks
        for tool in sanitizer.TOOLS
        if (section := results.result(record, sanitizer.section_name(tool, rung)))
    }
    if sanitized:
        many = len({rung for rung, _ in sanitized})
        sentences.append(f"compute-sanitizer: {sum(sanitized.values())} errors in {many} rungs.")
    return " ".join(sentences)


def of_limit(record, row):
    """(microseconds, percent): the least that a rung's step takes at the rates that the card
    reached by itself, and that time of the measured one; '' where they were not measured.
    """
    most = table.ceilings(record, row["name"])
    if not most:
        return "", ""
    lowered = table.step_plan(
        row["name"], row["batch"], record["machine"].get("multiprocessors", tiles.H200)
    )
    least = 1e6 * roofline.plan_seconds(lowered, most)
    return f"{least:.0f}", f"{100 * least / row['median_us']:.0f}"


def rung_row(record, rung):
    """A rung's parity, rates, and times of an epoch and of an extraction, as texts."""
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
    return {
        "name": rung,
        "verdict": "passed"
        if checked and checked["passed"]
        else "failed"
        if checked or failed
        else NO_TIME,
        "failed": failed,
        "parity": checked["parity"] if checked else {},
        "raced": row or {},
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
        predicted = _predicted(record, rung, rows)
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


def _predicted(record, rung, rows):
    """Microseconds of each launch in counts.json; '' where these are of other kernels."""
    timeline = counted.read()["rungs"].get(rung, {"timeline": []})["timeline"]
    same = [row[:2] for row in timeline] == [[row["place"], row["kernel"]] for row in rows]
    if not (same and table.measured_row(record, rung)):
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
                        f"{100 * said['test_accuracy']:.1f}",
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
    """[[rung, microseconds of a step with the images on the GPU, with images copied batch by batch,
    of a copy, what the step waits for it, percent hidden]].
    """
    streams = {
        name.removeprefix("streaming: "): section["result"]
        for name, section in record["sections"].items()
        if name.startswith("streaming: ") and "result" in section
    }
    return [
        [
            name,
            *(f"{timed[key]:.0f}" for key in ("device_us", "host_us", "copy_us", "waited_us")),
            f"{100 * timed['hidden_share']:.0f}",
        ]
        for name, timed in streams.items()
    ]


def _seconds(record, work, name):
    wholes = results.wholes(record, work)
    return f"{wholes[name]:.2f}" if name in wholes else ""


def main(source, target):
    try:
        pathlib.Path(target).write_text(page(results.read(pathlib.Path(source))), encoding="utf-8")
    except (UserError, OSError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
