"""Stage `table`: the rows of a run with their names, labels, predictions and features, for programs
that read data frames.

params: none.  inputs: data; features (or joined ones) if the run has them; predictions: what
               answers for the run.
Writes features.parquet: a row for each image, the training images first, with the columns of
export/table.py.
"""

from ladder.errors import UserError
from ladder.machine import requirements
from ladder.progress import log, size
from ladder.stage import stage_script


def make(work, inputs, params):
    if reason := requirements.missing("table"):
        raise UserError(reason)
    from ladder.export import table  # it needs what `requirements` asks for

    with work.file("features.parquet") as path:
        work.metrics = table.write(path, inputs)
        log.info(
            "features.parquet: %d rows of %d features, %s",
            work.metrics["rows"],
            work.metrics["dimensions"],
            size(path.stat().st_size),
        )


if __name__ == "__main__":
    stage_script.run(make)
