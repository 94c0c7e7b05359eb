"""Learning-rate schedules."""

import numpy as np

from ladder.network import optimizers
from ladder.training import plan

LENGTH = plan.Length(12, 3)   # 4 epochs of 3 steps


def test_a_constant_schedule_is_constant():
    assert np.array_equal(optimizers.learning_rates(0.5, LENGTH), np.full(12, 0.5))


def test_step_multiplies_after_every_n_epochs():
    rates = optimizers.learning_rates(1.0, LENGTH, "step", step_epochs=2, step_factor=0.1)
    assert np.allclose(rates, [1] * 6 + [0.1] * 6, rtol=1e-15)


def test_cosine_starts_at_the_base_passes_half_in_the_middle_and_nears_zero():
    rates = optimizers.learning_rates(2.0, LENGTH, "cosine")
    assert rates[0] == 2
    assert np.isclose(rates[6], 1)
    assert 0 < rates[-1] < 0.04 * 2
    assert np.all(np.diff(rates) < 0)


def test_warmup_rises_linearly_to_the_scheduled_rate():
    rates = optimizers.learning_rates(2.0, LENGTH, warmup_steps=4)
    assert np.allclose(rates, [0.5, 1, 1.5, 2] + [2] * 8, rtol=1e-15)
