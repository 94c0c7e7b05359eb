"""All reports below a results folder, newest first, and the page that lists them. Nothing is run for it."""

import collections
import dataclasses
import json
import math

from ladder import progress
from ladder.pages import intervals, templates
from ladder.pages.sections import features
from ladder.store import lineage, manifests

# Settings with columns of their own.
COLUMNS = {"dataset", "network", "variant"}
RESOLVED = ("auto", "all", "same")   # values that stand for others
# Settings that a report does not keep in the form that the configuration has.
UNSAID = {"features_concatenate", "initial_weights", "multiplier_identity", "test_multiplier_identity"}
# The parts of a summary that pages cannot do without, and their types.
SUMMARY = {**dict.fromkeys(sorted(COLUMNS), str), "loss": list | None, "seconds": dict, "validation": int}


@dataclasses.dataclass(frozen=True)
class Row:
    """One report. fault: the problem in words, '' for a finished report; with a fault there is no summary.

    made: the time stamp of the manifest; hosts: the machines that made the report and what it is made from, in the order of the
    work; settings: key -> value of everything that can change the run.
    """

    version: str
    made: str
    fault: str = ""
    name: str = ""
    tags: tuple = ()
    hosts: tuple = ()
    settings: dict = dataclasses.field(default_factory=dict)
    summary: dict | None = None


def rows(results):
    """A Row for each folder in results/report, the newest first."""
    store = lineage.Store(results)
    folders = [folder for folder in store.folders().values() if folder.parent.name == "report"]
    return sorted((_row(store, folder) for folder in folders), key=lambda row: (row.made, row.version), reverse=True)


def _row(store, folder):
    manifest, version = store.manifest(folder.name), folder.name
    if manifest is None:
        damage = store.damage(version)
        return Row(version, _changed(folder), f"damaged: {damage}" if damage else "unfinished: interrupted or still running")
    params = manifest["spec"]["params"]
    known = {"made": str(manifest.get("made", "")), "name": str(params.get("name") or ""), "tags": _tags(params),
             "hosts": _hosts(store, version), "settings": store.settings(version)}
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


def _tags(params):
    tags = params.get("tags") or []
    return tuple(map(str, tags if isinstance(tags, list) else [tags]))


def _hosts(store, version):
    """The names of the machines that made an artifact and its ancestors, the first one first."""
    manifests_of = filter(None, map(store.manifest, store.ancestors(version)))
    return tuple(dict.fromkeys(str(manifest["machine"].get("host") or "a machine without a name") for manifest in manifests_of))


def _changed(folder):
    """The time of the last change in the folder, in the format of a manifest."""
    latest = max(path.lstat().st_mtime for path in (folder, *folder.iterdir()))
    return progress.utc(latest)


# The page.

def page(rows, results, output, defaults):
    """The page as one HTML text; output: its path, from which its links lead to the reports in `results`.

    defaults: key -> value of the settings of a run in the configuration.
    """
    return templates.render("history.html", context(rows, results, output, defaults))


def context(rows, results, output, defaults):
    """All variables of the template."""
    usual = _usual(rows, defaults)
    up = templates.way_up(results, output)
    shown = [_shown(row, usual, up) for row in rows]
    return {
        "up": up,
        "rows": shown, "finished": sum(row.summary is not None for row in rows),
        "first": rows[-1].made if rows else None, "last": rows[0].made if rows else None,
        "usual": {key: text for key, text in usual.items() if key not in COLUMNS}, "every": usual,
        "named": any(row["name"] or row["tags"] for row in shown),
        "metrics": list(dict.fromkeys(key for row in shown if not row["fault"] for key in row["metrics"])),
        "hosts": len({host for row in rows for host in row.hosts}) > 1,
        "validation": any(row.summary and row.summary.get("validation") for row in rows),
        "accurate": any(row["accuracy"]["text"] for row in shown if not row["fault"]),
    }


def _usual(rows, defaults):
    """Setting -> the text of its default or, where that depends on the machine or the run, its most frequent value."""
    counts = {}
    for row in rows:
        for key, value in row.settings.items():
            counts.setdefault(key, collections.Counter())[templates.setting(value)] += 1
    resolved = {key for key, value in defaults.items() if value in RESOLVED and key in counts}
    texts = {key: templates.setting(value) for key, value in defaults.items()}
    return {key: counts[key].most_common(1)[0][0] if key in resolved or key not in texts else texts[key]
            for key in sorted(texts.keys() | counts.keys())} if rows else {}


def _shown(row, usual, up):
    settings = {key: templates.setting(value) for key, value in row.settings.items()}
    unusual = {key: text for key, text in settings.items() if text != usual[key] and key not in COLUMNS}
    shown = {"version": row.version, "made": row.made, "fault": row.fault, "name": row.name, "tags": row.tags,
             "hosts": row.hosts, "link": f"{up}report/{row.version}/report.html", "unusual": unusual,
             "own": {key: text for key, text in settings.items() if text != usual[key]} if settings else None}
    if row.fault:
        return {**shown, **{key: str(row.settings.get(key, "")) for key in COLUMNS}}
    summary, seconds = row.summary, sum(row.summary["seconds"].values())
    overrides = {key: row.settings[key] for key in shown["own"] if key not in UNSAID}
    return {**shown, "metrics": _metrics(summary), "unsaid": sorted(shown["own"].keys() & UNSAID),
            "overrides": json.dumps(overrides, ensure_ascii=False), **{key: summary[key] for key in COLUMNS},
            "accuracy": {"value": summary.get("test_accuracy"), "text": intervals.accuracy(summary),
                         "note": ", ".join(_notes(summary))},
            "loss": _loss(_last(summary["loss"])),
            "seconds": {"value": seconds, "text": templates.duration(seconds), "note": ""}}


def _metrics(summary):
    """Name -> (value, text) of every number by which runs can be sorted."""
    shares = {"training accuracy": _last(summary.get("accuracy")),
              **{role.replace("_", ", "): value for role, value in (summary.get("evaluations") or {}).items()}}
    others = {"training loss": (_last(summary.get("loss")), "{:.4g}".format),
              "test loss": (summary.get("test_loss"), "{:.4g}".format),
              "KL divergence": (_last(summary.get("divergence")), "{:.4g}".format),
              "images/s": (summary.get("images_per_second"), templates.rate),
              "time": (sum(summary["seconds"].values()), templates.duration),
              "peak memory": (max(summary.get("peak_memory_bytes", {}).values(), default=None), templates.size)}
    reached = summary.get("test_accuracy")
    return {
        **({} if reached is None else {"accuracy": (reached, intervals.accuracy(summary))}),
        **{name: (value, templates.percent(value)) for name, value in shares.items() if value is not None},
        **{f"points against {control['control'].replace('_', ', ')}": (control["difference"], intervals.points(
            control["difference"], intervals.decimals(control["difference_interval"])))
           for control in summary.get("controls") or []},
        **{name: (value, text(value)) for name, (value, text) in others.items()
           if isinstance(value, (int, float)) and math.isfinite(value)}}


def _notes(summary):
    """What an accuracy must not be taken for: one on test images, or one of features learned without labels."""
    if summary.get("validation"):
        yield "validation"
    if features.with_labels(summary.get("features", [])) and summary.get("test_loss") is None:
        yield "features learned with labels"


def _last(losses):
    """The loss of the last epoch; None if nothing was trained."""
    return losses[-1] if losses else None


def _loss(value):
    if value is None:
        return {"value": None, "text": "", "note": ""}
    finite = isinstance(value, (int, float)) and math.isfinite(value)
    return {"value": value if finite else None, "text": f"{value:.4g}" if finite else "not a number", "note": ""}
