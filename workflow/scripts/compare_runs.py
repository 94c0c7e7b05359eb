"""Stage `compare`: a comparison of the runs in the configuration's compare list.

params: entries, [{"overrides": {key: value}, "reason": why it cannot run here, or ''}].
inputs: report<n> and train<n> (the artifact with the weights) of each entry that ran; n is the
entry's index. Writes compare.html, compare.csv, and compare.json: {"rows": [{"settings": the
overrides, "versions", "summary"}], "ensemble": ensemble.numbers}; versions and summary come from
the report and are None, with a "reason", for an entry without a result.
"""

from ladder.pages import compare, ensemble, run_table
from ladder.stage import stage_script


def make(work, inputs, params):
    runs = run_table.read(inputs, params["entries"])
    variables = compare.context(runs)
    work.write_json(
        "compare.json", {"rows": run_table.rows(runs), "ensemble": variables["ensemble"]}
    )
    work.write_bytes(
        "compare.csv",
        run_table.csv_text(runs, last=ensemble.csv_lines(variables["ensemble"])).encode(),
    )
    work.write_bytes("compare.html", compare.page(runs).encode())


if __name__ == "__main__":
    stage_script.run(make, takes_failed=True)
