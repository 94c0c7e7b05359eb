"""docs/math.md: the matrices that it prints are those that make the formulas true, and those of the
cpu rung.
"""

import re

import numpy as np
import pytest

import references
from ladder.executors.cpu import convolution, upsampled, winograd
from ladder.sources import ROOT


@pytest.fixture
def draw():
    return np.random.default_rng(1).standard_normal


def printed(heading):
    """Name -> matrix, from a section's blocks of matrices printed side by side."""
    section = (ROOT / "docs/math.md").read_text().split(f"\n### {heading}\n")[1].split("\n##")[0]
    matrices = {}
    for block in section.split("\n\n"):
        lines = [line for line in block.splitlines() if re.match(r" {4}.*\|.*\|", line)]
        rows = [[part.split() for part in re.findall(r"\|([^|=]*)\|", line)] for line in lines]
        names = re.findall(r"(\w'?) =  ? ?\|", "\n".join(lines))
        matrices |= {
            name: np.array(
                [[number(text) for text in row[place]] for row in rows if place < len(row)]
            )
            for place, name in enumerate(names)
        }
    return matrices


def number(text):
    above, _, below = text.partition("/")
    return float(above) / float(below or 1)


def test_winograd(draw):
    section = (ROOT / "docs/math.md").read_text()
    assert "Y = A' [(G g G') * (B' d B)] A" in section
    matrices = printed("Winograd F(4x4, 3x3)")
    g_, b_, a_ = matrices["G"], matrices["B'"], matrices["A'"]
    tile, filters, dy = draw((6, 6)), draw((3, 3)), draw((4, 4))

    def forward():
        return a_ @ ((g_ @ filters @ g_.T) * (b_ @ tile @ b_.T)) @ a_.T

    direct = references.conv2d(tile[None, ..., None], filters[None, ..., None], np.zeros(1), 0)[
        0, ..., 0
    ]
    np.testing.assert_allclose(forward(), direct, atol=1e-12)
    spread = a_.T @ dy @ a_
    np.testing.assert_allclose(
        g_.T @ (spread * (b_ @ tile @ b_.T)) @ g_,
        references.gradient(forward, filters, dy),
        atol=1e-8,
    )
    np.testing.assert_allclose(
        b_.T @ ((g_ @ filters @ g_.T) * spread) @ b_,
        references.gradient(forward, tile, dy),
        atol=1e-8,
    )
    transformed = np.empty((36, 1, 1))
    winograd.transform_filters(filters[None, ..., None], 0, 1, transformed, np.empty((6, 3, 1)))
    np.testing.assert_allclose(transformed.reshape(6, 6), g_ @ filters @ g_.T, atol=1e-12)


def test_25_products_of_an_upsampled_convolution(draw):
    matrices = printed("Upsampling and a 3x3 convolution: 25 products")
    g_, b_, a_ = matrices["G"], matrices["B'"], matrices["A'"]
    x, filters = draw((4, 4)), draw((3, 3))
    direct = references.conv2d(
        references.upsample2d(x[None, ..., None]), filters[None, ..., None], np.zeros(1), 1
    )[0, 2:6, 2:6, 0]
    transformed = np.empty((25, 1, 1))
    upsampled.transform_filters(filters[None, ..., None], 0, 1, transformed, np.empty((5, 3, 1)))
    np.testing.assert_allclose(transformed.reshape(5, 5), g_ @ filters @ g_.T, atol=1e-12)
    products = (g_ @ filters @ g_.T) * (b_ @ x @ b_.T)
    np.testing.assert_allclose(a_ @ products @ a_.T, direct, atol=1e-12)


def test_the_phase_decomposition(draw):
    taps = printed("Upsampling and a 3x3 convolution: phase decomposition")["T"]
    np.testing.assert_array_equal(taps, convolution._taps(np.float64)[0])
    x, weight = draw((5, 6)), draw((3, 3))
    direct = references.conv2d(
        references.upsample2d(x[None, ..., None]), weight[None, ..., None], np.zeros(1), 1
    )[0, ..., 0]
    out, phase_weights = np.zeros((2 * 5 + 2, 2 * 6 + 2)), taps @ weight @ taps.T
    for r, q in np.ndindex(x.shape):
        out[2 * r : 2 * r + 4, 2 * q : 2 * q + 4] += x[r, q] * phase_weights
    np.testing.assert_allclose(out[1:-1, 1:-1], direct, atol=1e-12)
