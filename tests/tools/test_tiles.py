"""Other tiles as candidates: which there are, and that a plan with one is what is timed. Nothing
runs on a GPU.
"""

import pytest

import cases
import launch_times
import tiles
from ladder.errors import UserError
from ladder.rungs import gpu_bf16_sm90, packed_tiles

CASE = cases.Case("autoencoder", (8, 8, 3), 2, 8, (("filters", (64, 32)),))


def launched(plan):
    return [
        [(launch.source, launch.defines, launch.grid) for launch in step.launches]
        for step in plan.steps
    ]


@pytest.mark.parametrize(
    "rung, case", [("gpu_3xtf32_packed", CASE), ("gpu_bf16_sm90", cases.HEADLINES[0])]
)
def test_a_candidate_is_another_tile_that_the_tables_allow_and_fits(rung, case):
    found = tiles.candidates(case, rung)
    assert len(found) == len(set(map(repr, found))) > 10
    for (chooser, arguments), own, tile in found:
        assert tile != own and tile in tiles.CHOOSERS[chooser](*arguments)
    own = tiles.step_plan(case, rung)
    for made in tiles.plans(case, rung):
        assert launched(made) != launched(own)
        assert all(
            launch.shared_bytes <= gpu_bf16_sm90.SHARED
            for step in made.steps
            for launch in step.launches
        )
    assert launched(tiles.step_plan(case, rung)) == launched(own), "the choice is the rung's again"
    choosers = {chooser for (chooser, _), _, _ in found}
    assert ((gpu_bf16_sm90, "pixel_tile") in choosers) == (rung == "gpu_bf16_sm90")
    assert {(packed_tiles, "pixel_tile"), (packed_tiles, "weight_tile")} <= choosers


def test_rungs_whose_launches_take_no_tile_have_no_candidates():
    assert tiles.candidates(CASE, "gpu_opt_v2") == []


def test_each_candidate_is_timed_beside_the_rungs_own_plan(monkeypatch):
    class Bench:
        """Counts as the time of a graph the blocks of its plan."""

        def __init__(self, case, rung):
            self.case, self.rung = case, rung

        def bind(self):
            made = tiles.step_plan(self.case, self.rung)
            return (
                made,
                made,
                sum(launch.grid[0] for step in made.steps for launch in step.launches),
            )

        def microseconds(self, arrays, graph, replays):
            return 100.0 * replays

        def extra_us(self, base, changed, step_us):
            assert (
                launched(base[0]) != launched(changed[0]) and step_us == 100.0 * launch_times.MOST
            )
            if "TILE_M=16" in str(launched(changed[0])) and "weight_grad.cu" in str(
                launched(changed[0])
            ):
                raise UserError("conv2d does not compile")
            return {"median_us": changed[1] - base[1]}

    monkeypatch.setattr(launch_times, "Bench", Bench)
    rows = tiles.tiles({**vars(CASE)}, "gpu_bf16")["tiles"]
    assert len(rows) == len(tiles.candidates(CASE, "gpu_bf16"))
    packed = "enc1", "enc2", "dec2_up"  # the others have too few channels
    assert {place for row in rows for place in row["places"]} == {
        f"{layer} {pass_}" for layer in packed for pass_ in ("forward", "backward")
    }
    assert {row["failed"] for row in rows if row["median_us"] is None} == {
        "conv2d does not compile"
    }
    assert {"rectangle 128x64", "window 16x64", "128x128"} <= {row["tile"] for row in rows}
    assert all(row["places"] and row["tile"] != row["own"] for row in rows)
