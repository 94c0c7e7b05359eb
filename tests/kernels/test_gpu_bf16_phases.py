"""gpu_bf16's convolutions behind an upsampling, of phase weights, against their definition in
float64.

What the kernels share with other convolutions is in test_gpu_bf16.py.
"""

import numpy as np
import pytest

import references
from kernel_checks import gamma, integers, normal, poisoned
from ladder.arithmetic.multipliers import to_bfloat16
from ladder.network.optimizers import AVERAGES
from ladder.rungs import gpu_opt_v1, packed_tiles
from ladder.rungs import packed as launches
from ladder.rungs.launches import Gradient
from ladder.rungs.packed_tiles import FEW_COLUMNS, LARGE, RECTANGLES, SQUARE
from ladder.rungs.packing import PhaseWeights
from rounded_copies import close, copied, numbers, rounded_gradient, rounded_input
from rung_checks import ONE_ORDER, ORDERS, in_one_order, run_step
from rung_plans import NETWORK, trained_in
from tensor_checks import sums  # noqa: F401 (a fixture)

PHASE_WEIGHTS = PhaseWeights()
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


class Upsampled:
    """shape: batch, height and width of the small image, channels, filters."""

    def __init__(self, shape, values):
        batch, self.height, self.width, self.channels, self.filters = shape
        self.x = values(batch, self.height, self.width, self.channels)
        self.weight = values(self.filters, 3, 3, self.channels, seed=1)
        self.bias = values(self.filters, seed=2)
        self.dy = values(batch, 2 * self.height, 2 * self.width, self.filters, seed=3)

    def copies(self, orders=ONE_ORDER):
        """{role: copy} of the weight."""
        shapes = PHASE_WEIGHTS.weight(self.weight.shape)
        copies = {f"w.{role}": poisoned(shape, np.uint16) for role, shape in shapes.items()}
        run_step(
            launches.copy_weights,
            {"w": self.weight},
            copies,
            orders,
            copies={"w": {role: f"w.{role}" for role in shapes}},
        )
        return {role: copies[f"w.{role}"] for role in shapes}

    def phase_weights(self):
        """The phase weights that are multiplied."""
        return to_bfloat16(references.decompose_taps(self.weight))

    def forward(self, tile=None, **attributes):
        """y, or its copy in bfloat16 with this padding."""
        shape = len(self.x), 2 * self.height, 2 * self.width, self.filters
        writes = {"y": poisoned(shape)}
        if "padding" in attributes:
            padding = attributes["padding"]
            writes = {
                "copy": poisoned(
                    (shape[0], shape[1] + 2 * padding, shape[2] + 2 * padding, shape[3]), np.uint16
                )
            }
        run_step(
            lambda step, build: launches.phase_forward(step, build, tile),
            {"x": rounded_input(self.x, 1), "weight": self.copies()["packed"], "bias": self.bias},
            writes,
            **{"relu": False, **attributes},
        )
        return next(iter(writes.values()))

    def input_grad(self, tile=None):
        dx = poisoned(self.x.shape)
        run_step(
            lambda step, build: launches.input_grad(step, build, tile),
            {
                "dy": rounded_gradient(self.dy, 1)[0],
                "flipped": self.copies()["flipped"],
                "zeros": np.zeros(self.channels, np.float32),
            },
            {"dx": dx},
            stride=2,
        )
        return dx

    def weight_grad(self, tile=None):
        dweight, dbias = poisoned(self.weight.shape), poisoned(self.bias.shape)
        run_step(
            lambda step, build: launches.phase_weight_grad(step, build, tile),
            self.operands(),
            {"dweight": dweight, "dbias": dbias},
        )
        return dweight, dbias

    def operands(self):
        """Of the weight gradient."""
        dy, partials = rounded_gradient(self.dy, 1)
        return {"x": rounded_input(self.x, 1), "dy": dy, "bias_partials": partials}


@pytest.mark.parametrize("shape, tile", CASES, ids=str)
def test_all_directions_are_those_of_a_convolution_of_the_upsampled_image(shape, tile):
    conv = Upsampled(shape, integers)
    upsampled = references.upsample2d(conv.x)
    assert np.array_equal(
        conv.forward(tile), references.conv2d(upsampled, conv.weight, conv.bias, 1)
    )
    dx = references.conv2d_input_grad(conv.dy, conv.weight, 1, 2 * conv.height, 2 * conv.width)
    wanted = dx.reshape(len(dx), conv.height, 2, conv.width, 2, conv.channels).sum(axis=(2, 4))
    assert np.array_equal(conv.input_grad(), wanted)
    dweight, dbias = conv.weight_grad()
    assert np.array_equal(dweight, references.conv2d_weight_grad(upsampled, conv.dy, 1, 3))
    assert np.array_equal(dbias, conv.dy.sum(axis=(0, 1, 2)))


def test_the_parts_of_a_weight_gradient_have_channels_that_the_weight_has_not():
    conv = Upsampled((3, 7, 7, 3, 40), integers)  # 3 channels, in x a chunk of 8
    wanted = references.conv2d_weight_grad(references.upsample2d(conv.x), conv.dy, 1, 3)
    assert np.array_equal(conv.weight_grad()[0], wanted)


@pytest.mark.usefixtures("sums")
@pytest.mark.parametrize("shape, tile", CASES, ids=str)
def test_sums_of_taps_are_rounded_once(shape, tile):
    conv = Upsampled(shape, normal)
    x, dy, (height, width) = to_bfloat16(conv.x), to_bfloat16(conv.dy), conv.dy.shape[1:3]
    y = references.conv2d_input_grad(x, conv.phase_weights(), 1, height, width, 2) + conv.bias
    with in_one_order():
        close(conv.forward(tile, relu=True), np.maximum(y, 0))
        close(conv.input_grad(), references.conv2d(dy, conv.phase_weights(), 0, 1, 2))
        dweight, dbias = conv.weight_grad()
    close(dweight, references.add_tap_gradients(references.conv2d_weight_grad(dy, x, 1, 4, 2)))
    close(dbias, conv.dy.astype(float).sum(axis=(0, 1, 2)))


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
    taps, found = (
        conv.phase_weights(),
        {role: numbers(copy) for role, copy in conv.copies(ORDERS).items()},
    )
    channels, filters, size = conv.channels, conv.filters, found["packed"].shape[1]
    assert size == (3 if 4 * filters <= 16 else 2)
    assert (
        np.array_equal(found["flipped"][..., :filters], taps)
        and not found["flipped"][..., filters:].any()
    )
    wanted = np.zeros((2, 2, filters, size, size, -(-channels // 8) * 8), np.float32)
    for p, q, a, b in np.ndindex(2, 2, 2, 2):
        place = (a, b) if size == 2 else (p + a, q + b)
        wanted[p, q, :, *place, :channels] = taps[:, 3 - p - 2 * a, 3 - q - 2 * b].T
    assert np.array_equal(found["packed"], wanted.reshape(found["packed"].shape))


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
        lambda step, build: launches.input_grad(step, build, tile),
        {
            "dy": rounded_gradient(conv.dy, 1)[0],
            "flipped": conv.copies()["flipped"],
            "kept": rounded_input(kept, 1),
        },
        {"rounded": copy, "bias_partials": partials},
        stride=2,
        relu=relu,
        kept_padding=1,
        padding=2,
    )
    assert copy.tobytes() == copied(wanted, 2).tobytes()
    error = np.abs(partials.sum(axis=0, dtype=float) - wanted.sum(axis=(0, 1, 2), dtype=float))
    assert (error <= gamma(64) * np.abs(wanted).sum(axis=(0, 1, 2), dtype=float)).all()


@pytest.mark.parametrize(
    "rung", ["gpu_tf32", "gpu_3xtf32_packed", "gpu_bf16", "gpu_bf16_sm90", "gpu_f16"]
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
    size = PHASE_WEIGHTS.weight_parts(reads["x"].shape, reads["dy"].shape, None)
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

    def updated(function, gradient, in_parts, copies):
        writes = {
            name: value.copy()
            for name, value in {"b": biases, "w": conv.weight, **averages}.items()
        } | copies
        names = {"w": {role: f"w.{role}" for role in PHASE_WEIGHTS.weight(conv.weight.shape)}}
        run_step(
            function,
            {"gradient": gradient, **control},
            writes,
            operation=f"{rule}_update",
            **given,
            **({"copies": names} if copies else {}),
            gradients={"b": Gradient("db"), "w": Gradient("gradient", in_parts)},
        )
        return writes

    def copies():
        shapes = PHASE_WEIGHTS.weight(conv.weight.shape)
        return {f"w.{role}": poisoned(shape, np.uint16) for role, shape in shapes.items()}

    wanted = updated(gpu_opt_v1.update, whole["dweight"], False, {})
    for found in (
        updated(launches.update, whole["dweight"], False, copies()),
        updated(launches.update, parts, True, copies()),
    ):
        for name, value in wanted.items():
            assert found[name].tobytes() == value.tobytes(), name
        after = Upsampled(shape, normal)
        after.weight = found["w"]
        for role, copy in after.copies().items():
            assert found[f"w.{role}"].tobytes() == copy.tobytes(), role
