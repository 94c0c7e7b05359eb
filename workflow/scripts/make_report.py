"""Write report.html and summary.json of a run from its artifacts, and its figures for papers if they are asked for."""

from ladder.pages import paper, report
from ladder.workflow import stage_script


def make(work, inputs, params):
    numbers = report.summary(inputs, work.folder.name, params)
    figures = paper.files(report.context(inputs, numbers)) if params.get("figures") else {}
    work.write_json("summary.json", numbers)
    work.write_bytes("report.html", report.page(inputs, numbers, figures).encode())
    for name, content in figures.items():
        work.write_bytes(name, content)


if __name__ == "__main__":
    stage_script.run(make)
