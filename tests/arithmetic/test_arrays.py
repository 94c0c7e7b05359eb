"""The array libraries agree, and CuPy, on a strict stand-in, computes in float32 and within its
memory.
"""

import os

import numpy as np
import pytest

import numpy_cupy
from ladder.arithmetic import arrays
from ladder.errors import RunFailed, UserError

RANDOM = np.random.default_rng(0)


@pytest.fixture
def gpu(monkeypatch):
    return numpy_cupy.install(monkeypatch)


def positive(count=40):
    rows = RANDOM.standard_normal((count, count)).astype(np.float32)
    return rows @ rows.T + np.eye(count, dtype=np.float32)


def test_the_stand_in_converts_nothing_by_itself(gpu):
    there, here = gpu.asarray(np.ones(3)), np.ones(3)
    for mix in (
        lambda: there + here,
        lambda: here + there,
        lambda: here @ there,
        lambda: there @ here,
        lambda: gpu.exp(here),
        lambda: np.asarray(there),
        lambda: np.exp(there),
        lambda: there.__setitem__(0, here),
    ):
        with pytest.raises(TypeError):
            mix()
    assert not hasattr(gpu.linalg, "solve_triangular")  # it is in cupyx


def test_both_libraries_factor_solve_and_sort_alike(gpu):
    matrix, values = positive(), RANDOM.standard_normal((40, 3)).astype(np.float32)
    found = []
    for library in (arrays.NumPy(), arrays.CuPy()):
        factor = library.cholesky(library.upload(matrix.copy()))
        half = library.solve_triangular(factor, library.upload(values))
        solved = library.solve_triangular(factor, half, transposed=True)
        eigen = library.largest_eigenvectors(library.upload(matrix.copy()), 4)
        best = np.sort(library.download(library.smallest(library.upload(values.T), 7)), axis=1)
        eigenvalues, vectors = map(library.download, eigen)
        found.append(
            [
                library.download(factor),
                library.download(solved),
                eigenvalues,
                np.abs(vectors),
                best,
                library.multiplier(values)(matrix),
                np.triu(library.download(library.gram(values))),
            ]
        )
    for here, there in zip(*found, strict=True):
        assert isinstance(there, np.ndarray) and here.dtype == there.dtype
        np.testing.assert_allclose(here, there, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(matrix @ found[1][1], values, atol=1e-3)


@pytest.mark.parametrize("name", ["numpy", "cupy"])
def test_a_matrix_that_is_not_positive_definite_fails_in_one_line(gpu, name):
    library = arrays.library(name, 1)
    with pytest.raises(RunFailed, match="not positive definite in float32"):
        library.cholesky(library.upload(np.full((3, 3), -1, np.float32)))


def test_tf32_is_switched_off_before_cupy_is_loaded(gpu):
    assert os.environ["CUPY_TF32"] == os.environ["NVIDIA_TF32_OVERRIDE"] == "1"  # of the user
    arrays.CuPy()
    assert os.environ["CUPY_TF32"] == os.environ["NVIDIA_TF32_OVERRIDE"] == "0"


def test_products_of_fewer_bits_are_refused(monkeypatch):
    numpy_cupy.install(monkeypatch, tf32=True)
    with pytest.raises(
        UserError,
        match=r"multiplies float32 with fewer bits on this Fake \(TF32\); set array_library to",
    ):
        arrays.CuPy()


def test_a_gpu_that_cupy_cannot_use_is_one_line(gpu, monkeypatch):
    def fail(*arguments):
        raise numpy_cupy.CUDARuntimeError("cudaErrorInsufficientDriver:\nthe driver is too old")

    monkeypatch.setattr(gpu, "full", fail)
    with pytest.raises(
        UserError,
        match="^CuPy cannot use the GPU: cudaErrorInsufficientDriver:.*; set array_library to "
        "numpy, and svm_backend to sklearnex or sklearn$",
    ):
        arrays.CuPy()


def test_blocks_are_of_a_fixed_size_and_smaller_only_where_memory_is_short(monkeypatch):
    numpy_cupy.install(monkeypatch, memory=1 << 30)
    assert arrays.CuPy().blocks(50_000, 100, 8) == (4096, 4096)
    numpy_cupy.install(monkeypatch, memory=1 << 27)
    library = arrays.CuPy()
    rows, known = library.blocks(50_000, 10_000, 8)
    assert rows == known == 2048 and rows * (10_000 + known * 8) <= arrays.SHARE * library._free()
    assert 2 * rows * (10_000 + 2 * known * 8) > arrays.SHARE * library._free()


def test_rows_are_kept_on_the_gpu_where_they_leave_room(monkeypatch):
    gpu = numpy_cupy.install(monkeypatch, memory=10 << 20)
    library, rows = arrays.CuPy(), np.zeros((1 << 10, 1 << 10), np.float32)
    assert isinstance(library.keep(rows), gpu.ndarray)
    assert library.keep(rows, beside=4 << 20) is rows
    del gpu
    assert library.keep(np.zeros((1 << 11, 1 << 10), np.float32)).__class__ is np.ndarray


def test_a_manifest_names_the_gpu_and_its_library(gpu):
    assert arrays.CuPy().facts() == {"gpu": "Fake, driver 550.54.14, CuPy 0.0"}
    assert arrays.NumPy().facts() == {}
