"""t-SNE with all pairs of points (L. van der Maaten and G. Hinton, "Visualizing Data using t-SNE",
JMLR 9, 2008).

Places y are moved until the similarities q_ij = z_ij / Z of their pairs, z_ij = 1 / (1 + |y_i -
y_j|^2) and Z their sum, are those of the points, p_ij: the gradient of sum p_ij log(p_ij / q_ij) is

    4 sum_j (p_ij - q_ij) z_ij (y_i - y_j)

Momentum, gains, the early exaggeration of p and the step's length are those of scikit-learn. For
some thousand points all pairs take less time than the trees of its TSNE.
"""

import numpy as np

STEPS, EXAGGERATED, EXAGGERATION = 750, 250, 12
BISECTIONS = 50  # for the width of each point's neighbourhood
BLOCK = 128  # rows of pairs that are computed at once and stay in the cache
# in place of a similarity of 0, which has no logarithm
LEAST = 1e-12
SPREAD = 1e-4  # of the first places: the deviation of their first coordinate


def embed(points, perplexity):
    """Places (N, 2) float32 of points (N, D) float32, whose first two columns are the start, as
    principal components are; perplexity: about how many neighbours a point has, below N - 1.
    """
    similar = similarities(points, perplexity)
    places = (SPREAD / points[:, 0].std() * points[:, :2]).astype(np.float32)
    moved, gains = np.zeros_like(places), np.ones_like(places)
    rate = max(len(points) / EXAGGERATION / 4, 50)
    for step in range(STEPS):
        early = step < EXAGGERATED
        slope = gradient(similar, places, EXAGGERATION if early else 1)
        gains = np.where(slope * moved < 0, gains + np.float32(0.2), gains * np.float32(0.8))
        gains = np.maximum(gains, np.float32(0.01))
        moved = np.float32(0.5 if early else 0.8) * moved - np.float32(rate) * gains * slope
        places += moved
    return places


def similarities(points, perplexity):
    """p (N, N) float32: how alike two points (N, D) are, sum 1. For each point the others have
    Gaussian shares of this perplexity, the exponential of their entropy; p_ij is the mean of both
    points' shares.
    """
    norms = np.square(points).sum(axis=1)
    apart = np.maximum(norms[:, None] + norms - 2 * (points @ points.T), 0)
    apart /= apart.mean()
    np.fill_diagonal(apart, np.inf)
    apart -= apart.min(axis=1, keepdims=True)
    finite = np.where(np.isinf(apart), 0, apart)
    low, high = np.zeros(len(points)), np.full(len(points), np.inf)
    narrow = np.ones(len(points))
    for _ in range(BISECTIONS):
        shares = np.exp(apart * -narrow[:, None].astype(np.float32))
        total = shares.sum(axis=1)
        entropy = np.log(total) + narrow * (finite * shares).sum(axis=1) / total
        wide = entropy > np.log(perplexity)
        low, high = np.where(wide, narrow, low), np.where(wide, high, narrow)
        narrow = np.where(np.isinf(high), 2 * narrow, (low + high) / 2)
    shares /= total[:, None]
    return np.maximum((shares + shares.T) / (2 * len(points)), LEAST)


def gradient(similar, places, exaggeration=1):
    """The gradient (N, 2) float32 at these places (N, 2), with p times `exaggeration`."""
    count, norms = len(places), np.square(places).sum(axis=1)
    ones = np.ones(count, np.float32)
    # 1 + |y_i - y_j|^2 as a product of rows and columns
    rows = np.stack([*(-2 * places.T), 1 + norms, ones], axis=1)
    columns = np.stack([*places.T, ones, norms])
    # sum_j w_ij (y_i - y_j) of weights w is their sum times y_i, minus their product with y
    known = np.stack([*places.T, ones], axis=1)
    pull, push = np.empty((count, 3), np.float32), np.empty((count, 3), np.float32)
    total = -count  # a place with itself
    for start in range(0, count, BLOCK):
        block = slice(start, start + BLOCK)
        close = rows[block] @ columns
        np.reciprocal(np.maximum(close, 1, out=close), out=close)
        total += float(close.sum())
        pull[block] = (similar[block] * close) @ known
        push[block] = np.square(close, out=close) @ known
    weights = exaggeration * pull - push / np.float32(total)
    return 4 * (weights[:, 2:] * places - weights[:, :2])
