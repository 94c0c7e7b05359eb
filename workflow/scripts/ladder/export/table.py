"""The rows of a run as a Parquet file, which data-frame programs read; docs/use.md says what each
column holds.
"""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ladder import progress
from ladder.classifiers import metrics, scoring
from ladder.data import names

GROUP = 1 << 26  # bytes of features in a row group, the only one in memory
ROWS = 1 << 16  # most rows in one
TEXTS = ["file", "split", "label", "prediction"]
COLUMNS = {"row": pa.int32(), **dict.fromkeys(TEXTS, pa.string()), "decision": pa.float64()}
# Of pictures without labels.
UNLABELLED = {
    "row": pa.int32(),
    "file": pa.string(),
    "split": pa.string(),
    "cluster": pa.int32(),
    "neighbours": pa.list_(pa.string()),
    "likeness": pa.list_(pa.float32()),
    "copy_of": pa.string(),
}
FEATURES = {"features": "", "features_odd": "_odd"}  # column -> the end of its files' names


def write(path, inputs):
    """Write the table of data, of features and predictions where the run has them, and of what
    neighbours say; returns the metrics of the stage.
    """
    known, columns = (_alike, UNLABELLED) if "neighbours" in inputs else (_known, COLUMNS)
    splits = [
        {**known(inputs, split), **_features(inputs.get("features"), split)}
        for split in ("train", "test")
    ]
    lists = {
        name: pa.list_(pa.float32(), splits[0][name].shape[1])
        for name in FEATURES
        if name in splits[0]
    }
    schema = pa.schema({**columns, **lists})
    texts = [name for name in TEXTS if name in columns]
    step = min(ROWS, max(1, GROUP // (4 * sum(kind.list_size for kind in lists.values()) or 1)))
    with pq.ParquetWriter(
        path, schema, compression="zstd", use_dictionary=texts, write_statistics=texts
    ) as writer:
        for values in splits:
            for start in progress.bar(range(0, len(values["row"]), step), "table", "row group"):
                block = [
                    _array(values[field.name][start : start + step], field.type) for field in schema
                ]
                writer.write_batch(pa.record_batch(block, schema))
    return {
        "rows": sum(len(values["row"]) for values in splits),
        "dimensions": lists["features"].list_size if lists else 0,
    }


def _known(inputs, split):
    """Name -> the values of COLUMNS for all rows of a split."""
    data, score = inputs["data"], inputs.get("predictions") if split == "test" else None
    labels, classes = data.array(f"{split}_labels.npy"), np.array(data.metrics["classes"], object)
    count = data.metrics[split]
    nothing = [None] * count
    return {
        "row": np.arange(count),
        "file": names.read(data, split) or nothing,
        "split": _kind(data, split, count),
        "label": [*classes[labels], *nothing[len(labels) :]],
        "prediction": classes[score.array("predictions.npy")] if score else nothing,
        "decision": scoring.decisions(score) if score else nothing,
    }


def _kind(data, split, count):
    scored_on = metrics.scored_on(data.manifest["spec"]["params"])
    return ["train" if split == "train" else scored_on] * count


def _alike(inputs, split):
    """Name -> the values of UNLABELLED for all rows of a split."""
    data, alike = inputs["data"], inputs["neighbours"]
    files = np.array(names.read(data, "train") + names.read(data, "test"), object)
    start = 0 if split == "train" else data.metrics["train"]
    rows = np.arange(start, start + data.metrics[split])
    first = alike.array("first.npy")[rows]
    has_clusters = alike.metrics["clusters"]
    return {
        "row": rows - start,
        "file": files[rows],
        "split": _kind(data, split, len(rows)),
        "cluster": alike.array("clusters.npy")[rows] + 1 if has_clusters else [None] * len(rows),
        "neighbours": Named(files, alike.array("neighbours.npy")[rows]),
        "likeness": list(alike.array("likeness.npy")[rows]),
        "copy_of": np.where(first == rows, None, files[first]),
    }


class Named:
    """The names of rows of numbers (N, K), a list for each of those that are asked for."""

    def __init__(self, names, numbers):
        self._names, self._numbers = names, numbers

    def __getitem__(self, part):
        return [list(self._names[numbers]) for numbers in self._numbers[part]]


def _features(artifact, split):
    """Name -> float32 (N, D), memory-mapped, of those of FEATURES that an artifact has; none
    without an artifact.
    """
    files = {name: f"{split}{end}.npy" for name, end in FEATURES.items()}
    return {
        name: artifact.array(file)
        for name, file in files.items()
        if artifact and file in artifact.manifest["files"]
    }


def _array(values, kind):
    if pa.types.is_fixed_size_list(kind):
        return pa.FixedSizeListArray.from_arrays(
            np.ascontiguousarray(values).reshape(-1), kind.list_size
        )
    return pa.array(values, kind)
