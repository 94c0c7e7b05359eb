"""Few labels on the report: the number of labels with which another curve reaches the same, the
table and the chart.
"""

import pytest

from ladder.pages.sections import labels


class Artifact:
    def __init__(self, **metrics):
        self.metrics = metrics


def measured(*accuracies):
    """The artifact of stage `labels` with two draws around each accuracy, at 10, 100 and 1000
    labels.
    """
    return Artifact(
        counts=[10, 100, 1000],
        scores=[
            [
                {"accuracy": accuracy + sign * 0.01, "width": 1.0, "strength": 0.1}
                for sign in (-1, 1)
            ]
            for accuracy in accuracies
        ],
    )


def run(own, pixels, whole=(0.95, 0.9)):
    return {
        "data": Artifact(train=10_000),
        "labels": measured(*own),
        "labels_pixels": measured(*pixels),
        "svm": Artifact(accuracy=whole[0]),
        "svm_pixels": Artifact(accuracy=whole[1]),
    }


def section(numbers):
    return labels.section({}, {"few_labels": numbers})


def test_numbers_are_the_means_of_the_draws_with_their_interval():
    numbers = labels.numbers(run((0.5, 0.7, 0.8), (0.4, 0.6, 0.75)))
    assert numbers["counts"] == [10, 100, 1000] and numbers["draws"] == 2
    assert numbers["all"] == {"labels": 10_000, "accuracy": {"run": 0.95, "pixels": 0.9}}
    curve = numbers["curves"]["pixels"]
    assert curve["mean"] == pytest.approx([0.4, 0.6, 0.75]) and curve["each"][1] == pytest.approx(
        [0.59, 0.61]
    )
    # t = 12.706, 0.01 either side
    assert curve["interval"][1] == pytest.approx([0.6 - 0.12706, 0.6 + 0.12706], abs=1e-4)
    assert "untrained" not in numbers["curves"]


def test_without_the_stage_there_is_nothing():
    assert labels.numbers({"svm": Artifact(accuracy=0.5)}) is None
    assert section(None) is None


@pytest.mark.parametrize(
    ("accuracy", "count"),
    [
        (0.6, pytest.approx(100)),
        (0.5, pytest.approx(31.62, abs=0.01)),
        (0.3, pytest.approx(10)),
        (0.9, pytest.approx(10_000)),
        (0.91, None),
    ],
)
def test_an_equivalent_is_interpolated_in_the_logarithm_of_the_number(accuracy, count):
    assert labels.equivalent(accuracy, [10, 100, 1000, 10_000], [0.4, 0.6, 0.8, 0.9]) == count


def test_where_more_labels_are_worse_the_smaller_number_counts():
    assert labels.equivalent(0.6, [10, 100, 1000], [0.4, 0.6, 0.5]) == pytest.approx(100)


def sentence(own, pixels, whole=(0.95, 0.9)):
    return labels.sentence(labels.numbers(run(own, pixels, whole)), "pixels")


def test_the_sentence_names_the_count_that_saves_the_most_labels():
    assert sentence((0.4, 0.75, 0.8), (0.4, 0.6, 0.75)) == (
        "With 100 labels the features are as good as raw pixels with about 1,000."
    )


def test_the_sentence_says_where_all_labels_of_the_control_are_beaten():
    assert sentence((0.5, 0.91, 0.94), (0.4, 0.6, 0.75)) == (
        "With 100 labels the features are better than raw pixels with all 10,000 (+1 points, −12 to +14 over the draws, could "
        "be luck)."
    )


def test_the_sentence_says_whether_the_lead_with_as_many_labels_could_be_luck():
    numbers = labels.numbers(run((0.4, 0.75, 0.8), (0.4, 0.6, 0.75)))
    numbers["curves"]["pixels"]["each"][1] = [0.5905, 0.6095]  # the run's: 0.74 and 0.76
    assert labels.sentence(numbers, "pixels") == (
        "With 100 labels the features are as good as raw pixels with about 1,000 (+15.0 points with as many, +14.4 to +15.6 "
        "over the draws, more than luck)."
    )


def test_the_sentence_says_where_nothing_is_saved():
    assert sentence((0.4, 0.5, 0.7), (0.4, 0.6, 0.75)) == (
        "With none of these numbers of labels are the features better than raw pixels."
    )


def test_the_section_has_a_row_for_each_count_and_one_for_all_labels():
    shown = section(labels.numbers(run((0.5, 0.7, 0.8), (0.4, 0.6, 0.75))))
    assert shown["heads"] == ["this run", "raw pixels"]
    assert [row["labels"] for row in shown["rows"]] == [10, 100, 1000]
    assert shown["whole"] == {"labels": 10_000, "cells": ["95.0\u202f%", "90.0\u202f%"]}
    assert shown["rows"][1]["cells"][0].startswith("70\u202f% ± 13")


def test_the_chart_has_each_curve_at_its_values_on_a_logarithmic_axis():
    chart = section(labels.numbers(run((0.5, 0.7, 0.8), (0.4, 0.6, 0.75))))["chart"]
    own, pixels = chart["series"]
    assert own["x"] == [10, 100, 1000, 10_000] and own["y"] == [0.5, 0.7, 0.8, 0.95]
    assert pixels["name"] == "raw pixels" and pixels["y"] == [0.4, 0.6, 0.75, 0.9]
    assert chart["x"]["scale"] == "log"


def test_a_count_is_said_with_two_significant_digits():
    assert [labels.rounded(count) for count in (9.4, 234, 2371, 12.3)] == [9, 230, 2400, 12]
