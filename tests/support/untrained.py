"""Weights as they are before a training."""

from ladder.network import weights


def values(network, seed=1):
    """Name -> array of all tensors in a weights file."""
    return {**weights.initialize(network, seed), **weights.initial_state(network)}


def save(work, network):
    """Write them as a file of an artifact."""
    with work.file(weights.file_name(network)) as path:
        weights.save(path, network, values(network))
