"""Stage `search`: the runs of the configuration's hyperparameter search, best first, and the
settings of the best one.

params: search (strategy, budget, seed, metric, validation, keys, settings: see
ladder/workflow/search.py); entries, [{"overrides": {key: value}, "reason": why it cannot run here,
or ''}].
inputs: report<n> and train<n> of each entry that ran; n is the entry's index.
Writes search.html, search.csv, search.json ({"search", "best", "rows": as in compare.json, each
with its "score"}), and best.yaml with the best run's hyperparameters and all other settings of the
search.
"""

from ladder.pages import search
from ladder.progress import log
from ladder.stage import stage_script


def make(work, inputs, params):
    outcome = search.Outcome(inputs, params)
    work.write_json("search.json", search.numbers(outcome))
    work.write_bytes("search.csv", search.csv_text(outcome).encode())
    work.write_bytes("best.yaml", search.best_yaml(outcome).encode())
    work.write_bytes("search.html", search.page(outcome).encode())
    if outcome.best:
        log.info(
            "the best of %d runs is run %d: %s",
            len(outcome.runs),
            outcome.best.number,
            search.verdict(outcome),
        )


if __name__ == "__main__":
    stage_script.run(make, takes_failed=True)
