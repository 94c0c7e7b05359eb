"""The runs of a hyperparameter search, best first: numbers for programs, the best run's settings as
a preset, and the page.
"""

import functools

import yaml

from ladder.pages import charts, intervals, run_table, templates
from ladder.pages.run_table import written

COMMAND = ".venv/bin/snakemake report --configfile results/best.yaml"
# share of the width of a choice over which its runs are spread, so that they do not overlap
PRUNED = "pruned after "  # how the reason of a run begins that a search has given up
METRICS = {"auto": "accuracy", "network": "accuracy of the network", "svm": "accuracy of the SVM"}


class Outcome:
    """The result of a search. search: its params; runs: [run_table.Run] in the order of the draws;
    ranked: best first.
    """

    def __init__(self, inputs, params):
        self.search = params["search"]
        self.runs = run_table.read(inputs, params["entries"])
        self.ranked = sorted(self.runs, key=self._rank)

    def score(self, run):
        """The accuracy (0 to 1) that the search maximises; None for a run without one."""
        if run.summary is None:
            return None
        return run.summary["svm"]["accuracy"] if self.search["metric"] == "svm" else run.accuracy

    @property
    def role(self):
        """The classifier that the score is of: 'svm', or None for that of the run's test
        accuracy.
        """
        return "svm" if self.search["metric"] == "svm" else None

    @functools.cached_property
    def scored(self):
        """The runs with a score, best first."""
        return [run for run in self.ranked if self.score(run) is not None]

    @property
    def best(self):
        """The Run with the highest score and, among equals, the smallest loss; None if no run has a
        score.
        """
        return next(iter(self.scored), None)

    def _rank(self, run):
        score = self.score(run)
        return (1, 0, 0, run.number) if score is None else (0, -score, run.loss, run.number)


# For programs.


def numbers(outcome):
    """JSON-able: {"search", "best": number, score, settings and versions of the best run or None,
    "rows"}.
    """
    rows = [
        {"run": run.number, "score": outcome.score(run), **row}
        for run, row in zip(outcome.runs, run_table.rows(outcome.runs), strict=True)
    ]
    best = outcome.best and {
        key: rows[outcome.best.number - 1][key] for key in ("run", "score", "settings", "versions")
    }
    return {"search": outcome.search, "best": best, "rows": rows}


def csv_text(outcome):
    """As run_table.csv_text, with the score of each run."""
    return run_table.csv_text(outcome.runs, {"score": outcome.score})


def preset(outcome):
    """The best run's hyperparameters as YAML; '' if there is none."""
    return _yaml(outcome.best.overrides) if outcome.best else ""


def _yaml(settings):
    """A line for each setting, as in config.yaml."""
    return "".join(
        yaml.safe_dump(
            {key: value},
            default_flow_style=None if isinstance(value, list) else False,
            width=10_000,
            allow_unicode=True,
            sort_keys=False,
        )
        for key, value in settings.items()
    )


def best_yaml(outcome):
    """The preset as the content of a file for --configfile, with all other settings of the search
    after a blank line.
    """
    if not outcome.best:
        return "# No run of the search has a result.\n{}\n"
    rest = {
        key: value
        for key, value in outcome.search["settings"].items()
        if key not in outcome.best.overrides
    }
    return (
        f"# The best of {templates.counted(len(outcome.runs), 'run')}: {verdict(outcome)}.\n# To score it on the test "
        f"images, which the search did not use:\n#     {COMMAND}\n{preset(outcome)}\n"
        f"# The other settings of the search: this file depends neither on config.yaml nor on other files.\n{_yaml(rest)}"
    )


def verdict(outcome):
    """The best score in words: 'validation accuracy 98.6 % on 143 images'."""
    return (
        f"validation {METRICS[outcome.search['metric']]} {100 * outcome.score(outcome.best):.1f} % on "
        f"{templates.counted(outcome.best.tested, 'image')}"
    )


# The page.


def page(outcome):
    """The page as one HTML text."""
    return templates.render("search.html", context(outcome))


def context(outcome):
    """All variables of the template."""
    search, keys = outcome.search, list(outcome.search["keys"])
    return {
        "count": len(outcome.runs),
        "search": search,
        "metric": METRICS[search["metric"]],
        "best": _best(outcome),
        "accuracies": _accuracies(outcome),
        "failed": [run for run in outcome.runs if run.failed],
        "pruned": [run for run in outcome.runs if is_pruned(run)],
        "missing": [
            run for run in outcome.runs if run.reason and not run.failed and not is_pruned(run)
        ],
        "keys": keys,
        "space": [{"key": key, "text": _space(search, key)} for key in keys],
        "rows": [_row(outcome, run, keys) for run in outcome.ranked],
        "pictures": _pictures(outcome, keys),
        "preset": preset(outcome),
        "command": COMMAND,
    }


def is_pruned(run):
    """Whether a search gave the run up after its first epochs."""
    return run.reason.startswith(PRUNED)


def _best(outcome):
    """run_table.standing, with "smallest_loss": whether the others with its score have larger ones;
    None without a score.
    """
    if not outcome.scored:
        return None
    best = run_table.standing(outcome.scored, outcome.score, outcome.role)
    others = [run for run in outcome.scored if run.number in best["alike"]]
    return {**best, "smallest_loss": all(outcome.best.loss < run.loss for run in others)}


def _accuracies(outcome):
    """The scores of the best runs, best first; None if no run has a score."""
    charted = outcome.scored[: run_table.CHARTED]
    labels = {
        run.number: ", ".join(f"{key} {written(value)}" for key, value in run.overrides.items())
        for run in charted
    }
    return (
        run_table.chart(charted, outcome.score, [outcome.best.number], labels) if charted else None
    )


def _space(search, key):
    rule = search["keys"][key]
    if isinstance(rule, list):
        return " | ".join(templates.setting(value) for value in rule)
    return f"{rule['min']:g} to {rule['max']:g}{', on a logarithmic scale' if rule['scale'] == 'log' else ''}"


def _row(outcome, run, keys):
    row, score = run_table.row(run, [run.overrides[key] for key in keys]), outcome.score(run)
    if score is None:
        return {**row, "pruned": is_pruned(run)}
    return {**row, "best": run is outcome.best, "score": intervals.share(score, run.tested)}


# The plots: one for each hyperparameter, with a point for each run.


def _pictures(outcome, keys):
    """A scatter for each key. Failed runs are at the bottom; runs of one of several choices are
    spread over its width.
    """
    if not outcome.scored:
        return []
    y = charts.share_axis(f"validation {METRICS[outcome.search['metric']]}")
    bottom = min(outcome.score(run) for run in outcome.scored)
    # the best on top
    shown = [
        run for run in reversed(outcome.ranked) if run.failed or outcome.score(run) is not None
    ]
    pictures = []
    for key in keys:
        x, place = _axis(outcome.search["keys"][key], key)
        points = [{"x": place(run), **_point(outcome, run, key, bottom)} for run in shown]
        series = [{"name": "runs", "key": "runs", "colour": 1, "points": points}]
        pictures.append(
            {
                "key": key,
                "failed": any(run.failed for run in shown),
                "chart": charts.scatter(f"Search: {key}", series, x, y),
            }
        )
    return pictures


def _point(outcome, run, key, bottom):
    score, value = outcome.score(run), written(run.overrides[key])
    return {
        "id": str(run.number),
        "y": bottom if score is None else score,
        "look": "failed" if score is None else "best" if run is outcome.best else "",
        "text": f"run {run.number}, {value}: {'failed' if score is None else templates.percent(score)}",
    }


def _axis(rule, key):
    """(axis, function: run -> its value on it)."""
    if isinstance(rule, list):
        texts = [written(value) for value in rule]
        return charts.named_axis(texts, key), lambda run: written(run.overrides[key])
    return charts.number_axis(key, rule["scale"]), lambda run: run.overrides[key]
