"""The forward pass of a network over images, batch by batch."""

import numpy as np

from ladder.arithmetic import multipliers
from ladder.executors import create as executors
from ladder.network import networks, weights
from ladder.plan import exponents, plan

BATCH = 64


class Inference:
    """Computes the output of layer `until` (default: the last) of a network for images.

    values: name -> float32 array for all of weights.shapes(network); statistics:
    normalization.Statistics; multipliers: a multipliers.ByDirection. The batch size is always
    BATCH, so features of the untrained network do not depend on the training.
    """

    def __init__(
        self,
        network,
        rung,
        values,
        statistics,
        threads,
        until=None,
        data_residency="auto",
        multipliers=multipliers.EXACT,
    ):
        self.network, self.rung, self.until, self.multipliers = network, rung, until, multipliers
        self._bound = {**values, "scale": statistics.scale, "offset": statistics.offset}
        self.executor = executors.create(rung, threads, data_residency)

    @classmethod
    def load(cls, params, artifact, statistics, threads, options, until=None):
        """The Inference for a stage's params and options (data_residency, multiplier), with the
        weights of an artifact.
        """
        network = networks.from_params(params)
        return cls(
            network,
            params["variant"],
            weights.of_artifact(artifact, network),
            statistics,
            threads,
            until,
            options["data_residency"],
            multipliers.from_params(params, options["multiplier"]),
        )

    def use(self, values):
        """Compute with other values from now on."""
        self._bound |= values

    def prepare(self, images):
        """Compile what `batches` of these images needs, before a clock starts."""
        for start in {0, len(images) // BATCH * BATCH} - {len(images)}:
            next(self.batches(images[start : start + BATCH]))

    def batches(self, images, flip=False):
        """Yield (start, float32 activations (n, H, W, C)) for images (N, H, W, C), mirrored left to
        right with `flip`.

        The array may be a buffer of the executor, overwritten by the next batch.
        """
        dataset = plan.Dataset(len(images), images.dtype.name)
        uploaded = self.executor.upload(
            {
                **self._bound,
                "images": images,
                "permutation": np.arange(len(images)),
                "counters": np.zeros(3, np.int64),
            }
        )
        start = 0
        for batch in (BATCH, len(images) % BATCH):
            if not batch or start + batch > len(images):
                continue

            def bound(repeats=0, batch=batch):
                steps = plan.inference_plan(
                    self.network,
                    self.rung,
                    batch,
                    dataset,
                    self.until,
                    flip,
                    self.multipliers,
                    repeats,
                )
                return steps, self.executor.allocate(steps, uploaded)

            whole = bound()
            while start + batch <= len(images):
                values = self._run(*whole)
                for repeats in exponents.repeats_of(whole[0]):
                    if np.isfinite(values).all():
                        break
                    self.executor.fill(uploaded["counters"], [0, start, 0])
                    values = self._run(*bound(repeats))
                yield start, values
                start += batch

    def _run(self, steps, arrays):
        self.executor.run(steps, arrays)
        return self.executor.download(arrays[steps.output])
