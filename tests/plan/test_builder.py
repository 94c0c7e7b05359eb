"""A rung's patterns cover a network."""

import pytest

from ladder.rungs import cpu
from ladder.rungs.interface import Implementation
from small_plans import NETWORK, training_plan


def test_every_layer_is_covered_once_and_in_order():
    covered = [layer for group, _ in training_plan().kernels for layer in group]
    assert covered == [layer.name for layer in NETWORK.layers]


def test_a_layer_the_rung_has_no_operation_for_is_named(monkeypatch):
    monkeypatch.setattr(
        cpu,
        "RUNG",
        Implementation(
            tuple(pattern for pattern in cpu.RUNG.patterns if "maxpool2d" not in pattern.kinds)
        ),
    )
    with pytest.raises(ValueError, match=r"cpu has no operation for layer enc1_pool \(maxpool2d\)"):
        training_plan()
