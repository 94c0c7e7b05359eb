"""Stage `multipliers`: a comparison of the multipliers, by the runs of the configuration's list of
multipliers.

params: entries, [{"overrides", "settings": {key: value} of everything that distinguishes the runs,
"reason": why it cannot run here, or ''}], and costs, the setting multiplier_costs where it has any.
inputs: report<n> and train<n> of each entry that ran; n is the entry's index.
Writes multipliers.html, multipliers.csv with a line for each network and multiplier, and
multipliers.json: {"rows": the same lines, "cells": [{"settings", "versions", "summary",
"reason"}]}; versions and summary come from the report, None without one.
"""

from ladder.pages import multiplier_runs, multipliers
from ladder.stage import stage_script


def make(work, inputs, params):
    runs = multiplier_runs.read(inputs, params["entries"])
    groups = multiplier_runs.groups(runs)
    costs = params.get("costs")
    rows = multiplier_runs.rows(groups, costs)
    work.write_json(
        "multipliers.json",
        {
            "rows": rows,
            "cells": [
                {
                    "settings": run.settings,
                    "versions": run.summary and run.summary["versions"],
                    "summary": run.summary,
                    "reason": run.reason,
                }
                for run in runs
            ],
        },
    )
    work.write_bytes("multipliers.csv", multiplier_runs.csv_text(rows).encode())
    work.write_bytes("multipliers.html", multipliers.page(groups, costs).encode())


if __name__ == "__main__":
    stage_script.run(make, takes_failed=True)
