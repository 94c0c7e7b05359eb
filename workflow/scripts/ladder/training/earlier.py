"""A finished training as a longer one goes on from it, with all that its last step has left."""

from ladder.errors import UserError
from ladder.network import weights
from ladder.progress import log
from ladder.store import artifacts
from ladder.store.shorter import STATE
from ladder.training import snapshots

# before a parameter's name in STATE: its value after the last step, where the weights are those of
# the best
LAST = "last."


def state(run):
    """The tensors of STATE for a training.Training at its end: the optimizer's averages, and LAST
    values if others are kept.
    """
    last = (
        {LAST + name: value for name, value in run.values.items()}
        if run.validation and run.validation.patience
        else {}
    )
    return {**run.averages, **last}


class Earlier:
    """parts: the metrics of each part of the training, as its manifest has them; steps: of all
    parts.

    Raises UserError if a file of the artifact is damaged.
    """

    def __init__(self, folder, network):
        artifact = artifacts.Artifact(folder)
        self.version, self.parts = artifact.version, artifact.metrics["parts"]
        self.steps = sum(part["steps"] for part in self.parts)
        self._snapshots = (
            artifact.tensors(snapshots.FILE) if snapshots.FILE in artifact.manifest["files"] else {}
        )
        self._history, self._kept = (
            artifact.tensors("history.safetensors"),
            weights.of_artifact(artifact, network),
        )
        averages = artifact.tensors(STATE)
        self._last = {
            name: averages.pop(LAST + name, value) for name, value in self._kept.items()
        } | averages

    @classmethod
    def find(cls, folder, network):
        """The training in `folder`; None if that is '' or damaged, which is logged."""
        try:
            return cls(folder, network) if folder else None
        except UserError as error:
            log.info("%s; training starts from the first step", error)
            return None

    @property
    def whole_parts(self):
        """(history, metrics) of each part before the last one, which a longer training makes as
        this one has.
        """
        return [(self._history_of(number), part) for number, part in enumerate(self.parts[:-1])]

    def _history_of(self, number):
        """Name -> numbers of the steps of part `number`, and of its epochs on the validation
        images.
        """
        steps, epochs = (
            self._slice(number, count) for count in (lambda part: part["steps"], _measured)
        )
        return {
            name: values[epochs if name.startswith("validation_") else steps]
            for name, values in self._history.items()
        }

    def _slice(self, number, count):
        before = sum(map(count, self.parts[:number]))
        return slice(before, before + count(self.parts[number]))

    def continue_in(self, run):
        """Bring a training.Training of the last part to where that part has ended."""
        number, part = len(self.parts) - 1, self.parts[-1]
        history = self._history_of(number)
        run.go_on(
            self._last,
            history,
            part["steps"],
            {
                "seconds": part["seconds"],
                "by_operation": part["seconds_by_operation"],
                "by_pass": part["seconds_by_pass"],
            },
        )
        run.snapshots = dict(self._snapshots)
        if run.validation:
            before = sum(metrics["steps"] for metrics in self.parts[:number])
            run.validation.go_on(
                history["validation_steps"] - before,
                history["validation_losses"],
                history.get("validation_hits", []),
                self._kept,
                run.length.steps_per_epoch,
            )


def _measured(part):
    """Number of epochs after which validation images were measured."""
    return len(part["validation_curve"]["loss"]) if part["validation_curve"] else 0
