"""Learning-rate schedules."""

import numpy as np
import pytest

from ladder.network import optimizers
from ladder.plan import plan

LENGTH = plan.Length(12, 3)  # 4 epochs of 3 steps


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


def test_a_warmup_as_long_as_the_run_is_as_asked_and_a_longer_one_a_tenth_of_the_run():
    rates = optimizers.learning_rates(12.0, LENGTH, warmup_steps=12)
    assert np.allclose(rates, np.arange(1, 13), rtol=1e-15)
    long = plan.Length(40, 3)
    rates = optimizers.learning_rates(2.0, long, "cosine", warmup_steps=41)
    assert np.array_equal(rates, optimizers.learning_rates(2.0, long, "cosine", warmup_steps=4))


@pytest.mark.parametrize("steps", range(10))
def test_a_run_of_less_than_ten_steps_has_no_warmup_that_is_longer_than_itself(steps):
    assert np.array_equal(
        optimizers.learning_rates(2.0, plan.Length(steps, 3), warmup_steps=150), np.full(steps, 2.0)
    )
