"""Write report.html, summary.json and scored_images.csv of a run."""

from ladder.pages import report
from ladder.stage import stage_script


def make(work, inputs, params):
    numbers = report.summary(inputs, work.folder.name, params)
    work.write_json("summary.json", numbers)
    work.write_bytes("report.html", report.page(inputs, numbers).encode())
    work.write_bytes("scored_images.csv", report.csv_text(inputs).encode())


if __name__ == "__main__":
    stage_script.run(make)
