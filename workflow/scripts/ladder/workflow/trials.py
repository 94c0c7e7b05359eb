"""Draws of a search by Optuna's tree-structured Parzen estimator, each from the results of those
before it.

TPE: Bergstra, Bardenet, Bengio and Kegl, "Algorithms for Hyper-Parameter Optimization", NeurIPS
2011. Every draw has a sampler of its own, seeded by the search's seed and the number of the draw.
So draw n depends on nothing but that and the results of the draws before it, and a search that goes
on after an interruption makes the runs of an uninterrupted one.
"""

import pathlib
import random
import statistics
from typing import Any

from ladder.store import disk

PRUNED = "pruned after "  # how the reason of a run begins that was pruned
LEAST_TO_PRUNE = 5  # runs that are made whole before any is pruned


class Study:
    """The draws of a search so far; keys: key -> search.Choices or search.Range."""

    def __init__(self, keys: dict[str, Any], seed: int) -> None:
        import optuna  # here, because every command imports this module

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._optuna, self._seed, self._count = optuna, seed, 0
        self._distributions = {
            key: _distribution(values, optuna.distributions) for key, values in keys.items()
        }
        self._keys = keys
        self.study = optuna.create_study(
            study_name="search",
            direction="maximize",
            pruner=optuna.pruners.MedianPruner(n_startup_trials=LEAST_TO_PRUNE),
        )

    def ask(self) -> tuple[Any, dict[str, Any]]:
        """(trial, overrides) of the next draw."""
        seed = random.Random(f"tpe {self._seed} {self._count}").getrandbits(32)
        self.study.sampler = self._optuna.samplers.TPESampler(seed=seed)
        self._count += 1
        trial = self.study.ask(self._distributions)
        return trial, {key: self._keys[key].named(value) for key, value in trial.params.items()}

    def tell(self, trial: Any, score: float | None) -> None:
        """The score (0 to 1) of a run; None for a run without one."""
        if score is None:
            self.study.tell(trial, state=self._optuna.trial.TrialState.FAIL)
        else:
            self.study.tell(trial, score)

    def prunes(self, trial: Any, losses: list[float]) -> str:
        """Why a run is not made whole, in words, by its validation losses after each of the first
        epochs; '' if it is.

        It is pruned if its smallest loss is above the median of those that the runs made whole had
        after as many epochs.
        """
        for epoch, loss in enumerate(losses, 1):
            trial.report(-loss, epoch)
        if not trial.should_prune():
            return ""
        others = [
            -other.intermediate_values[len(losses)]
            for other in self.study.trials
            if other.state == self._optuna.trial.TrialState.COMPLETE
            and len(losses) in other.intermediate_values
        ]
        self.study.tell(trial, state=self._optuna.trial.TrialState.PRUNED)
        return (
            f"{PRUNED}{len(losses)} epoch{'s' if len(losses) != 1 else ''}: its validation loss was {min(losses):.4g}, the "
            f"median of the others {statistics.median(others):.4g}"
        )

    def write(self, path: pathlib.Path) -> None:
        """Write the study as an SQLite database for Optuna's own tools (`optuna-dashboard`,
        `optuna.load_study`).
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        with disk.replacing(path) as temporary:
            storage = self._optuna.storages.RDBStorage(f"sqlite:///{temporary}")
            self._optuna.copy_study(
                from_study_name="search", from_storage=self.study._storage, to_storage=storage
            )
            storage.remove_session()
            storage.engine.dispose()


def _distribution(values: Any, distributions: Any) -> Any:
    """The optuna distribution of a search.Choices or search.Range."""
    if not hasattr(values, "low"):
        return distributions.CategoricalDistribution(list(values.names))
    kind = distributions.IntDistribution if values.integer else distributions.FloatDistribution
    low, high = (int(values.low), int(values.high)) if values.integer else (values.low, values.high)
    return kind(low, high, log=values.log)
