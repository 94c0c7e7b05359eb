"""Stage `compare`: the runs of the configuration's compare list beside each other.

params: entries, [{"overrides": {key: value}, "reason": why it cannot run here, or ''}].
inputs: report<n> and train<n>, what made the weights, of each entry that ran, n counting all entries from 0.
Writes compare.html, compare.csv, and compare.json: {"rows": [{"settings": the overrides, "versions", "summary"}]}, where the
last two are the report's and None, beside a "reason", for what cannot run here.
"""

from ladder.pages import compare
from ladder.workflow import stage_script


def make(work, inputs, params):
    runs = compare.runs(inputs, params["entries"])
    work.write_json("compare.json", {"rows": compare.rows(runs)})
    work.write_bytes("compare.csv", compare.csv_text(runs).encode())
    work.write_bytes("compare.html", compare.page(runs).encode())


if __name__ == "__main__":
    stage_script.run(make, takes_failed=True)
