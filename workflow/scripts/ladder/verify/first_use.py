"""Which rung runs: a rung of a GPU is compared with the cpu rung before its first use on a machine,
with the run's network.

`variant: auto` passes over a rung that fails; a stage whose rung was named stops. The check itself
is check_rung.py, which runs in a process of its own, so that a machine without a GPU imports
nothing of it. Standard library only.
"""

import functools
import json
import os
from collections.abc import Mapping
from typing import Any

from ladder import caller
from ladder.executors import create
from ladder.machine import runtime
from ladder.progress import log
from ladder.rungs import catalog
from ladder.store import first_use

CHECK = "ladder.verify.check_rung"
OPTION = "plan"  # of a stage: [network, batch_size], as `described` writes it


def described(network: Mapping[str, Any], batch_size: int) -> str:
    """The text that names what is trained: network: runs.Run.network_params."""
    return json.dumps([sorted(network.items()), batch_size])


def choose(
    name: str, precision: str, plan: str, results: str | os.PathLike[str] = "results"
) -> tuple[str, str]:
    """(rung, reason): `name` itself, or for 'auto' the first of catalog.candidates that passes;
    plan: `described`.

    Only a command that runs jobs makes checks that were never made: caller.fact("checks"). Others
    trust the rung.
    """
    return _choose(precision, plan, os.path.abspath(results)) if name == "auto" else (name, "")


@functools.cache
def _choose(precision: str, plan: str, results: str) -> tuple[str, str]:
    for rung, reason in catalog.candidates(precision, results).items():
        if not catalog.uses_gpu(rung):
            return rung, reason
        check = _check(rung, plan)
        outcome = first_use.outcome(check, makes=bool(caller.fact("checks")))
        if outcome is None:
            return rung, f"{reason}; it is checked before its first use"
        if outcome["passed"]:
            return rung, reason
        log.warning("rung %s is passed over: %s", rung, first_use.refusal(check, outcome))
    raise ValueError("the cpu rung is always a candidate")


def require(rung: str | None, plan: str) -> dict[str, Any]:
    """The notes of a stage on the check of the rung that it runs, {} for one that needs none;
    raises UserError if it fails.
    """
    if not catalog.uses_gpu(rung) or catalog.unavailable(rung):  # the executor gives the reason
        return {}
    return first_use.require(
        _check(rung, plan), "variant=auto takes a rung that passes, variant=cpu needs no GPU"
    )


def _check(rung: str, plan: str) -> first_use.Check:
    how = (
        f"a few training steps and an extraction are compared with the cpu rung, once for this GPU, driver, "
        f"program and network; at most {first_use.SECONDS // 60} minutes"
    )
    key = {
        "rung": rung,
        "plan": json.loads(plan),
        "code": first_use.code(CHECK, create.sources(rung)),
        **first_use.machine(["cupy"]),
    }
    return first_use.Check(rung, how, CHECK, "check", (rung, plan, runtime.available_cores()), key)
