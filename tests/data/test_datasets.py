import hashlib
import pathlib

import numpy as np
import pytest

import processes
from ladder.data import datasets
from ladder.data import facts as dataset_facts
from ladder.errors import UserError


def test_digits_are_all_there_and_split_by_class():
    data = datasets.digits()
    assert data.train_images.shape == (1433, 32, 32, 3) and data.test_images.shape == (
        364,
        32,
        32,
        3,
    )
    assert data.train_images.dtype == data.test_images.dtype == data.train_labels.dtype == np.uint8
    share = np.bincount(data.test_labels) / (
        np.bincount(data.train_labels) + np.bincount(data.test_labels)
    )
    assert len(share) == 10 and np.all(np.abs(share - 0.2) < 0.01)


def test_digits_are_the_same_bytes_everywhere():
    data = datasets.digits()
    digest = hashlib.sha256()
    for array in (data.train_images, data.train_labels, data.test_images, data.test_labels):
        digest.update(array.tobytes())
    assert digest.hexdigest() == "b2851cab711638cbe9e48925a91dd61772339fc24dccbb41a4824552c047a074"


def test_digits_are_enlarged_bilinearly():
    from PIL import Image
    from sklearn.datasets import load_digits

    raw = load_digits().images[:20]
    enlarged = datasets._enlarge(raw.astype(np.int64))
    for small, large in zip(raw, enlarged, strict=True):
        reference = np.asarray(
            Image.fromarray(small.astype(np.float32)).resize((32, 32), Image.Resampling.BILINEAR)
        )
        np.testing.assert_allclose(large, reference * 255 / 16, atol=0.5001)


def test_digits_of_the_two_parts_are_those_of_scikit_learn():
    from sklearn.datasets import load_digits

    raw, data = load_digits(), datasets.digits()
    assert sorted(np.concatenate([data.train_labels, data.test_labels])) == sorted(raw.target)
    everything = np.concatenate([data.train_images, data.test_images])
    assert len(np.unique(everything.reshape(1797, -1), axis=0)) == len(np.unique(raw.data, axis=0))


def test_the_facts_are_those_of_the_data():
    facts = dataset_facts.FACTS
    digits = datasets.digits()
    assert facts["digits"] == dataset_facts.Facts(
        digits.train_images.shape[1:],
        len(digits.classes),
        len(digits.train_labels),
        len(digits.test_labels),
    )


def test_the_facts_need_the_standard_library_alone():
    scripts = pathlib.Path(dataset_facts.__file__).parents[2]
    code = f"import sys; sys.path.insert(0, {str(scripts)!r}); from ladder.data.facts import FACTS; print(*FACTS)"
    run = processes.python("-I", "-S", "-c", code, check=True)
    assert run.stdout.split() == list(dataset_facts.FACTS)


def test_limits_are_balanced_nested_and_in_order():
    labels = np.random.default_rng(3).integers(0, 10, 500).astype(np.uint8)
    kept = {
        limit: datasets._limited_rows(labels, limit, "train_limit", 10) for limit in (10, 57, 200)
    }
    for limit, rows in kept.items():
        counts = np.bincount(labels[rows], minlength=10)
        assert len(rows) == limit and counts.max() - counts.min() <= 1 and np.all(np.diff(rows) > 0)
    assert set(kept[10]) < set(kept[57]) < set(kept[200])


def test_a_limit_near_all_rows_is_as_balanced_as_the_data_allows():
    data = datasets.digits()
    part = datasets.limited(data, 1400, "all")
    counts, available = np.bincount(part.train_labels), np.bincount(data.train_labels)
    assert np.all((counts >= counts.max() - 1) | (counts == available))
    assert len(part.train_images) == 1400 and len(part.test_images) == 364


def test_limits_keep_images_with_their_labels():
    data = datasets.digits()
    part = datasets.limited(data, 20, 10)
    for image, label in zip(part.train_images, part.train_labels, strict=True):
        matches = np.flatnonzero((data.train_images == image).all(axis=(1, 2, 3)))
        assert label in data.train_labels[matches]


@pytest.mark.parametrize("limit", [9, 0, -5, 1434])
def test_a_limit_that_the_data_cannot_give_is_named_with_what_it_may_be(limit):
    with pytest.raises(UserError, match=rf"train_limit {limit} .* 10 .* to 1433 .*, or all"):
        datasets.limited(datasets.digits(), limit, "all")


def test_a_test_limit_is_named_as_such():
    with pytest.raises(UserError, match="test_limit 365"):
        datasets.limited(datasets.digits(), "all", 365)


@pytest.mark.parametrize("count", [10, 143, 700])
def test_a_validation_set_is_stratified_and_disjoint_from_the_training_rows(count):
    data = datasets.digits()
    part = datasets.with_validation(data, count)
    sizes, drawn = np.bincount(data.train_labels), np.bincount(part.test_labels, minlength=10)
    assert np.abs(drawn - sizes * count / sizes.sum()).max() < 1.01 and drawn.sum() == count
    assert len(part.train_labels) == len(data.train_labels) - count

    def rows(images, labels):
        return sorted(
            image.tobytes() + bytes([label]) for image, label in zip(images, labels, strict=True)
        )

    both = rows(
        np.concatenate((part.train_images, part.test_images)),
        np.concatenate((part.train_labels, part.test_labels)),
    )
    assert both == rows(data.train_images, data.train_labels), (
        "every row is on one side, with its own label"
    )


def test_validation_sets_are_nested_and_the_same_each_time():
    data = datasets.digits()
    small, large, again = (datasets.with_validation(data, count) for count in (100, 300, 300))
    assert np.array_equal(large.test_images, again.test_images) and np.array_equal(
        large.train_labels, again.train_labels
    )
    larger = {image.tobytes() for image in large.test_images}
    assert all(image.tobytes() in larger for image in small.test_images)
    assert not np.array_equal(large.test_images, data.train_images[:300]), (
        "they are drawn, not the first ones"
    )


@pytest.mark.parametrize("count", [3, 1430])
def test_a_validation_set_that_leaves_a_class_without_images_is_one_line(count):
    with pytest.raises(UserError, match=f"validation {count} does not fit"):
        datasets.with_validation(datasets.digits(), count)


def test_without_its_test_images_a_dataset_has_none():
    assert datasets.digits(with_test=False).test_images.shape == (0, 32, 32, 3)
