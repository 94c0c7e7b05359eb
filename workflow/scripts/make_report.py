"""Write report.html, summary.json and scored_images.csv of a run, and its figures for papers if
they are asked for.
"""

from ladder.pages import paper, report
from ladder.workflow import stage_script


def make(work, inputs, params):
    numbers = report.summary(inputs, work.folder.name, params)
    figures = paper.write(work, report.context(inputs, numbers)) if params.get("figures") else {}
    work.write_json("summary.json", numbers)
    work.write_bytes("report.html", report.page(inputs, numbers, figures).encode())
    work.write_bytes("scored_images.csv", report.csv_text(inputs).encode())


if __name__ == "__main__":
    stage_script.run(make)
