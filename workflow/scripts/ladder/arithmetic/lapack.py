"""LAPACK on several threads: scipy.linalg.eigh and scipy.linalg.lapack keep Python's lock while
they compute.

The routines are the same, SciPy's, at the addresses that scipy.linalg.cython_lapack gives for them.
"""

import ctypes
import functools
import importlib.machinery
import importlib.util
import pathlib

import numpy as np


def largest_eigenvectors(matrix, count):
    """(values (count,), vectors (n, count)) float32, the largest last, of a symmetric float32
    matrix (n, n).

    Only its upper half is read; a matrix in column-major order is overwritten. Raises
    numpy.linalg.LinAlgError if LAPACK fails.
    """
    matrix, size = np.asarray(matrix, np.float32, order="F"), len(matrix)
    values, vectors = np.empty(size, np.float32), np.empty((size, count), np.float32, order="F")
    support, zero = np.empty(2 * size, np.int32), ctypes.byref(ctypes.c_float())

    def call(room, integers, lengths):
        _call(
            "ssyevr",
            b"V",
            b"I",
            b"U",
            _int(size),
            matrix.ctypes,
            _int(size),
            zero,
            zero,
            _int(size - count + 1),
            _int(size),
            zero,
            _int(0),
            values.ctypes,
            vectors.ctypes,
            _int(size),
            support.ctypes,
            room.ctypes,
            _int(lengths[0]),
            integers.ctypes,
            _int(lengths[1]),
        )

    room, integers = np.empty(1, np.float32), np.empty(1, np.int32)
    call(room, integers, (-1, -1))  # only says how much room it needs
    room, integers = np.empty(int(room[0]), np.float32), np.empty(int(integers[0]), np.int32)
    call(room, integers, (len(room), len(integers)))
    return values[:count], vectors


def inverse_of_factor(lower):
    """L^-1, lower triangular, of a symmetric positive definite L L', in place of its lower half
    (n, n) float32 or float64, C-contiguous with zeros above the diagonal.

    Raises numpy.linalg.LinAlgError if the matrix is not positive definite.
    """
    size, kind = _int(len(lower)), {np.float32: "s", np.float64: "d"}[lower.dtype.type]
    _call(f"{kind}potrf", b"U", size, lower.ctypes, size)  # LAPACK sees it transposed
    _call(f"{kind}trtri", b"U", b"N", size, lower.ctypes, size)
    return lower


def _call(name, *arguments):
    """Call a LAPACK routine without holding Python's lock. Arguments are passed by address, in the
    order of the LAPACK Users' Guide, without INFO.
    """
    capsule, python, failed = _routines()[name], ctypes.pythonapi, ctypes.c_int()
    python.PyCapsule_GetName.restype, python.PyCapsule_GetName.argtypes = (
        ctypes.c_char_p,
        [ctypes.py_object],
    )
    python.PyCapsule_GetPointer.restype = ctypes.c_void_p
    python.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    address = python.PyCapsule_GetPointer(capsule, python.PyCapsule_GetName(capsule))
    arguments = *arguments, ctypes.byref(failed)
    ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(arguments))(address)(*arguments)
    if failed.value:
        raise np.linalg.LinAlgError(f"LAPACK's {name} ended with {failed.value}")


@functools.cache
def _routines():
    """Name -> capsule of scipy.linalg.cython_lapack, which is loaded alone: all of scipy.linalg
    takes a quarter of a second of each stage.
    """
    import scipy  # here, because most stages do without

    folder = pathlib.Path(scipy.__file__).with_name("linalg")
    spec = importlib.machinery.PathFinder.find_spec("cython_lapack", [str(folder)])
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.__pyx_capi__


def _int(value):
    return ctypes.byref(ctypes.c_int(value))
