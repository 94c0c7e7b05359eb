"""The finished training that a longer one goes on from, so that raising `epochs` or `steps` makes
only the missing steps.

It differs from the longer one in the length alone, under a schedule whose learning rates do not
depend on the length, and its warm-up fits into it: its steps are the first ones of the longer one,
to the bit. A training that was made here before and is no longer there was removed to be made
again, and is, from its inputs alone. Standard library only.
"""

import json
import pathlib
from typing import Any

from ladder.machine import libraries
from ladder.store import manifests

# in a training's artifact: what going on needs beside the weights and the history
STATE = "state.safetensors"
# with the same learning rates for any length into which the warm-up fits
SCHEDULES = ("constant", "step")
# in the log of a stage, after its artifact's version and a colon: it has made it
MADE = "made in"


def length(params: dict[str, Any]) -> str:
    """The parameter with the length of a training, of its last part: 'epochs', 'steps' or
    'decoder_epochs'.
    """
    keys = ("decoder_epochs",) if params["training"] == "patches" else ("epochs", "steps")
    return next(key for key in keys if key in params)


def is_kept(
    schedule: str, patience: int | None, ends_with_an_epoch: bool, warmup_fits: bool
) -> bool:
    """Whether a longer training may go on from one with this schedule, so that STATE is written.

    With patience a longer one does not measure the validation images where this one has, after a
    last partial epoch. A warm-up that does not fit is made shorter, and a longer training has
    another one.
    """
    return schedule in SCHEDULES and warmup_fits and (ends_with_an_epoch or not patience)


def find(
    spec: dict[str, Any],
    version: str,
    results: str | pathlib.Path = "results",
    logs: str | pathlib.Path = "logs",
) -> str | None:
    """The version of the longest whole training that a run of this spec and version can go on from;
    None without one.
    """
    if (
        spec["stage"] != "train"
        or spec["params"]["schedule"] not in SCHEDULES
        or _made_before(version, logs)
    ):
        return None
    key = length(spec["params"])
    lengths: dict[pathlib.Path, int] = {}
    for folder in pathlib.Path(results, "train").glob("*"):
        manifest = manifests.read_if_whole(folder)
        if manifest and STATE in manifest["files"] and _is_shorter(manifest, spec, key):
            lengths[folder] = manifest["spec"]["params"][key]
    longest_first = sorted(lengths, key=lengths.__getitem__, reverse=True)
    return next((folder.name for folder in longest_first if _whole(folder)), None)


def _made_before(version: str, logs: str | pathlib.Path) -> bool:
    path = pathlib.Path(logs, "train", f"{version}.log")
    return path.exists() and f"{version}: {MADE} " in path.read_text(
        encoding="utf-8", errors="replace"
    )


def _is_shorter(manifest: dict[str, Any], spec: dict[str, Any], key: str) -> bool:
    earlier, other = manifest["spec"], json.loads(json.dumps(spec))
    if earlier["params"].get(key, spec["params"][key]) >= spec["params"][key]:
        return False
    other["params"][key] = earlier["params"][key]
    return bool(
        earlier == other
        and manifest["libraries"] == libraries.installed(earlier["sources"], on_gpu=True)
    )


def _whole(folder: pathlib.Path) -> bool:
    try:
        manifests.verify(folder)
    except manifests.Damaged:
        return False
    return True
