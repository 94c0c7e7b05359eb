"""gpu_bf16's convolutions behind an upsampling, of phase weights, against their definition in
float64.

What the kernels share with other convolutions is in test_gpu_bf16.py.
"""

import functools

import numpy as np
import pytest

import rounded_copies
from kernel_checks import check_channel_sums, integers, normal, poisoned
from ladder.network.optimizers import AVERAGES
from ladder.rungs import gpu_opt_v1, packed_tiles
from ladder.rungs import packed as launches
from ladder.rungs.launches import Gradient
from ladder.rungs.packed_tiles import FEW_COLUMNS, LARGE, RECTANGLES, SQUARE
from rounded_copies import (
    copied,
    copies_of,
    numbers,
    rounded_gradient,
    rounded_input,
    rounded_weight,
)
from rung_checks import (
    ORDERS,
    in_one_order,
    run_input_grad,
    run_step,
    run_weight_grad,
)
from rung_plans import NETWORK, trained_in
from tensor_checks import sums  # noqa: F401 (a fixture)

ONE_ARITHMETIC = True  # as in test_gpu_bf16.py
SHORT, FEW, TALL, NARROW, WIDEST = RECTANGLES

# (batch, height, width of the small image, channels, filters), tile: phases apart, of which some
# end within a tile, a rectangle or a step of k; phases in columns
APART = [
    ((1, 4, 4, 64, 40), SQUARE),
    ((2, 3, 5, 40, 72), SQUARE),
    ((2, 3, 7, 72, 136), LARGE),
    ((1, 8, 8, 64, 64), NARROW),
    ((2, 3, 9, 128, 72), NARROW),
    ((1, 3, 18, 128, 64), TALL),
    ((1, 3, 17, 64, 136), WIDEST),
]
IN_COLUMNS = [
    ((2, 5, 7, 40, 3), FEW_COLUMNS),
    ((1, 6, 5, 64, 1), SQUARE),
    ((2, 3, 15, 64, 3), FEW),
    ((1, 2, 18, 128, 4), FEW),
    ((1, 9, 17, 64, 3), SHORT),
]
CASES = APART + IN_COLUMNS


class Upsampled(rounded_copies.Upsampled):
    def forward(self, tile=None, **attributes):
        """y, or its copy in bfloat16 with this padding."""
        writes = {"y": poisoned(self.output)}
        if "padding" in attributes:
            (batch, *sizes, filters), border = self.output, 2 * attributes["padding"]
            shape = batch, *(size + border for size in sizes), filters
            writes = {"copy": poisoned(shape, np.uint16)}
        run_step(
            functools.partial(launches.phase_forward, tile=tile),
            {"x": rounded_input(self.x, 1), "weight": self.copies()[0], "bias": self.bias},
            writes,
            **{"relu": False, **attributes},
        )
        return next(iter(writes.values()))

    def input_grad(self, tile=None):
        reads = {"dy": rounded_gradient(self.dy, 1)[0], "flipped": self.copies()[1]}
        return run_input_grad(functools.partial(launches.input_grad, tile=tile), reads, self, 2)

    def weight_grad(self, tile=None):
        function = functools.partial(launches.phase_weight_grad, tile=tile)
        return run_weight_grad(function, self.operands(), self)

    def operands(self):
        """Of the weight gradient."""
        dy, partials = rounded_gradient(self.dy, 1)
        return {"x": rounded_input(self.x, 1), "dy": dy, "bias_partials": partials}


@pytest.mark.parametrize("shape, tile", CASES, ids=str)
def test_all_directions_are_those_of_a_convolution_of_the_upsampled_image(shape, tile):
    conv = Upsampled(shape, integers)
    conv.check_on_integers(tile)
    conv.check_weight_grad_on_integers()


def test_the_parts_of_a_weight_gradient_have_channels_that_the_weight_has_not():
    # 3 channels, in x a chunk of 8
    Upsampled((3, 7, 7, 3, 40), integers).check_weight_grad_on_integers()


@pytest.mark.usefixtures("sums")
@pytest.mark.parametrize("shape, tile", CASES, ids=str)
def test_sums_of_taps_are_rounded_once(shape, tile):
    Upsampled(shape, normal).check_rounding(tile)


@pytest.mark.parametrize("tile", [SQUARE, LARGE, NARROW, TALL, WIDEST], ids=str)
def test_input_gradients_with_a_stride_are_in_any_tile_without_a_halo(tile):
    conv = Upsampled((2, 5, 6, 72, 64), integers)
    if isinstance(tile, packed_tiles.Rectangle):
        assert not packed_tiles.slides_over(tile, packed_tiles.Sums(2, 5, 6, 64, 72, 4, 2))
    else:
        assert np.array_equal(conv.input_grad(tile), conv.input_grad())


def test_the_tile_changes_no_byte():
    conv = Upsampled((1, 3, 9, 128, 72), normal)
    assert len({conv.forward(tile).tobytes() for tile in (LARGE, TALL, WIDEST)}) == 1


def test_the_tile_of_few_filters_changes_no_byte():
    conv = Upsampled((1, 2, 17, 128, 3), normal)
    assert len({conv.forward(tile).tobytes() for tile in (FEW_COLUMNS, LARGE, SHORT, FEW)}) == 1


def test_images_have_no_part_in_one_another():
    conv = Upsampled((2, 3, 3, 64, 64), normal)
    alone = conv.forward(NARROW)[0]
    conv.x[1] = np.nan
    assert np.array_equal(conv.forward(NARROW)[0], alone)


@pytest.mark.parametrize(
    "shape", [(1, 3, 3, 3, 40), (1, 2, 2, 24, 20), (1, 2, 2, 40, 3), (1, 2, 2, 33, 4)], ids=str
)
def test_copies_have_the_phases_and_the_phase_weights(shape):
    conv = Upsampled(shape, normal)
    taps, (packed, flipped) = conv.phase_weights, map(numbers, conv.copies(ORDERS))
    channels, filters, size = conv.channels, conv.filters, packed.shape[1]
    assert size == (3 if 4 * filters <= 16 else 2)
    assert np.array_equal(flipped[..., :filters], taps) and not flipped[..., filters:].any()
    wanted = np.zeros((2, 2, filters, size, size, -(-channels // 8) * 8), np.float32)
    for p, q, a, b in np.ndindex(2, 2, 2, 2):
        place = (a, b) if size == 2 else (p + a, q + b)
        wanted[p, q, :, *place, :channels] = taps[:, 3 - p - 2 * a, 3 - q - 2 * b].T
    assert np.array_equal(packed, wanted.reshape(packed.shape))


@pytest.mark.parametrize("shape, tile", [case for case in APART if case[0][4] % 8 == 0], ids=str)
def test_a_copy_that_the_convolution_writes_is_that_of_its_result(shape, tile):
    conv = Upsampled(shape, normal)
    conv.x[-1, -1, -1, 0] = np.nan
    for padding in (0, 1, 2):
        with in_one_order():
            y = conv.forward(tile, relu=True)
        assert np.isnan(y).any()
        assert (
            conv.forward(tile, relu=True, padding=padding).tobytes() == copied(y, padding).tobytes()
        )


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize(
    "shape, tile", [((2, 5, 6, 72, 40), SQUARE), ((3, 4, 8, 136, 3), LARGE)], ids=str
)
def test_gradients_are_led_back_to_the_bytes_of_launches_of_their_own(shape, tile, relu):
    conv = Upsampled(shape, normal)
    kept = np.maximum(conv.x, 0)
    with in_one_order():
        dx = conv.input_grad(tile)
    wanted = np.where(kept > 0, dx, np.float32(0)) if relu else dx
    sizes = packed_tiles.Sums(*conv.x.shape[:3], conv.filters, conv.channels, 4, 2)
    partials = poisoned((packed_tiles.rows_of_partials(sizes, tile), conv.channels))
    copy = poisoned(copied(wanted, 2).shape, np.uint16)
    run_step(
        functools.partial(launches.input_grad, tile=tile),
        {
            "dy": rounded_gradient(conv.dy, 1)[0],
            "flipped": conv.copies()[1],
            "kept": rounded_input(kept, 1),
        },
        {"rounded": copy, "bias_partials": partials},
        stride=2,
        relu=relu,
        kept_padding=1,
        padding=2,
    )
    assert copy.tobytes() == copied(wanted, 2).tobytes()
    check_channel_sums(partials, wanted, 64)


@pytest.mark.parametrize(
    "rung",
    ["gpu_tf32", "gpu_3xtf32_packed", "gpu_bf16", "gpu_bf16_sm90", "gpu_f16", "gpu_3xf16_sm90"],
)
def test_blocks_of_phase_weights_which_take_longest_have_the_lowest_numbers(rung):
    (launch,) = (
        one for one in trained_in(NETWORK, rung, 64).launches if one.entry.endswith("_update")
    )
    words, rows = launch.arguments[0].words, 10  # a weight and a bias of five layers
    blocks, of_row = words[: launch.grid[0]], len(words[launch.grid[0] :]) // rows
    forms = [words[start + of_row - 1] for start in blocks]
    assert set(forms) == {launches.NO_PHASES, launches.PHASES_APART, launches.PHASES_IN_COLUMNS}
    assert all(forms[: forms.index(launches.NO_PHASES)]) and not any(
        forms[forms.index(launches.NO_PHASES) :]
    )


@pytest.mark.parametrize(
    "shape, rule",
    [
        ((3, 7, 7, 3, 40), "adam"),
        *(((3, 8, 6, 40, 20), rule) for rule in AVERAGES),
        ((3, 8, 6, 40, 3), "adam"),
        ((3, 8, 6, 40, 40), "sgd"),
    ],
    ids=str,
)
def test_the_update_adds_and_expands_parts_to_the_bytes_of_launches_of_their_own(shape, rule):
    """It also leaves copies of the new weights, and is gpu_opt_v1's where the gradient is whole."""
    conv = Upsampled(shape, normal)
    biases = normal(600, seed=8)
    reads, whole = conv.operands(), dict(zip(("dweight", "dbias"), conv.weight_grad(), strict=True))
    size = conv.packing.weight_parts(reads["x"].shape, reads["dy"].shape, None)
    assert size[0] > 1
    parts = poisoned(size)
    run_step(launches.phase_weight_grad, reads, {"parts": parts})
    averages = {
        f"{name}.{average}": np.abs(normal(*values.shape, seed=7))
        for average in AVERAGES[rule]
        for name, values in (("b", biases), ("w", conv.weight))
    }
    given = {
        "weight_decay": 0.125,
        "clip": 0.5,
        **({"momentum": 0.5} if rule == "momentum" else {}),
    }
    control = {
        "learning_rates": np.full(1, 0.25),
        "counters": np.zeros(3, np.int64),
        "db": normal(600, seed=9),
    }

    def updated(function, gradient, in_parts, packs=True):
        copies, names = copies_of("w", conv.weight.shape, packing=conv.packing)
        writes = {
            name: value.copy()
            for name, value in {"b": biases, "w": conv.weight, **averages}.items()
        } | (copies if packs else {})
        run_step(
            function,
            {"gradient": gradient, **control},
            writes,
            operation=f"{rule}_update",
            **given,
            **({"copies": names} if packs else {}),
            gradients={"b": Gradient("db"), "w": Gradient("gradient", in_parts)},
        )
        return writes

    wanted = updated(gpu_opt_v1.update, whole["dweight"], False, packs=False)
    for found in (
        updated(launches.update, whole["dweight"], False),
        updated(launches.update, parts, True),
    ):
        for name, value in wanted.items():
            assert found[name].tobytes() == value.tobytes(), name
        packed = rounded_weight(found["w"], packing=conv.packing)
        assert [copy.tobytes() for copy in packed] == [
            found[name].tobytes() for name in ("w.packed", "w.flipped")
        ]
