"""A comparison of rungs that takes little time: a small network, and few timed steps."""

import contextlib
import functools

import pytest

import small_networks
from ladder.executors.create import create
from ladder.verify import measure_rungs

NETWORK = small_networks.autoencoder((6, 6, 3))


@contextlib.contextmanager
def brief():
    """Within it a measurement warms up for one step and times two."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measure_rungs, "WARM_UP", 1)
        patch.setattr(measure_rungs, "STEPS", 2)
        yield


def compare(network, names):
    """measure_rungs.compare of these rungs, in this process, with batches of 4 images."""
    made = measure_rungs.references(network, "float32", functools.partial(create, "cpu", 1))
    return measure_rungs.compare(
        network,
        names,
        4,
        lambda rung: (
            measure_rungs.check(network, rung, 1, made) | measure_rungs.measure(network, rung, 4, 1)
        ),
    )


def summary():
    """The comparison of the two rungs that need no GPU and no emulator."""
    with brief():
        return compare(NETWORK, ["cpu", "cpu_sequential"])
