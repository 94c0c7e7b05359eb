import numpy as np

from ladder.data import copies

IMAGES = np.arange(6, dtype=np.uint8).repeat(12).reshape(6, 2, 2, 3)


def test_rows_are_counted_by_part_and_label():
    digests = {
        "train": copies.digests(IMAGES[[0, 0, 1, 2]]),
        "test": copies.digests(IMAGES[[1, 1, 2, 3]]),
    }
    labels = {"train": np.array([0, 0, 1, 1], np.uint8), "test": np.array([1, 1, 0, 0], np.uint8)}
    # 0 twice in training, 1 three times, 2 with two labels, 3 once
    found = copies.count(digests, labels)
    assert found == {"pictures": 7, "in_both_parts": 3, "with_different_labels": 2}
    assert copies.sentence(found, "validation") == (
        "7 pictures are there more than once, equal when scaled; validation pictures that are training pictures too: 3; "
        "pictures with different labels: 2"
    )


def test_the_first_of_equal_rows_is_found():
    assert copies.first(copies.digests(IMAGES[[3, 1, 3, 2, 1]])).tolist() == [0, 1, 0, 3, 1]
