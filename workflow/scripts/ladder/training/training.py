"""A training run over a plan: epochs, shuffling, the last partial mini-batch, checkpoints, progress
and losses.
"""

import dataclasses
import hashlib
import itertools
import json
import time

import numpy as np

from ladder import progress
from ladder.arithmetic import randomness
from ladder.arithmetic.multipliers import PRECISIONS
from ladder.errors import RunFailed, UserError
from ladder.executors import create as executors
from ladder.network import optimizers
from ladder.plan import exponents, plan
from ladder.plan.data import EXECUTOR
from ladder.progress import log
from ladder.store import artifacts, disk

LOOK_EVERY = 50  # steps between reads of the losses, which synchronise with the GPU
ESTIMATE_AFTER = 4  # steps before the time is estimated
SAVE_AFTER = 120  # seconds between checkpoints within an epoch
KEEP_EVERY = 500  # steps after which a state is kept for repeats (exponents.py), as at each epoch
SNAPSHOT = "snapshot."  # before the name of a snapshot in a checkpoint


class Training:
    """The state of a training run between two steps.

    settings        plan.TrainingSettings
    images          uint8 or float32 (N, H, W, C), as a normalized artifact stores them
    statistics      their normalization.Statistics
    values          name -> float32 array, the initial values of all weights.shapes(network)
    data_residency  see executors/create.py
    labels          uint8 (N,), for a network that classifies
    validation      validation.Validation to measure after each epoch, which may end the training
                    early; or None

    Raises UserError if the batch is larger than the dataset.
    """

    def __init__(
        self,
        settings,
        images,
        statistics,
        values,
        threads,
        data_residency="auto",
        labels=None,
        validation=None,
    ):
        if settings.batch_size > len(images):
            raise UserError(
                f"batch_size {settings.batch_size} is larger than the {len(images)} training images"
            )
        self.settings, self.images, self.validation = settings, images, validation
        self.executor = executors.create(settings.rung, threads, data_residency)
        self.length = settings.length(len(images))
        steps_per_epoch = self.length.steps_per_epoch
        self.rates = optimizers.learning_rates(
            settings.learning_rate, self.length, **settings.schedule
        )
        state = {name: value.copy() for name, value in values.items()}
        state |= {
            name: np.zeros(shape, np.float32)
            for name, shape in optimizers.state_shapes(
                settings.optimizer, plan.learning(settings.network, settings.frozen)
            ).items()
        }
        # _state: what a checkpoint must hold besides `step`
        self._values, self._state = list(values), list(state)
        labelled = (
            {"labels": labels, "hits": np.zeros(steps_per_epoch)}
            if settings.network.classifies
            else {}
        )
        drawn = {"divergences": np.zeros(steps_per_epoch)} if settings.network.draws else {}
        self._shared = self.executor.upload(
            {
                "images": images,
                "scale": statistics.scale,
                "offset": statistics.offset,
                "learning_rates": self.rates,
                "permutation": np.arange(len(images)),
                "counters": np.zeros(3, np.int64),
                "losses": np.zeros(steps_per_epoch),
                **labelled,
                **drawn,
                **state,
            }
        )
        self.repeats, self._kept = 0, None  # (step, state) for the next one
        self._batches = self._bound_plans()
        self.plan = self._batches[0][0]
        self.step = 0  # steps done
        self.history = {
            name: np.zeros(self.length.steps)  # by step
            for name in ("losses", "hits", "divergences")
            if name in self._shared
        }
        self.snapshots = {}  # name -> array, see snapshots.py
        self.seconds = 0.0  # training time
        self._passes = []  # the executor's passes after each whole epoch

    def _bound_plans(self):
        """(plan, arrays) of a whole batch and, where there is one, of the smaller one that ends an
        epoch.
        """
        count, size = len(self.images), self.settings.batch_size
        dataset = plan.Dataset(count, self.images.dtype.name)
        plans = [
            plan.training_plan(
                dataclasses.replace(self.settings, batch_size=batch, repeats=self.repeats),
                dataset,
                self.length,
            )
            for batch in (size, count % size)
            if batch
        ]
        return [(each, self.executor.allocate(each, self._shared)) for each in plans]

    @property
    def values(self):
        """Name -> float32 array with the current value of all tensors of the network's weights
        file.
        """
        return self._download(self._values)

    @property
    def averages(self):
        """Name -> float32 array with the optimizer's running averages."""
        return self._download(self._state[len(self._values) :])

    @property
    def kept(self):
        """The values that the run keeps, as `values`: with patience those of the best epoch, else
        the current ones.
        """
        return self.validation.best if self.validation and self.validation.patience else self.values

    @property
    def epochs(self):
        """Number of epochs of the run; the last one may be partial."""
        return -(-self.length.steps // self.length.steps_per_epoch)

    @property
    def epoch(self):
        """Number of epochs done."""
        return (
            self.epochs
            if self.step == self.length.steps
            else self.step // self.length.steps_per_epoch
        )

    @property
    def done(self):
        return self.step == self.length.steps or bool(self.validation and self.validation.stops)

    @property
    def losses(self):
        """Mean loss per image for each epoch, the current one included."""
        return self._means("losses")

    @property
    def divergences(self):
        """Mean divergence of an image's latent distribution from the prior in each epoch, in nats;
        None if nothing is drawn.
        """
        return self._means("divergences") if "divergences" in self.history else None

    @property
    def accuracies(self):
        """Training accuracy of each epoch, measured on each batch before its update; None if the
        network does not classify.
        """
        if "hits" not in self.history:
            return None
        return [
            float(self.history["hits"][steps].sum() / self._sizes(steps).sum())
            for steps in self._epochs_so_far()
        ]

    @property
    def seconds_by_pass(self):
        """{pass: seconds} of each epoch, the current one included; on a GPU extrapolated from
        samples.
        """
        ends = [
            {},
            *self._passes,
            *([self.executor.passes] if self.step % self.length.steps_per_epoch else []),
        ]
        return [
            {name: max(0.0, seconds - before.get(name, 0.0)) for name, seconds in after.items()}
            for before, after in itertools.pairwise(ends)
        ]

    @property
    def images_seen(self):
        return int(self._sizes(slice(0, self.step)).sum())

    def run_epoch(self, checkpoint=None, monitor=0):
        """Train to the end of the epoch or of the run, in the epoch's own order.

        checkpoint: path to save to within long epochs; monitor: steps between log lines with loss
        and accuracy, 0 for none; with validation images also theirs. At the end these are measured.
        Raises RunFailed if a loss is not finite.
        """
        epoch, begun = divmod(self.step, self.length.steps_per_epoch)
        self._keep()
        last = min(self.length.steps, (epoch + 1) * self.length.steps_per_epoch)
        order = randomness.generator(self.settings.seed, randomness.SHUFFLE, epoch).permutation(
            len(self.images)
        )
        self.executor.fill(self._shared["permutation"], order)
        self._set_counters()
        started = looked = saved = time.monotonic()
        with progress.bar(
            total=int(self._sizes(slice(self.step, last)).sum()),
            unit=" images",
            label=f"epoch {epoch + 1}/{self.epochs}",
        ) as bar:
            done = self.step
            while done < last:
                bound, following = self._bound(done), self._next_stop(done, last, monitor)
                self.executor.run_many(*bound, following - done)
                bar.update((following - done) * bound[0].batch)
                done = following
                if done == ESTIMATE_AFTER and not begun:
                    self.executor.synchronize()
                    self._estimate((time.monotonic() - started) / done)
                if done % LOOK_EVERY == 0 or done == last or (monitor and done % monitor == 0):
                    self._read_losses(done)
                    bar.update((self.step - done) * bound[0].batch)
                    done = self.step
                    now = time.monotonic()
                    self.seconds, looked = self.seconds + now - looked, now
                    if monitor and done % monitor == 0:
                        log.info("%s", self._monitored(slice(max(0, done - monitor), done)))
                        looked = time.monotonic()
                    if self.step % KEEP_EVERY == 0:
                        self._keep()
                    # a run that goes on from there repeats the same steps
                    is_kept = not self._kept or self._kept[0] == self.step
                    if checkpoint and done < last and now - saved > SAVE_AFTER and is_kept:
                        self.save(checkpoint)
                        saved = looked = time.monotonic()
        if self.step % self.length.steps_per_epoch == 0:
            self._passes.append(dict(self.executor.passes))
        if self.validation:
            self.validation.end_epoch(self.step, self.values)

    def prepare(self):
        """Run each plan once and put back what that changed: after that no step compiles anything
        or touches new memory.
        """
        state = {name: np.array(values) for name, values in self._download(self._state).items()}
        seconds, passes = dict(self.executor.seconds), dict(self.executor.passes)
        for bound in self._batches:
            self.executor.fill(self._shared["counters"], np.zeros(3, np.int64))
            self.executor.prepare(*bound)
        for name, values in state.items():
            self.executor.fill(self._shared[name], values)
        self.executor.seconds, self.executor.passes = seconds, passes

    def save(self, path):
        """Write a checkpoint to `path` (safetensors), atomically."""
        tensors = {
            **self._download(self._state),
            **{f"history.{name}": values for name, values in self.history.items()},
        }
        tensors |= {SNAPSHOT + name: values for name, values in self.snapshots.items()}
        tensors |= self.validation.tensors() if self.validation else {}
        state = json.dumps(
            {
                "of": _owner(path),
                "step": self.step,
                "repeats": self.repeats,
                "seconds": self.seconds,
                "by_operation": self.executor.seconds,
                "by_pass": self.seconds_by_pass,
            }
        )
        with disk.replacing(path) as temporary:
            artifacts.save_tensors(
                temporary, tensors, {"state": state, "sha256": _digest(tensors, state)}
            )

    def restore(self, path):
        """Resume from a checkpoint; False, with the run unchanged, if there is none or it is
        damaged (which is logged).
        """
        if not path.exists():
            return False
        state, tensors = _read(path)
        measured = self.validation.tensors() if self.validation else {}
        if (
            not {*self._state, *(f"history.{name}" for name in self.history), *measured}
            <= tensors.keys()
        ):
            log.info("%s is damaged; training starts from the first epoch", path)
            return False
        if state.get("repeats", 0):
            self._rebind(state["repeats"])
        history = {name: tensors[f"history.{name}"] for name in self.history}
        self.go_on(tensors, history, state["step"], state)
        self.snapshots = {
            name.removeprefix(SNAPSHOT): np.array(values)
            for name, values in tensors.items()
            if name.startswith(SNAPSHOT)
        }
        if self.validation:
            self.validation.restore(tensors)
        return True

    def go_on(self, tensors, history, step, spent):
        """Continue after `step` steps.

        tensors  name -> values and running averages
        history  name -> numbers of these steps
        spent    on them: {"seconds", "by_operation": {category: seconds}, "by_pass": {pass:
                 seconds} of each epoch}
        """
        for name in self._state:
            self.executor.fill(self._shared[name], tensors[name])
        for name, values in self.history.items():
            values[:step] = history[name][:step]
        self.step, self.seconds, self.executor.seconds = (
            step,
            spent["seconds"],
            dict(spent["by_operation"]),
        )
        totals = [{}]
        for epoch in spent["by_pass"]:
            totals.append(
                totals[-1]
                | {name: totals[-1].get(name, 0.0) + seconds for name, seconds in epoch.items()}
            )
        self._passes, self.executor.passes = (
            totals[1 : 1 + step // self.length.steps_per_epoch],
            totals[-1],
        )

    def memory(self):
        """Purpose -> bytes of a step: those of the plan, and EXECUTOR."""
        return {**self.plan.bytes_by_purpose(), EXECUTOR: self.executor.workspace_bytes()}

    def _bound(self, step):
        """(plan, arrays) of a step; the last batch of an epoch may be smaller."""
        is_last = (step + 1) % self.length.steps_per_epoch == 0
        return self._batches[-1 if is_last else 0]

    def _next_stop(self, done, last, monitor):
        """The step before which the executor returns: to look at the losses or the clock, or for a
        batch of another size.
        """
        per_epoch = self.length.steps_per_epoch
        looks = [done // every * every + every for every in (LOOK_EVERY, monitor) if every]
        stops = [
            ESTIMATE_AFTER,
            *looks,
            done + self.executor.together,
            -(-last // per_epoch) * per_epoch - 1,
            last,
        ]
        return min(stop for stop in stops if stop > done)

    def _set_counters(self):
        begun = self.step % self.length.steps_per_epoch
        self.executor.fill(self._shared["counters"], [self.step, begun * self.plan.batch, begun])

    def _keep(self):
        if exponents.scales(self.plan):
            state = self._download(self._state)
            self._kept = self.step, {name: np.array(values) for name, values in state.items()}

    def _rebind(self, repeats):
        """Go on with the powers of two after so many repeats. Graphs of the plans before are
        dropped with them.
        """
        self.repeats, self._batches = repeats, ()
        self._batches = self._bound_plans()
        self.plan = self._batches[0][0]

    def _repeat(self):
        """Whether the run is back at the state that was kept, with smaller powers of two."""
        if not self._kept or self.repeats == exponents.MOST_REPEATS:
            return False
        self.step, state = self._kept
        self._rebind(self.repeats + 1)
        for name, values in state.items():
            self.executor.fill(self._shared[name], values)
        self._set_counters()
        return True

    def _download(self, names):
        return {name: self.executor.download(self._shared[name]) for name in names}

    def _sizes(self, steps):
        """Batch size of each of the steps."""
        return np.array(
            [self._bound(step)[0].batch for step in range(*steps.indices(self.length.steps))]
        )

    def _means(self, name):
        """For each epoch so far, the mean over its images of a number that the history has for each
        step.
        """
        return [
            float(np.average(self.history[name][steps], weights=self._sizes(steps)))
            for steps in self._epochs_so_far()
        ]

    def _epochs_so_far(self):
        length = self.length.steps_per_epoch
        return [
            slice(start, min(start + length, self.step)) for start in range(0, self.step, length)
        ]

    def _read_losses(self, done):
        """Copy the losses up to step `done` into the history. At the first number that is not
        finite go back, where halves may be the cause, or raise RunFailed.
        """
        new = slice(self.step, done)
        first = self.step % self.length.steps_per_epoch
        for name, values in self.history.items():
            values[new] = self.executor.download(self._shared[name])[
                first : first + done - self.step
            ]
        losses = self.history["losses"][new]
        broken = np.flatnonzero(~np.isfinite(losses))
        if len(broken) or self._overflowed(done):
            step = self.step + int(broken[0]) if len(broken) else done - 1
            fault = f"the loss is {losses[broken[0]]}" if len(broken) else "a weight is not finite"
            place = f"{fault} at step {step + 1} (epoch {step // self.length.steps_per_epoch + 1})"
            if self._repeat():
                log.warning(
                    "%s: the steps from %d on are repeated with halves of smaller numbers (%d of %d times)",
                    place,
                    self.step + 1,
                    self.repeats,
                    exponents.MOST_REPEATS,
                )
                return
            raise RunFailed(
                f"{place} with learning rate {self.rates[step]:g}; try a smaller learning_rate, or a "
                f"gradient_clip{self._of_multiplier()}"
            )
        self.step = done

    def _overflowed(self, done):
        """Whether the update of step `done` exceeded a half. Asked where no later loss would show
        it before the state is used: one that is kept, and the last.
        """
        steps = self.length.steps_per_epoch
        ends = done % steps == 0 or done == self.length.steps or done % KEEP_EVERY == 0
        if not ends or not exponents.scales(self.plan):
            return False
        return not all(np.isfinite(values).all() for values in self._download(self._state).values())

    def _of_multiplier(self):
        """Advice for a loss that is not finite, if what is multiplied may be the cause."""
        if self.repeats:
            return f"; {self.repeats} repeats with halves of smaller numbers did not help"
        if self.settings.multipliers.exact:
            return ""
        if self.settings.scale != 1:
            return f", or a smaller loss_scale than {self.settings.scale:g}: what exceeds 65504 is infinite in halves"
        if self.settings.multipliers in PRECISIONS.values():
            return "; precision=float32 shows whether the precision is the cause"
        return "; multiplier=exact shows whether the multiplier is the cause"

    def _monitored(self, steps):
        """'step: 100, loss: 0.082, accuracy: 45.188%' with the means over these steps, and those of
        the validation images.
        """
        sizes = self._sizes(steps)
        text = f"step: {steps.stop}, loss: {np.average(self.history['losses'][steps], weights=sizes):.3f}"
        if "hits" in self.history:
            text += f", accuracy: {100 * self.history['hits'][steps].sum() / sizes.sum():.3f}%"
        if "divergences" in self.history:
            text += f", KL divergence: {np.average(self.history['divergences'][steps], weights=sizes):.1f}"
        if self.validation:
            loss, hits = self.validation.measure(self.values)
            text += f", validation loss: {loss:.3f}"
            text += (
                ""
                if hits is None
                else f", validation accuracy: {100 * hits / len(self.validation.images):.3f}%"
            )
        return text

    def _estimate(self, seconds_per_step):
        log.info(
            "estimate: %s for %d steps, %d in an epoch",
            progress.duration(seconds_per_step * self.length.steps),
            self.length.steps,
            self.length.steps_per_epoch,
        )


def _read(path):
    """(state, tensors) of a checkpoint; ({}, {}) of one that is damaged or was saved elsewhere."""
    import safetensors  # here: only a checkpoint needs it

    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            state, digest = (file.metadata()[key] for key in ("state", "sha256"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
    except (safetensors.SafetensorError, KeyError, TypeError, OSError):
        return {}, {}
    if _digest(tensors, state) != digest or json.loads(state)["of"] != _owner(path):
        return {}, {}
    return json.loads(state), tensors


def _owner(path):
    """The artifact and the part of its training that a checkpoint at `path` belongs to."""
    return f"{path.parent.name}/{path.name}"


def _digest(tensors, state):
    """Hex sha256 of all that a checkpoint holds; state: as text."""
    digest = hashlib.sha256(state.encode())
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(tensors[name]))
    return digest.hexdigest()
