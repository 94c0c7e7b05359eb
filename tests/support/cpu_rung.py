"""Single operations of the cpu rung, as its executor performs them in a plan."""

import numpy as np

from ladder.executors.cpu import executor as cpu_executor
from ladder.executors.cpu import small


def perform(executor, operation, **operands):
    dtypes = [value.dtype for role, value in operands.items()
              if isinstance(value, np.ndarray) and role not in small.OTHER_TYPES and value.dtype.kind == "f"]
    steps = [(operation, operands, "")]
    for function, own, _ in cpu_executor.bind(steps, dtypes[0] if dtypes else np.float32, executor.threads):
        function(executor, **own)
