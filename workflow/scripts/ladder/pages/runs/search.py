"""The best run of a hyperparameter search, as a file of settings for --configfile."""

import math

import yaml

from ladder.pages import templates

COMMAND = ".venv/bin/snakemake report --configfile results/best.yaml"
METRICS = {"auto": "accuracy", "network": "accuracy of the network", "svm": "accuracy of the SVM"}


class Outcome:
    """The result of a search.

    search     its parameters
    entries    those of its runs, in the order of the draws
    summaries  number of a run from 1 -> the summary of its report
    """

    def __init__(self, search, entries, summaries):
        self.search, self.entries, self.summaries = search, entries, summaries
        scored = [number for number in summaries if self.score(number) is not None]
        self.best = min(scored, key=self._rank, default=None)

    def score(self, number):
        """The validation accuracy (0 to 1) of a run that the search maximises; None without one."""
        summary = self.summaries[number]
        return (
            summary["svm"]["accuracy"]
            if self.search["metric"] == "svm"
            else summary["test_accuracy"]
        )

    def _rank(self, number):
        """The highest score first and, among equals, the smallest loss."""
        losses = self.summaries[number]["loss"]
        return -self.score(number), losses[-1] if losses else math.inf, number

    @property
    def overrides(self):
        return self.entries[self.best - 1]["overrides"]


def best_yaml(outcome):
    """The best run's hyperparameters, and after a blank line all other settings of the search."""
    if outcome.best is None:
        return "# No run of the search has a result.\n{}\n"
    rest = {
        key: value
        for key, value in outcome.search["settings"].items()
        if key not in outcome.overrides
    }
    return (
        f"# The best of {templates.counted(len(outcome.entries), 'run')}: {verdict(outcome)}.\n# To score it on the test "
        f"images, which the search did not use:\n#     {COMMAND}\n{_yaml(outcome.overrides)}\n"
        f"# The other settings of the search: this file depends neither on config.yaml nor on other files.\n{_yaml(rest)}"
    )


def verdict(outcome):
    """The best score in words: 'validation accuracy 98.6 % on 143 images'."""
    images = sum(map(sum, outcome.summaries[outcome.best]["confusion"]))
    return (
        f"validation {METRICS[outcome.search['metric']]} {100 * outcome.score(outcome.best):.1f} % on "
        f"{templates.counted(images, 'image')}"
    )


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
