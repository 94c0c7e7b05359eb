"""Write report.html and summary.json of a run from its artifacts."""

from ladder.pages import report
from ladder.workflow import stage_script


def make(work, inputs, params):
    numbers = report.summary(inputs, work.folder.name, params)
    page = report.page(inputs, numbers)
    work.write_json("summary.json", numbers)
    work.write_bytes("report.html", page.encode())


if __name__ == "__main__":
    stage_script.run(make)
