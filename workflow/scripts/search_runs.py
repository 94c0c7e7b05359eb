"""Stage `search`: the settings of the best run of the configuration's hyperparameter search.

params: search (strategy, budget, seed, metric, validation, keys, settings: see
ladder/workflow/search.py); entries, [{"overrides": {key: value}, "reason": why it cannot run here,
or ''}].
inputs: report<n> of each entry that ran; n is the entry's index.
Writes best.yaml with the best run's hyperparameters and all other settings of the search.
"""

from ladder.pages.runs import search
from ladder.progress import log
from ladder.stage import stage_script


def make(work, inputs, params):
    reports = {
        number: inputs[f"report{number - 1}"]
        for number, entry in enumerate(params["entries"], 1)
        if not entry["reason"]
    }
    summaries = {
        number: report.json("summary.json")
        for number, report in reports.items()
        if not report.failed
    }
    outcome = search.Outcome(params["search"], params["entries"], summaries)
    work.write_bytes("best.yaml", search.best_yaml(outcome).encode())
    if outcome.best:
        log.info(
            "the best of %d runs is run %d: %s",
            len(outcome.entries),
            outcome.best,
            search.verdict(outcome),
        )


if __name__ == "__main__":
    stage_script.run(make, takes_failed=True)
