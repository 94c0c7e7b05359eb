import numpy as np
import pytest

import manifest_files
from ladder.data import normalization
from ladder.errors import UserError
from ladder.store import artifacts


def pictures(count, seed=0, shape=(6, 5, 3)):
    """Random uint8 images whose neighbouring pixels are alike, with channels of different means and
    spreads.
    """
    generator = np.random.default_rng(seed)
    smooth = generator.normal(size=(count, *shape)).cumsum(axis=1).cumsum(axis=2)
    return np.clip(smooth * [6, 9, 12] + [60, 120, 150], 0, 255).astype(np.uint8)


def test_unit_divides_by_255():
    values = normalization.measure("unit", pictures(4)).apply(pictures(4))
    assert values.dtype == np.float32
    np.testing.assert_allclose(values, pictures(4) / 255, rtol=2e-7)


def test_standardize_gives_each_channel_mean_0_and_variance_1_on_the_training_rows(monkeypatch):
    monkeypatch.setattr(normalization, "ROWS", 7)  # several chunks, the last one short
    images = pictures(50)
    values = normalization.measure("standardize", images).apply(images).astype(np.float64)
    np.testing.assert_allclose(values.mean(axis=(0, 1, 2)), 0, atol=1e-6)
    np.testing.assert_allclose(values.std(axis=(0, 1, 2)), 1, rtol=1e-6)


def test_standardize_agrees_with_a_float64_reference():
    images, other = pictures(50), pictures(9, seed=1)
    expected = (other - images.mean(axis=(0, 1, 2))) / images.std(axis=(0, 1, 2))
    values = normalization.measure("standardize", images).apply(other)
    np.testing.assert_allclose(values, expected, rtol=1e-5, atol=1e-6)


def test_standardize_is_exact_where_squares_do_not_fit_in_64_bits():
    """Black and white halves of 10,000 images: the variance is known."""
    images = np.broadcast_to(np.array([0, 255], np.uint8)[:, None, None, None], (2, 50, 50, 1))
    images = np.tile(images, (5000, 1, 1, 1))
    assert images.size**2 * 127.5**2 > 2**63  # what is divided by the square of their number
    statistics = normalization.measure("standardize", images)
    np.testing.assert_array_equal(statistics.scale, np.float32(1 / 127.5))
    np.testing.assert_array_equal(statistics.offset, np.float32(-1))


def test_standardize_refuses_a_channel_without_variance():
    images = pictures(10)
    images[..., 1] = 77
    with pytest.raises(UserError, match="use unit"):
        normalization.measure("standardize", images)


def test_the_covariance_is_numpys(monkeypatch):
    monkeypatch.setattr(normalization, "ROWS", 7)
    images = pictures(50)
    flat = images.reshape(50, -1) / 255
    mean, covariance = normalization.mean_and_covariance(images)
    np.testing.assert_allclose(mean, flat.mean(axis=0), rtol=1e-13)
    np.testing.assert_allclose(covariance, np.cov(flat.T, ddof=0), atol=1e-15)


def test_the_covariance_of_extreme_pixels_is_exact_in_a_whole_chunk():
    images = np.zeros((normalization.ROWS, 1, 1, 2), np.uint8)
    images[1:] = 255  # -128 and 127 when centred
    images[1, 0, 0, 1] = 254
    mean, covariance = normalization.mean_and_covariance(images)
    flat = images.reshape(len(images), 2).astype(object)
    total = flat.sum(axis=0)
    exact = (len(images) * (flat.T @ flat) - np.outer(total, total)) / (255 * len(images)) ** 2
    np.testing.assert_array_equal(covariance, exact.astype(np.float64))


def whitened(statistics, images):
    out = np.empty(images.shape, np.float32)
    statistics.whiten(images, out)
    return out


def test_zca_gives_the_identity_as_covariance_up_to_epsilon():
    images = pictures(4000)
    statistics = normalization.measure("zca", images)
    values = whitened(statistics, images).reshape(4000, -1).astype(np.float64)
    eigenvalues = np.linalg.eigvalsh(normalization.mean_and_covariance(images)[1])
    found = np.linalg.eigvalsh(np.cov(values.T, ddof=0))
    np.testing.assert_allclose(
        found, eigenvalues / (eigenvalues + normalization.ZCA_EPSILON), atol=2e-5
    )
    np.testing.assert_allclose(values.mean(axis=0), 0, atol=1e-5)


def test_zca_gives_the_identity_where_epsilon_is_negligible(monkeypatch):
    monkeypatch.setattr(normalization, "ZCA_EPSILON", 1e-9)
    images = np.random.default_rng(0).integers(0, 256, (2000, 4, 4, 3), dtype=np.uint8)
    values = whitened(normalization.measure("zca", images), images).reshape(2000, -1)
    np.testing.assert_allclose(np.cov(values.T, ddof=0), np.eye(48), atol=1e-5)


def test_zca_agrees_with_a_float64_reference_and_is_symmetric():
    images, other = pictures(300), pictures(9, seed=1)
    flat = images.reshape(300, -1) / 255
    vectors, singular, _ = np.linalg.svd((flat - flat.mean(axis=0)).T / np.sqrt(300))
    whitening = vectors / np.sqrt(singular**2 + normalization.ZCA_EPSILON) @ vectors.T
    statistics = normalization.measure("zca", images)
    np.testing.assert_allclose(statistics.whitening, whitening, atol=1e-5)
    np.testing.assert_allclose(statistics.whitening, statistics.whitening.T, atol=1e-6)
    expected = ((other.reshape(9, -1) / 255 - flat.mean(axis=0)) @ whitening).reshape(other.shape)
    np.testing.assert_allclose(whitened(statistics, other), expected, atol=2e-5)


@pytest.mark.parametrize("name", ["unit", "standardize", "zca"])
def test_pixels_come_back_exactly(name):
    images = pictures(200)
    statistics = normalization.measure(name, images)
    stored = whitened(statistics, images) if name == "zca" else images
    pixels = statistics.to_pixels(statistics.apply(stored))
    assert pixels.dtype == np.uint8
    np.testing.assert_array_equal(pixels, images)


def test_pixels_of_values_beyond_the_range_are_clipped():
    statistics = normalization.measure("unit", pictures(4))
    values = np.array([[[[-0.5, 0.25, 1.5]]]], np.float32)
    np.testing.assert_array_equal(statistics.to_pixels(values), [[[[0, 64, 255]]]])


@pytest.mark.parametrize("count", [0, 1, 5])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_apply_fills_a_given_buffer(count, dtype):
    statistics = normalization.Statistics(
        np.array([1, 2, 3], np.float32), np.array([0, 10, 20], np.float32)
    )
    images = pictures(count).astype(dtype)
    out = np.full(images.shape, np.nan, np.float32)
    assert statistics.apply(images, out) is out
    np.testing.assert_array_equal(out, images.astype(np.float64) * [1, 2, 3] + [0, 10, 20])


def test_apply_takes_rows_that_are_not_contiguous():
    statistics = normalization.measure("standardize", pictures(8))
    images = pictures(8)[::-2]
    np.testing.assert_array_equal(statistics.apply(images), statistics.apply(images.copy()))


@pytest.mark.parametrize(
    "out",
    [
        np.empty((4, 6, 5, 3)),
        np.empty((3, 6, 5, 3), np.float32),
        np.empty((8, 6, 5, 3), np.float32)[::2],
    ],
)
def test_apply_refuses_a_buffer_it_cannot_fill(out):
    with pytest.raises(ValueError, match="C-contiguous float32"):
        normalization.measure("unit", pictures(4)).apply(pictures(4), out)


@pytest.mark.parametrize("name", ["unit", "standardize", "zca"])
def test_the_stage_measures_training_rows_only_and_stores_what_load_reads(tmp_path, name):
    import normalize_images

    train, test = pictures(40), 255 - pictures(11, seed=1)
    with artifacts.making(tmp_path / "data", manifest_files.spec("data")) as work:
        work.write_array("train_images.npy", train)
        work.write_array("test_images.npy", test)
    data = artifacts.Artifact(tmp_path / "data")
    with artifacts.making(tmp_path / "normalized", manifest_files.spec("normalized")) as work:
        normalize_images.make(work, {"data": data}, {"normalization": name})
    made = artifacts.Artifact(tmp_path / "normalized")
    statistics, expected = normalization.Statistics.load(made), normalization.measure(name, train)
    assert statistics.tensors().keys() == expected.tensors().keys()
    for key, value in expected.tensors().items():
        np.testing.assert_array_equal(getattr(statistics, key), value)
    for file, images in (("train.npy", train), ("test.npy", test)):
        stored = made.array(file)
        assert (
            stored.dtype == (np.float32 if name == "zca" else np.uint8)
            and stored.shape == images.shape
        )
        np.testing.assert_array_equal(statistics.to_pixels(statistics.apply(stored)), images)


def test_statistics_of_another_kind_are_refused(tmp_path):
    with artifacts.making(tmp_path / "normalized", manifest_files.spec("normalized")) as work:
        work.write_tensors(normalization.FILE, {"scale": np.ones(3, np.float32)})
    with pytest.raises(UserError, match="does not hold statistics"):
        normalization.Statistics.load(artifacts.Artifact(tmp_path / "normalized"))
