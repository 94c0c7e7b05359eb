"""Write report.html, summary.json and scored_images.csv of a run; a run of its list that has failed
is a row with the reason.
"""

from ladder.errors import RunFailed
from ladder.pages import report
from ladder.stage import stage_script
from ladder.store.roles import Role


def make(work, inputs, params):
    failed = {role: artifact.failed for role, artifact in inputs.items() if artifact.failed}
    for role, reason in failed.items():
        if not Role.parse(role).is_of_another_run:
            raise RunFailed(reason)
    inputs = {role: artifact for role, artifact in inputs.items() if role not in failed}
    beside = [
        {**run, "reason": run["reason"] or failed.get(f"score_run{number}", "")}
        for number, run in enumerate(params.get("runs", ()), 1)
    ]
    params |= {"runs": beside} if beside else {}
    numbers = report.summary(inputs, work.folder.name, params)
    work.write_json("summary.json", numbers)
    work.write_bytes("report.html", report.page(inputs, numbers).encode())
    work.write_bytes("scored_images.csv", report.csv_text(inputs).encode())


if __name__ == "__main__":
    stage_script.run(make, takes_failed=True)
