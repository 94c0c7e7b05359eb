"""Many runs in one call, on the executors of the CPU."""

import numpy as np
import pytest

from ladder.executors import create as executors
from ladder.network.optimizers import Optimizer, learning_rates
from ladder.plan import plan
from ladder.verify import parity
from small_networks import PLAIN


@pytest.mark.parametrize("rung", ["cpu", "cpu_sequential"])
def test_many_runs_are_as_many_single_ones(rung):
    length, found = plan.Length(3, 3), []
    made = plan.training_plan(
        plan.TrainingSettings(network=PLAIN, rung=rung, batch_size=2, optimizer=Optimizer("adam")),
        plan.Dataset(6, "uint8"),
        length,
    )
    for calls in ((1, 1, 1), (3,), (1, 2)):
        executor = executors.create(rung, 1)
        arrays = executor.allocate(
            made,
            executor.upload(
                {
                    **parity.random_images(PLAIN, 6),
                    **parity.initial(PLAIN),
                    "learning_rates": learning_rates(1e-2, length),
                }
            ),
        )
        for count in calls:
            executor.run_many(made, arrays, count)
        assert executor.together == 1 and executor.launching() == ""
        found.append(
            {
                name: executor.download(arrays[name])
                for name in ("losses", "counters", *PLAIN.parameters)
            }
        )
    assert found[0]["counters"].tolist() == [3, 6, 3] and found[0]["losses"].all()
    for other in found[1:]:
        assert all(np.array_equal(other[name], value) for name, value in found[0].items())
