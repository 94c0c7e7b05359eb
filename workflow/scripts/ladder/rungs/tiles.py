"""Tiles of matrix products in float32, and which of several takes the least time on a GPU.

Every element is one sum in the order of k in any of the tiles, so that the choice, by the GPU's
number of multiprocessors, does not change a byte. Where a product is split along k (split-K), the
tile and the number of splits are the same on every GPU.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Protocol, TypeVar

from ladder.machine import driver

H200 = 132  # multiprocessors, where there is no GPU


class Sides(Protocol):
    """A tile of any kind: m x n elements."""

    @property
    def m(self) -> int: ...

    @property
    def n(self) -> int: ...


SomeTile = TypeVar("SomeTile", bound=Sides)


@dataclasses.dataclass(frozen=True)
class Tile:
    """A block computes m x n elements of a matrix product, a thread thread_m x thread_n of them."""

    m: int
    n: int
    thread_m: int
    thread_n: int

    shared_bytes = 0  # of dynamic shared memory

    @property
    def threads(self) -> int:
        return self.m // self.thread_m * (self.n // self.thread_n)

    @property
    def shares(self) -> int:
        """What the tile counts for when the splits of a weight gradient are chosen: its warps."""
        return self.threads // 32

    def defines(self, **wide: int) -> tuple[str, ...]:
        """Macros that fix the tile. wide: {macro: value} of what else is fixed when the kernel is
        compiled, such as whether an operand is read 16 bytes at a time.
        """
        sizes = {
            "TILE_M": self.m,
            "TILE_N": self.n,
            "THREAD_M": self.thread_m,
            "THREAD_N": self.thread_n,
        }
        return tuple(f"{name}={int(value)}" for name, value in {**sizes, **wide}.items())


LARGE, TALL, SQUARE = Tile(128, 128, 8, 8), Tile(128, 64, 8, 8), Tile(64, 64, 8, 4)
# of a block, in the first's, predicted (docs/prediction.md)
TIMES = {LARGE: 1.0, TALL: 0.55, SQUARE: 0.38}


def multiprocessors() -> int:
    """Of this machine's GPU, or of an H200."""
    size = driver.gpu_size()
    return size.multiprocessors if size else H200


def quickest(
    times: Mapping[SomeTile, float], rows: int, columns: int, gpu: int, products: int = 1
) -> SomeTile:
    """The tile that computes rows x columns elements in the least time; if several do, the first.

    times: {tile: time of a block}; gpu: number of its multiprocessors; products: such products in
    one launch. The fullest multiprocessor decides: on 108, 128 blocks take the time of two.
    """

    def time(tile: SomeTile) -> float:
        blocks = products * math.ceil(rows / tile.m) * math.ceil(columns / tile.n)
        return math.ceil(blocks / gpu) * times[tile]

    return min(times, key=time)
