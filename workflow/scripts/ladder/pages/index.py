"""The first page of a results folder: the best run on each data set, the newest ones, and every
page that there is.

It is made at the end of every command that makes a page: of a report only its manifest and its
summary are read, and the history, which checks all files and holds all runs, is a page of its own.
Nothing is run.
"""

import dataclasses
import json
import pathlib
import time

from ladder.errors import UserError
from ladder.pages import history, intervals, templates
from ladder.store import artifacts, lineage

NAME = "index.html"
LATEST = 8  # runs listed
# Page of templates.SITE -> what it shows, and the command that makes it.
PAGES = {
    "report": (
        "The latest run: its accuracy beside its controls, and everything behind it",
        "report",
    ),
    "history": ("Every run in this folder", "results/history.html"),
    "compare": (
        "Several runs beside each other",
        "results/compare.html --config 'compare=[{batch_size: [32, 64]}]'",
    ),
    "diff": ("What differs between two versions", "results/diff.html --config 'diff=[A,B]'"),
    "search": (
        "A hyperparameter search",
        "results/search.html --config 'search={keys: {batch_size: [32, 64]}}'",
    ),
    "multipliers": (
        "What approximate multipliers cost in accuracy",
        "results/multipliers.html --configfile presets/mnist_multipliers.yaml",
    ),
    "predictions": (
        "A run's answers for pictures of your own",
        "results/predictions.html --config predict=FOLDER",
    ),
    "network": ("The network drawn, with its cost by layer", "results/network.html"),
    "parity": ("Every rung that this machine can run, checked and timed", "results/parity.html"),
}


def runs(results):
    """The history.Row of each finished report that can be read, without its settings, the newest
    first.
    """
    finished = []
    for version, folder in lineage.Store(results).folders().items():
        if folder.parent.name != "report":
            continue
        try:
            report = artifacts.Artifact(folder)
            summary = None if report.failed else report.json("summary.json")
            if summary and not history.fault_of(summary):
                finished.append(
                    history.Row(
                        version,
                        report.manifest["made"],
                        name=str(summary.get("name") or ""),
                        tags=tuple(summary.get("tags") or ()),
                        summary=summary,
                        results=folder.parents[1],
                    )
                )
        except (UserError, OSError, json.JSONDecodeError):  # unfinished or damaged
            continue
    return sorted(finished, key=lambda run: (run.made, run.version), reverse=True)


def page(results):
    """The page as one HTML text."""
    return templates.render(NAME, context(pathlib.Path(results)))


def context(results):
    """All variables of the template."""
    finished, store = runs(results), lineage.Store(results)
    newest = [_with_settings(run, store) for run in finished[:LATEST]]
    texts = [
        {key: templates.setting(value) for key, value in run.settings.items()} for run in newest
    ]
    return {
        "up": "",
        "here": "",
        "count": len(finished),
        "latest": newest[0] if newest else None,
        "leaders": [_apart(leader, store) for leader in history.leaders(finished)],
        "rows": [
            _row(run, own, history.differing(texts)) for run, own in zip(newest, texts, strict=True)
        ],
        "pages": [
            {
                "name": name,
                "title": title,
                "made": _made(results / f"{name}.html"),
                "what": PAGES[name][0],
                "command": f".venv/bin/snakemake {PAGES[name][1]}",
            }
            for name, title in templates.SITE.items()
        ],
        "model": _made(results / "model.zip"),
        "gpu_check": (results / "gpu-check" / NAME).exists(),
    }


def _made(path):
    """When a page was made, '2026-01-31 12:34'; None if it is not there."""
    return (
        time.strftime("%Y-%m-%d %H:%M", time.gmtime(path.stat().st_mtime))
        if path.exists()
        else None
    )


def _with_settings(run, store):
    return dataclasses.replace(run, settings=store.settings(run.version))


def _apart(leader, store):
    """history.leaders has read no settings here: those of the best run and the next one."""
    pair = [
        _with_settings(leader[which], store).settings
        for which in ("row", "second")
        if which in leader
    ]
    return {**leader, "apart": history.apart(*pair)} if len(pair) == 2 else leader


def _row(run, texts, differing):
    """What the list shows of a run: texts: its settings, of which it shows those that the listed
    runs have differently.
    """
    summary = run.summary
    accuracy, interval = summary.get("test_accuracy"), summary.get("accuracy_interval")
    return {
        "run": run,
        "what": templates.run_title(summary),
        "accuracy": intervals.accuracy(summary),
        "validation": bool(summary.get("validation")),
        "interval": intervals.within(accuracy, interval)["interval_text"] if interval else "",
        "apart": {
            key: texts[key] for key in differing if key in texts and key not in history.FIRST[:2]
        },
    }
