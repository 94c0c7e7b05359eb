"""Stage `joined`: the concatenated features of several layers or networks.

params: weights, one for each part.  inputs: part1, part2, ...: features artifacts of the same
                                     images.
Writes train.npy and test.npy, float32 (N, dimensions): the columns of all parts in order, each
multiplied by its part's weight; and in the same way train_odd.npy and test_odd.npy of the parts
that have an odd part.
"""

import numpy as np

from ladder import progress
from ladder.features import mirrored
from ladder.progress import log
from ladder.stage import stage_script

ROWS = 2048  # rows per block


def make(work, inputs, params):
    parts = [inputs[f"part{number}"] for number in range(1, 1 + len(params["weights"]))]
    widths = [part.metrics["dimensions"] for part in parts]
    log.info("%s concatenated features: %d", " + ".join(map(str, widths)), sum(widths))
    odd = sum(part.metrics.get("odd_dimensions", 0) for part in parts)
    for name in ("train", "test"):
        join(work, f"{name}.npy", [part.array(f"{name}.npy") for part in parts], params["weights"])
        if odd:
            join(
                work,
                f"{name}_odd.npy",
                [mirrored.odd_part(part, name) for part in parts],
                params["weights"],
            )
    work.metrics = {
        "dimensions": sum(widths),
        "parts": widths,
        **({"odd_dimensions": odd} if odd else {}),
    }


def join(work, name, parts, weights):
    """Write the parts (N, D1), (N, D2), ..., multiplied by their weights, as one file (N, D1 + D2 +
    ...).
    """
    ends = np.cumsum([part.shape[1] for part in parts])
    with work.new_array(name, (len(parts[0]), ends[-1]), np.float32) as out:
        for start in progress.bar(range(0, len(out), ROWS), f"joining {name}", "block"):
            rows = slice(start, start + ROWS)
            for part, weight, end in zip(parts, weights, ends, strict=True):
                np.multiply(
                    part[rows], np.float32(weight), out=out[rows, end - part.shape[1] : end]
                )


if __name__ == "__main__":
    stage_script.run(make)
