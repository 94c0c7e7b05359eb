"""The runs of a hyperparameter search, best first: numbers for programs, the best run's settings as a preset, and the page."""

import functools
import math

import yaml

from ladder.pages import charts, compare, intervals, templates

COMMAND = ".venv/bin/snakemake report --configfile results/best.yaml"
SPREAD = 0.6           # share of the width of a choice over which its runs are spread, so that they do not overlap
GOLDEN = (math.sqrt(5) - 1) / 2   # the fractional parts of its multiples are evenly distributed
PRUNED = "pruned after "   # how the reason of a run begins that a search has given up
METRICS = {"auto": "accuracy", "network": "accuracy of the network", "svm": "accuracy of the SVM"}


class Found:
    """The result of a search. search: its params; runs: [compare.Run] in the order of the draws; ranked: best first."""

    def __init__(self, inputs, params):
        self.search = params["search"]
        self.runs = compare.runs(inputs, params["entries"])
        self.ranked = sorted(self.runs, key=self._rank)

    def score(self, run):
        """The accuracy (0 to 1) that the search maximises; None for a run without one."""
        if run.summary is None:
            return None
        return run.summary["svm"]["accuracy"] if self.search["metric"] == "svm" else run.summary["test_accuracy"]

    @property
    def role(self):
        """The classifier that the score is of: 'svm', or None for that of the run's test accuracy."""
        return "svm" if self.search["metric"] == "svm" else None

    @property
    def best(self):
        """The Run with the highest score and, among equals, the smallest loss; None if no run has a score."""
        return next((run for run in self.ranked if self.score(run) is not None), None)

    @functools.cached_property
    def scored(self):
        return [run for run in self.ranked if self.score(run) is not None]

    def _rank(self, run):
        score = self.score(run)
        return (1, 0, 0, run.number) if score is None else (0, -score, run.loss, run.number)


# For programs.

def numbers(found):
    """JSON-able: {"search", "best": number, score, settings and versions of the best run or None, "rows"}."""
    rows = [{"run": run.number, "score": found.score(run), **row}
            for run, row in zip(found.runs, compare.rows(found.runs), strict=True)]
    best = found.best and {key: rows[found.best.number - 1][key] for key in ("run", "score", "settings", "versions")}
    return {"search": found.search, "best": best, "rows": rows}


def csv_text(found):
    """As compare.csv_text, with the score of each run."""
    return compare.csv_text(found.runs, {"score": found.score})


def preset(found):
    """The best run's hyperparameters as YAML; '' if there is none."""
    return _yaml(found.best.overrides) if found.best else ""


def _yaml(settings):
    """A line for each setting, as in config.yaml."""
    return "".join(yaml.safe_dump({key: value}, default_flow_style=None if isinstance(value, list) else False, width=10_000,
                                  allow_unicode=True, sort_keys=False) for key, value in settings.items())


def best_yaml(found):
    """The preset as the content of a file for --configfile, with all other settings of the search after a blank line."""
    if not found.best:
        return "# No run of the search has a result.\n{}\n"
    rest = {key: value for key, value in found.search["settings"].items() if key not in found.best.overrides}
    return (f"# The best of {len(found.runs)} runs: {verdict(found)}.\n# To score it on the test images, which the "
            f"search did not use:\n#     {COMMAND}\n{preset(found)}\n"
            f"# The other settings of the search: this file depends neither on config.yaml nor on other files.\n{_yaml(rest)}")


def verdict(found):
    """The best score in words: 'hold-out accuracy 98.6 % on 143 training images held out'."""
    return (f"hold-out {METRICS[found.search['metric']]} {100 * found.score(found.best):.1f} % on "
            f"{found.best.tested} training images held out")


# The page.

def page(found):
    """The page as one HTML text."""
    return templates.render("search.html", context(found))


def context(found):
    """All variables of the template."""
    search, keys = found.search, list(found.search["keys"])
    return {
        "count": len(found.runs), "search": search, "metric": METRICS[search["metric"]], "best": _best(found),
        "accuracies": _accuracies(found),
        "failed": [run for run in found.runs if run.failed],
        "pruned": [run for run in found.runs if is_pruned(run)],
        "missing": [run for run in found.runs if run.reason and not run.failed and not is_pruned(run)],
        "keys": keys, "space": [{"key": key, "text": _space(search, key)} for key in keys],
        "rows": [_row(found, run, keys) for run in found.ranked], "pictures": _pictures(found, keys),
        "preset": preset(found), "command": COMMAND,
    }


def is_pruned(run):
    """Whether a search gave the run up after its first epochs."""
    return run.reason.startswith(PRUNED)


def _best(found):
    """The best run, those with the same score, and its lead over the next ones; None if no run has a score."""
    if not found.scored:
        return None
    first, score = found.best, found.score(found.best)
    alike = [run for run in found.scored if found.score(run) == score and run is not first]
    lower = found.scored[1 + len(alike):]
    best = {"number": first.number, **intervals.share(score, first.tested), "tested": first.tested,
            "alike": sorted(run.number for run in alike), "smallest_loss": all(first.loss < run.loss for run in alike),
            "next": []}
    if lower:
        best |= {"next": sorted(run.number for run in lower if found.score(run) == found.score(lower[0])),
                 **compare.lead(compare.difference(first, lower[0], found.role))}
    return best


def _accuracies(found):
    """The scores of the best runs with their intervals on one axis, best first, as in compare."""
    if not found.scored:
        return None
    return intervals.chart([{"key": "own" if run is found.best else "", "name": f"run {run.number}",
                             "note": ", ".join(f"{key} {compare.written(value)}" for key, value in run.overrides.items()),
                             **intervals.share(found.score(run), run.tested)} for run in found.scored[:compare.CHARTED]])


def _space(search, key):
    rule = search["keys"][key]
    if isinstance(rule, list):
        return " | ".join(templates.setting(value) for value in rule)
    return f"{rule['min']:g} to {rule['max']:g}{', on a logarithmic scale' if rule['scale'] == 'log' else ''}"


def _row(found, run, keys):
    row = {"number": run.number, "reason": run.reason, "failed": run.failed, "pruned": is_pruned(run),
           "settings": [compare.cell(run.overrides[key]) for key in keys]}
    score = found.score(run)
    if score is None:
        return row
    told = intervals.share(score, run.tested)
    return {**row, "report": run.summary["versions"]["report"], "best": run is found.best,
            "score": {"value": score, "text": told["text"], "interval": told["interval_text"]},
            "loss": {"value": run.loss if math.isfinite(run.loss) else "", "text": f"{run.loss:.4g}"},
            "seconds": {"value": run.seconds, "text": templates.duration(run.seconds)}}


# The plots: one for each hyperparameter, with a point for each run.

def _pictures(found, keys):
    """A scatter for each key. Failed runs are at the bottom; runs of one of several choices are spread over its width."""
    if not found.scored:
        return []
    y = charts.share_axis([found.score(run) for run in found.scored], f"hold-out {METRICS[found.search['metric']]}")
    bottom, _ = y.ranges[y.kind]
    shown = [run for run in reversed(found.ranked) if run.failed or found.score(run) is not None]   # the best on top
    pictures = []
    for key in keys:
        x, place = _axis(found.search["keys"][key], key)
        points = [{"x": place(run), **_point(found, run, key, bottom)} for run in shown]
        series = [{"name": "runs", "key": "runs", "series": 1, "points": points}]
        pictures.append({"key": key, "failed": any(run.failed for run in shown),
                         **charts.scatter(f"Search: {key}", series, x, y)})
    return pictures


def _point(found, run, key, bottom):
    score, value = found.score(run), compare.written(run.overrides[key])
    return {"run": str(run.number), "y": bottom if score is None else score,
            "look": "failed" if score is None else "best" if run is found.best else "",
            "text": f"run {run.number}, {value}: {'failed' if score is None else templates.percent(score)}"}


def _axis(rule, key):
    """(charts.Axis, function: run -> its value on it)."""
    if not isinstance(rule, list):
        return charts.number_axis(rule["min"], rule["max"], key, rule["scale"]), lambda run: run.overrides[key]
    texts = [compare.written(value) for value in rule]

    def place(run):
        return texts.index(compare.written(run.overrides[key])) + 0.5 + (run.number * GOLDEN % 1 - 0.5) * SPREAD

    return charts.named_axis(texts, key), place
