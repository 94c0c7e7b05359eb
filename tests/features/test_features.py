"""Feature vectors: order, polarities, pooling, mirroring, standardising, PCA, whole and partial
batches.
"""

import tempfile

import numpy as np
import psutil
import pytest
from sklearn.decomposition import PCA

import numpy_cupy
import references
from ladder.arithmetic import arrays
from ladder.arithmetic.lazy_rows import forget
from ladder.data.normalization import Statistics
from ladder.errors import UserError
from ladder.features import features, pca
from ladder.features.features import FeatureTransform
from ladder.network import networks, weights
from ladder.store import artifacts
from ladder.training import inference
from ladder.training.inference import Inference

NETWORK = networks.build("autoencoder")
IMAGES = np.random.default_rng(0).integers(0, 256, (5, 32, 32, 3), dtype=np.uint8)
STATISTICS = Statistics(np.full(3, 1 / 255, np.float32), np.zeros(3, np.float32))
PIXELS = features.Pixels(STATISTICS)


def fit_components(encoder, images, transform, count, standardize, library=features.ON_CPU):
    rows = features.rows_for_pca(encoder, images, transform, library, tempfile.gettempdir())
    return features.fit_components(rows, transform, count, standardize, library)


@pytest.fixture(scope="module")
def parameters():
    return weights.initialize(NETWORK, 3)


@pytest.fixture(scope="module")
def latent(parameters):
    """The latent of IMAGES by definition, float64 (N, 8, 8, 128)."""
    values = IMAGES / 255
    for name in ("enc1", "enc2"):
        values = references.conv2d(
            values, parameters[f"{name}.weight"], parameters[f"{name}.bias"], 1
        )
        values = references.relu(values)
        values = values.reshape(
            len(values), values.shape[1] // 2, 2, values.shape[2] // 2, 2, -1
        ).max(axis=(2, 4))
    return values


def extract(parameters, images=IMAGES, layer="latent", **options):
    encoder = Inference(NETWORK, "cpu", parameters, STATISTICS, threads=2, until=layer)
    transform = FeatureTransform(**options)
    out = np.full(
        (len(images), np.prod(transform.pooled_shape(NETWORK.layer(layer).output_shape))),
        np.nan,
        np.float32,
    )
    features.extract(encoder, images, transform, [out], "")
    return out


@pytest.mark.parametrize("batch", [1, 2, 5, 64])
def test_features_are_the_latent_in_chw_order_for_any_batch_size(
    parameters, latent, batch, monkeypatch
):
    monkeypatch.setattr(inference, "BATCH", batch)
    expected = latent.transpose(0, 3, 1, 2).reshape(5, 8192)
    assert np.allclose(extract(parameters), expected, rtol=1e-4, atol=1e-5)


def test_pooling_averages_over_a_grid(parameters, latent):
    expected = (
        latent.reshape(5, 4, 2, 4, 2, 128).mean(axis=(2, 4)).transpose(0, 3, 1, 2).reshape(5, 2048)
    )
    assert np.allclose(extract(parameters, grid=4), expected, rtol=1e-4, atol=1e-5)


def test_flip_averages_with_the_mirror_image_so_both_get_the_same_features(parameters):
    plain = extract(parameters, flip=True)
    assert np.allclose(
        plain, (extract(parameters) + extract(parameters, IMAGES[:, :, ::-1])) / 2, atol=1e-6
    )
    assert np.allclose(
        plain, extract(parameters, np.ascontiguousarray(IMAGES[:, :, ::-1]), flip=True), atol=1e-6
    )


def test_apart_keeps_half_the_difference_which_mirroring_turns_round(parameters):
    found, mirrored = np.empty((2, 2, 5, 8192), np.float32)
    encoder = Inference(NETWORK, "cpu", parameters, STATISTICS, threads=2, until="latent")
    features.extract(encoder, IMAGES, FeatureTransform(flip="apart"), found, "")
    features.extract(
        encoder,
        np.ascontiguousarray(IMAGES[:, :, ::-1]),
        FeatureTransform(flip="apart"),
        mirrored,
        "",
    )
    assert (
        np.array_equal(found[0], extract(parameters, flip=True)) and np.abs(found[1]).max() > 0.01
    )
    assert np.allclose(
        found[1], (extract(parameters) - extract(parameters, IMAGES[:, :, ::-1])) / 2, atol=1e-6
    )
    assert np.allclose(mirrored[0], found[0], atol=1e-6) and np.allclose(
        mirrored[1], -found[1], atol=1e-6
    )


def test_the_odd_part_takes_the_even_ones_deviations_and_no_mean():
    random = np.random.default_rng(0)
    even, odd = (
        random.normal(5, 3, (40, 4)).astype(np.float32),
        random.normal(2, 1, (40, 4)).astype(np.float32),
    )
    mean, scale = features.moments(even)
    wanted = (even - mean) * scale, odd * scale
    features.standardize(FeatureTransform(mean=mean, scale=scale, flip="apart"), [even, odd])
    assert np.array_equal(even, wanted[0]) and np.array_equal(odd, wanted[1])


def test_the_odd_part_has_principal_directions_of_its_own(parameters):
    images = np.random.default_rng(0).integers(0, 256, (40, 32, 32, 3), dtype=np.uint8)
    plain = FeatureTransform(flip="apart", grid=4)
    whole = np.concatenate([rows.copy() for _, rows in features.blocks(PIXELS, images, plain)])
    transform, _, _ = fit_components(PIXELS, images, plain, 6, True)
    even, odd = whole[:, :48] * transform.scale, whole[:, 48:] * transform.scale
    assert np.allclose(even.std(axis=0), 1, atol=1e-3)
    found = np.concatenate([rows.copy() for _, rows in features.blocks(PIXELS, images, transform)])
    assert found.shape == (40, 12)
    for part, rows in ((found[:, 6:], odd), (found[:, :6], even - even.mean(axis=0))):
        left = np.linalg.svd(rows.astype(np.float64))[1][:6]
        assert np.allclose(np.linalg.norm(part, axis=0), left, rtol=1e-3)
    average, _, _ = fit_components(PIXELS, images, FeatureTransform(flip=True, grid=4), 6, True)
    assert np.array_equal(average.components, transform.components)


def test_a_grid_that_does_not_divide_the_map_is_refused():
    for height, width in ((9, 8), (8, 9)):
        with pytest.raises(
            ValueError, match=f"{height}x{width} activations cannot be pooled to 3x3"
        ):
            features.average_pool(np.zeros((1, height, width, 2)), 3)


def test_standardise_uses_only_training_rows_and_zeroes_constant_features():
    rng = np.random.default_rng(0)
    train, test = (
        rng.normal(5, 3, (4001, 3)).astype(np.float32),
        rng.normal(7, 1, (7, 3)).astype(np.float32),
    )
    train[:, 1] = test[:, 1] = 0.1
    varying = [0, 2]
    mean, deviation = (
        statistic(train[:, varying].astype(np.float64), axis=0) for statistic in (np.mean, np.std)
    )
    expected = [(rows[:, varying] - mean) / deviation for rows in (train, test)]
    mean, scale = features.moments(train)
    features.standardize(FeatureTransform(mean=mean, scale=scale), [train], [test])
    for rows, wanted in zip((train, test), expected, strict=True):
        assert np.allclose(rows[:, varying], wanted, atol=1e-5)
        assert not rows[:, 1].any()


def test_pixels_are_the_normalized_images_in_chw_order():
    out = np.full((5, 3072), np.nan, np.float32)
    features.extract(PIXELS, IMAGES, FeatureTransform(), [out], "")
    assert np.allclose(out, IMAGES.transpose(0, 3, 1, 2).reshape(5, -1) / 255)


def test_pixels_take_the_flip_too():
    out = np.full((5, 3072), np.nan, np.float32)
    features.extract(PIXELS, IMAGES, FeatureTransform(flip=True), [out], "")
    both = (IMAGES / 255 + IMAGES[:, :, ::-1] / 255) / 2
    assert np.allclose(out, both.transpose(0, 3, 1, 2).reshape(5, -1))


# Maxima and polarities.


def pooled(values, window, best):
    """Windows by definition, float64."""
    count, height, width, channels = values.shape
    windows = values.reshape(count, height // window, window, width // window, window, channels)
    return best(windows, axis=(2, 4))


@pytest.mark.parametrize("window", [1, 2, 4])
def test_two_polarities_are_thresholded_then_max_pooled_then_averaged(parameters, window):
    z = references.conv2d(IMAGES / 255, parameters["enc1.weight"], parameters["enc1.bias"], 1)
    a = 0.05
    both = np.concatenate([np.maximum(z - a, 0), np.maximum(-z - a, 0)], axis=3)
    expected = (
        features.average_pool(pooled(both, window, np.max), 2).transpose(0, 3, 1, 2).reshape(5, -1)
    )
    assert (expected > 0).mean() > 0.2
    found = extract(parameters, layer="enc1", threshold=a, max_pool=window, grid=2)
    assert np.allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_max_pool_takes_the_largest_of_each_window():
    values = np.random.default_rng(0).normal(size=(2, 6, 9, 3)).astype(np.float32)
    assert np.array_equal(features.max_pool(values, 3), pooled(values, 3, np.max))
    for turned, size in ((values, "6x9"), (values.swapaxes(1, 2), "9x6")):
        with pytest.raises(ValueError, match=f"{size} activations have no windows of 2x2"):
            features.max_pool(turned, 2)


def test_the_threshold_of_a_scaled_polarity_is_in_standard_deviations_of_the_channel(parameters):
    z = references.conv2d(IMAGES / 255, parameters["enc1.weight"], parameters["enc1.bias"], 1)
    scaled = (z - z.mean(axis=(0, 1, 2))) / z.std(axis=(0, 1, 2))
    expected = np.concatenate([np.maximum(scaled - 0.25, 0), np.maximum(-scaled - 0.25, 0)], axis=3)
    encoder = Inference(NETWORK, "cpu", parameters, STATISTICS, threads=2, until="enc1")
    transform = features.fit_channels(encoder, IMAGES, FeatureTransform(threshold=0.25, grid=4))
    ((_, found),) = features.blocks(encoder, IMAGES, transform)
    assert np.allclose(
        found, features.average_pool(expected, 4).transpose(0, 3, 1, 2).reshape(5, -1), atol=1e-4
    )


# Fitted transforms.


class Maps:
    """An encoder with given rows as activations; images (N, 1, 1, 1) hold the row numbers."""

    def __init__(self, values):
        self.values = values

    def batches(self, images, mirrored=False):
        for start in range(0, len(images), 64):
            yield (
                start,
                self.values[images[start : start + 64].ravel()].reshape(
                    -1, 1, 1, self.values.shape[1]
                ),
            )


def maps(count, width, rank, seed=0):
    """(encoder, images): vectors of `rank` directions whose deviations fall, with a little noise
    and means of their own.
    """
    rng = np.random.default_rng(seed)
    values = (
        rng.normal(size=(count, rank)) * np.linspace(5, 1, rank) @ rng.normal(size=(rank, width))
    )
    values += rng.normal(size=values.shape) * 0.1 + rng.normal(size=width)
    return Maps(values.astype(np.float32)), np.arange(count).reshape(-1, 1, 1, 1)


@pytest.mark.parametrize(
    "count, width",
    [(900, 60), (70, 500)],
    ids=["more images than values", "more values than images"],
)
@pytest.mark.parametrize("standardize", [False, True])
def test_pca_is_scikit_learns_with_every_sign_fixed(count, width, standardize):
    encoder, images = maps(count, width, rank=12)
    rows = encoder.values.astype(np.float64)
    wanted = (rows - rows.mean(axis=0)) / (rows.std(axis=0) if standardize else 1)
    reference = PCA(8, svd_solver="full").fit(wanted)
    transform, share, _ = fit_components(encoder, images, FeatureTransform(), 8, standardize)
    largest = np.abs(transform.components).argmax(axis=0)
    assert (transform.components[largest, range(8)] > 0).all()
    signs = np.sign(reference.components_.T[largest, range(8)])
    assert np.allclose(transform.components, reference.components_.T * signs, atol=2e-4)
    assert share == pytest.approx(reference.explained_variance_ratio_.sum(), abs=1e-5)
    ((_, found),) = features.blocks(encoder, images, transform)
    assert np.allclose(found, reference.transform(wanted) * signs, atol=2e-2)


@pytest.mark.parametrize("count, width", [(700, 60), (90, 400)])
def test_a_gpu_gives_the_components_of_the_cpu(monkeypatch, count, width):
    gpu = numpy_cupy.install(monkeypatch)
    monkeypatch.setattr(arrays.CuPy, "rows", 128)
    encoder, images = maps(count, width, rank=12)
    found = []
    for library in (arrays.NumPy(), arrays.CuPy()):
        transform, share, _ = fit_components(encoder, images, FeatureTransform(), 8, True, library)
        rows = np.concatenate(
            [rows.copy() for _, rows in features.blocks(encoder, images, transform, library)]
        )
        found.append((transform.components, share, rows))
    (here, share, rows), (there, its_share, its_rows) = found
    assert (
        here.dtype == there.dtype
        and np.allclose(here, there, atol=5e-4)
        and share == pytest.approx(its_share, abs=1e-5)
    )
    assert np.allclose(rows, its_rows, atol=2e-2) and gpu.moved["back"] >= 3


@pytest.mark.parametrize("flip", [False, "apart"])
@pytest.mark.parametrize("count, width", [(900, 60), (70, 1500)])
def test_pca_in_blocks_is_that_of_all_rows_at_once(monkeypatch, count, width, flip):
    encoder, images = maps(count, width, rank=12)
    found = []
    for numbers in (2**25, 512 * 70):
        monkeypatch.setattr(pca, "BLOCK_NUMBERS", numbers)
        found.append(fit_components(encoder, images, FeatureTransform(flip=flip), 8, True))
    (whole, share, rows), (transform, its_share, its_rows) = found
    assert np.allclose(transform.components, whole.components, atol=1e-4)
    assert its_share == pytest.approx(share, abs=1e-5)
    assert np.allclose(its_rows, rows, atol=1e-2)
    ((_, extracted),) = features.blocks(encoder, images, transform)
    assert np.allclose(its_rows, extracted, atol=1e-2)


def test_columns_of_a_file_are_read_without_the_whole_file_in_memory(monkeypatch, tmp_path):
    def resident_then_forget(rows):
        resident.append(psutil.Process().memory_info().rss)
        forget(rows)

    rows, ones = artifacts.unnamed_array(tmp_path, (4096, 4096), np.float32), np.ones(4096, "f4")
    rows[:] = 1
    forget(rows)
    resident = [psutil.Process().memory_info().rss]
    monkeypatch.setattr(pca, "forget", resident_then_forget)
    assert not pca.Part(rows, 0, ones, ones)[:, :512].any()
    assert max(resident) - resident[0] < rows.nbytes / 2


def test_directions_without_variance_are_zeros():
    encoder, images = maps(100, 20, rank=3)
    encoder.values[:, 5:] = 1
    encoder.values[:, :5] = encoder.values[:, :1] * np.arange(1, 6)
    transform, share, _ = fit_components(encoder, images, FeatureTransform(), 4, True)
    assert (
        share == pytest.approx(1)
        and not transform.components[:, 1:].any()
        and transform.components[:, 0].any()
    )


def test_features_that_are_not_finite_are_refused_with_advice():
    encoder, images = maps(100, 20, rank=3)
    encoder.values[7, 3] = np.nan
    with pytest.raises(UserError, match="lower learning_rate"):
        fit_components(encoder, images, FeatureTransform(), 4, True)


def test_a_block_does_not_depend_on_other_images(parameters, monkeypatch):
    monkeypatch.setattr(features, "ROWS", 2)
    options = {"threshold": 0.1, "max_pool": 2, "grid": 4, "flip": True, "layer": "enc1"}
    whole = extract(parameters, **options)
    monkeypatch.undo()
    assert np.allclose(whole, extract(parameters, **options), atol=1e-6)


def test_a_sample_is_drawn_by_the_seed_without_repeats_and_in_order():
    rows = features.sample(1000, 100, seed=1)
    assert len(set(rows)) == 100 and list(rows) == sorted(rows) and rows.max() < 1000
    assert np.array_equal(rows, features.sample(1000, 100, seed=1))
    assert not np.array_equal(rows, features.sample(1000, 100, seed=2))
    assert np.array_equal(features.sample(50, 100, seed=1), np.arange(50))


def test_a_recipe_is_restored_from_params_and_the_saved_arrays(tmp_path):
    encoder, images = maps(100, 20, rank=3)
    params = {
        "features_two_polarity": 0.5,
        "features_polarity_scale": "channel",
        "features_pool": "none",
        "features_flip": True,
        "features_pca": 4,
    }
    transform = features.fit_channels(encoder, images, FeatureTransform.from_params(params))
    transform, _, _ = fit_components(encoder, images, transform, 4, True)
    artifacts.save_tensors(tmp_path / features.FILE, transform.tensors())
    again = FeatureTransform.from_params(params, artifacts.load_tensors(tmp_path / features.FILE))
    assert (again.threshold, again.grid, again.flip) == (0.5, 0, True)
    ((_, rows),), ((_, same),) = (
        list(features.blocks(encoder, images, one)) for one in (transform, again)
    )
    assert np.array_equal(rows, same) and rows.shape == (100, 4)
