"""The array libraries: NumPy on CPU threads and CuPy on the GPU, behind the operations in which
they differ.

CuPy converts no array by itself: `upload` gives the library's own array, `download` NumPy's. Sums
and products are cut into blocks whose size depends on shapes alone, unless the GPU has too little
memory left for them, so the same GPU gives the same bytes again. float32 is multiplied as float32:
TF32, whose factors have 11 bits, is switched off in all of CUDA's libraries, and a product is
checked to see that it is.
"""

import functools
import os

import numpy as np

from ladder.arithmetic import lapack, matmul
from ladder.errors import RunFailed, UserError, one_line
from ladder.machine import driver, runtime
from ladder.progress import bar

# of the free GPU memory, for rows that are kept there, and for the blocks of a product
SHARE = 0.5
PROBE = 512  # rows and columns of the product that is looked at
NOT_POSITIVE = "a kernel matrix is not positive definite in float32; features_standardize or other features may help"


class NumPy:
    """Arrays in main memory.

    xp    the module
    rows  most of a block of rows
    side  rows and columns of a tile of a large matrix
    """

    name, xp = "numpy", np
    rows, side = 512, 1024

    def __init__(self, threads=1):
        self.threads = threads

    def upload(self, values):
        return values

    def download(self, values):
        return values

    def keep(self, rows, beside=0):
        """The rows in the memory where products with them are fastest, if `beside` bytes stay free
        there; else the rows as they are.
        """
        return rows

    def blocks(self, known, row_bytes, value_bytes):
        """(rows, known rows of `known` in all) of a block of products of each row with each known
        one.

        A row takes row_bytes of memory, a product value_bytes; a block is smaller where a GPU has
        too little of it left.
        """
        return self.rows, known

    def each(self, work, items, label="", unit=""):
        """The results of work(item) in the items' order; a progress bar if there is a label."""
        return matmul.for_each(work, items, self.threads, label, unit)

    def multiplier(self, matrix):
        """A function: float32 rows (N, D) -> rows @ matrix (N, n), both NumPy's."""
        return functools.partial(matmul.product, matrix=matrix, threads=self.threads)

    def gram(self, columns):
        """columns.T @ columns, float32 (D, D), its upper half at least, of columns (N, D) float32
        of NumPy's.
        """
        return matmul.gram(columns, self.threads)

    def cholesky(self, matrix):
        """Lower factor of a symmetric positive definite matrix, which may be overwritten; raises
        RunFailed for any other.
        """
        from scipy.linalg import cholesky  # here, because it takes a third of a second

        try:
            # LAPACK factors columns in place, and copies an array of rows; a symmetric matrix is
            # both.
            return cholesky(matrix.T, lower=True, overwrite_a=True, check_finite=False)
        except np.linalg.LinAlgError as error:
            raise RunFailed(NOT_POSITIVE) from error

    def solve_triangular(self, factor, values, transposed=False):
        """x with factor x = values, for a lower triangular factor, or for its transpose."""
        from scipy.linalg import solve_triangular

        return solve_triangular(
            factor, values, lower=True, trans=int(transposed), check_finite=False
        )

    def smallest(self, values, count):
        """Columns (n, count) of the smallest values (n, m) of each row, in no order."""
        if count == values.shape[1]:
            return np.tile(np.arange(count), (len(values), 1))
        return np.argpartition(values, count - 1, axis=1)[:, :count]

    def largest_eigenvectors(self, matrix, count):
        """(values (count,), vectors (n, count)), the largest last, of a symmetric matrix (n, n),
        whose upper half is read and which may be overwritten.
        """
        with runtime.one_blas_thread():
            return lapack.largest_eigenvectors(matrix, count)

    def facts(self):
        """The metrics that tell of a GPU: its name, driver and CuPy; none where there is no GPU."""
        return {}


class CuPy:
    """The same on the first GPU of this process. Raises UserError if CuPy cannot use it."""

    name, threads = "cupy", 1
    rows, side = 4096, 2048  # larger than on a CPU: a GPU needs more work at a time

    def __init__(self):
        self.xp = _cupy()

    def upload(self, values):
        return (
            values if isinstance(values, self.xp.ndarray) else self.xp.asarray(np.asarray(values))
        )

    def download(self, values):
        return self.xp.asnumpy(values)

    def keep(self, rows, beside=0):
        return self.upload(rows) if rows.nbytes <= SHARE * (self._free() - beside) else rows

    def blocks(self, known, row_bytes, value_bytes):
        rows, room = self.rows, SHARE * self._free()
        while rows > 1 and rows * (row_bytes + rows * value_bytes) > room:
            rows //= 2
        return rows, rows

    def each(self, work, items, label="", unit=""):
        return [
            work(item) for item in (bar(items, label, unit, total=len(items)) if label else items)
        ]

    def multiplier(self, matrix):
        matrix = self.upload(matrix)

        def product(rows):
            blocks = [slice(start, start + self.rows) for start in range(0, len(rows), self.rows)]
            return np.concatenate(
                [self.download(self.upload(rows[block]) @ matrix) for block in blocks]
            )

        return product

    def gram(self, columns):
        total = self.xp.zeros((columns.shape[1],) * 2, np.float32)
        for start in range(0, len(columns), self.rows):
            block = self.upload(columns[start : start + self.rows])
            total += block.T @ block
        return total

    def cholesky(self, matrix):
        import cupyx

        try:
            # by default CuPy does not look at what cuSOLVER reports
            with cupyx.errstate(linalg="raise"):
                return self.xp.linalg.cholesky(matrix)
        except np.linalg.LinAlgError as error:
            raise RunFailed(NOT_POSITIVE) from error

    def solve_triangular(self, factor, values, transposed=False):
        from cupyx.scipy import linalg

        return linalg.solve_triangular(factor, values, trans=int(transposed), lower=True)

    def smallest(self, values, count):
        return self.xp.argsort(values, axis=1)[:, :count]  # stable, unlike its argpartition

    def largest_eigenvectors(self, matrix, count):
        import cupyx

        with cupyx.errstate(linalg="raise"):
            values, vectors = self.xp.linalg.eigh(matrix, UPLO="U")
        return values[-count:], vectors[:, -count:]

    def facts(self):
        return {
            "gpu": f"{driver.gpu().name}, driver {driver.version() or 'unknown'}, CuPy {self.xp.__version__}"
        }

    def _free(self):
        """Bytes of GPU memory that this process can still take."""
        self.xp.get_default_memory_pool().free_all_blocks()
        return self.xp.cuda.runtime.memGetInfo()[0]


def library(name, threads):
    """The library 'numpy' or 'cupy'; threads: of the CPU."""
    return CuPy() if name == CuPy.name else NumPy(threads)


@functools.cache
def _cupy():
    # Before cuBLAS is loaded: the first is CuPy's own switch, the second that of all of CUDA's
    # libraries.
    os.environ |= {"CUPY_TF32": "0", "NVIDIA_TF32_OVERRIDE": "0"}
    try:
        import cupy

        exact = _multiplies_in_float32(cupy)
    # CuPy's errors of the driver and of CUDA's libraries are RuntimeErrors
    except (ImportError, RuntimeError) as error:
        raise UserError(f"CuPy cannot use the GPU: {one_line(str(error))}; {_INSTEAD}") from error
    if not exact:
        raise UserError(
            f"CuPy multiplies float32 with fewer bits on this {driver.gpu().name} (TF32); {_INSTEAD}"
        )
    return cupy


_INSTEAD = "set array_library to numpy, and svm_backend to sklearnex or sklearn"


def _multiplies_in_float32(cupy):
    """True if a product keeps a factor that TF32 would round."""
    factors = cupy.full((PROBE, PROBE), 1 + 2**-12, np.float32)
    return bool((factors @ cupy.eye(PROBE, dtype=np.float32) == factors).all())
