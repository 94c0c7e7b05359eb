"""Every tile that the tables of a rung allow for each convolution launch, as candidates:
microseconds by which each changes a training step of the rung. The rungs whose launches are built
for any tile have such tables: those of packed operands.

A tile also decides how many parts a gradient has, so that for each candidate the whole plan is made
again and timed beside the rung's own, by turns. Other tiles sum in another order, and nothing here
compares what they compute.
"""

import contextlib

from cases import Case
from ladder.errors import UserError
from ladder.network import optimizers
from ladder.plan import plan
from ladder.rungs import gpu_bf16_sm90, packed_tiles


def _hopper_tiles(_pixels, filters):
    return [
        tile for tile in gpu_bf16_sm90.TILES if gpu_bf16_sm90.rows_of_tiles(filters) % tile.n == 0
    ]


def _weight_tiles(shape):
    return [
        tile
        for tile in packed_tiles.weight_tiles(shape.number_format)
        if not isinstance(tile, packed_tiles.Window) or packed_tiles.slides(tile, shape)
    ]


# (module, its function that chooses a tile) -> the tiles that it may choose.
CHOOSERS = {
    (packed_tiles, "pixel_tile"): packed_tiles.pixel_tiles,
    (packed_tiles, "weight_tile"): _weight_tiles,
    (gpu_bf16_sm90, "pixel_tile"): _hopper_tiles,
}


@contextlib.contextmanager
def choosing(choose):
    """Within, choose(what is asked for, the rung's own tile) has the last word; asked: (key of
    CHOOSERS, arguments).
    """
    with contextlib.ExitStack() as stack:
        for module, name in CHOOSERS:
            stack.callback(setattr, module, name, getattr(module, name))
            setattr(module, name, _wrapped(module, name, choose))
        yield


def _wrapped(module, name, choose):
    own = getattr(module, name)
    return lambda *arguments, **named: choose(
        ((module, name), (*arguments, *named.values())), own(*arguments, **named)
    )


def candidates(case, rung):
    """[(what a plan of the case asks for, the rung's own tile, another one that is allowed)]."""
    asked = {}
    with choosing(lambda key, own: asked.setdefault(key, own)):
        step_plan(case, rung)
    return [
        (key, own, tile)
        for key, own in asked.items()
        for tile in CHOOSERS[key[0]](*key[1])
        if tile != own and _fits(case, rung, key, tile)
    ]


def having(key, tile):
    """Within, what is asked for is this tile."""
    return choosing(lambda asked, own: tile if asked == key else own)


def _fits(case, rung, key, tile):
    with having(key, tile):
        changed = step_plan(case, rung)
    launches = [launch for step in changed.steps for launch in step.launches]
    # filters, where kernels/packed/weight_grad_pooled.cu asks for whole rows
    few = f"TILE_M={packed_tiles.FEW_ROWS.m}"
    pooled = any(launch.entry.endswith("_pooled") and few in launch.defines for launch in launches)
    return not pooled and all(launch.shared_bytes <= gpu_bf16_sm90.SHARED for launch in launches)


def step_plan(case, rung):
    settings = plan.TrainingSettings(
        network=case.network,
        rung=rung,
        batch_size=case.batch,
        multipliers=plan.made_for(rung),
        optimizer=optimizers.Optimizer("adam"),
    )
    return plan.training_plan(settings, plan.Dataset(case.images, "uint8"), plan.Length(1, 1))


def plans(case, rung):
    """The plan with each candidate."""
    for key, _, tile in candidates(case, rung):
        with having(key, tile):
            yield step_plan(case, rung)


def tiles(case, rung):
    """{"step_us", "tiles": [{"places", "own", "tile", "median_us": microseconds more than with the
    own one, ...}]}.
    """
    import launch_times  # here: no plan needs a GPU

    case = Case.from_dict(case)
    bench = launch_times.Bench(case, rung)
    lowered, arrays, graph = bench.bind()
    step_us, rows = bench.microseconds(arrays, graph, launch_times.MOST), []
    for key, own, tile in candidates(case, rung):
        with having(key, tile):
            places = _changed(lowered, step_plan(case, rung))
            try:
                _, others, other_graph = bench.bind()
                times = bench.extra_us((arrays, graph), (others, other_graph), step_us)
            except UserError as error:  # it does not compile
                times = {"median_us": None, "failed": str(error)}
        rows.append({"places": places, "own": text(own), "tile": text(tile), **times})
    return {"step_us": step_us, "tiles": rows}


def _changed(before, after):
    """The places of the convolutions whose launches differ; of what adds their parts nothing is
    said.
    """
    import launch_times

    pairs = zip(
        (step for step in before.steps if step.flop),
        (step for step in after.steps if step.flop),
        strict=True,
    )
    return [
        launch_times.place_of(step)
        for step, other in pairs
        if [launch.defines for launch in step.launches]
        != [launch.defines for launch in other.launches]
    ]


def text(tile):
    """'128x64', 'rectangle 256x16'."""
    kind = {packed_tiles.Rectangle: "rectangle ", packed_tiles.Window: "window "}.get(
        type(tile), ""
    )
    return f"{kind}{tile.m}x{tile.n}"
