"""results/runs.html, runs.csv and runs.json of all runs, and what a chosen run loads."""

import collections
import json

from ladder import progress
from ladder.arithmetic import multipliers
from ladder.errors import UserError
from ladder.pages import figures, intervals, output, templates
from ladder.pages.runs import best, columns, costs, discovery, single
from ladder.store import lineage

LISTED = 50  # rows of a page of the table
SHOWN = 5  # settings that have a column at first
FREEDOMS = 200  # degrees of freedom in the page's table of Student's t
NEW = 100  # runs that get files of their own in a command that makes something else
DECIDED = 100  # runs, the newest, whose decisions are kept for an ensemble
COUNTED = ("finished", "trained")  # states of runs that have files of their own
ROUGH = ("seconds", "rate", "bytes")  # forms of which a page shows no more than four digits
SNAKEMAKE = ".venv/bin/snakemake"
# Anchor -> title, file, what it shows, and the command that makes it.
PAGES = {
    "report": ("Report", "report.html", "the latest run", f"{SNAKEMAKE} report"),
    "predictions": (
        "Predictions",
        "predictions.html",
        "a run's answers for pictures of your own",
        f"{SNAKEMAKE} results/predictions.html --config predict=FOLDER",
    ),
    "network": (
        "Network",
        "network.html",
        "the network drawn, with its cost by layer",
        f"{SNAKEMAKE} results/network.html",
    ),
    "parity": (
        "Ladder",
        "parity.html",
        "every rung that this machine can run, checked and timed",
        f"{SNAKEMAKE} results/parity.html",
    ),
    "model": ("Model", "model.zip", "a run for other programs: ONNX, PyTorch", "make model"),
    "gpu-check": (
        "GPU check",
        "gpu-check/index.html",
        "every rung on a GPU, beside PyTorch",
        "make gpu-check",
    ),
}
# Columns of the first view, where a run has them, and those that show the run itself.
RESULTS = (*columns.WITH_INTERVAL, "training_loss", "seconds")
SCHEMA = 1  # of runs.json, raised with every change of its keys


def page(runs, defaults, entry=dict, files=()):
    """The page as one HTML text.

    runs: of discovery.runs; defaults: key -> value of the settings of a run in the configuration;
    entry: the function of Run.written that returns the overrides by which an entry of the list
    `runs` is the same run; files: the names of those in results/.
    """
    shown = context(runs, defaults, entry)
    return templates.render("runs.html", {**shown, "pages": PAGES, "files": files})


def context(runs, defaults, entry):
    """All variables of the template."""
    table, finished = _columns(runs), [run for run in runs if run.about["state"] == "finished"]
    shown = _shown(table)
    return {
        "up": "",
        "here": "runs",
        "count": len(runs),
        "finished": len(finished),
        "leaders": [_departing(leader, defaults) for leader in best.leaders(finished)],
        "latest": finished[0] if finished else None,
        "running": [run for run in runs if run.about["state"] == "running"],
        "heads": ["run", *(table[key]["title"] for key in shown)],
        "newest": [(run, [_cell(run, key) for key in shown]) for run in runs[:LISTED]],
        "data": {
            "columns": [{**column, "values": coded(column["values"])} for column in table.values()],
            "shown": ["run", *shown],
            "count": len(runs),
            "listed": LISTED,
            "decided": DECIDED,
            "mark": single.mark(),
            "again": _again(runs),
            "multipliers": _multipliers(runs),
            "unsaid": coded([run.unsaid for run in runs]),
            "entries": {key: coded(values) for key, values in _entries(runs, entry).items()},
            "t": _student(min(FREEDOMS, len(runs) - 1)),
        },
    }


def _student(freedoms):
    """Student's t beyond which 2.5 % lie, of 1 to so many degrees of freedom."""
    if freedoms < 1:
        return []
    from scipy.special import stdtrit  # here, because it takes a quarter of a second

    return [round(float(stdtrit(n, 0.975)), 6) for n in range(1, freedoms + 1)]


def _entries(runs, entry):
    """Key -> its value in the entry of each run, None where it has none."""
    each = [entry(run.written) if run.written else {} for run in runs]
    keys = dict.fromkeys(key for values in each for key in values)
    return {key: [[values[key]] if key in values else None for values in each] for key in keys}


def _columns(runs):
    """Key -> {"key", "kind", "title", "form", "text", "better", "values"} and of some "ends"."""
    table = {
        key: _column(
            key,
            "about",
            columns.Column(key.replace("_", " "), "text", text.replace("`", "")),
            [run.about.get(key, "") for run in runs],
        )
        for key, text in columns.ABOUT.items()
    }
    for key in _settings(runs):
        values = [
            templates.setting(run.settings[key]) if key in run.settings else None for run in runs
        ]
        table[key] = _column(key, "setting", columns.Column(key, "setting", "a setting"), values)
    for key in _numbers(runs):
        shape, ends = columns.column(key), [run.ends.get(key) for run in runs]
        values = [_short(run.numbers.get(key), shape.form) for run in runs]
        table[key] = _column(key, "number", shape, values)
        if any(ends):
            table[key]["ends"] = [pair and [*map(_short, pair)] for pair in ends]
    return table


def _column(key, kind, shape, values):
    return {"key": key, "kind": kind, **shape._asdict(), "values": values}


def _again(runs):
    """Number of a run that another report shows too -> that of the first such report."""
    keys = [best.computed(run) for run in runs]
    firsts = {}
    for number, key in enumerate(keys):
        firsts.setdefault(key, number)
    return {number: firsts[key] for number, key in enumerate(keys) if firsts[key] != number}


def _multipliers(runs):
    """The inexact multipliers by a formula that a run was tested with, which have a picture."""
    both = [map(run.settings.get, ("multiplier", "test_multiplier")) for run in runs]
    used = [own if tested in (None, "same") else tested for own, tested in both]
    return [name for name in multipliers.MULTIPLIERS if name != "exact" and name in used]


def _settings(runs):
    """All settings: best.FIRST, then those that differ most often."""
    counts = collections.defaultdict(collections.Counter)
    for run in runs:
        for key, value in run.settings.items():
            counts[key][templates.setting(value)] += 1
    rare = {key: count.total() - max(count.values()) for key, count in counts.items()}
    return sorted(
        counts,
        key=lambda key: (len(counts[key]) < 2, key not in best.FIRST, -rare[key], key),
    )


def _numbers(runs):
    """The columns of numbers that a run has, in the order of columns.NUMBERS and FAMILIES."""
    order = [*columns.NUMBERS, *columns.FAMILIES]
    there = dict.fromkeys(key for run in runs for key in run.numbers)
    return sorted(
        there,
        key=lambda key: (
            order.index(key)
            if key in columns.NUMBERS
            else next(at for at, family in enumerate(order) if key.startswith(family))
        ),
    )


def _shown(table):
    """The keys of the first view."""
    results = [key for key in RESULTS if key in table]
    differing = {}  # values -> the first key that has them
    for key, column in table.items():
        if column["kind"] == "setting" and len(set(column["values"]) - {None}) > 1:
            differing.setdefault(repr(column["values"]), key)
    return [*results[:-2], *list(differing.values())[:SHOWN], *results[-2:], "made"]


def _cell(run, key):
    """What a page shows of a run without its script: (text, text of the interval)."""
    if key in run.ends:
        within = intervals.within(run.numbers[key], run.ends[key])
        return within["text"], within["interval_text"]
    if key in run.settings:
        return templates.setting(run.settings[key]), ""
    if key in run.numbers:
        is_time = columns.column(key).form == "seconds"
        return (templates.duration if is_time else "{:.4g}".format)(run.numbers[key]), ""
    return templates.moment(run.about.get(key) or ""), ""


def coded(values):
    """{"values": each different one once, "of": which of them each has; one number if all agree},
    or the values themselves where that is shorter.
    """
    numbers = {}
    each = [numbers.setdefault(json.dumps(value), len(numbers)) for value in values]
    if len(numbers) > len(values) / 2 > 1:
        return values
    return {
        "values": [json.loads(text) for text in numbers],
        "of": each[0] if len(numbers) == 1 else each,
    }


def _short(value, form=""):
    """A number with the digits that a page shows of it; a whole one without a point."""
    if value is None:
        return None
    short = float(f"{value:.4g}" if form in ROUGH else f"{value:.6g}")
    return int(short) if short.is_integer() else short


def _departing(leader, defaults):
    """A leader with "departs": setting -> text of what differs from the configuration. What that
    leaves to the machine or the run, `auto`, does not.
    """
    usual = {key: templates.setting(value) for key, value in defaults.items() if value != "auto"}
    settings = sorted(leader["run"].settings.items())
    texts = {key: templates.setting(value) for key, value in settings}
    departs = {
        key: text
        for key, text in texts.items()
        if text != usual.get(key, text) and key != "dataset"
    }
    return {**leader, "departs": departs}


# For programs.


def rows(runs):
    """Every run as one flat object, JSON-able: the texts of columns.ABOUT, settings and numbers,
    these with the ends of their intervals.
    """
    return [
        {
            **{key: run.about.get(key) for key in columns.ABOUT},
            "settings": run.settings,
            "numbers": run.numbers
            | {
                f"{key}_{end}": value
                for key, pair in run.ends.items()
                for end, value in zip(("low", "high"), pair, strict=True)
            },
        }
        for run in runs
    ]


def json_text(runs):
    """runs.json: the columns, and a line for each run."""
    described = {key: {"kind": "about", "text": text} for key, text in columns.ABOUT.items()}
    described |= {key: {"kind": "setting", "text": "a setting"} for key in _settings(runs)}
    described |= {
        key: {"kind": "number", "text": f"{columns.column(key).title}: {columns.column(key).text}"}
        for key in _numbers(runs)
    }
    lines = ",\n".join(map(json.dumps, rows(runs)))
    head = f'"schema_version": {SCHEMA},\n"columns": {json.dumps(described)}'
    return f'{{{head},\n"runs": [\n{lines}\n]}}\n'


def csv_text(runs):
    """runs.csv: a line for each run, the same columns as runs.json."""
    listed = rows(runs)
    lines = [
        {
            **{
                key: " ".join(map(str, value)) if isinstance(value, list) else value
                for key, value in row.items()
            },
            **{key: templates.setting(value) for key, value in row["settings"].items()},
            **row["numbers"],
        }
        for row in listed
    ]
    numbers = dict.fromkeys(key for row in listed for key in row["numbers"])
    return output.csv_text([*columns.ABOUT, *_settings(runs), *numbers], lines)


def _files(run, folder, decides, store):
    """The names of the files of a run, which are written; none, with a line that says so, where an
    artifact is damaged or of another release: the other runs have theirs.
    """
    try:
        return single.write(run, folder, decides, store)
    except UserError as error:
        fault = str(error)
    except discovery.ODD as error:
        fault = f"made by another release: {error!r}"
    progress.log.info("%s has no file for the page of runs: %s", run.version, fault)
    return set()


def write(runs, results, defaults, entry, most=NEW):
    """Write the page, its numbers and the files of its runs into the folder `results`; most: of
    runs without files, the newest, that get some.
    """
    folder, store = results / discovery.FOLDER, lineage.Store(results)
    folder.mkdir(parents=True, exist_ok=True)
    pictures = {f"{name}{single.mark()}.png": name for name in _multipliers(runs)}
    for file, name in pictures.items():
        single.keep(folder / file, lambda name=name: figures.png(costs.picture(name)))
    names_there, count = {"rows.json", *pictures}, 0
    for number, run in enumerate(run for run in runs if run.about["state"] in COUNTED):
        names = single.files_of(run, folder, number < DECIDED)
        if not names and count < most:
            names, count = _files(run, folder, number < DECIDED, store), count + 1
            if count % 100 == 0:
                progress.log.info("files of %d runs written", count)
        names_there |= names
    for path in folder.iterdir():
        if path.name not in names_there and not path.name.startswith("."):
            path.unlink()
    output.write(results / "runs.json", json_text(runs))
    output.write(results / "runs.csv", csv_text(runs))
    files = {path.name for path in results.iterdir()}
    output.write(results / "runs.html", page(runs, defaults, entry, files))
