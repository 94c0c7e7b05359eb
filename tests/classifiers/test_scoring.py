"""What classifiers read: features and labels."""

import numpy as np
import pytest

import manifest_files
from ladder.classifiers import scoring
from ladder.store import artifacts


@pytest.mark.parametrize("params, count", [({}, 3), ({"classify_rows": 2}, 2)])
def test_training_features_are_the_first_of_those_that_have_a_label(tmp_path, params, count):
    rows = np.arange(15, dtype=np.float32).reshape(5, 3)
    inputs = {}
    for stage, arrays in (
        ("data", {"train_labels": np.uint8([1, 0, 1])}),
        ("features", {"train": rows, "test": rows[:2], "train_odd": -rows, "test_odd": -rows[:2]}),
    ):
        with artifacts.making(tmp_path / stage, manifest_files.spec(stage)) as work:
            for name, array in arrays.items():
                work.write_array(f"{name}.npy", array)
            work.metrics = {"odd_dimensions": 3}
        inputs[stage] = artifacts.Artifact(tmp_path / stage)
    train, labels, test = scoring.load(inputs, params)
    assert np.array_equal(train, rows[:count]) and len(labels) == count and len(test) == 2
    whole, labels, _, odd = scoring.load_with_odd_part(inputs, params)
    both = np.hstack([rows[:count], -rows[:count]])
    assert np.array_equal(whole, both) and (len(labels), odd) == (count, 3)
