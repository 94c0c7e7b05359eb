"""Accuracy, per-class accuracy and confusion matrices against counts made by hand."""

import json

import numpy as np
import pytest

from ladder.classifiers import metrics

LABELS = np.array([0, 0, 0, 1, 1, 2], np.uint8)
PREDICTIONS = np.array([0, 1, 1, 1, 1, 0], np.uint8)


def test_confusion_has_true_classes_as_rows():
    assert metrics.confusion(LABELS, PREDICTIONS, 3).tolist() == [[1, 2, 0], [0, 2, 0], [1, 0, 0]]


def test_labels_of_one_byte_do_not_overflow():
    labels = np.full(3, 19, np.uint8)  # 19 * 20 + 19 is more than a byte holds
    assert metrics.confusion(labels, labels, 20)[19, 19] == 3


def test_accuracy_is_the_share_of_correct_predictions():
    assert metrics.accuracy(metrics.confusion(LABELS, PREDICTIONS, 3)) == 0.5


def test_per_class_is_the_share_of_each_class():
    per_class = metrics.per_class(metrics.confusion(LABELS, PREDICTIONS, 3), ["cat", "dog", "frog"])
    assert per_class == {"cat": pytest.approx(1 / 3), "dog": 1.0, "frog": 0.0}


def test_balanced_accuracy_is_the_mean_over_the_classes_that_have_rows():
    assert metrics.balanced_accuracy([[1, 2, 0, 0], [0, 2, 0, 0], [1, 0, 0, 0], [0] * 4]) == (
        pytest.approx((1 / 3 + 1 + 0) / 3)
    )
    assert metrics.balanced_accuracy([[240, 0], [10, 2]]) == pytest.approx((1 + 2 / 12) / 2)


def test_classes_are_unbalanced_where_one_has_half_as_many_rows_more_than_its_share():
    assert metrics.unbalanced([[149, 0], [0, 51]]) is False
    assert metrics.unbalanced([[150, 0], [50, 0]]) is True
    assert metrics.unbalanced([[3, 0, 0], [0, 3, 0], [0, 0, 0]]) is False
    assert metrics.unbalanced([[3, 0], [0, 0]]) is True


def test_a_class_without_rows_is_null_in_json():
    per_class = metrics.per_class(
        metrics.confusion(LABELS, PREDICTIONS, 4), ["cat", "dog", "frog", "ship"]
    )
    assert json.loads(json.dumps(per_class))["ship"] is None


def test_names_and_classes_have_to_match():
    with pytest.raises(ValueError):
        metrics.per_class(np.eye(3), ["cat", "dog"])


def test_probabilities_are_as_defined_also_of_scores_whose_exponentials_overflow():
    scores = np.array([[1.0, 2.0, 3.0], [1000.0, 999.0, -1000.0]], np.float32)
    expected = np.exp([[-2, -1, 0], [0, -1, -2000]]) / np.exp([[-2, -1, 0], [0, -1, -2000]]).sum(
        axis=1, keepdims=True
    )
    np.testing.assert_allclose(metrics.softmax(scores), expected, rtol=1e-12)
    np.testing.assert_allclose(
        metrics.log_softmax(scores)[:, :2], np.log(expected[:, :2]), rtol=1e-12
    )
