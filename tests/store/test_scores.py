"""The record of scorings: its lines, none of which is lost, and torn lines, which do no harm."""

import multiprocessing

import pytest

import manifest_files
from ladder.errors import UserError
from ladder.store import artifacts
from ladder.store import scores as scoring_record


def artifact(results, stage, version, parents=None, **params):
    with artifacts.making(results / stage / version, manifest_files.spec(stage, params, parents)):
        pass
    return artifacts.Artifact(results / stage / version)


def scored(results, version, inputs, stage="svm"):
    with artifacts.making(results / stage / version, manifest_files.spec(stage)) as work:
        scoring_record.record(work, inputs)


@pytest.fixture
def inputs(tmp_path):
    return {
        "data": artifact(tmp_path, "data", "d0", dataset="digits"),
        "features": artifact(tmp_path, "features", "f0", {"normalized": "n0", "weights": "t0"}),
    }


def test_a_line_names_the_artifact_the_weights_and_the_images(tmp_path, inputs):
    scored(tmp_path, "s0", inputs)
    scored(
        tmp_path,
        "e0",
        {"data": inputs["data"], "weights": artifact(tmp_path, "train", "t1")},
        "evaluate",
    )
    first, second = scoring_record.lines(tmp_path)
    assert len(first.pop("when")) == 20 and second["when"]
    assert first == {
        "stage": "svm",
        "version": "s0",
        "weights": "t0",
        "dataset": "digits",
        "data": "d0",
        "rows": "test",
    }
    assert (second["stage"], second["version"], second["weights"]) == ("evaluate", "e0", "t1")


def test_joined_features_name_the_weights_of_the_first_part_and_pixels_none(tmp_path, inputs):
    joined = artifact(tmp_path, "joined", "j0", {"part1": "f0", "part2": "f1"})
    scored(tmp_path, "s0", inputs | {"features": joined})
    scored(
        tmp_path,
        "s1",
        inputs | {"features": artifact(tmp_path, "features", "f2", {"normalized": "n0"})},
    )
    assert [line["weights"] for line in scoring_record.lines(tmp_path)] == ["t0", ""]


def test_validation_rows_are_recorded_as_such(tmp_path, inputs):
    for number, count in enumerate((5000, 0)):
        data = artifact(tmp_path, "data", f"d{number + 1}", dataset="mnist", validation=count)
        scored(tmp_path, f"s{number}", inputs | {"data": data})
    assert [line["rows"] for line in scoring_record.lines(tmp_path)] == ["validation", "test"]


def test_a_missing_record_is_empty_and_a_torn_line_is_skipped(tmp_path, inputs):
    assert scoring_record.lines(tmp_path) == []
    scored(tmp_path, "s0", inputs)
    with open(tmp_path / scoring_record.NAME, "a") as file:
        file.write("2026-01-31T12:34:56Z,svm,s")
    for version in ("s1", "s2"):
        scored(tmp_path, version, inputs)
    assert [line["version"] for line in scoring_record.lines(tmp_path)] == ["s0", "s1", "s2"]
    header, *lines = (tmp_path / scoring_record.NAME).read_text().splitlines()
    assert header.startswith("when,stage") and len(lines) == 4 and all(lines), (
        "no line is empty, and none has two lines"
    )


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xfe\0\n",
        "ü,ß\n".encode("latin-1"),
        b"x" * 300_000 + b"\n",
        b'"' + b"a,b\n" * 9,
        b"when,\0,\0\r\r\n",
    ],
    ids=range(5),
)
def test_damaged_lines_are_skipped_and_the_others_stay(tmp_path, inputs, data):
    scored(tmp_path, "s0", inputs)
    with open(tmp_path / scoring_record.NAME, "ab") as file:
        file.write(data)
    scored(tmp_path, "s1", inputs)
    assert [line["version"] for line in scoring_record.lines(tmp_path)] == ["s0", "s1"]


def test_a_folder_in_its_place_is_one_line(tmp_path, inputs):
    (tmp_path / scoring_record.NAME).mkdir()
    for use in (lambda: scored(tmp_path, "s0", inputs), lambda: scoring_record.lines(tmp_path)):
        with pytest.raises(
            UserError,
            match="cannot keep the record .*test_scores.csv: Is a directory; move it away and run",
        ):
            use()


def append_many(path, name):
    for number in range(100):
        scoring_record._append(path, f"{name},svm,{number},t0,mnist,d0,test\n")


def test_concurrent_writers_lose_no_line(tmp_path):
    context = multiprocessing.get_context("fork")
    both = [
        context.Process(target=append_many, args=(tmp_path / scoring_record.NAME, name))
        for name in "ab"
    ]
    for process in both:
        process.start()
    for process in both:
        process.join()
    lines = scoring_record.lines(tmp_path)
    assert len(lines) == 200
    assert [line["version"] for line in lines if line["when"] == "a"] == [
        str(number) for number in range(100)
    ]
