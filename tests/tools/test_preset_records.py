"""`make records`: what the record of a preset keeps, and the tables that are made of the
records.
"""

import itertools
import json
import re
import sys

import numpy as np
import pytest

import preset_records
import preset_table
from ladder.sources import ROOT

# 100 test images: the run names 80, its control 70; 20 only the run, 10 only the control.
SUMMARY = {
    "dataset": "cifar10",
    "test_accuracy": 0.8,
    "control_accuracy": 0.7,
    "raw_pixel_accuracy": None,
    "confusion": [[40, 10], [10, 40]],
    "evaluations": {"svm": 0.8, "svm_random": 0.7, "ridge": 0.75},
    "seconds": {"train": 80.0, "svm": 40.0, "features_random_part2": 100.0, "svm_pixels": 20.0},
    "peak_memory_bytes": {"train": 1e9, "svm": 2.5e9},
    "ablation": [
        {"overrides": {"features_pca": 0}, "reason": "", "accuracy": 0.75, "won": 9, "lost": 4},
        {
            "overrides": {"batch_size": 0},
            "reason": "refused",
            "accuracy": None,
            "won": None,
            "lost": None,
        },
    ],
}
SEEDS = {
    "seeds": {
        "seeds": [1, 2, 3],
        "scores": {"svm": {"each": [0.60, 0.61, 0.62]}, "svm_random": {"each": [0.50, 0.52, 0.51]}},
    }
}


def record(**changed):
    whole = {"summary": SUMMARY | changed, "paired": {"svm": {"random": [20, 10]}}}
    return {"preset": "one", "whole": whole, "seeds": {"summary": SEEDS}}


def test_the_committed_tables_are_up_to_date():
    for path, wanted in preset_table.wanted_texts(preset_table.records()).items():
        assert path.read_text() == wanted, f"{path.name}: run benchmarks/preset_table.py"


def test_every_record_is_of_a_preset():
    for path in preset_records.FOLDER.glob("*.json"):
        assert (ROOT / f"presets/{path.name}").with_suffix(".yaml").exists(), path.name
        assert json.loads(path.read_text())["preset"] == path.stem


def comments(path):
    """The lines of comments at the top of a file."""
    return list(
        itertools.takewhile(lambda line: line.startswith("#"), path.read_text("utf-8").splitlines())
    )


@pytest.mark.parametrize(
    "path", sorted((ROOT / "presets").glob("*.yaml")), ids=lambda path: path.stem
)
def test_a_preset_has_one_to_three_lines_of_comments_and_then_settings(path):
    settings = path.read_text("utf-8").splitlines()[len(comments(path)) :]
    assert 1 <= len(comments(path)) <= 3 and not any(
        line.lstrip().startswith("#") for line in settings
    )


def test_accuracies_in_the_comments_of_presets_are_those_of_their_records():
    for one in preset_table.records():
        named = set(
            re.findall(r"[\d.]+ %", " ".join(comments(ROOT / f"presets/{one['preset']}.yaml")))
        )
        assert named and named <= {cell for row in preset_table.whole_rows(one) for cell in row}, (
            one["preset"]
        )


def test_a_row_has_accuracy_control_and_the_interval_of_the_matched_difference():
    # (20 - 10) / 100; variance (30 - 100 / 100) / 100^2, of which 1.96 roots are 10.55 points.
    svm, ridge = preset_table.whole_rows(record())
    assert svm == (
        "`one`",
        "SVM",
        "80.0 %",
        "70.0 %",
        "+10.0 ± 10.6",
        "",
        "2 min",
        "2 min",
        "2.5 GB",
    )
    assert ridge == ("", "kernel ridge", "75.0 %", "", "", "", "", "", "")


def test_a_run_that_was_made_with_other_settings_names_them():
    made = record()
    made["whole"]["command"] = [
        "snakemake",
        "report",
        "--config",
        "epochs=3",
        "controls=[]",
        "cifar10_sha256=0",
        "resnet_width=16",
    ]
    name = next(preset_table.whole_rows(made))[0]
    assert name == "`one` with `epochs=3 resnet_width=16`"


def test_the_time_of_the_controls_stands_apart():
    assert preset_table.times({"summary": {"seconds": {"svm": 75.0, "svm_random": 240.0}}}) == (
        "75 s",
        "4 min",
    )
    assert preset_table.times({"summary": {"seconds": {"svm": 75.0}}}) == ("75 s", "")


def test_seeds_have_the_interval_of_their_paired_differences():
    # Differences 10, 9, 11 points: deviation 1, times 4.3027 / sqrt(3).
    assert list(preset_table.seed_rows(record())) == [
        ("`one`", "SVM", "3", "61.0 ± 2.5", "51.0 ± 2.5", "+10.0 ± 2.5")
    ]


def test_seeds_of_a_preset_that_has_changed_since_have_no_row():
    def part(parts=1, **settings):
        return {"summary": {"reproduce": {"settings": settings}, "features": [{}] * parts}}

    now = part(
        patch_net_filters=[8, 3200],
        classify_shifts=1,
        train_limit="all",
        ablation=[],
        cifar10_sha256="0",
    )
    then = part(patch_net_filters=[8, 1600], train_limit=10000, seeds=[2, 3])
    # keys that were not yet there
    younger = part(patch_net_filters=[8, 1600], patch_net_kernel=6, classify_shifts="none")
    other_parts = part(3, seed=1), part(2, seed=1)
    for whole, seeds, changed in (
        (now, then, True),
        (*other_parts, True),
        (younger, then, False),
        (now, now, False),
        (part(), then, False),
    ):
        assert preset_table.changed({"whole": whole, "seeds": seeds}) == changed
    assert list(preset_table.seed_rows({"whole": now, "seeds": then})) == []


def test_an_ablation_says_what_leaving_something_out_costs():
    # 4 images gained, 9 lost.
    assert list(preset_table.ablation_rows(record())) == [
        ("`one`", '`{"features_pca": 0}`', "", "SVM", "75.0 %", "-5.0 ± 7.0")
    ]
    assert next(preset_table.ablation_rows(record(answered_by="ridge")))[3] == "kernel ridge"
    parts = {
        "features_concatenate": [
            {"network": "patch_net", "features_pca": "8"},
            {"network": "autoencoder"},
        ]
    }
    assert preset_table.shortened(parts) == {"features_concatenate": ["patch_net", "autoencoder"]}


def test_matched_pairs_are_counted_from_the_predictions_that_the_run_kept(tmp_path):
    for path, values in {
        "data/d1/test_labels.npy": [0, 1, 2, 0],
        "svm/s1/predictions.npy": [0, 1, 2, 1],
        "svm/s2/predictions.npy": [0, 2, 1, 0],
    }.items():
        (tmp_path / path).parent.mkdir(parents=True)
        np.save(tmp_path / path, np.array(values))
    summary = {
        "versions": {"data": "d1", "svm": "s1", "svm_random": "s2"},
        "evaluations": {"svm": 0.75, "svm_random": 0.5},
    }
    assert preset_records.paired(summary, tmp_path) == {"svm": {"random": (2, 1)}}


def test_a_part_made_again_keeps_the_other_and_no_name_of_the_machine(tmp_path, monkeypatch):
    monkeypatch.setattr(preset_records, "FOLDER", tmp_path)
    preset_records.keep("one", "whole", {"summary": {"weights": f"{ROOT}/results/x"}})
    preset_records.keep("one", "seeds", {"summary": {}})
    assert json.loads((tmp_path / "one.json").read_text()) == {
        "kind": "preset",
        "preset": "one",
        "whole": {"summary": {"weights": "results/x"}},
        "seeds": {"summary": {}},
    }


def test_a_run_that_fails_ends_with_its_status_and_writes_no_record(tmp_path, monkeypatch):
    monkeypatch.setattr(preset_records, "FOLDER", tmp_path)
    monkeypatch.setattr(
        sys, "argv", ["preset_records.py", "cifar10_best", "--config", "batch_size=0"]
    )
    with pytest.raises(SystemExit) as stopped:
        preset_records.main()
    assert stopped.value.code == 1 and list(tmp_path.iterdir()) == []


def test_the_part_with_seeds_is_of_10000_rows():
    assert preset_records.command("cifar10_best", "seeds", ["threads=1"])[-4:] == [
        "--config",
        "train_limit=10000",
        'runs=[{"classify_shifts": "none"}, {"features_concatenate": []}, {"seed": [2, 3]}]',
        "threads=1",
    ]
