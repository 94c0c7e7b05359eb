"""The stage `labels`: what it measures, and that it is on the record of scores."""

import numpy as np

import manifest_files
import measure_labels
from ladder.classifiers import few_labels
from ladder.store import artifacts, scores


def inputs(results, odd=0):
    """Features around one centre for each of three classes, with odd columns whose sign is a
    coin's, and their labels.
    """
    random, given = np.random.default_rng(0), {"data": {}, "features": {}}
    centres, sides = random.normal(size=(3, 4)), random.normal(size=(3, odd))
    for name, count in (("train", 90), ("test", 60)):
        labels = np.arange(count, dtype=np.uint8) % 3
        given["data"][f"{name}_labels.npy"] = labels
        given["features"][f"{name}.npy"] = (
            centres[labels] + random.normal(size=(count, 4))
        ).astype(np.float32)
        if odd:
            signs = random.choice([-1, 1], size=(count, 1))
            given["features"][f"{name}_odd.npy"] = (signs * sides[labels]).astype(np.float32)
    for stage, files in given.items():
        spec = manifest_files.spec(stage, params={"dataset": "digits"})
        with artifacts.making(results / stage / f"{stage[0]}1", spec) as work:
            for name, values in files.items():
                work.write_array(name, values)
            work.metrics = {"odd_dimensions": odd} if odd else {}
    return {stage: artifacts.Artifact(results / stage / f"{stage[0]}1") for stage in given}


def measured(results, odd=0):
    folder = results / "labels/l1"
    with artifacts.making(folder, manifest_files.spec("labels")) as work:
        measure_labels.make(work, inputs(results, odd), {"label_counts": [3, 60], "seed": 1})
    return artifacts.Artifact(folder).metrics


def test_each_count_has_the_accuracy_of_each_draw_and_the_scoring_is_recorded(tmp_path):
    metrics = measured(tmp_path)
    assert (
        metrics["counts"] == [3, 60]
        and [len(draws) for draws in metrics["scores"]] == [few_labels.DRAWS] * 2
    )
    few, many = ([score["accuracy"] for score in draws] for draws in metrics["scores"])
    assert len(set(few)) > 1 and 0.4 < np.mean(few) < np.mean(many) <= 1
    assert [(line["stage"], line["version"], line["rows"]) for line in scores.lines(tmp_path)] == [
        ("labels", "l1", "test")
    ]


def test_the_odd_part_is_a_part_of_the_features(tmp_path):
    plain, odd = measured(tmp_path / "plain"), measured(tmp_path / "odd", odd=3)
    assert np.mean([score["accuracy"] for score in odd["scores"][1]]) > np.mean(
        [score["accuracy"] for score in plain["scores"][1]]
    )
