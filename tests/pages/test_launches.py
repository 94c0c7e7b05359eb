"""The timeline and the rooflines of the rungs' launches."""

import pytest

import roofline
from cases import products
from ladder.pages import launches
from ladder.rungs import catalog, counted

COUNTS = {
    **dict.fromkeys(("occupancy", "waves", "coalesced", "conflicts", "products"), 0.5),
    **{"share": 0.8, "place": "enc1 forward", "kernel": "a.cu conv"},
    **{"without": 20.0, "next": "memory"},
}
FIRST = {
    "name": "gpu_basic",
    "below": None,
    "bound_by": "memory",
    "limiting": COUNTS,
    "middle": 100.0,
    "floor": 20.0,
    "timeline": [
        ["enc1 forward", "a.cu conv", 4_000_000_000, 10_000_000, 80.0, "level 1"],
        ["enc1 forward", "a.cu relu", 0, 8, 20.0, "memory"],
    ],
}
SECOND = {
    "name": "gpu_shared",
    "below": "gpu_basic",
    "bound_by": "issue",
    "limiting": COUNTS,
    "middle": 25.0,
    "floor": 20.0,
    "timeline": [["enc1 forward", "b.cu conv", 4_000_000_000, 8_000_000, 25.0, "issue"]],
}


def test_the_roofs_are_those_of_the_predictions():
    assert launches.ROOFS == {
        name: roofline.H200[key].flop / 1e12
        for name, key in {"float32": "fp32", "TF32": "tf32", "bfloat16": "bf16"}.items()
    }
    assert {ceilings.bytes for ceilings in roofline.H200.values()} == {launches.MEMORY * 1e12}


def test_a_mark_is_at_its_flop_per_byte_and_its_rate_and_as_large_as_its_share():
    first, second = launches.context([FIRST, SECOND])["rungs"]
    points = {
        group["name"]: group for group in first["chart"]["series"] if group["colour"] != "level"
    }
    assert points.keys() == {"level 1"}, "a launch without arithmetic has no mark"
    mark = points["level 1"]
    assert (mark["x"], mark["y"]) == ([400], [50]) and mark["size"] == [
        pytest.approx(launches.LARGEST * 0.8**0.5, abs=0.01)
    ]
    assert mark["text"] == [
        "enc1 forward, a.cu conv: 80\u202fµs, 80.0\u202f% of gpu_basic, bound by level 1"
    ]
    of_second = {group["name"]: group for group in second["chart"]["series"]}
    assert of_second["gpu_basic"]["look"] == ["ring"] and of_second["gpu_basic"]["x"] == [400], (
        "the rung below in grey"
    )
    assert (of_second["issue"]["x"], of_second["issue"]["y"]) == ([500], [160])


def test_a_track_is_a_whole_step_filled_by_its_launches():
    first, second = launches.context([FIRST, SECOND])["rungs"]
    assert [launch["length"] for launch in first["launches"]] == [80, 20]
    assert (first["floor"], first["below"]) == (20, "")
    assert (second["floor"], second["below"]) == (80, "gpu_basic")
    assert "bound by issue, most of it in enc1 forward (conv)" in second["why"]


def test_every_predicted_launch_is_explained_and_under_the_roofs_of_its_rung():
    rungs = launches.context(counted.predictions())["rungs"]
    assert [rung["name"] for rung in rungs] == [
        rung for rung in catalog.RUNGS if rung.startswith("gpu_")
    ]
    for rung in rungs:
        roof = roofline.H200[products(rung["name"])].flop / 1e12
        assert [
            launch["text"]
            for launch in rung["launches"]
            if launch["y"] > min(roof, launches.MEMORY * launch["x"])
        ] == []
        placed = [(one["x"], one["y"]) for one in rung["launches"] if one["flop"]]
        for (low, high), values in zip(
            (launches.ACROSS, launches.UP), zip(*placed, strict=True), strict=True
        ):
            assert low < min(values) <= max(values) < high
        assert sum(one["length"] for one in rung["launches"]) == pytest.approx(100, abs=0.1)
