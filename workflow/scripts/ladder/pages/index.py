"""The first page of a results folder: its latest run, the accuracies of all runs by time, and every page that there is.

Only manifests and summaries of reports are read, and nothing is run.
"""

import json
import math
import pathlib
import time

from ladder.errors import UserError
from ladder.pages import history, intervals, templates
from ladder.store import artifacts, lineage

NAME = "index.html"
LATEST = 8      # runs listed
LEAST_ERROR = 1e-4   # drawn as no error
DRAWN = 60      # accuracies in a sparkline, the latest ones
# Page of templates.SITE -> what it shows, and the command that makes it.
PAGES = {
    "report": ("The latest run: its accuracy beside its controls, and everything behind it", "report"),
    "history": ("Every run in this folder", "results/history.html"),
    "compare": ("Several runs beside each other", "results/compare.html --config 'compare=[{batch_size: [32, 64]}]'"),
    "diff": ("What differs between two versions", "results/diff.html --config 'diff=[A,B]'"),
    "search": ("A hyperparameter search", "results/search.html --config 'search={keys: {batch_size: [32, 64]}}'"),
    "multipliers": ("What approximate multipliers cost in accuracy",
                    "results/multipliers.html --configfile presets/mnist_multipliers.yaml"),
    "predictions": ("A run's answers for pictures of your own", "results/predictions.html --config predict=FOLDER"),
    "network": ("The network drawn, with its cost by layer", "results/network.html"),
    "gradients": ("The backward pass of every layer, checked by finite differences", "results/gradients.html"),
    "parity": ("Every rung that this machine can run, checked and timed", "results/parity.html"),
}


def runs(results):
    """{"version", "made", "summary"} of each finished report that can be read, the oldest first."""
    finished = []
    for version, folder in lineage.Store(results).folders().items():
        if folder.parent.name != "report":
            continue
        try:
            report = artifacts.Artifact(folder)
            summary = None if report.failed else report.json("summary.json")
            if summary and not history.fault_of(summary):
                finished.append({"version": version, "made": report.manifest["made"], "summary": summary})
        except (UserError, OSError, json.JSONDecodeError):   # unfinished or damaged
            continue
    return sorted(finished, key=lambda run: (run["made"], run["version"]))


def page(results):
    """The page as one HTML text."""
    return templates.render(NAME, context(pathlib.Path(results)))


def context(results):
    """All variables of the template."""
    finished = runs(results)
    return {
        "up": "", "here": "", "count": len(finished), "latest": _row(finished[-1]) if finished else None,
        "rows": [_row(run) for run in reversed(finished[-LATEST:])],
        "lines": [_sparkline(dataset, runs) for dataset, runs in sorted(_by_dataset(finished).items())],
        "pages": [{"name": name, "title": title, "made": _made(results / f"{name}.html"), "what": PAGES[name][0],
                   "command": f".venv/bin/snakemake {PAGES[name][1]}"} for name, title in templates.SITE.items()],
        "gpu_check": (results / "gpu-check" / NAME).exists(),
    }


def _made(path):
    """When a page was made, '2026-01-31 12:34'; None if it is not there."""
    return time.strftime("%Y-%m-%d %H:%M", time.gmtime(path.stat().st_mtime)) if path.exists() else None


def _row(run):
    summary = run["summary"]
    accuracy, interval = summary.get("test_accuracy"), summary.get("accuracy_interval")
    return {"version": run["version"], "made": run["made"], "link": f"report/{run['version']}/report.html",
            "name": summary.get("name"), "tags": summary.get("tags") or [], "verdict": summary.get("verdict"),
            "what": f"{templates.network_title(summary['network'])} on {templates.dataset_title(summary['dataset'])}",
            "accuracy": intervals.accuracy(summary),
            "interval": intervals.within(accuracy, interval)["interval_text"] if interval else "",
            "validation": bool(summary.get("validation"))}


def _by_dataset(runs):
    """Title of a data set -> its runs that were scored on test images."""
    grouped = {}
    for run in runs:
        if run["summary"].get("test_accuracy") is not None and not run["summary"].get("validation"):
            grouped.setdefault(templates.dataset_title(run["summary"]["dataset"]), []).append(run)
    return grouped


def _sparkline(dataset, runs):
    """The accuracies of a data set's runs in the order of their time, as places in percent of a small drawing."""
    shown = runs[-DRAWN:]
    values = [run["summary"]["test_accuracy"] for run in shown]
    heights = [-math.log(max(1 - value, LEAST_ERROR)) for value in values]   # so that good ones can be told apart
    low, high = min(heights), max(heights)
    points = [(100 * at / max(1, len(heights) - 1), 90 - 80 * (height - low) / ((high - low) or 1))
              for at, height in enumerate(heights)]
    best = max(shown, key=lambda run: run["summary"]["test_accuracy"])
    rows = [[dataset, run["version"], run["made"], value] for run, value in zip(shown, values, strict=True)]
    return {"dataset": dataset, "count": len(runs), "rows": rows,
            "path": "M" + " L".join(f"{x:.1f} {y:.1f}" for x, y in points),
            "last": {"x": round(points[-1][0], 1), "y": round(points[-1][1], 1),
                     "text": intervals.accuracy(shown[-1]["summary"])},
            "best": {"text": intervals.accuracy(best["summary"]), "link": _row(best)["link"],
                     "made": best["made"]}}
