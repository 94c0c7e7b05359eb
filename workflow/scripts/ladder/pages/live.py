"""The curves of the latest training from what it writes anyway: its log, its checkpoints, and in
the end its history.

Nothing is asked of the training, and no file of it is locked or changed.
"""

import json
import math
import pathlib
import re
import time

import numpy as np
import safetensors

from ladder.pages import charts, curves, templates

POINTS = 400  # maximum of a curve
NUMBER = r"(-?\d+(?:\.\d+)?(?:e[+-]?\d+)?|nan|inf)"
SCORES = rf"loss {NUMBER}(?:  accuracy ([\d.]+)%)?"
EPOCH = re.compile(
    rf"epoch (\d+)/(\d+)  {SCORES}(?:  validation {SCORES})?(.*?)  ([\d.,]+) images/s"
)
LENGTH = re.compile(r"estimate: .* for (\d+) steps, (\d+) in an epoch")
SECONDS = {"ms": 1e-3, "s": 1, "min": 60, "h": 3600, "d": 86400}
TIME = re.compile(r"([\d.]+) (ms|s|min|h|d)\b")
LATELY = 600  # seconds since the last line of a training that is taken to be running
STEP = re.compile(rf"step: (\d+), loss: {NUMBER}(?:, accuracy: ([\d.]+)%)?")
NO_CURVE: dict[str, list[float]] = {"steps": [], "losses": []}


def page():
    """The page as one HTML text, for a server that answers /state with `state`."""
    return templates.render("live.html", {})


def state(results, logs, version=None):
    """The training of this version, by default the latest, JSON-able; None if there is none.
    results, logs: the folders.

    {"version", "network": its title, '' if nothing says it, "running": [{"version", "network"}] of
    all that run, the latest first, "done", "epochs": see `_epochs`, "seconds": of all of them,
    "steps": [step], "of_steps": number of the last one, None if unknown, "losses": means up to each
    step, "accuracies": likewise or None, "validation_curve": {"steps", "losses"}, "chart": HTML of
    both curves, "last": line of the log}. A loss that is not finite is None, in an epoch "nan" or
    "inf".
    """
    log_files = sorted(
        pathlib.Path(logs, "train").glob("t*.log"), key=lambda path: path.stat().st_mtime
    )
    if not log_files:
        return None
    chosen = next((path for path in log_files if path.stem == version), log_files[-1])
    text, folder = (
        chosen.read_text("utf-8", errors="replace"),
        pathlib.Path(results, "train", chosen.stem),
    )
    epochs, length = _epochs(text), LENGTH.search(text)
    steps, losses, hits, validation = _history(folder) or _monitored(text)
    return {
        **_named(chosen),
        "running": [_named(path) for path in reversed(log_files) if _runs(path, results)],
        "done": (folder / "manifest.json").exists(),
        "epochs": epochs,
        "seconds": sum(epoch["seconds"] for epoch in epochs),
        "steps": steps,
        "of_steps": int(length[1]) if length else None,
        "losses": _finite(losses),
        "accuracies": hits,
        "validation_curve": {**validation, "losses": _finite(validation["losses"])},
        "chart": _chart(steps, losses, validation, _by(epochs, int(length[2]) if length else 0)),
        "last": text.strip().rpartition("\n")[2],
    }


def _epochs(text):
    """Those of a log: [{"epoch", "of", "loss", "accuracy", "validation_loss",
    "validation_accuracy", "speed", "seconds"}].
    """
    return [
        {
            "epoch": int(epoch),
            "of": int(total),
            "loss": _loss(loss),
            "speed": speed,
            "accuracy": _share(accuracy),
            "seconds": sum(float(number) * SECONDS[unit] for number, unit in TIME.findall(took)),
            "validation_loss": _loss(measured) if measured else None,
            "validation_accuracy": _share(share),
        }
        for epoch, total, loss, accuracy, measured, share, took, speed in EPOCH.findall(text)
    ]


def _named(log):
    return {"version": log.stem, "network": _network(log.with_suffix(".json"))}


def _runs(log, results):
    """Whether the training of a log runs: it wrote lately and has not ended."""
    return (
        time.time() - log.stat().st_mtime < LATELY
        and not pathlib.Path(results, "train", log.stem, "manifest.json").exists()
    )


def _by(epochs, per_epoch):
    """How the steps are counted: a function of them that gives their epochs and seconds; None where
    the log does not say.
    """
    if not epochs or not per_epoch:
        return None
    # as long as the last one
    seconds = np.cumsum([0, *(epoch["seconds"] for epoch in epochs), epochs[-1]["seconds"]])
    ends = per_epoch * np.arange(len(seconds))
    return lambda steps: [1, 1 / per_epoch, np.interp(steps, ends, seconds).tolist()]


def _network(job):
    """The title of the network that the job file beside the log names; '' without one."""
    try:
        settings = json.loads(job.read_text("utf-8"))["spec"]["params"]
    except (OSError, ValueError, KeyError):
        return ""
    return templates.network_title(settings["network"], settings.get("variational", False))


def _chart(steps, losses, validation, by=None):
    """The chart of the losses, HTML that charts.js draws, '' without any; by: of `_by`."""
    measured = {
        "training": (steps, losses),
        "validation": (validation["steps"], validation["losses"]),
    }
    points = {
        name: [(step, loss) for step, loss in zip(*curve, strict=True) if math.isfinite(loss)]
        for name, curve in measured.items()
    }
    series = [
        {
            "name": name,
            "label": f"{name} {pairs[-1][1]:.4g}",
            "series": number,
            "points": pairs,
            **({"by": by([step for step, _ in pairs])} if by else {}),
        }
        for number, (name, pairs) in enumerate(points.items(), 1)
        if pairs
    ]
    if not series:
        return ""
    y = charts.loss_axis([loss for pairs in points.values() for _, loss in pairs], "Loss")
    chart = charts.lines("Training loss", series, y, curves.BY if by else ("step",))
    return templates.render("live_chart.html", {"chart": chart, "validation": len(series) > 1})


def _loss(text):
    """A loss of the log as a number, or its name there, nan or inf: JSON has no such numbers."""
    return float(text) if math.isfinite(float(text)) else text


def _finite(losses):
    return [loss if math.isfinite(loss) else None for loss in losses]


def _share(percent):
    return float(percent) / 100 if percent else None


def _history(folder):
    """(steps, losses, None, validation curve) of the newest checkpoint or of the finished history;
    None if there is neither.
    """
    for path in [
        folder / "history.safetensors",
        *sorted(folder.glob("checkpoint*.safetensors"), reverse=True),
    ]:
        try:
            with safetensors.safe_open(path, framework="numpy") as file:
                names = set(file.keys())
                losses = file.get_tensor("losses" if "losses" in names else "history.losses")
                done = json.loads((file.metadata() or {}).get("state", "{}")).get(
                    "step", len(losses)
                )
                validation = {
                    kind: file.get_tensor(name).tolist()
                    for kind in ("steps", "losses")
                    for name in (f"validation_{kind}", f"validation.{kind}")
                    if name in names
                }
        # not there, or just being replaced
        except (OSError, safetensors.SafetensorError, KeyError, ValueError):
            continue
        return *_thinned(losses[:done]), None, validation or NO_CURVE
    return None


def _thinned(values):
    """(last step, mean) of at most POINTS windows of equal length."""
    if not len(values):
        return [], []
    ends = np.unique(np.linspace(0, len(values), min(POINTS, len(values)) + 1).astype(int))
    means = np.add.reduceat(values, ends[:-1]) / np.diff(ends)
    return ends[1:].tolist(), means.tolist()


def _monitored(text):
    """As _history, with accuracies or None, of the log's lines within an epoch, where `monitor`
    asks for them.
    """
    lines = STEP.findall(text)
    accuracies = [float(accuracy) / 100 for _, _, accuracy in lines if accuracy]
    return (
        [int(step) for step, _, _ in lines],
        [float(loss) for _, loss, _ in lines],
        accuracies or None,
        NO_CURVE,
    )
