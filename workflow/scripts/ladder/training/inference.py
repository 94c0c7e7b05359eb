"""A network run forward over images, batch by batch."""

import numpy as np

from ladder.arithmetic import multipliers
from ladder.executors import create as executors
from ladder.training import plan

BATCH = 64


class Inference:
    """Runs a network forward over images and gives what layer `until` puts out.

    values: name -> float32 array, of all in weights.shapes(network); scale, offset: float32 (channels,), value = image * scale
    + offset. The batch is BATCH whatever the training's was, so that features of the untrained network do not depend on it.
    """

    def __init__(self, network, variant, values, scale, offset, threads, until=None, data_residency="auto",
                 products=multipliers.EXACT):
        self.network, self.variant, self.until, self.products = network, variant, until, products
        self._bound = {**values, "scale": scale, "offset": offset}
        self.executor = executors.create(variant, threads, data_residency)

    def batches(self, images, flip=False):
        """Yield (start, float32 activations (n, H, W, C)) for images (N, H, W, C), mirrored left to right with `flip`.

        The array may be the executor's own: use it before the next batch.
        """
        dataset = plan.Dataset(len(images), images.dtype.name)
        placed = self.executor.place({
            **self._bound, "images": images, "permutation": np.arange(len(images)), "counters": np.zeros(3, np.int64)})
        start = 0
        for batch in (BATCH, len(images) % BATCH):
            if not batch or start + batch > len(images):
                continue
            steps = plan.inference_plan(self.network, self.variant, batch, dataset, self.until, flip,
                                        products=self.products)
            arrays = self.executor.allocate(steps, placed)
            while start + batch <= len(images):
                self.executor.run(steps, arrays)
                yield start, self.executor.fetch(arrays[steps.output])
                start += batch
