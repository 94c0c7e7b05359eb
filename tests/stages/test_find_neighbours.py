"""The stage `neighbours` on a case small enough for a hand."""

import numpy as np
import pytest

import find_neighbours
import manifest_files
from ladder.data import names
from ladder.pages import changed
from ladder.pages.sections import alike
from ladder.store import artifacts

# Six training and two test pictures of one pixel; a.png and c.png are equal.
PIXELS = np.uint8([10, 20, 10, 40, 50, 60, 70, 80]).reshape(-1, 1, 1, 1)
FILES = ["long/c.png", "b.png", "a.png", "d.png", "e.png", "f.png", "g.png", "h.png"]
# Their mean is 0: four directions, of which the last has one picture alone.
FEATURES = np.float32([[2, 0], [2, 0], [3, 0], [-4, 0], [-2, 0], [-1, 0], [0, 1], [0, -1]])
# Of g.png's copy and of h.png's; by the controls h.png's alone finds its original.
COPIES = {"": [[0.1, 5], [9, -8]], "random": [[5, 0], [0, -3]], "pixels": [[5, 0], [0, -3]]}


def made(folder, stage, arrays, metrics=None, files=None):
    with artifacts.making(folder / stage, manifest_files.spec(stage)) as work:
        for name, array in arrays.items():
            work.write_array(f"{name}.npy", np.array(array))
        for name, content in (files or {}).items():
            work.write_json(name, content)
        work.metrics = metrics or {}
    return artifacts.Artifact(folder / stage)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    return neighbours(tmp_path_factory.mktemp("neighbours"), {"seed": 1})


def neighbours(folder, params):
    """Artifacts by role, the stage's own among them; a control has as many training rows as
    classifiers.
    """
    images = {"train_images": PIXELS[:6], "test_images": PIXELS[6:]}
    listed = {names.FILE: {"train": FILES[:6], "test": FILES[6:]}}
    data = made(folder, "data", images, {"train": 6, "test": 2, "classes": []}, listed)
    inputs = {"data": data}
    for kind, copies in COPIES.items():
        end, place = f"_{kind}" if kind else "", folder / f"of{kind}"
        known = params.get("classify_rows", 6) if kind else 6
        rows = {"train": FEATURES[:known], "test": FEATURES[6:]}
        inputs[f"features{end}"] = made(place, "features", rows)
        inputs[f"changed1{end}"] = made(place, "changed", {"changed": np.float32(copies)})
    with artifacts.making(folder / "neighbours", manifest_files.spec("neighbours")) as work:
        find_neighbours.make(work, inputs, params)
    return {**inputs, "neighbours": artifacts.Artifact(folder / "neighbours")}


def test_changed_copies_find_their_originals_as_often_as_counted_by_hand(inputs):
    # (0.1, 5) is nearest to (0, 1), its original; (9, -8) to (1, 0), which is not.
    assert inputs["neighbours"].array("found.npy").tolist() == [[1, 0, 0], [0, 1, 1]]
    numbers = changed.numbers(inputs)
    assert (numbers["pictures"], numbers["among"], numbers["found"]) == (2, 8, 0.5)
    for control, kind in zip(numbers["controls"], ("random", "pixels"), strict=True):
        assert (control["control"], control["accuracy"]) == (kind, 0.5)
        assert (control["won"], control["lost"], control["difference"]) == (1, 1, 0)


def test_each_is_compared_with_the_first_where_a_control_has_no_others(tmp_path):
    artifact = neighbours(tmp_path, {"seed": 1, "classify_rows": 5})["neighbours"]
    assert artifact.metrics["compared_with"] == 5  # the first three and both test pictures
    assert artifact.array("found.npy").tolist() == [[1, 0, 0], [0, 1, 1]]
    found = artifact.array("neighbours.npy")
    assert found.shape == (8, 4) and set(found.ravel().tolist()) == {0, 1, 2, 6, 7}


def test_copies_neighbours_and_near_copies_are_those_of_the_numbers(inputs):
    artifact = inputs["neighbours"]
    # the shortest name, of these the first, is the original
    assert artifact.array("first.npy").tolist() == [2, 1, 2, 3, 4, 5, 6, 7]
    neighbours = artifact.array("neighbours.npy")
    assert neighbours.shape == (8, 7) and neighbours[0, :2].tolist() == [1, 2]
    assert set(neighbours[3, :2].tolist()) == {4, 5}
    assert np.allclose(artifact.array("likeness.npy")[0, :3], [1, 1, 0])
    pairs = {tuple(pair[:2]) for pair in artifact.metrics["near"]}
    assert pairs == {(0, 1), (1, 2), (3, 4), (3, 5), (4, 5)}  # (0, 2) are copies
    assert artifact.metrics["clusters"] == 0


def test_the_sections_have_names_and_lists_only_where_they_are_shared(inputs):
    shown = alike.copied(inputs, {"share": True})
    assert [entry["name"] for entry in shown["groups"][0]] == ["a.png", "long/c.png"]
    assert shown["leave_out"] == "long/c.png" and shown["count"] == 1
    hidden = alike.copied(inputs, {"share": False})
    assert "c.png" not in str(hidden) and hidden["leave_out"] == hidden["leave_out_near"] == ""
    assert alike.section(inputs, {"share": False})["sheet"] is None
    assert (
        alike.outliers(inputs, {"share": True}) is alike.clusters(inputs, {"share": True}) is None
    )
