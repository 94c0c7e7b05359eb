"""A network run forward over images, batch by batch."""

import numpy as np

from . import executors, plan


class Inference:
    """Runs a network forward over images and gives what layer `until` puts out.

    parameters: name -> float32 array; scale, offset: float32 (channels,), value = image * scale + offset.
    """

    def __init__(self, network, variant, batch_size, parameters, scale, offset, threads, until=None):
        self.network, self.variant, self.batch_size, self.until = network, variant, batch_size, until
        self._bound = {**parameters, "scale": scale, "offset": offset}
        self.executor = executors.create(variant, threads)

    def batches(self, images, flip=False):
        """Yield (start, float32 activations (n, H, W, C)) for images (N, H, W, C), mirrored left to right with `flip`.

        The array is the executor's own: use it before the next batch.
        """
        dataset = plan.Dataset(len(images), images.dtype.name)
        shared = {**self._bound, "images": images, "permutation": np.arange(len(images)), "counters": np.zeros(3, np.int64)}
        start = 0
        for batch in (self.batch_size, len(images) % self.batch_size):
            if not batch or start + batch > len(images):
                continue
            steps = plan.inference_plan(self.network, self.variant, batch, dataset, self.until, flip)
            arrays = self.executor.allocate(steps, shared)
            while start + batch <= len(images):
                self.executor.run(steps, arrays)
                yield start, arrays[steps.output]
                start += batch
