"""Write the tables of kernels/README.md, docs/prediction.md and docs/results.md between their
markers, docs/ladder.svg, and measured_steps.json, what the ladder's page shows of a record.

    python benchmarks/table.py [--check]

The ladder's tables have the floors of the plans (roofline.py), what was counted without a GPU and
the times predicted from it (counts.json), and measured columns from the newest record in
benchmarks/gpu/; the table of docs/results.md has the newest record of each card. What no record has
is "not measured". --check writes nothing and exits with 1 if a table is out of date.
"""

import argparse
import dataclasses
import json
import pathlib
import sys
import textwrap

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "workflow/scripts"))

import assumptions  # noqa: E402
import ladder_picture  # noqa: E402
import prediction_tables  # noqa: E402
import results  # noqa: E402
import roofline  # noqa: E402
import step_kernels  # noqa: E402
from cases import CONTENDERS, HEADLINES, MULTIPLIED, OTHERS, gpu_rungs, precision, products  # noqa: E402
from ladder.arithmetic.multipliers import MULTIPLIERS  # noqa: E402
from ladder.errors import UserError  # noqa: E402
from ladder.network import networks, optimizers  # noqa: E402
from ladder.plan import plan  # noqa: E402
from ladder.rungs import catalog, counted, tiles  # noqa: E402
from sections import counts, race_name  # noqa: E402

BEGIN, END = "<!-- table: made by benchmarks/table.py -->", "<!-- end of table -->"
CASE = HEADLINES[0]
HEAD = (
    "rung",
    "what it adds",
    "launches",
    "GFLOP",
    "MB",
    "floor us",
    "predicted us",
    "bound by",
    "median us (spread)",
    "MHz",
    "TFLOP/s",
    "% of ceiling",
    "% of PyTorch",
    "x rung below",
    "error / tolerance",
)
COUNTED_HEAD = (
    "rung",
    "predicted us",
    "sectors used",
    "level 2 MB",
    "wavefronts",
    "bank conflicts",
    "multiply",
    "the launch that takes longest",
    "registers",
    "occupancy",
    "waves on 132, 108, 128, 28, 40",
)
OTHERS_HEAD = (
    "network",
    "batch",
    "rung",
    "launches",
    "GFLOP",
    "median us (spread)",
    "TFLOP/s",
    "s/epoch",
    "% of PyTorch",
    "error / tolerance",
)
MULTIPLIED_HEAD = (
    "multiplier",
    "rung",
    "ResNet-18, 32 filters, batch 128: median us (spread)",
    "x the fastest exact rung",
)
CARDS_HEAD = (
    "card",
    "batch",
    "precision",
    "fastest rung",
    "us (spread)",
    "fastest PyTorch",
    "us (spread)",
    "PyTorch takes",
    "epoch: rung, PyTorch",
    "features of 60,000 images: rung, PyTorch",
)
NOT_MEASURED, NOT_COUNTED = "not measured", "not counted"
BEYOND = "numbers not within the limit"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--check", action="store_true", help="only say whether the tables are up to date"
    )
    arguments = parser.parse_args()
    try:
        texts = wanted_texts(results.records())
    except UserError as error:
        sys.exit(str(error))
    for path, wanted in texts.items():
        if arguments.check and (not path.exists() or path.read_text("utf-8") != wanted):
            sys.exit(
                f"{path.relative_to(HERE.parent)} is out of date; run: python benchmarks/table.py"
            )
        if not arguments.check:
            path.write_text(wanted, "utf-8")


def wanted_texts(records):
    """{document: its text with the tables of these records, newest first}."""
    newest = records[0] if records else {}
    tables = {
        "kernels/README.md": table(newest),
        "docs/results.md": cards(results.by_card(records)),
    }
    texts = {
        HERE.parent / name: with_table((HERE.parent / name).read_text("utf-8"), body)
        for name, body in tables.items()
    }
    page = HERE.parent / "docs/prediction.md"
    card = f"{newest['machine']['gpu']}, {newest['made'][:10]}" if newest else "no GPU yet"
    return {
        **texts,
        HERE.parent / "docs/ladder.svg": ladder_picture.picture(ladder(newest), card),
        counted.MEASURED: json.dumps(measured_steps(newest, documented_rungs()), indent=1) + "\n",
        page: with_predictions(page.read_text("utf-8"), results.measured_then(records)),
    }


def with_predictions(text, record):
    """The text of docs/prediction.md with its tables; record: that of the kernels of then."""
    counts = counted.read()["rungs"]
    rungs = {name: counts[name] for name in documented_rungs() if name in counts}
    heads = {
        "times": (prediction_tables.TIMES_HEAD, prediction_tables.times(rungs)),
        "errors of then": (
            prediction_tables.ERRORS_HEAD,
            prediction_tables.errors_of_then(record, log(record)),
        ),
    }
    bodies = {
        name: markdown([head, tuple("---" for _ in head), *rows])
        for name, (head, rows) in heads.items()
    }
    for name, lines in bodies.items():
        text = with_table(
            text, "\n".join(["", *lines, "", ""]), f"<!-- {name}: made by benchmarks/table.py -->"
        )
    return text


def with_table(text, body, marker=BEGIN):
    """`text` with `body` between the marker and the next END; raises ValueError without them."""
    before, begin, rest = text.partition(marker)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"there are no lines {marker} and {END}")
    return f"{before}{marker}\n{body}{END}{after}"


def ladder(record):
    """The rows of the picture of the ladder, measured where the record has today's kernels."""
    counts = counted.read()["rungs"]
    return [ladder_row(rung, counts[rung], record) for rung in documented_rungs()]


def ladder_row(rung, counts, record):
    known = catalog.RUNGS[rung]
    measured = measured_row(record, rung)
    torch = results.fastest(record, CASE, precision(rung), torch=True)
    return ladder_picture.Row(
        rung,
        ladder_picture.IDEAS.get(rung, known.technique.split(", ")[0]),
        tuple(end / 1000 for end in counts["predicted"][assumptions.H200]),
        measured and measured["median_us"] / 1000,
        torch and torch["median_us"] / 1000,
    )


def measured_steps(record, rungs):
    """{rung: microseconds of a step, of PyTorch's fastest in the same precision, and of what was
    predicted of these kernels} with the day and the card; {} without a record.
    """
    if not record:
        return {}
    return {
        "card": record["machine"]["gpu"],
        "made": record["made"][:10],
        "pytorch": (results.result(record, "PyTorch") or {}).get("torch"),
        "rungs": {rung: measured_step(record, rung) for rung in rungs},
    }


def measured_step(record, rung):
    """A row of measured_steps; today: whether the measured kernels are today's."""
    measured = results.row(record, CASE, rung)
    torch = results.fastest(record, CASE, precision(rung), torch=True)
    predicted, dated = results.predicted(record, measured) if measured else (None, "")
    return {
        "us": measured and round(measured["median_us"], 1),
        "kernels": measured and results.kernels(record, measured),
        "today": measured_row(record, rung) is not None,
        "predicted": predicted,
        "dated": dated,
        "torch": torch and round(torch["median_us"], 1),
    }


def log(record):
    """What was printed beside a record and is kept with it; "" without."""
    if not record:
        return ""
    path = (
        results.RECORDS / f"{record['machine']['gpu'].replace(' ', '-')}-{record['made'][:10]}.txt"
    )
    return path.read_text("utf-8") if path.exists() else ""


def table(record):
    """The table in Markdown, a note on the measurement, and the tables of other networks and
    multipliers in the record.
    """
    rows, counted_rows = (
        [HEAD, tuple("---" for _ in HEAD)],
        [COUNTED_HEAD, tuple("---" for _ in COUNTED_HEAD)],
    )
    counts = counted.read()["rungs"]
    for rung in documented_rungs():
        measured = measured_row(record, rung), row_below(record, rung)
        rows.append(row(rung, step_plan(rung, CASE.batch), counts.get(rung), measured, record))
        counted_rows.append(counted_row(rung, counts.get(rung)))
    return "\n".join(
        [
            *markdown(rows),
            "",
            note(record),
            "",
            *markdown(counted_rows),
            "",
            *other_networks(record),
            *multiplied(record),
        ]
    )


def measured_row(record, rung):
    """The results of a rung; None where it is not measured, or only with other kernels than
    today's.
    """
    measured = results.row(record, CASE, rung)
    if not measured:
        return None
    of_today = results.kernels(record, measured) == step_kernels.digest(
        step_plan(rung, CASE.batch, record["machine"].get("multiprocessors", tiles.H200))
    )
    return measured if of_today else None


def compared(rung):
    """The rung with which a rung's time is compared: below it the nearest of its precision, if
    there is none the next.
    """
    below = same = catalog.RUNGS[rung].below
    while same and catalog.RUNGS[same].precision != catalog.RUNGS[rung].precision:
        same = catalog.RUNGS[same].below
    return same or below


def row_below(record, rung):
    """The results of the rung that this one is compared with, past lessons that were not
    measured.
    """
    below = compared(rung)
    measured = measured_row(record, below) if below else None
    return (
        row_below(record, below)
        if measured is None and below and catalog.RUNGS[below].role == "lesson"
        else measured
    )


def documented_rungs():
    """The project's GPU rungs, without the user's own."""
    return [name for name in gpu_rungs() if catalog.RUNGS[name].role != "own"]


def counted_row(rung, counts):
    if counts is None:
        return (rung, NOT_COUNTED, *("" for _ in COUNTED_HEAD[2:]))
    busiest, millions = (
        counts["busiest"],
        {name: f"{counts[name] / 1e6:.1f} M" for name in ("wavefronts", "conflicts")},
    )
    return (
        rung,
        predicted(counts),
        percent(counts["coalesced"]),
        f"{counts['level_2_megabytes']:.0f}",
        *millions.values(),
        percent(counts["products_of_issued"]),
        busiest["kernel"].replace(".cu ", ": "),
        str(busiest["registers"]),
        percent(busiest["occupancy"]),
        ", ".join(
            "none" if waves is None else f"{waves:.2g}" for waves in busiest["waves"].values()
        ),
    )


def predicted(counts, gpu=assumptions.H200, unit=1):
    """'190-280', the interval of a rung's step, "" of a GPU without one; gpu: its driver's name;
    unit: microseconds of one.
    """
    ends = counts and results.interval(counts, gpu)
    return counted.span(*(end / unit for end in ends)) if ends else ""


def percent(share):
    return f"{100 * share:.0f} %"


def cards(records):
    """The table of cards in Markdown; records: {name of a GPU: its record}."""
    rows = [CARDS_HEAD, tuple("---" for _ in CARDS_HEAD)]
    for name, record in records.items():
        rows += [card_row(name, record, pair) for pair in results.comparisons(record)]
    if not records:
        rows.append((NOT_MEASURED, *("" for _ in CARDS_HEAD[1:])))
    notes = [
        textwrap.fill(
            f"{record['machine']['device']}, {record['made'][:10]}: {svm_note(record)}.", 100
        )
        for record in records.values()
    ]
    return "\n".join([*markdown(rows), "", *(line for note in notes for line in (note, ""))])


def card_row(name, record, pair):
    """A row of the table of cards; pair: a comparison (results.comparisons)."""
    names = [pair[who]["name"] if pair[who] else NOT_MEASURED for who in ("rung", "torch")]
    times = [spread(pair[who]) if pair[who] else "" for who in ("rung", "torch")]
    ratio = pair["ratio"]
    taken = (
        f"{ratio['median']:.2f} x ({ratio['low']:.2f}-{ratio['high']:.2f})"
        if ratio
        else NOT_MEASURED
    )
    wholes = [
        seconds(record, work, names) if pair["batch"] == CASE.batch else ""
        for work in ("epoch", "extraction")
    ]
    return (
        name,
        str(pair["batch"]),
        pair["precision"],
        names[0],
        times[0],
        names[1].removeprefix("PyTorch "),
        times[1],
        taken,
        *wholes,
    )


def seconds(record, work, names):
    """'0.86 s, 1.20 s', of a rung and of a contender."""
    wholes = results.wholes(record, work)
    return ", ".join(f"{wholes[name]:.2f} s" if name in wholes else NOT_MEASURED for name in names)


def svm_note(record):
    fit = results.result(record, "svm")
    if fit is None:
        return f"SVM {NOT_MEASURED}"
    return (
        f"SVM of {fit['rows']:,} rows by {fit['solver']}: fit {fit['fit_seconds']:.1f} s, prediction of "
        f"{fit['test_rows']:,} {fit['predict_seconds']:.1f} s"
    )


def markdown(rows):
    return [f"| {' | '.join(cells)} |" for cells in rows]


def other_networks(record):
    """Lines of the table of other networks than the autoencoder, [] if the record has none."""
    rows = [OTHERS_HEAD, tuple("---" for _ in OTHERS_HEAD)]
    for case in OTHERS:
        for racer in in_order(results.result(record, race_name(case))):
            torch = results.fastest(record, case, racer["precision"], torch=True)
            rows.append(
                (
                    case.name,
                    str(case.batch),
                    racer["name"],
                    str(racer["launches"]),
                    f"{racer['flop'] / 1e9:.1f}",
                    spread(racer),
                    f"{racer['tflop_per_second']:.1f}",
                    f"{racer['scaled_epoch_seconds']:.2f}",
                    share(torch, racer),
                    deviations(record, case, racer["name"]),
                )
            )
    return [*markdown(rows), ""] if len(rows) > 2 else []


def multiplied(record):
    """Lines of the table of one network with every multiplier, [] if the record has none."""
    rows = [MULTIPLIED_HEAD, tuple("---" for _ in MULTIPLIED_HEAD)]
    races = {
        name: in_order(
            results.result(record, race_name(dataclasses.replace(MULTIPLIED, multiplier=name)))
        )
        for name in MULTIPLIERS
    }
    exact = min((racer["median_us"] for racer in races["exact"] if counts(racer)), default=None)
    for name, measured in races.items():
        for racer in measured:
            ratio = f"{racer['median_us'] / exact:.2f}" if exact else NOT_MEASURED
            rows.append((name, racer["name"], spread(racer), ratio))
    return [*markdown(rows), ""] if len(rows) > 2 else []


def in_order(raced):
    """The rows of the rungs in the result of a race, or None, in the ladder's order."""
    rows = [racer for racer in raced["rows"] if racer["name"] not in CONTENDERS] if raced else []
    return sorted(rows, key=lambda racer: gpu_rungs().index(racer["name"]))


def spread(measured):
    beyond = "" if counts(measured) else f", {BEYOND}"
    return (
        f"{measured['median_us']:.0f} ({measured['low_us']:.0f}-{measured['high_us']:.0f}){beyond}"
    )


def share(opponent, measured):
    return (
        f"{100 * opponent['median_us'] / measured['median_us']:.0f}" if opponent else NOT_MEASURED
    )


def deviations(record, case, rung):
    protocols = results.deviations(record, case, rung).values()
    return (
        ", ".join(f"{worst['largest']:.1e} / {worst['tolerance']:.0e}" for worst in protocols)
        or NOT_MEASURED
    )


def step_plan(rung, batch, multiprocessors=tiles.H200):
    """One training step with Adam, in the tiles for a GPU with so many multiprocessors, by default
    an H200.
    """
    settings = plan.TrainingSettings(
        network=networks.build(CASE.name),
        rung=rung,
        batch_size=batch,
        optimizer=optimizers.Optimizer("adam"),
        multipliers=plan.made_for(rung),
        multiprocessors=multiprocessors,
    )
    return plan.training_plan(settings, plan.Dataset(CASE.images, "uint8"), plan.Length(1, 1))


def row(rung, lowered, counts, measured, record):
    """counts: the rung's row of counts.json or None; measured: the results of the rung and of the
    one below, or None.
    """
    launches, moved = (
        sum(len(step.launches) for step in lowered.steps),
        roofline.plan_bytes(lowered),
    )
    ceilings = roofline.H200[products(rung)]
    cells = (
        rung,
        catalog.RUNGS[rung].technique,
        str(launches),
        f"{lowered.flop / 1e9:.1f}",
        f"{moved / 1e6:.0f}",
        f"{1e6 * roofline.plan_seconds(lowered, ceilings):.0f}",
        *((predicted(counts), counts["bound_by"]) if counts else (NOT_COUNTED, NOT_COUNTED)),
    )
    return cells + (
        measured_cells(rung, lowered, *measured, record) if measured[0] else (NOT_MEASURED,) * 7
    )


def ceilings(record, rung):
    """The Ceilings that a record's card reached by itself, in products as the rung's and in copies;
    None where nobody measured them.
    """
    reached = results.result(record, "ceilings")
    on_tensor_cores = results.result(record, "PyTorch's ceilings") or {}
    own = {"fp32": reached["fp32_flop_per_second"]} if reached else {}
    flop = roofline.rate({**on_tensor_cores, **own}, products(rung))
    if not (reached and flop):
        return None
    return roofline.Ceilings(record["machine"]["gpu"], flop, reached["copy_bytes_per_second"])


def measured_cells(rung, lowered, measured, below, record):
    seconds, most = measured["median_us"] / 1e6, ceilings(record, rung)
    return (
        spread(measured),
        f"{measured['mhz']:.0f}",
        f"{lowered.flop / seconds / 1e12:.1f}",
        f"{100 * lowered.flop / seconds / most.flop:.0f}" if most else NOT_MEASURED,
        share(results.fastest(record, CASE, measured["precision"], torch=True), measured),
        f"{below['median_us'] / measured['median_us']:.2f}" if below else "",
        deviations(record, CASE, rung),
    )


def note(record):
    text = (
        f"One training step of {CASE.batch} images with Adam. Floors are for an H200 ({roofline.in_words()}), and so are "
        "predictions, made from what was counted without a GPU. "
    )
    if not record:
        return text + "These rungs have not been measured on a GPU yet."
    return text + f"Measured {record['made'][:10]} on {record['machine']['device']}."


if __name__ == "__main__":
    main()
