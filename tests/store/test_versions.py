"""An artifact's version stands for its specification, in every release and on every machine."""

import pytest

from ladder.store import versions

SPEC = {
    "stage": "train",
    "params": {"batch_size": 64, "hidden": 128, "rate": 1.0},
    "sources": {"a.py": "1f"},
    "parents": {},
}


def test_a_version_does_not_depend_on_the_order_of_keys_or_on_1_against_1_0():
    params = {"rate": 1, "hidden": 128, "batch_size": 64.0}
    other = {"parents": {}, "sources": {"a.py": "1f"}, "params": params, "stage": "train"}
    assert versions.version(other) == versions.version(SPEC)


@pytest.mark.parametrize(
    "part, value",
    [
        ("params", {"batch_size": 128, "hidden": 64, "rate": 1.0}),
        ("params", {"batch_size": "64", "hidden": 128, "rate": 1.0}),
        ("sources", {"a.py": "20"}),
        ("sources", {"b.py": "1f"}),
        ("parents", {"data": "d0"}),
        ("stage", "tests"),
    ],
)
def test_a_version_changes_with_every_part_of_its_spec(part, value):
    assert versions.version(SPEC | {part: value}) != versions.version(SPEC)


def test_a_version_does_not_depend_on_the_folders_of_sources():
    moved = SPEC | {"sources": {"there/a.py": "1f"}}
    assert versions.version(moved) == versions.version(SPEC)


def test_a_version_is_the_same_in_every_release():
    assert versions.version(SPEC) == "tcb70d9ae1b8"
    assert versions.canonical({"b": 1.0, "a": [True, 0.1]}) == '{"a":[true,0.1],"b":1}'


def test_a_version_never_reads_as_a_number():
    for role in ("data", "initial", "train"):
        assert versions.version(SPEC | {"stage": role})[0] == role[0]
