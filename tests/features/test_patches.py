"""Fitting to patches against the definitions in float64: whitening, k-means, and the resulting
convolution.
"""

import dataclasses

import numpy as np
import pytest
import threadpoolctl

import numpy_cupy
import references
from ladder.arithmetic import arrays
from ladder.errors import UserError
from ladder.features import patches
from ladder.network import layers, networks
from ladder.network.networks import Fit

SETTINGS = patches.PatchSettings("kmeans", (600,), 4, (0.05,), 7)
IMAGES = np.random.default_rng(0).integers(0, 256, (12, 9, 8, 2)).astype(np.float32)


@pytest.fixture(params=[1, 3], ids=lambda threads: f"{threads} threads")
def fitter(request, monkeypatch):
    monkeypatch.setattr(patches, "ROWS", 64)  # several pieces
    with threadpoolctl.threadpool_limits(1):
        yield patches.PatchFitter(arrays.NumPy(request.param))


def correlated(count=500, numbers=12, seed=0):
    random = np.random.default_rng(seed)
    return (
        random.standard_normal((count, numbers)) @ random.standard_normal((numbers, numbers)) + 3
    ).astype(np.float32)


def one_layer(kernel=3, filters=5, padding=1, bias=True):
    table = (layers.conv2d("conv", filters, kernel, padding, bias=bias),)
    return networks.resolve("one", IMAGES.shape[1:], table, "conv", None).layer("conv")


def read(images):
    """The input of a first layer: the images in batches."""
    for start in range(0, len(images), 5):
        yield start, images[start : start + 5]


def drawn(layer, count=600):
    return patches.sample(layer, IMAGES, count, read, 7, 0)


def windows(layer):
    """Every patch of every image without padding, float64, (N, rows, columns, D)."""
    seen = np.lib.stride_tricks.sliding_window_view(
        IMAGES, (layer.attributes["kernel"],) * 2, axis=(1, 2)
    )
    return seen.transpose(0, 1, 2, 4, 5, 3).reshape(*seen.shape[:3], -1).astype(np.float64)


# ---- patches


def test_patches_are_windows_without_padding_and_reproducible():
    layer = one_layer()
    found = drawn(layer)
    known = {patch.tobytes() for patch in windows(layer).astype(np.float32).reshape(-1, 18)}
    assert found.shape == (600, 18) and found.dtype == np.float32
    assert (
        all(patch.tobytes() in known for patch in found)
        and len({patch.tobytes() for patch in found}) > 200
    )
    assert np.array_equal(
        found, patches.sample(layer, IMAGES, 600, lambda images: [(0, images)], 7, 0)
    )
    assert not np.array_equal(found, patches.sample(layer, IMAGES, 600, read, 8, 0))
    assert not np.array_equal(found, patches.sample(layer, IMAGES, 600, read, 7, 1))


def test_few_patches_come_from_few_images_with_several_from_each():
    read_of = []

    def noting(images):
        read_of.append(len(images))
        return read(images)

    assert patches.sample(one_layer(), IMAGES, 35, noting, 7, 0).shape == (36, 18)
    large = np.tile(IMAGES, (1, 8, 8, 1))[:, :64, :64]  # as many from each of its pixels
    assert patches.sample(one_layer(), large, 80, noting, 7, 0).shape == (80, 18)
    assert read_of == [4, 2]


@pytest.mark.parametrize("contrast", [None, 0.5])
def test_normalised_patches_have_mean_zero_and_with_contrast_similar_variances(contrast):
    found, wanted = correlated(), correlated().astype(np.float64)
    patches.even_out(found, contrast)
    wanted -= wanted.mean(axis=1, keepdims=True)
    if contrast:
        wanted /= np.sqrt(wanted.var(axis=1, keepdims=True) + contrast)
    np.testing.assert_allclose(found, wanted, atol=2e-5)


# ---- whitening


@pytest.mark.parametrize("kind, components", [("zca", None), ("pca", 12), ("pca", 5)])
def test_whitened_patches_have_the_identity_as_covariance_on_the_pca_components(
    kind, components, fitter
):
    found = correlated()
    whitening = patches.Whitening.measure(found, kind, components, 0.0, fitter)
    white = (found - whitening.mean) @ whitening.matrix.T
    np.testing.assert_allclose(white.mean(axis=0), 0, atol=1e-4)
    np.testing.assert_allclose(white.T @ white / len(white), np.eye(components or 12), atol=2e-3)
    np.testing.assert_allclose(whitening.apply(found, fitter), white, atol=1e-3)
    assert whitening.explained == pytest.approx(explained(found, components or 12), rel=1e-5)


def explained(found, components):
    values = np.sort(np.linalg.eigvalsh(np.cov(found.astype(np.float64).T)))[::-1]
    return values[:components].sum() / values.sum()


def test_zca_changes_patches_less_than_other_whitenings_and_has_an_inverse(fitter):
    found = correlated()
    zca, pca = (patches.Whitening.measure(found, kind, 12, 0.0, fitter) for kind in ("zca", "pca"))
    assert np.allclose(zca.matrix, zca.matrix.T)
    for whitening in (zca, pca):
        centred = found - whitening.mean
        np.testing.assert_allclose(
            centred @ whitening.matrix.T @ whitening.inverse, centred, atol=1e-4
        )


def test_a_rotation_keeps_variances_and_the_largest_pca_components(fitter):
    found = correlated()
    rotation = patches.Whitening.measure(found, "rotation", 4, 0.05, fitter)
    turned = (found - rotation.mean) @ rotation.matrix.T
    values = np.sort(np.linalg.eigvalsh(np.cov(found.astype(np.float64).T, bias=True)))[::-1]
    np.testing.assert_allclose(
        turned.T @ turned / len(turned), np.diag(values[:4]), rtol=1e-4, atol=1e-3 * values[0]
    )


def test_the_regularisation_of_variances_is_in_units_of_their_mean(fitter):
    """So patches on another scale get the same filters."""
    small, large = (
        patches.Whitening.measure(size * correlated(), "zca", None, 0.1, fitter)
        for size in (1, 255)
    )
    np.testing.assert_allclose(small.matrix, 255 * large.matrix, rtol=1e-3, atol=1e-5)
    values, vectors = np.linalg.eigh(np.cov(correlated().astype(np.float64).T, bias=True))
    wanted = (vectors / np.sqrt(values + 0.1 * values.mean())) @ vectors.T
    np.testing.assert_allclose(small.matrix, wanted, atol=1e-4)


def test_directions_without_variance_cannot_be_whitened_without_regularisation(fitter):
    flat = np.ones((100, 4), np.float32)
    flat[:, 0] = np.arange(100)
    with pytest.raises(UserError, match="cannot be whitened; set patches_whitening above 0"):
        patches.Whitening.measure(flat, "pca", 4, 0.0, fitter)


# ---- k-means


def test_kmeans_has_unit_filters_and_its_objective_never_decreases(fitter):
    points = correlated() - 3
    start = patches.unit_rows(points[:6].astype(np.float64))
    atoms, objective = patches.kmeans(points, start, 12, fitter)
    np.testing.assert_allclose(np.linalg.norm(atoms, axis=1), 1, rtol=1e-12)
    assert objective[0] == pytest.approx(np.abs(points @ start.T).max(axis=1).mean(), rel=1e-5)
    assert (np.diff(objective) >= -1e-6 * objective[0]).all() and objective[-1] > 1.02 * objective[
        0
    ]
    assert np.abs(points @ atoms.T).max(axis=1).mean() >= objective[-1] * (1 - 1e-6)


def test_kmeans_finds_directions_of_either_sign(fitter):
    random = np.random.default_rng(3)
    axes = np.eye(5)[:3]
    points = (
        random.choice([-1, 1], (300, 1)) * axes[random.integers(0, 3, 300)]
        + 0.05 * random.standard_normal((300, 5))
    ).astype(np.float32)
    atoms, _ = patches.kmeans(
        points, patches.unit_rows(axes + 0.4 * random.standard_normal((3, 5))), 10, fitter
    )
    np.testing.assert_allclose(np.abs(atoms @ axes.T).max(axis=0), 1, atol=0.01)


def test_a_filter_without_points_does_not_change(fitter):
    points = np.tile(np.array([[1, 0.1, 0]], np.float32), (70, 1))
    atoms, _ = patches.kmeans(points, np.eye(3), 2, fitter)
    np.testing.assert_allclose(atoms[1:], np.eye(3)[1:])
    np.testing.assert_allclose(atoms[0], points[0] / np.linalg.norm(points[0]), rtol=1e-6)


# ---- the layer


@pytest.mark.parametrize("atoms", ["kmeans", "random"])
@pytest.mark.parametrize(
    "spec",
    [
        Fit("conv", "zca", centred=True, bias=-0.25),
        Fit("conv", "pca", components=7),
        Fit("conv", "none"),
        Fit("conv", "pca", atoms=False),
        Fit("conv", "rotation", atoms=False),
    ],
    ids=lambda spec: f"{spec.whitening}-{spec.atoms}",
)
def test_the_convolution_is_whitening_then_filters_of_every_patch(spec, atoms, fitter):
    layer, settings = one_layer(padding=0), dataclasses.replace(SETTINGS, atoms=atoms)
    fitted = patches.fit(layer, spec, drawn(layer), settings, 0, fitter)
    seen, found = windows(layer), drawn(layer).astype(np.float64)
    if spec.centred:
        seen, found = (some - some.mean(axis=-1, keepdims=True) for some in (seen, found))
    components = None if spec.whitening == "zca" else spec.components or 5
    whitening = patches.Whitening.measure(
        found.astype(np.float32), spec.whitening, components, 0.05, fitter
    )
    white, white_found = ((some - whitening.mean) @ whitening.matrix.T for some in (seen, found))
    wanted = white
    if spec.atoms:
        weights = fitted.weight.reshape(5, -1).astype(np.float64)
        # each filter's atom, of which it is a multiple
        directions = patches.unit_rows(weights @ whitening.inverse.T)
        answers = white_found @ directions.T
        wanted = white @ directions.T / answers.std(axis=0) + spec.bias
    made = references.conv2d(IMAGES, fitted.weight, fitted.bias, padding=0)
    np.testing.assert_allclose(made, wanted, rtol=2e-3, atol=2e-3 * np.abs(wanted).max())
    assert (fitted.facts["atoms"] == atoms) if spec.atoms else fitted.facts["atoms"] is None
    assert len(fitted.facts["objective"]) == (4 if spec.atoms and atoms == "kmeans" else 0)


def test_with_local_contrast_the_convolution_is_that_of_contrast_normalised_patches(fitter):
    layer, contrast = one_layer(padding=0, bias=False), 0.3
    fitted = patches.fit(
        layer,
        Fit("conv", "zca", centred=True, contrast=contrast),
        drawn(layer),
        SETTINGS,
        0,
        fitter,
    )
    assert fitted.bias is None
    made = references.local_contrast(
        references.conv2d(IMAGES, fitted.weight, 0, padding=0), IMAGES, 3, contrast
    )
    seen = windows(layer)
    seen = (seen - seen.mean(axis=-1, keepdims=True)) / np.sqrt(
        seen.var(axis=-1, keepdims=True) + contrast
    )
    found = drawn(layer)
    patches.even_out(found, contrast)
    answers = found @ fitted.weight.reshape(5, -1).T.astype(np.float64)
    np.testing.assert_allclose(made, seen @ fitted.weight.reshape(5, -1).T, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(answers.std(axis=0), 1, rtol=1e-3)


def test_pictures_are_the_filters_before_whitening(fitter):
    layer = one_layer()
    fitted = patches.fit(layer, Fit("conv", "zca", centred=True), drawn(layer), SETTINGS, 0, fitter)
    shown = fitted.pictures.reshape(5, -1).astype(np.float64)
    answers = shown @ fitted.weight.reshape(5, -1).T.astype(np.float64)
    assert fitted.pictures.shape == fitted.weight.shape
    assert (np.abs(answers).argmax(axis=1) == np.arange(5)).all() and (np.diag(answers) > 0).all()


def test_more_filters_than_patches_is_one_line_with_advice(fitter):
    layer = one_layer(filters=40)
    with pytest.raises(
        UserError, match="layer conv has 40 filters and 20 patches .*; raise patches_samples"
    ):
        patches.fit(layer, Fit("conv", "zca"), drawn(layer, 20)[:20], SETTINGS, 0, fitter)


def test_the_last_hyperparameter_applies_to_all_further_layers():
    settings = dataclasses.replace(SETTINGS, samples=(9, 5), whitening=(0.1, 0.2, 0.3))
    assert [settings.of_layer(number) for number in range(4)] == [
        (9, 0.1),
        (5, 0.2),
        (5, 0.3),
        (5, 0.3),
    ]


def test_a_gpu_gives_the_same_numbers(monkeypatch):
    gpu = numpy_cupy.install(monkeypatch)
    layer, spec = one_layer(), Fit("conv", "zca", centred=True)
    with threadpoolctl.threadpool_limits(1):
        here, there = (
            patches.fit(layer, spec, drawn(layer), SETTINGS, 0, patches.PatchFitter(library))
            for library in (arrays.NumPy(), arrays.CuPy())
        )
    assert np.array_equal(here.weight, there.weight) and gpu.moved["there"] and gpu.moved["back"]
