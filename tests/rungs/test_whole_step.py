"""The autoencoder's training step in the kernels and tiles of a batch of 64, of two images: bit for
bit that of float64.
"""

import pytest

import needs
import whole_step

pytestmark = needs.COMPILER
IMAGES = 2


@pytest.mark.parametrize("rung", whole_step.RUNGS)
def test_a_step_in_which_nothing_is_rounded_is_that_of_its_definition(rung, monkeypatch):
    """Every launch of the real step, the update that adds parts and leaves copies of the new
    weights among them.
    """
    wanted = whole_step.launched(rung, whole_step.BATCH)
    whole_step.on_a_gpu_for(IMAGES, monkeypatch.setattr)
    assert whole_step.launched(rung, IMAGES) == wanted
    assert set(whole_step.differences(rung, IMAGES).values()) == {0}
