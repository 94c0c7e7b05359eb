"""Few labels: the rows that are drawn, leave-one-out against fits without a row, and accuracies
that a reader can check.
"""

import numpy as np
import pytest

from ladder.classifiers import few_labels
from ladder.classifiers.kernel_functions import Kernel, distances, resolve_gamma, squared_norms


def images(count, classes=3, width=6, seed=0, spread=1.0):
    """(features around a centre of their class, labels)"""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(count) % classes)
    centres = np.random.default_rng(99).normal(size=(classes, width))
    return (centres[labels] + spread * rng.normal(size=(count, width))).astype(np.float32), labels


def test_a_draw_takes_as_many_rows_of_each_class_and_a_smaller_one_its_first():
    _, labels = images(60)
    orders = few_labels.draws(labels, 3, seed=5)
    assert len(orders) == few_labels.DRAWS
    for order in orders:
        assert len(set(order.tolist())) == len(order) == 60
        for count in (3, 9, 30):
            assert np.bincount(labels[order[:count]]).tolist() == [count // 3] * 3
    assert len({tuple(order) for order in orders}) == few_labels.DRAWS
    assert all(
        (a == b).all() for a, b in zip(orders, few_labels.draws(labels, 3, seed=5), strict=True)
    )
    assert not all(
        (a == b).all() for a, b in zip(orders, few_labels.draws(labels, 3, seed=6), strict=True)
    )


def test_a_class_without_a_row_left_leaves_its_turns_to_the_others():
    labels = np.array([0, 1, 1, 0, 1, 1, 2, 1])
    for order in few_labels.draws(labels, 3, seed=1):
        assert labels[order].tolist() == [0, 1, 2, 0, 1, 1, 1, 1] and sorted(order) == list(
            range(8)
        )


def test_settings_are_those_with_the_least_log_loss_of_rows_left_out_one_by_one():
    features, labels = images(18, seed=3, spread=1.5)
    scaled = Kernel("rbf", resolve_gamma("scale", features))
    targets = np.where(labels[:, None] == np.arange(3), 1.0, -1.0) + 1 / 3

    def loss(width, strength):
        gram = np.exp(
            -width
            * scaled.gamma
            * ((features[:, None] - features) ** 2).sum(axis=2, dtype=np.float64)
        )
        total = 0.0
        for row in range(18):
            rest = np.arange(18) != row
            system = gram[np.ix_(rest, rest)] + strength * np.eye(17)
            scores = few_labels.SHARPNESS * (
                gram[row, rest] @ np.linalg.solve(system, targets[rest])
            )
            total += np.log(np.exp(scores).sum()) - scores[labels[row]]
        return total

    losses = {
        (width, strength): loss(width, strength)
        for width in few_labels.WIDTHS
        for strength in few_labels.STRENGTHS
    }
    norms = squared_norms(features)
    between = distances(features, norms, features, norms, odd=0)
    width, strength, _, coefficients = few_labels._fit(features, between, labels, targets, scaled)
    assert (width, strength) == min(losses, key=losses.get)
    gram = np.exp(
        -width * scaled.gamma * ((features[:, None] - features) ** 2).sum(axis=2, dtype=np.float64)
    )
    assert np.allclose((gram + strength * np.eye(18)) @ coefficients, targets, atol=1e-5)


def test_more_labels_give_more_accuracy_and_one_of_each_class_is_enough_to_begin():
    scores = few_labels.curve(images(400), images(300, seed=1), [3, 30, 300], seed=1, threads=2)
    means = [
        np.mean([score.accuracy for score in scores if score.labels == count])
        for count in (3, 30, 300)
    ]
    assert [(score.labels, score.draw) for score in scores] == [
        (count, draw) for count in (3, 30, 300) for draw in range(5)
    ]
    assert 1 / 3 < means[0] < means[1] < means[2]
    assert {(score.width, score.strength) for score in scores if score.labels == 3} == {
        (few_labels.WIDTHS[0], few_labels.STRENGTHS[0])
    }


def test_the_number_of_threads_changes_no_bit():
    (features, labels), test = images(200), images(100, seed=1)
    one, three = (
        few_labels.curve((features, labels), test, [6, 90], 1, threads) for threads in (1, 3)
    )
    assert one == three


def test_the_sign_of_the_odd_columns_means_nothing():
    (features, labels), (rows, expected) = images(90), images(60, seed=1)
    flipped = rows.copy()
    flipped[:, -2:] *= -1
    one, other = (
        few_labels.curve((features, labels), (some, expected), [30], 1, 1, odd=2)
        for some in (rows, flipped)
    )
    assert [score.accuracy for score in one] == [score.accuracy for score in other]


@pytest.mark.parametrize("count", [3, 12])
def test_accuracies_are_of_the_test_rows(count):
    train = images(60, spread=0.01)
    rows, labels = images(50, seed=2, spread=0.01)
    assert {score.accuracy for score in few_labels.curve(train, (rows, labels), [count], 1, 1)} == {
        1.0
    }
    assert {
        score.accuracy for score in few_labels.curve(train, (rows, (labels + 1) % 3), [count], 1, 1)
    } == {0.0}
