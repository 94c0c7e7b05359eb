"""Runs and pages as experiment.yaml plans them, with other values for some keys."""

import dataclasses
import types

import yaml

from ladder.sources import ROOT
from ladder.workflow import chains, checks, config, runs, stages

# What a test adds is its own: nothing can be assigned to this.
RAW = types.MappingProxyType(yaml.safe_load((ROOT / "tests/support/experiment.yaml").read_text()))


def loaded(raw):
    """The settings of a configuration; raises UserError where keys do not go together."""
    given = config.load(raw)
    checks.check(given)
    return given


def run(file_sha256=None, **keys):
    """A run on the CPU; file_sha256: as if it started from a file of initial weights with this
    checksum.
    """
    made = runs.resolve(
        config.load(RAW | {"svm_backend": "sklearn", "array_library": "numpy"} | keys)
    )
    return dataclasses.replace(made, file_sha256=file_sha256) if file_sha256 else made


def chain(keys=None, **others):
    """The artifacts of a run by role."""
    return chains.chain(run(**(keys or {}) | others))


def page(name, active=None, search=()):
    """The page of a configuration that is part of no run; search: its runs.Entry, one a run."""
    return stages.page(stages.STAGES[name], stages.Configuration(active or run(), search, {}))


def versions(keys=None, **others):
    """Role -> version of every artifact of a run."""
    return {role: artifact.version for role, artifact in chain(keys, **others).items()}


def changed(keys, **others):
    """Roles whose version these other keys change in a run with `keys`."""
    return {role for role, version in versions(keys).items() ^ versions(keys, **others).items()}
