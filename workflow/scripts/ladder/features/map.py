"""Feature vectors laid out in the plane so that neighbours stay neighbours: PCA, then t-SNE (van der Maaten, Hinton 2008)."""

import numpy as np
import threadpoolctl
from sklearn.manifold import TSNE

from ladder.features import features

ROWS = 1000        # rows laid out, which takes seconds
FEWEST = 10        # below so many there is nothing to lay out
COMPONENTS = 50    # principal components that t-SNE sees
PERPLEXITY = 30    # neighbours that count for each row, at most a third of all rows


def rows(count, seed):
    """Ascending rows (n,) to lay out of `count`: a seeded sample of ROWS, all of fewer, none of too few."""
    return features.sample(count, ROWS, seed) if count >= FEWEST else np.empty(0, np.int64)


def layout(vectors, seed):
    """Places (N, 2) float32 of vectors (N, D) float32, each axis from 0 to 1; the same bits for the same vectors and seed."""
    centred = vectors - vectors.mean(axis=0, dtype=np.float64).astype(np.float32)
    count = min(COMPONENTS, centred.shape[1], len(centred) - 1)
    components, _ = features.principal_components(centred, count)
    if not components.any():   # all rows are the same, which t-SNE does not survive
        return np.full((len(vectors), 2), 0.5, np.float32)
    tsne = TSNE(perplexity=min(PERPLEXITY, (len(centred) - 1) / 3), init="pca", random_state=seed)
    with threadpoolctl.threadpool_limits(1):   # its sums depend on the number of threads, and what it finds on every digit
        places = tsne.fit_transform(centred @ components)
    low, high = places.min(axis=0), places.max(axis=0)
    return ((places - low) / np.maximum(high - low, np.finfo(np.float32).tiny)).astype(np.float32)
