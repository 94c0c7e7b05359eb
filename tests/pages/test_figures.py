"""Pictures and the geometry of charts."""

import base64
import io

import numpy as np
import pytest
from PIL import Image

from ladder.pages import figures


def decoded(uri):
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(uri.removeprefix("data:image/png;base64,")))))


def test_a_png_holds_exactly_the_pixels_given():
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    assert np.array_equal(decoded(figures.png_uri(pixels)), pixels)
    assert np.array_equal(decoded(figures.png_uri(pixels[..., :1])), pixels[..., 0])


@pytest.mark.parametrize("channels", [1, 3])
def test_tiles_are_laid_row_by_row_with_transparent_gaps(channels):
    images = np.arange(1, 4, dtype=np.uint8)[:, None, None, None] * np.ones((1, 2, 3, channels), np.uint8)
    sheet = figures.tiles(images, columns=2, gap=1)
    assert sheet.shape == (5, 7, 4)
    assert (sheet[0, 0, 0], sheet[0, 4, 0], sheet[3, 0, 0]) == (1, 2, 3)
    assert not sheet[2].any() and not sheet[:, 3].any()      # the gaps
    assert not sheet[3:, 4:].any()                           # the place of the fourth image


def test_differences_are_grey_where_equal_and_amplified_as_far_as_they_fit():
    originals = np.full((1, 10, 10, 3), 100, np.uint8)
    others = originals.copy()
    others[0, 0] = 110
    others[0, 1] = 88
    shown, gain = figures.differences(originals, others)
    assert gain == 8
    assert (shown[0, 5, 5, 0], shown[0, 0, 0, 0], shown[0, 1, 0, 0]) == (128, 128 + 80, 128 - 96)


def test_differences_too_large_to_amplify_are_clipped_not_wrapped():
    shown, gain = figures.differences(np.zeros((1, 2, 2, 3), np.uint8), np.full((1, 2, 2, 3), 255, np.uint8))
    assert gain == 1
    assert (shown == 255).all()


def test_filters_come_strongest_first_each_scaled_by_its_own_largest_weight():
    weights = np.zeros((3, 3, 3, 3), np.float32)
    weights[0, 0, 0, 0] = 0.1                                # a weak filter
    weights[1, 2, 1, 2] = -4.0                               # the strongest: blue, row 1, column 2
    pictures = figures.filters(weights)
    assert pictures.shape == (3, 3, 3, 3) and pictures.dtype == np.uint8
    assert pictures[0, 1, 2].tolist() == [128, 128, 1]
    assert pictures[1, 0, 0].tolist() == [255, 128, 128]
    assert (pictures[2] == 128).all()                        # all zero: no division by zero


def test_filters_of_one_channel_are_grey():
    pictures = figures.filters(np.ones((2, 1, 3, 3), np.float32))
    assert pictures.shape == (2, 3, 3, 1) and (pictures == 255).all()


@pytest.mark.parametrize("low, high, texts", [
    (0, 0.0731, ["0", "0.02", "0.04", "0.06"]),
    (0, 10, ["0", "5", "10"]),
    (88.6, 100, ["90", "95", "100"]),
    (0, 3e-5, ["0", "0.00001", "0.00002", "0.00003"]),
])
def test_ticks_are_round_and_inside(low, high, texts):
    assert [text for _, text in figures.ticks(low, high, 4)] == texts


def line(*points):
    return [{"name": "loss", "points": [(step, value, f"at {step}") for step, value in points]}]


def test_a_line_chart_runs_from_step_0_at_the_left_to_the_last_at_the_right():
    chart = figures.line_chart(line((0, 0.4), (5, 0.2), (10, 0.1)), 10, figures.loss_scale, [{"name": "level", "value": 0.3}])
    points = chart["lines"][0]["points"]
    assert [point["x"] for point in points] == [0, 50, 100]
    assert [point["y"] for point in points] == [0, 50, 75]
    assert chart["lines"][0]["path"] == "M0 0 L50 50 L100 75"
    assert chart["references"][0]["y"] == pytest.approx(25)
    assert [tick["text"] for tick in chart["x_ticks"]] == ["0", "2", "4", "6", "8", "10"]


def test_a_curve_over_decades_is_drawn_on_a_logarithmic_scale():
    chart = figures.line_chart(line((1, 1.0), (2, 0.1), (3, 0.01)), 3, figures.loss_scale)
    ys = [point["y"] for point in chart["lines"][0]["points"]]
    assert chart["stretched"] and ys[0] == 0 and ys[2] < 100
    assert ys[1] - ys[0] == pytest.approx(ys[2] - ys[1], abs=0.01)
    assert [tick["text"] for tick in chart["y_ticks"]] == ["0.01", "0.02", "0.05", "0.1", "0.2", "0.5", "1"]
    assert not figures.line_chart(line((1, 1.0), (2, 0.1), (3, 0.0)), 3, figures.loss_scale)["stretched"]


@pytest.mark.parametrize("values", [(0.45, 0.32), (2.1, 0.02), (0.31, 0.31)])
def test_the_logarithmic_scale_has_ticks_and_even_ratios_also_where_values_are_close(values):
    height, ticks, stretched = figures.log_scale(values)
    low, top = min(values), max(values)
    assert stretched and len(ticks) > 1 and all(0 <= height(value) <= 1 + 1e-9 for value, _ in ticks)
    assert height(top) == pytest.approx(1)
    assert height(low) - height(low / 1.1) == pytest.approx(height(top) - height(top / 1.1))


def test_a_zero_has_no_logarithm_but_a_scale():
    assert figures.log_scale([0.0, 1.0])[2] is False


def test_a_line_chart_of_one_step_and_one_of_zeros_can_be_drawn():
    assert figures.line_chart(line((0.5, 0.4)), 1, figures.loss_scale)["lines"][0]["points"][0]["x"] == 50
    assert figures.line_chart(line((1, 0.0), (2, 0.0)), 2, figures.loss_scale)["lines"][0]["points"][0]["y"] == 100


@pytest.mark.parametrize("values", [(0.1, 0.2), (0.1, 0.9, 0.99, 0.9998), (0.5, 1.0), (1.0, 1.0), (0.0, 0.0)])
def test_a_scale_of_shares_widens_towards_100_percent_and_holds_it(values):
    height, ticks, _ = figures.share_scale(values)
    heights = [height(value) for value in sorted({0.0, *values})]
    assert heights[0] == 0 and heights[-1] <= 1 and heights == sorted(heights)
    texts = [text for _, text in ticks]
    assert texts[-1] == "0 %" and len(texts) > 1 and "100 %" not in texts
    assert all(0 <= height(value) <= 1 for value, _ in ticks)
    if max(values) >= 0.99:
        assert height(0.99) - height(0.9) == pytest.approx(height(0.9))


def test_a_levels_name_stands_where_the_curve_is_not():
    falling = [(x, 5 + 0.9 * x) for x in range(0, 101, 5)]                                # y from the top
    assert figures._label_place(20, falling) == {"left": False, "above": True}            # the curve ends far below it
    assert figures._label_place(80, falling) == {"left": True, "above": False}            # and begins far above it
    assert figures._label_place(97, falling)["above"] and not figures._label_place(3, falling)["above"]   # within the plot


@pytest.mark.parametrize("steps_per_epoch, last, marks", [
    (23, 230, {"epoch 2": 46, "4": 92, "6": 138, "8": 184}), (938, 4690, {"epoch 1": 938, "2": 1876, "3": 2814, "4": 3752}),
    (1875, 500, {}), (10, 10, {}), (10, 11, {"epoch 1": 10}), (100, 10_000, {f"{'epoch ' * (n == 20)}{n}": 100 * n
                                                                            for n in (20, 40, 60, 80)}),
])
def test_the_ends_of_epochs_are_marked_few_enough_to_read(steps_per_epoch, last, marks):
    assert {mark["name"]: mark["value"] for mark in figures.epoch_marks(steps_per_epoch, last)} == marks


@pytest.mark.parametrize("values", [[0.1, 0.985, 0.99], [0.61, 0.66, 0.68], [0.97, 0.986], [0.5, 0.5], [1.0, 0.9], [1.0],
                                    [0.0, 0.1]])
def test_accuracies_have_a_scale_on_which_the_better_lies_higher(values):
    height, ticks = figures.score_scale(values)
    heights = [height(value) for value in sorted(values)]
    assert heights == sorted(heights) and all(0 <= one <= 1 for one in heights)
    assert len(set(heights)) == len(set(values)), "different ones lie apart"
    assert len(ticks) >= 2 and all(-0.01 <= place <= 1.01 for place, _ in ticks), ticks


def test_good_accuracies_are_told_apart_beside_a_bad_one():
    height, _ = figures.score_scale([0.1, 0.98, 0.99])
    assert height(0.99) - height(0.98) > 0.1


def test_a_scatter_has_its_places_in_percent_from_the_left_and_from_the_top():
    chart = figures.scatter([{"x": 0.25, "y": 1, "run": 3}], [(0.5, "middle")], [(0, "low"), (1, "higher")])
    assert chart["points"] == [{"x": 25, "y": 0, "run": 3}] and chart["x_ticks"] == [{"at": 50, "text": "middle"}]
    assert chart["y_ticks"] == [{"at": 100, "text": "low"}, {"at": 0, "text": "higher"}] and chart["widest"] == "higher"
