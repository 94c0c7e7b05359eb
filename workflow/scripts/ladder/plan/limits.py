"""What the kernels of a rung cannot index, in words of the configuration."""

from collections.abc import Callable

from ladder.errors import UserError
from ladder.plan.data import Plan
from ladder.rungs.values import TooLarge


def within_indices(plan_of: Callable[[int], Plan], batch: int, rung: str) -> Plan:
    """plan_of(batch); UserError naming the largest possible batch if that raises TooLarge."""
    try:
        return plan_of(batch)
    except TooLarge as error:
        name, most = error.name, error.most
    while most > 0:
        try:
            plan_of(most)
            break
        except TooLarge as error:
            most = min(most - 1, error.most)
    hint = f"set batch_size to {most} or less" if most > 0 else "no batch_size is small enough"
    raise UserError(f"batch_size {batch} gives {name} more numbers than {rung} can index; {hint}")
