"""Epochs over a plan: shuffling, the last partial batch, checkpoints, and what a run reports."""

import dataclasses
import hashlib
import json
import time

import numpy as np
import safetensors

from . import artifacts, executors, optimizers, plan, progress, randomness
from .errors import UserError
from .networks import Network
from .optimizers import Optimizer
from .progress import log

LOOK_EVERY = 50      # steps between looks at the losses, for which a GPU has to stop
ESTIMATE_AFTER = 4   # steps


@dataclasses.dataclass(frozen=True)
class Settings:
    """One training run. schedule: keyword arguments of optimizers.learning_rates; gradient_scale: see plan.training_plan."""

    network: Network
    variant: str
    batch_size: int
    epochs: int
    optimizer: Optimizer
    learning_rate: float
    schedule: dict
    gradient_scale: str
    seed: int


class Training:
    """A run between epochs.

    images: uint8 or float32 (N, H, W, C), of which a plan makes values as image * scale + offset; parameters: name ->
    float32 array, what training starts from; data_residency: see executors.py. Raises UserError where the batch is larger
    than the data.
    """

    def __init__(self, settings, images, scale, offset, parameters, threads, data_residency="auto"):
        if settings.batch_size > len(images):
            raise UserError(f"batch_size {settings.batch_size} is larger than the {len(images)} training images")
        self.settings, self.images = settings, images
        self.executor = executors.create(settings.variant, threads, data_residency)
        self.length = plan.Length(settings.epochs * self._steps_per_epoch(), self._steps_per_epoch())
        self.rates = optimizers.learning_rates(settings.learning_rate, self.length, **settings.schedule)
        state = {name: value.copy() for name, value in parameters.items()}
        state |= {name: np.zeros(shape, np.float32) for name, shape in
                  optimizers.state_shapes(settings.optimizer, settings.network.parameters).items()}
        self._state = list(state)   # what the rest of a run depends on, apart from how many epochs are done
        self._shared = self.executor.place({
            "images": images, "scale": scale, "offset": offset, "learning_rates": self.rates,
            "permutation": np.arange(len(images)), "counters": np.zeros(3, np.int64),
            "losses": np.zeros(self.length.steps_per_epoch), **state})
        self.plan, self._arrays = self._bind(settings.batch_size)
        tail = len(images) % settings.batch_size
        self._batches = [(self.plan, self._arrays)] * (len(images) // settings.batch_size)
        self._batches += [self._bind(tail)] if tail else []
        self.losses = []     # mean squared error per value, by epoch
        self.seconds = 0.0   # spent in epochs

    @property
    def parameters(self):
        """Parameter name -> float32 array, as trained so far."""
        return self._fetch(self.settings.network.parameters)

    @property
    def epoch(self):
        """How many epochs are done."""
        return len(self.losses)

    def run_epoch(self):
        """Train on every image once, in the epoch's own order; raises UserError where the loss is not finite."""
        started = time.monotonic()
        order = randomness.generator(self.settings.seed, randomness.SHUFFLE, self.epoch).permutation(len(self.images))
        self.executor.fill(self._shared["permutation"], order)
        self.executor.fill(self._shared["counters"], [self.epoch * self.length.steps_per_epoch, 0, 0])
        with progress.bar(total=len(self.images), label=f"epoch {self.epoch + 1}/{self.settings.epochs}",
                          unit=" images") as bar:
            for done, (batch_plan, arrays) in enumerate(self._batches, start=1):
                self.executor.run(batch_plan, arrays)
                bar.update(batch_plan.batch)
                if done % LOOK_EVERY == 0 or done == len(self._batches):
                    losses = self._losses(done)
                if self.epoch == 0 and done == ESTIMATE_AFTER:
                    self.executor.synchronize()
                    self._estimate((time.monotonic() - started) / done)
        sizes = [batch_plan.batch for batch_plan, _ in self._batches]
        self.losses.append(float(np.dot(losses, sizes) / sum(sizes)))
        self.seconds += time.monotonic() - started

    def save(self, path):
        """Write everything the rest of the run depends on to `path` (safetensors), whole or not at all."""
        tensors = self._fetch(self._state)
        state = {"losses": self.losses, "seconds": self.seconds, "by_operation": self.executor.seconds,
                 "sha256": _digest(tensors)}
        with artifacts.replacing(path) as temporary:
            artifacts.save_tensors(temporary, tensors, {"state": json.dumps(state)})

    def restore(self, path):
        """Go on from a checkpoint; False, with the run unchanged, where there is none or it is damaged (which is logged)."""
        if not path.exists():
            return False
        try:
            with safetensors.safe_open(path, framework="numpy") as file:
                state = json.loads(file.metadata()["state"])
                tensors = {name: file.get_tensor(name) for name in file.keys()}   # noqa: SIM118 (no mapping)
        except (safetensors.SafetensorError, KeyError, TypeError, ValueError, OSError):
            state = tensors = None
        if state is None or set(tensors) != set(self._state) or _digest(tensors) != state["sha256"]:
            log.info("%s is damaged; training starts from the first epoch", path)
            return False
        for name in self._state:
            self.executor.fill(self._shared[name], tensors[name])
        self.losses, self.seconds = state["losses"], state["seconds"]
        self.executor.seconds = state["by_operation"]
        return True

    def memory(self):
        """Bytes by use: weights, gradients (of weights and activations), optimizer, activations, pool masks, workspace."""
        kinds = self.plan.bytes_by_kind()
        return {"weights": kinds["parameter"], "gradients": kinds["gradient"], "optimizer": kinds.get("optimizer", 0),
                "activations": kinds["activation"], "pool masks": kinds.get("mask", 0),
                "workspace": kinds.get("derived", 0) + kinds.get("workspace", 0) + self.executor.workspace_bytes()}

    def _steps_per_epoch(self):
        return -(-len(self.images) // self.settings.batch_size)

    def _bind(self, batch):
        settings = self.settings
        bound = plan.training_plan(settings.network, settings.variant, batch,
                                   plan.Dataset(len(self.images), self.images.dtype.name), settings.optimizer,
                                   self.length, settings.gradient_scale)
        return bound, self.executor.allocate(bound, self._shared)

    def _fetch(self, names):
        return {name: self.executor.fetch(self._shared[name]) for name in names}

    def _losses(self, done):
        """The losses of this epoch's steps so far; raises UserError at the first that is not finite."""
        losses = self.executor.fetch(self._shared["losses"])
        broken = np.flatnonzero(~np.isfinite(losses[:done]))
        if len(broken):
            step = self.epoch * self.length.steps_per_epoch + int(broken[0])
            raise UserError(f"the loss is {losses[broken[0]]} at step {step + 1} (epoch {self.epoch + 1}) with learning rate "
                            f"{self.rates[step]:g}; try a smaller learning_rate, or a gradient_clip")
        return losses

    def _estimate(self, seconds_per_step):
        log.info("estimate: %s for %d epochs of %d steps", progress.duration(seconds_per_step * self.length.steps),
                 self.settings.epochs, self.length.steps_per_epoch)


def _digest(tensors):
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(tensors[name]))
    return digest.hexdigest()
