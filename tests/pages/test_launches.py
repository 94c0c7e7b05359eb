"""The timeline and the rooflines of the rungs' launches."""

import sys

import pytest

from ladder.pages import launches
from ladder.rungs import catalog, counted
from ladder.sources import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))

import roofline  # noqa: E402
from cases import products  # noqa: E402

FIRST = {
    "name": "gpu_basic",
    "below": None,
    "predicted": [90.0, 130.0],
    "bound": "memory",
    "floor": 20.0,
    "launches": [
        ["enc1 forward", "a.cu conv", 4_000_000_000, 10_000_000, 80.0, "level 1"],
        ["enc1 forward", "a.cu relu", 0, 8, 20.0, "memory"],
    ],
}
SECOND = {
    "name": "gpu_shared",
    "below": "gpu_basic",
    "predicted": [20.0, 30.0],
    "bound": "issue",
    "floor": 20.0,
    "launches": [["enc1 forward", "b.cu conv", 4_000_000_000, 8_000_000, 25.0, "issue"]],
}


def test_the_roofs_are_those_of_the_predictions():
    assert launches.ROOFS == {
        name: roofline.H200[key].flop / 1e12
        for name, key in {"float32": "fp32", "TF32": "tf32", "bfloat16": "bf16"}.items()
    }
    assert {ceilings.bytes for ceilings in roofline.H200.values()} == {launches.MEMORY * 1e12}


def test_a_mark_is_at_its_flop_per_byte_and_its_rate_and_as_large_as_its_share():
    first, second = launches.context([FIRST, SECOND], {})["rungs"]
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


def test_a_track_is_as_long_as_the_step_of_the_rung_below_filled_by_its_launches():
    first, second = launches.context([FIRST, SECOND], {"gpu_shared": 0.03})["rungs"]
    assert (first["length"], first["floor"], first["gain"]) == (100, 20, "")
    assert (second["length"], second["floor"], second["gain"], second["measured"]) == (
        25,
        20,
        "4.0× gpu_basic",
        "0.030\u202fms",
    )
    assert [launch["length"] for launch in first["launches"]] == [80, 20]
    slower = {**SECOND, "launches": [["enc1 forward", "b.cu conv", 0, 8, 200.0, "issue"]]}
    assert launches.context([FIRST, slower], {})["rungs"][1]["length"] == 100, (
        "no longer than its track"
    )


def test_the_ladder_has_every_rung_on_one_axis():
    ladder = launches.context([FIRST, SECOND], {"gpu_shared": 0.03})["ladder"]
    level_1, issue, measured = ladder["series"]
    assert (level_1["x"], level_1["low"], level_1["high"]) == ([0.1], [0.09], [0.13])
    assert (issue["x"], issue["y"]) == ([0.025], [1])
    assert (measured["x"], measured["y"], measured["look"]) == ([0.03], [1], ["tick"])
    assert [row["name"] for row in ladder["y"]["rows"]] == ["gpu_basic", "gpu_shared"]
    assert ladder["x"]["scale"] == "log"


def test_every_predicted_launch_is_explained_and_under_the_roofs_of_its_rung():
    rungs = launches.context(counted.predictions(), {})["rungs"]
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
        assert sum(launch["time"] for launch in rung["launches"]) == pytest.approx(
            1000 * rung["value"]
        )
        assert rung["ends"][0] < rung["value"] < rung["ends"][1]
