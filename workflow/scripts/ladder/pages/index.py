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
TOLD = {
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
    store, found = lineage.Store(results), []
    for version, folder in store.folders().items():
        if folder.parent.name != "report":
            continue
        try:
            report = artifacts.Artifact(folder)
            summary = None if report.failed else report.json("summary.json")
            if summary and not history.fault_of(summary):
                found.append({"version": version, "made": report.manifest["made"], "summary": summary})
        except (UserError, OSError, json.JSONDecodeError):   # unfinished or damaged
            continue
    return sorted(found, key=lambda run: (run["made"], run["version"]))


def page(results):
    """The page as one HTML text."""
    return templates.render(NAME, context(pathlib.Path(results)))


def context(results):
    """All variables of the template."""
    found = runs(results)
    return {
        "up": "", "here": "", "count": len(found), "latest": _row(found[-1]) if found else None,
        "rows": [_row(run) for run in reversed(found[-LATEST:])],
        "lines": [_sparkline(dataset, some) for dataset, some in sorted(_by_dataset(found).items())],
        "pages": [{"name": name, "title": title, "made": _made(results / f"{name}.html"), "what": TOLD[name][0],
                   "command": f".venv/bin/snakemake {TOLD[name][1]}"} for name, title in templates.SITE.items()],
        "gpu_check": (results / "gpu-check" / NAME).exists(),
    }


def _made(path):
    """When a page was made, '2026-01-31 12:34'; None if it is not there."""
    return time.strftime("%Y-%m-%d %H:%M", time.gmtime(path.stat().st_mtime)) if path.exists() else None


def _row(run):
    of, interval = run["summary"], run["summary"].get("accuracy_interval")
    digits = intervals.decimals(interval) if interval else 1
    return {"version": run["version"], "made": run["made"], "link": f"report/{run['version']}/report.html",
            "name": of.get("name"), "tags": of.get("tags") or [], "verdict": of.get("verdict"),
            "what": f"{templates.network_title(of['network'])} on {templates.dataset_title(of['dataset'])}",
            "accuracy": intervals.accuracy(of),
            "interval": f"{100 * interval[0]:.{digits}f} to {100 * interval[1]:.{digits}f}" if interval else "",
            "holdout": bool(of.get("holdout"))}


def _by_dataset(found):
    """Title of a data set -> its runs that were scored on test images."""
    grouped = {}
    for run in found:
        if run["summary"].get("test_accuracy") is not None and not run["summary"].get("holdout"):
            grouped.setdefault(templates.dataset_title(run["summary"]["dataset"]), []).append(run)
    return grouped


def _sparkline(dataset, some):
    """The accuracies of a data set's runs in the order of their time, as places in percent of a small drawing."""
    shown = some[-DRAWN:]
    values = [run["summary"]["test_accuracy"] for run in shown]
    heights = [-math.log(max(1 - value, LEAST_ERROR)) for value in values]   # so that good ones can be told apart
    low, high = min(heights), max(heights)
    points = [(100 * at / max(1, len(heights) - 1), 90 - 80 * (height - low) / ((high - low) or 1))
              for at, height in enumerate(heights)]
    best = max(shown, key=lambda run: run["summary"]["test_accuracy"])
    rows = [[dataset, run["version"], run["made"], value] for run, value in zip(shown, values, strict=True)]
    return {"dataset": dataset, "count": len(some), "rows": rows,
            "path": "M" + " L".join(f"{x:.1f} {y:.1f}" for x, y in points),
            "last": {"x": round(points[-1][0], 1), "y": round(points[-1][1], 1),
                     "text": intervals.accuracy(shown[-1]["summary"])},
            "best": {"text": intervals.accuracy(best["summary"]), "link": _row(best)["link"],
                     "made": best["made"]}}
