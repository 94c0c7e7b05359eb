import math

import pytest

from ladder.pages import intervals


def solved_by_bisection(inside, low, high):
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if inside(middle) else (low, middle)
    return low


@pytest.mark.parametrize("right, n", [(359, 364), (8142, 10_000), (30, 30), (0, 12), (1, 7)])
def test_wilsons_ends_are_the_shares_that_the_score_test_just_rejects(right, n):
    """|p - q| = z sqrt(q (1-q) / n), solved here without the closed form."""
    share, z = right / n, 1.959963984540054
    accepted = lambda q: (share - q) ** 2 <= z * z * q * (1 - q) / n + 1e-18  # noqa: E731
    low, high = intervals.wilson(share, n)
    assert high == pytest.approx(
        solved_by_bisection(accepted, share, 1) if right < n else 1, abs=1e-7
    )
    below = solved_by_bisection(lambda away: accepted(share - away), 0, share)
    assert low == pytest.approx(share - below if right else 0, abs=1e-7)


def test_a_paired_difference_is_that_of_bonett_and_price_worked_out_by_hand():
    """won 30, lost 10 of 100: 31/102 and 11/102, so 20/102 with a variance of (42/102 - (20/102)^2)
    / 102.
    """
    found = intervals.paired(30, 10, 100)
    assert found.value == 0.2
    reach = 1.959963984540054 * math.sqrt((42 / 102 - (20 / 102) ** 2) / 102)
    assert found.interval == pytest.approx((20 / 102 - reach, 20 / 102 + reach), abs=1e-12)
    assert found.interval == pytest.approx((0.0775, 0.3147), abs=5e-5)
    assert intervals.kind(found.interval) != "within"
    assert intervals.kind(intervals.paired(12, 10, 100).interval) == "within"


def test_equal_answers_still_have_an_interval():
    low, high = intervals.paired(0, 0, 364).interval
    assert low == -high and 0 < high < 0.01


def test_an_unpaired_difference_is_newcombes_example():
    """56/70 against 48/80: 0.2 with 0.0524 to 0.3339 (Newcombe 1998, table II, method 10)."""
    assert intervals.unpaired(56 / 70, 70, 48 / 80, 80).interval == pytest.approx(
        (0.0524, 0.3339), abs=1e-4
    )


@pytest.mark.parametrize(
    "half, digits",
    [
        (0, 3),
        (0.02, 3),
        (0.17, 2),
        (0.354, 2),
        (0.36, 1),
        (0.76, 1),
        (1.2, 1),
        (3.6, 0),
        (5, 0),
        (12, 0),
    ],
)
def test_a_value_has_the_digits_that_its_interval_carries(half, digits):
    assert intervals.decimals((0.5 - half / 100, 0.5 + half / 100)) == digits


def test_a_share_in_words():
    found = intervals.share(359 / 364, 364)
    assert (
        found["text"].replace("\N{NARROW NO-BREAK SPACE}", " ") == "98.6 %"
        and found["interval_text"] == "96.8 to 99.4"
    )


@pytest.mark.parametrize(
    "won, lost, points, luck",
    [
        (2, 2, "0.0", "could be luck"),
        (20, 1, "+5.2", "more than luck"),
        (2, 3, "−0.3", "could be luck"),
    ],
)
def test_a_difference_in_words(won, lost, points, luck):
    found = intervals.words(intervals.paired(won, lost, 364))
    assert (found["points"], found["luck_text"]) == (points, luck)
    assert found["interval_text"].count(" to ") == 1 and "-" not in found["interval_text"]


def test_a_chart_has_a_row_for_each_accuracy_and_its_own_in_colour():
    rows = [
        {"key": key, "name": key, "note": "", "floor": key == "most", **intervals.share(value, 100)}
        for key, value in (("own", 0.9), ("other", 0.8), ("most", 0.1))
    ]
    rows[1] |= {"mark": 0.7, "mark_text": "untrained"}
    own, others, marks = intervals.chart(rows)["series"]
    assert (own["colour"], own["x"], own["y"]) == (1, [0.9], [0])
    assert (others["colour"], others["y"], others["floor"]) == ("rest", [1, 2], [False, True])
    assert [others["low"][0], others["high"][0]] == rows[1]["interval"]
    assert (marks["x"], marks["y"], marks["text"]) == ([0.7], [1], ["untrained"])


def test_an_accuracy_has_the_digits_that_its_interval_carries_and_none_without_one():
    told = {
        images: intervals.accuracy(
            {"test_accuracy": 0.846, "accuracy_interval": intervals.wilson(0.846, images)}
        )
        for images in (360, 10_000)
    }
    assert told == {360: "85\u202f%", 10_000: "84.6\u202f%"}
    assert (
        intervals.accuracy({"test_accuracy": 0.846}) == "84.6\u202f%"
        and intervals.accuracy({"test_accuracy": None}) == ""
    )
