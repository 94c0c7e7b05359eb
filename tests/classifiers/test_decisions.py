"""What several decisions decide together, against cases computed by hand."""

import numpy as np
import pytest

from ladder.classifiers import decisions

CLASSES = np.array([2, 3, 7], np.uint8)


@pytest.mark.parametrize(
    "each, label",
    [
        # mean (0.25, 1, 1): 2 wins both its pairs, although the second machine says 3
        ([(1, 1, 1), (-0.5, 1, 1)], 2),
        ([(1, 1, 1), (-2, 1, 1)], 3),  # the surer machine decides
        ([(1, -1, 1), (1, -1, 1)], 2),  # a vote for each class: the lowest wins
        ([(3, -3, 1), (-1, 1, 1)], 2),  # the same from machines that disagree
        # mean (1, -1, 0): a decision of 0 is a vote for the second of a pair
        ([(1, -3, 1), (1, 1, -1)], 7),
    ],
)
def test_machines_vote_with_their_mean_decision_and_ties_go_to_the_lowest_class(each, label):
    values = decisions.mean([np.array([one], np.float64) for one in each])
    assert decisions.named(values, CLASSES, by_pairs=True).tolist() == [label]


@pytest.mark.parametrize(
    "each, label",
    [
        ([(0.5, 0.4, 0.1), (0.1, 0.4, 0.5)], 3),  # the second choice of both
        ([(0.25, 0.5, 0.25), (0.5, 0.25, 0.25)], 2),  # 2 and 3 have the same mean
    ],
)
def test_scores_name_the_class_with_the_highest_mean_and_the_lowest_of_equal_ones(each, label):
    values = decisions.mean([np.array([one]) for one in each])
    found = decisions.named(values, CLASSES, by_pairs=False)
    assert found.tolist() == [label] and found.dtype == CLASSES.dtype
