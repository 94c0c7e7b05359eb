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
FEATURES = {"features": "", "features_odd": "_odd"}  # column -> the end of its files' names


def write(path, inputs):
    """Write the table of data, and of features and predictions where the run has them; returns the
    metrics of the stage.
    """
    splits = [
        {**_known(inputs, split), **_features(inputs.get("features"), split)}
        for split in ("train", "test")
    ]
    lists = {
        name: pa.list_(pa.float32(), splits[0][name].shape[1])
        for name in FEATURES
        if name in splits[0]
    }
    schema = pa.schema({**COLUMNS, **lists})
    step = min(ROWS, max(1, GROUP // (4 * sum(kind.list_size for kind in lists.values()) or 1)))
    with pq.ParquetWriter(
        path, schema, compression="zstd", use_dictionary=TEXTS, write_statistics=TEXTS
    ) as writer:
        for columns in splits:
            for start in progress.bar(range(0, len(columns["row"]), step), "table", "row group"):
                block = [
                    _array(columns[field.name][start : start + step], field.type)
                    for field in schema
                ]
                writer.write_batch(pa.record_batch(block, schema))
    return {
        "rows": sum(len(columns["row"]) for columns in splits),
        "dimensions": lists["features"].list_size if lists else 0,
    }


def _known(inputs, split):
    """Name -> the values of COLUMNS for all rows of a split."""
    data, score = inputs["data"], inputs.get("predictions") if split == "test" else None
    labels, classes = data.array(f"{split}_labels.npy"), np.array(data.metrics["classes"], object)
    kind = "train" if split == "train" else metrics.scored_on(data.manifest["spec"]["params"])
    nothing = [None] * len(labels)
    return {
        "row": np.arange(len(labels)),
        "file": names.read(data, split) or nothing,
        "split": [kind] * len(labels),
        "label": classes[labels],
        "prediction": classes[score.array("predictions.npy")] if score else nothing,
        "decision": scoring.decisions(score) if score else nothing,
    }


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
