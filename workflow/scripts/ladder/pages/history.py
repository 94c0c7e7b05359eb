"""All reports below a results folder, newest first, and the page that lists them. Nothing is run
for it.
"""

import collections
import dataclasses
import json
import math
import pathlib
import types

from ladder import progress
from ladder.pages import intervals, reproduce, run_table, templates
from ladder.pages.sections import features
from ladder.store import lineage, manifests

FIRST = ("dataset", "network", "variant")  # their columns come before those of other settings
COLUMNS = 4  # of settings, at most; the last column has what else differs
LISTED = 50  # rows of a page of the table
# What the parameters of stages leave out where it is off, and a person may look for.
OFF = {"multiplier": "exact"}
# The parts of a summary that pages cannot do without, and their types.
SUMMARY = {
    **dict.fromkeys(FIRST, str),
    "loss": list | None,
    "seconds": dict,
    "validation": int,
    "versions": dict,
    "confusion": list | None,
}


@dataclasses.dataclass(frozen=True)
class Row:
    """One report. fault: the problem in words, '' for a finished report; with a fault there is no
    summary.

    made: the time stamp of the manifest; hosts: the machines that made the report and what it is
    made from, in the order of the work; settings: key -> value of everything that can change the
    run, for people; written: key -> value as config.yaml has to have them for the same run, and
    unsaid: the keys that cannot be told so; results: the folder with its artifacts.
    """

    version: str
    made: str
    fault: str = ""
    name: str = ""
    tags: tuple = ()
    hosts: tuple = ()
    settings: dict = dataclasses.field(default_factory=dict)
    written: dict = dataclasses.field(default_factory=dict)
    unsaid: tuple = ()
    summary: dict | None = None
    results: pathlib.Path = pathlib.Path()

    # What run_table asks of a run.

    @property
    def number(self):
        return self.version

    @property
    def accuracy(self):
        """The accuracy on the images that it is scored on; None without one, or where nothing says
        how many they are.
        """
        return self.summary.get("test_accuracy") if self.tested else None

    @property
    def tested(self):
        """The number of images that it is scored on."""
        return sum(map(sum, self.summary.get("confusion") or []))


def rows(results):
    """A Row for each folder in results/report, the newest first."""
    store = lineage.Store(results)
    folders = [folder for folder in store.folders().values() if folder.parent.name == "report"]
    return sorted(
        (_row(store, folder) for folder in folders),
        key=lambda row: (row.made, row.version),
        reverse=True,
    )


def _row(store, folder):
    manifest, version = store.manifest(folder.name), folder.name
    if manifest is None:
        damage = store.damage(version)
        return Row(
            version,
            _changed(folder),
            f"damaged: {damage}" if damage else "unfinished: interrupted or still running",
        )
    params = manifest["spec"]["params"]
    known = {
        "made": str(manifest.get("made", "")),
        "name": str(params.get("name") or ""),
        "tags": _tags(params),
        "hosts": _hosts(store, version),
        "settings": {**OFF, **store.settings(version)},
        "results": store.results,
        **_written(store, version),
    }
    if manifest.get("failed"):
        return Row(version, fault=f"failed: {manifest['failed']}", **known)
    try:
        for name in manifest["files"]:
            manifests.check(folder, name, manifest["files"])
    except manifests.Damaged as damage:
        return Row(version, fault=f"damaged: {damage.brief}", **known)
    summary = json.loads((folder / "summary.json").read_text("utf-8"))
    if fault := fault_of(summary):
        return Row(version, fault=fault, **known)
    return Row(version, summary=summary, **known)


def fault_of(summary):
    """Why the summary of a whole report cannot be shown, in words; '' for one of this release."""
    parts = summary if isinstance(summary, dict) else {}
    missing = [part for part, kind in SUMMARY.items() if not isinstance(parts.get(part, ...), kind)]
    return f"made by another release: its summary has no {missing[0]}" if missing else ""


def _written(store, version):
    """{"written", "unsaid"} of a report."""
    read = {role: store.manifest(parent) for role, parent in store.parents(version).items()}
    if None in read.values():
        return {"unsaid": ("the settings of stages that are no longer there",)}
    inputs = {role: types.SimpleNamespace(manifest=manifest) for role, manifest in read.items()}
    params = store.manifest(version)["spec"]["params"]
    return {
        "written": reproduce.settings(inputs, params),
        "unsaid": tuple(reproduce.unwritten(inputs)),
    }


def _tags(params):
    tags = params.get("tags") or []
    return tuple(map(str, tags if isinstance(tags, list) else [tags]))


def _hosts(store, version):
    """The names of the machines that made an artifact and its ancestors, the first one first."""
    manifests_of = filter(None, map(store.manifest, store.ancestors(version)))
    return tuple(
        dict.fromkeys(
            str(manifest["machine"].get("host") or "a machine without a name")
            for manifest in manifests_of
        )
    )


def _changed(folder):
    """The time of the last change in the folder, in the format of a manifest."""
    latest = max(path.lstat().st_mtime for path in (folder, *folder.iterdir()))
    return progress.utc(latest)


# The best.


def leaders(rows):
    """The best run on each data set, the data set with the most runs first.

    Test images count, and a validation set only where no run of the data set was scored on them.
    Each is a run_table.standing with "dataset", "row", "count" of runs, "notes", and if there is a
    next one "second", and "apart": setting -> (its text, the second's) where the two differ.
    """
    scored = collections.defaultdict(list)
    for row in rows:
        if row.summary and row.accuracy is not None:
            # two folders of a person's pictures have nothing in common
            dataset = row.summary["dataset"]
            scored[dataset, row.summary["versions"]["data"] if dataset == "folder" else ""].append(
                row
            )
    return [
        _leader(dataset, runs)
        for (dataset, _), runs in sorted(scored.items(), key=lambda item: (-len(item[1]), item[0]))
    ]


def _leader(dataset, runs):
    runs = [row for row in runs if not row.summary["validation"]] or runs
    # of equal ones the first that was made
    ranked = sorted(runs, key=lambda row: (-row.accuracy, row.made, row.version))
    lower = [row for row in ranked if row.accuracy < ranked[0].accuracy]
    best = {
        "dataset": templates.dataset_title(dataset),
        "row": ranked[0],
        "count": len(ranked),
        "notes": list(_notes(ranked[0].summary)),
        **run_table.standing(ranked[: len(ranked) - len(lower) + 1], lambda row: row.accuracy),
    }
    return (
        {**best, "second": lower[0], "apart": apart(ranked[0].settings, lower[0].settings)}
        if lower
        else best
    )


def apart(a, b):
    """Setting -> (text in a, text in b) where the two differ, those of both first; '–' for one that
    a run does not have.
    """
    order = sorted(
        a.keys() | b.keys(), key=lambda key: (not (key in a and key in b), key not in FIRST, key)
    )
    return {
        key: pair
        for key in order
        if len(
            set(pair := tuple(templates.setting(run[key]) if key in run else "–" for run in (a, b)))
        )
        > 1
    }


def departures(settings, defaults):
    """Setting -> text of what differs from the configuration. What that leaves to the machine or
    the run, `auto`, does not.
    """
    usual = {key: templates.setting(value) for key, value in defaults.items() if value != "auto"}
    texts = {key: templates.setting(value) for key, value in sorted(settings.items())}
    return {key: text for key, text in texts.items() if text != usual.get(key, text)}


# The page.


def page(rows, results, output, defaults, entry=dict):
    """The page as one HTML text; output: its path, from which its links lead to the reports in
    `results`.

    defaults: key -> value of the settings of a run in the configuration; entry: the function of
    Row.written that returns the overrides by which an entry of the list `compare` is the same run.
    """
    return templates.render("history.html", context(rows, results, output, defaults, entry))


def context(rows, results, output, defaults, entry=dict):
    """All variables of the template."""
    up, finished = templates.way_up(results, output), [row for row in rows if row.summary]
    settings = [texts(row) for row in rows]
    own = differing([text for text, row in zip(settings, rows, strict=True) if row.summary])
    columns, rest = list(own)[:COLUMNS], dict(list(own.items())[COLUMNS:])
    shown = [_shown(row, text, columns, rest, up) for row, text in zip(rows, settings, strict=True)]
    return {
        "up": up,
        "rows": shown,
        "listed": LISTED,
        "finished": len(finished),
        "columns": columns,
        "others": bool(rest),
        "first": rows[-1].made if rows else None,
        "last": rows[0].made if rows else None,
        "differing": list(own),
        "leaders": [
            {**best, "departs": _beside_dataset(departures(best["row"].settings, defaults))}
            for best in leaders(rows)
        ],
        "same": _same(finished, own, defaults),
        "accurate": any(row["accuracy"] for row in shown),
        "validation": any(row.summary["validation"] for row in finished),
        "data": {
            "up": up,
            "listed": LISTED,
            "own": list(own.items()),
            "columns": columns,
            "settings": _coded(settings),
            "entries": _coded([entry(row.written) if row.summary else {} for row in rows]),
            **(_data(rows, shown) if rows else {}),
        },
    }


def _beside_dataset(texts):
    return {key: text for key, text in texts.items() if key != "dataset"}


def texts(row):
    """Setting -> text; with the machine, in case there are several."""
    machine = {"machine": ", ".join(row.hosts)} if row.hosts else {}
    return {**{key: templates.setting(value) for key, value in row.settings.items()}, **machine}


def differing(texts):
    """Setting -> its most frequent text, of those that runs have differently: FIRST, then what
    differs from it most often.
    """
    counts = collections.defaultdict(collections.Counter)
    for run in texts:
        for key, text in run.items():
            counts[key][text] += 1
    rare = {
        key: count.total() - max(count.values()) for key, count in counts.items() if len(count) > 1
    }
    order = sorted(
        rare, key=lambda key: (FIRST.index(key) if key in FIRST else len(FIRST), -rare[key], key)
    )
    return {key: counts[key].most_common(1)[0][0] for key in order}


def _same(rows, own, defaults):
    """Setting -> {"text", "usual": what the configuration has instead, or ''}, of those of which
    runs have only one value.
    """
    values = {key: value for row in rows for key, value in row.settings.items() if key not in own}
    usual = departures(values, defaults)
    return {
        key: {
            "text": templates.setting(value),
            "usual": templates.setting(defaults[key]) if key in usual else "",
        }
        for key, value in sorted(values.items())
    }


def _shown(row, texts, columns, rest, up):
    """The cells of a row; columns: settings with one, rest: setting -> its most frequent text, of
    those in the last one.
    """
    known = "".join(f"{row.settings[key]}, " for key in FIRST[:2] if key in row.settings)
    shown = {
        "version": row.version,
        "made": row.made,
        "fault": row.fault and known + row.fault,
        "name": row.name,
        "tags": row.tags,
        "link": f"{up}report/{row.version}/report.html",
        "cells": [texts.get(key, "") for key in columns],
        "others": ", ".join(
            f"{key} {texts[key]}" for key in rest if texts.get(key, rest[key]) != rest[key]
        ),
        "accuracy": "",
        "notes": "",
    }
    if row.fault:
        return shown
    metrics = _metrics(row.summary)
    interval = row.summary.get("accuracy_interval")
    return {
        **shown,
        "metrics": metrics,
        "accuracy": intervals.accuracy(row.summary),
        "notes": ", ".join(_notes(row.summary)),
        "interval": intervals.within(row.summary["test_accuracy"], interval)["interval_text"]
        if interval
        else "",
        "loss": metrics["training loss"][1] if "training loss" in metrics else "",
        "time": metrics["time"][1],
    }


def _data(rows, shown):
    """What the page's script has of each run beside its settings: a list for each column, so that
    no key is there twice.
    """
    names = dict.fromkeys(
        (
            "accuracy",
            "training loss",
            "time",
            *(name for row in shown for name in row.get("metrics", ())),
        )
    )
    ends = [row.summary.get("accuracy_interval") if row.summary else None for row in rows]
    return {
        **{
            part: [row[part] for row in shown]
            for part in ("version", "made", "name", "tags", "fault", "notes")
        },
        "unsaid": [row.unsaid for row in rows],
        "interval": [row.get("interval", "") for row in shown],
        "ends": [end and [_short(value) for value in end] for end in ends],
        "metrics": [
            {"key": name, **_metric([row.get("metrics", {}).get(name) for row in shown])}
            for name in names
        ],
    }


def _metric(pairs):
    """{"values", "texts", "share": whether they are shares} of a column of (value, text) or
    None.
    """
    values, texts = zip(*(pair or (None, "") for pair in pairs), strict=True)
    return {
        "values": [value if value is None else _short(value) for value in values],
        "texts": texts,
        "share": all(text.endswith("%") for text in texts if text),
    }


def _coded(dicts):
    """Key -> {"values": each different one once, "of": which of them each dict has, -1 for none;
    one number if all agree}.
    """
    columns = {}
    for key in dict.fromkeys(key for values in dicts for key in values):
        numbers = {}
        each = [
            numbers.setdefault(json.dumps(values[key]), len(numbers)) if key in values else -1
            for values in dicts
        ]
        columns[key] = {
            "values": [json.loads(text) for text in numbers],
            "of": each[0] if len(set(each)) == 1 else each,
        }
    return columns


def _short(value):
    return float(f"{value:.6g}")


def _metrics(summary):
    """Name -> (value, text) of every number by which runs can be sorted."""
    shares = {
        "training accuracy": _last(summary.get("accuracy")),
        **{
            role.replace("_", ", "): value
            for role, value in (summary.get("evaluations") or {}).items()
        },
    }
    others = {
        "training loss": (_last(summary.get("loss")), "{:.4g}".format),
        "test loss": (summary.get("test_loss"), "{:.4g}".format),
        "KL divergence": (_last(summary.get("divergence")), "{:.4g}".format),
        "images/s": (summary.get("images_per_second"), templates.rate),
        "time": (sum(summary["seconds"].values()), templates.duration),
        "peak memory": (
            max(summary.get("peak_memory_bytes", {}).values(), default=None),
            templates.size,
        ),
    }
    reached = summary.get("test_accuracy")
    return {
        **({} if reached is None else {"accuracy": (reached, intervals.accuracy(summary))}),
        **{
            name: (value, templates.percent(value))
            for name, value in shares.items()
            if value is not None
        },
        **{
            f"points against {control['control'].replace('_', ', ')}": (
                control["difference"],
                intervals.points(
                    control["difference"], intervals.decimals(control["difference_interval"])
                ),
            )
            for control in summary.get("controls") or []
        },
        **{
            name: (value, text(value))
            for name, (value, text) in others.items()
            if isinstance(value, (int, float)) and math.isfinite(value)
        },
        **(
            {}
            if others["training loss"][0] is None or math.isfinite(others["training loss"][0])
            else {"training loss": (None, "not a number")}
        ),
    }


def _notes(summary):
    """What an accuracy must not be taken for: one on test images, or one of features learned
    without labels.
    """
    if summary.get("validation"):
        yield "validation"
    if features.with_labels(summary.get("features", [])) and summary.get("test_loss") is None:
        yield "features learned with labels"


def _last(losses):
    """The loss of the last epoch; None if nothing was trained."""
    return losses[-1] if losses else None
