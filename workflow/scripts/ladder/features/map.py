"""A two-dimensional embedding of feature vectors: PCA, then t-SNE (van der Maaten and Hinton,
2008).
"""

import numpy as np
from sklearn.manifold import TSNE

from ladder.features import features, pca
from ladder.machine import runtime

ROWS = 1000  # most rows that are embedded, which takes seconds
OF_ALL = 2000  # most of pictures without labels, training pictures among them
FEWEST = 10  # fewer rows are not embedded
COMPONENTS = 50  # PCA components, the input of t-SNE
PERPLEXITY = 30  # of t-SNE; at most a third of the rows


def rows(count, seed, most=ROWS):
    """Ascending indices (n,) of the rows to embed: at most `most` of `count`, sampled by the seed;
    none if count < FEWEST.
    """
    return features.sample(count, most, seed) if count >= FEWEST else np.empty(0, np.int64)


def layout(vectors, seed):
    """Coordinates (N, 2) float32 in [0, 1] of vectors (N, D) float32; bit-identical for the same
    vectors and seed.
    """
    centred = vectors - vectors.mean(axis=0, dtype=np.float64).astype(np.float32)
    count = min(COMPONENTS, centred.shape[1], len(centred) - 1)
    ((components, *_),) = pca.principal_components([centred], count)
    if not components.any():  # all rows are equal, for which t-SNE fails
        return np.full((len(vectors), 2), 0.5, np.float32)
    tsne = TSNE(perplexity=min(PERPLEXITY, (len(centred) - 1) / 3), init="pca", random_state=seed)
    # results depend on rounding, and that on the threads
    with runtime.thread_pools().limit(limits=1):
        places = tsne.fit_transform(centred @ components)
    low, high = places.min(axis=0), places.max(axis=0)
    return ((places - low) / np.maximum(high - low, np.finfo(np.float32).tiny)).astype(np.float32)
