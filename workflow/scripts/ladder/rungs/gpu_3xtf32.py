"""gpu_gemm with the products of convolutions and dense layers by tensor cores, from sm_80 on.

They multiply TF32; a product of float32 is made of three of theirs, nearly as accurate. Steps with
another multiplier, and weight gradients of float32 too narrow for a warp, are gpu_gemm's.
"""

import dataclasses
from collections.abc import Callable

from ladder.rungs import gpu_gemm, gpu_opt_v1, tiles
from ladder.rungs.interface import Implementation
from ladder.rungs.launches import Launches, Step
from ladder.rungs.tiles import Tile
from ladder.rungs.values import LaunchFunction, Values


@dataclasses.dataclass(frozen=True)
class TensorTile:
    """A block computes m x n elements of a matrix product, a warp warp_m x warp_n of them.

    step: values of k that are copied to dynamic shared memory at a time (Tf32Tile::K), or 0: the
    kernel's own is enough.
    """

    m: int
    n: int
    warp_m: int
    warp_n: int
    step: int = 32

    @property
    def threads(self) -> int:
        return 32 * self.warps

    @property
    def warps(self) -> int:
        return self.m // self.warp_m * (self.n // self.warp_n)

    @property
    def shares(self) -> int:
        """As tiles.Tile.shares: as if its warps were of 32 x 64 at most, which does not change the
        number of splits.
        """
        return max(self.warps, self.m * self.n // 2048)

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a block: two steps of both operands, the order that takes more
        (common/tensor_tile.cuh).
        """
        k = self.step
        return (
            2 * 4 * sum(max(lines * (k + 4), k * (lines + 8)) for lines in (self.m, self.n))
            if k
            else 0
        )

    def defines(self, **wide: int) -> tuple[str, ...]:
        """As tiles.Tile.defines."""
        sizes = {"TILE_M": self.m, "TILE_N": self.n, "WARP_M": self.warp_m, "WARP_N": self.warp_n}
        return tuple(f"{name}={int(value)}" for name, value in {**sizes, **wide}.items())


STEPS = {"exact": 16, "tf32": 32, "bfloat16": 0, "float16": 0}  # of tiles, by multiplier
LARGE, TALL = TensorTile(128, 128, 64, 64), TensorTile(128, 64, 64, 32)
SQUARE = TensorTile(64, 64, 32, 32)
NARROW = TensorTile(64, 32, 32, 16)
FEW_COLUMNS, FEW_ROWS = TensorTile(128, 16, 32, 16), TensorTile(16, 128, 16, 32)
TIMES = {LARGE: 1.0, TALL: 0.55, SQUARE: 0.4}  # as tiles.TIMES
NARROWEST = 9  # columns or rows from which on half of a narrow tile's fragments have work


def pixel_tile(pixels: int, columns: int, wide: bool, multiprocessors: int) -> TensorTile:
    """As gpu_opt_v1.pixel_tile."""
    if columns < NARROWEST:
        return FEW_COLUMNS
    if columns <= NARROW.n:
        return NARROW
    return tiles.quickest(TIMES, pixels, columns, multiprocessors) if wide else SQUARE


def weight_tile(filters: int, columns: int, wide: bool) -> Tile | TensorTile:
    """As gpu_opt_v1.weight_tile."""
    if filters < NARROWEST:
        return gpu_gemm.weight_tile(filters, columns, wide)
    if wide and filters >= LARGE.m and columns >= LARGE.n:
        return LARGE
    return NARROW if columns <= NARROW.n else SQUARE


def rounded_weight_tile(filters: int, columns: int, wide: bool) -> Tile | TensorTile:
    """As weight_tile; without tensor cores the operands of every product would be rounded again,
    which takes longer than it.
    """
    return FEW_ROWS if filters < NARROWEST else weight_tile(filters, columns, wide)


def rung(multiplier: str) -> Implementation:
    """gpu_gemm with tensor cores for the products of this multiplier (its name)."""
    chosen = TILES if multiplier == "exact" else ROUNDED_TILES
    return gpu_gemm.RUNG.with_launches(
        {
            function.__name__: on_tensor_cores(function, multiplier, chosen[function.__name__])
            for function in CONVOLUTIONS
        }
    )


def in_steps(
    tile_for: Callable[..., Tile | TensorTile], multiplier: str
) -> Callable[..., Tile | TensorTile]:
    """tile_for, with the steps of a multiplier for the tiles of tensor cores."""

    def chosen(*shape: int) -> Tile | TensorTile:
        tile = tile_for(*shape)
        return (
            dataclasses.replace(tile, step=STEPS[multiplier])
            if isinstance(tile, TensorTile)
            else tile
        )

    return chosen


def on_tensor_cores(
    function: Callable[..., Launches],
    multiplier: str,
    tile_for: Callable[..., Tile | TensorTile],
) -> LaunchFunction:
    """A launch function of gpu_opt_v1 with tiles of tensor cores, for this multiplier's steps."""

    def launch(step: Step, values: Values) -> Launches:
        asked = step.attributes.get("multiplier")
        if (asked.name if asked else "exact") != multiplier:
            return gpu_gemm.RUNG.launches[function.__name__](step, values)
        return function(step, values, in_steps(tile_for, multiplier))

    return launch


CONVOLUTIONS = (
    gpu_opt_v1.conv2d_forward,
    gpu_opt_v1.conv2d_input_grad,
    gpu_opt_v1.conv2d_weight_grad,
)
TILES: dict[str, Callable[..., Tile | TensorTile]] = {
    "conv2d_forward": pixel_tile,
    "conv2d_input_grad": pixel_tile,
    "conv2d_weight_grad": weight_tile,
}
ROUNDED_TILES = {**TILES, "conv2d_weight_grad": rounded_weight_tile}
RUNG = rung("exact")
