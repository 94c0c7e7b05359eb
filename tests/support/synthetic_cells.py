"""Cells of the stage `multipliers`: synthetic runs, each with a multiplier, a seed and an
accuracy.
"""

from unittest import mock

import synthetic_results
from ladder.arithmetic import multipliers
from ladder.pages import report

DIRECTIONS = ["forward", "input_grad", "weight_grad"]
REASON = "the rung gpu_gemm needs an NVIDIA GPU, and none answers on this machine"
TESTED = 1000  # images, so that an accuracy may have three digits


class Cells:
    """inputs and entries, as the stage has them; results: a folder for the runs."""

    def __init__(self, results):
        self.results, self.inputs, self.entries = results, {}, []

    def add(
        self, multiplier="exact", seed=1, accuracy=0.9, slower=1.0, loss=1.0, reason="", **settings
    ):
        """One more cell. settings: of the configuration; accuracy: on TESTED images; slower: factor
        of the training time.
        """
        settings = {
            "dataset": "mnist",
            "network": "lenet_300_100",
            "seed": seed,
            "multiplier": multiplier,
            "multiplier_identity": _identity(multiplier),
            "multiplier_in": DIRECTIONS,
            "test_multiplier": multiplier,
            "loss_scale": 1024.0,
            **settings,
        }
        settings["test_multiplier_identity"] = _identity(settings["test_multiplier"])
        number = len(self.entries)
        if not reason:
            made = self._run(settings, accuracy, slower, loss)
            self.inputs |= {f"report{number}": made["report"], f"train{number}": made["train"]}
        self.entries.append({"overrides": {}, "settings": settings, "reason": reason})
        return self

    def _run(self, settings, accuracy, slower, loss):
        # Parameters that distinguish the versions of two cells.
        params = {"multiplier": settings["multiplier_identity"], "cell": str(settings)}
        # not needed, and half of the time
        with mock.patch.object(report, "page", return_value=""):
            return synthetic_results.add(
                self.results,
                dataset=settings["dataset"],
                network=settings["network"],
                test=TESTED,
                epochs=2,
                accuracy=accuracy,
                faster=1 / slower,
                loss=loss,
                seed=settings["seed"],
                **params,
            )


def _identity(multiplier):
    found = multipliers.find(multiplier)
    return f"table {found.digest}" if isinstance(found, multipliers.Table) else multiplier
