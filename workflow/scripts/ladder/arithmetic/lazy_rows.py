"""Rows of arrays that are computed where they are read, so that no copy of them all is held."""

import dataclasses
import mmap
from typing import Any

import numpy as np
import numpy.typing as npt


def forget(rows: Any) -> None:
    """Let the memory go that holds what was read of a memory-mapped array, or written to it; the
    file has it.
    """
    if isinstance(rows, np.memmap) and hasattr(mmap, "MADV_DONTNEED"):
        rows._mmap.madvise(mmap.MADV_DONTNEED)  # type: ignore[attr-defined]


class _Rows:
    """float32 rows (N, D), of which a class below says its shape and how some of them are read."""

    shape: Any

    def __getitem__(self, rows: Any) -> npt.NDArray[np.float32]:
        raise NotImplementedError

    def __len__(self) -> int:
        return int(self.shape[0])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return np.asarray(self[:], dtype)

    @property
    def nbytes(self) -> int:
        return 4 * len(self) * int(self.shape[1])


@dataclasses.dataclass
class Joined(_Rows):
    """float32 rows (N, D1 + D2 + ...).

    parts: [(weight, rows (N, D1) float32, which may be memory-mapped)]; as the stage `joined`
    writes them.
    """

    parts: list[tuple[float, Any]]

    @property
    def shape(self) -> tuple[int, int]:  # type: ignore[override]
        return len(self.parts[0][1]), sum(rows.shape[1] for _, rows in self.parts)

    def __getitem__(self, rows: Any) -> npt.NDArray[np.float32]:
        read = np.concatenate(
            [
                part[rows] if weight == 1 else part[rows] * np.float32(weight)
                for weight, part in self.parts
            ],
            axis=1,
        )
        for _, part in self.parts:
            forget(part)
        return read


@dataclasses.dataclass
class Centered(_Rows):
    """rows (N, D) float32, an array or rows of this module, minus `center` (D,) float32."""

    rows: Any
    center: npt.NDArray[np.float32]

    @property
    def shape(self) -> tuple[int, int]:  # type: ignore[override]
        return len(self.rows), len(self.center)

    def __getitem__(self, rows: Any) -> npt.NDArray[np.float32]:
        read = self.rows[rows]
        read = np.subtract(read, self.center, out=read if read.flags.owndata else None)
        forget(self.rows)
        return read
