"""Limits of a GPU rung's plans: what kernels can index, and the largest grid of a launch."""

import math
from collections.abc import Callable, Iterable

from ladder.errors import UserError
from ladder.plan.data import Plan
from ladder.rungs.interface import Launch, Shape

# Kernels index with 32 bits. A launch's last block, and a loop whose threads take every n-th
# number, count up to some thousand numbers beyond the end.
MOST_INDEXED = 2**31 - 2**12
INDEXED_WITH_64_BITS = "dataset", "control"  # kinds of buffers
MOST_BLOCKS = 2**31 - 1, 65_535, 65_535


class TooLarge(Exception):
    """A buffer has more numbers than a kernel can index; most: the largest batch with which it has
    not, 0 if there is none.
    """

    def __init__(self, name: str, most: int) -> None:
        super().__init__(name)
        self.name, self.most = name, most


def check_indices(name: str, shape: Shape, batch: int) -> None:
    """TooLarge if the buffer `name` of a plan for `batch` images has too many numbers."""
    count = math.prod(shape)
    if count > MOST_INDEXED:
        raise TooLarge(name, MOST_INDEXED // (count // batch) if batch in shape else 0)


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


def check_grids(launches: Iterable[Launch], layer: str, rung: str) -> None:
    """UserError if a launch of the layer has more blocks than any GPU takes."""
    for launch in launches:
        if any(blocks > most for blocks, most in zip(launch.grid, MOST_BLOCKS, strict=False)):
            raise UserError(
                f"layer {layer} is too large for {rung}, whose {launch.entry} would need a grid of "
                f"{' x '.join(map(str, launch.grid))} blocks; make the layer smaller or set variant to cpu"
            )
