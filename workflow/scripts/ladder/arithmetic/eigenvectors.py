"""LAPACK's eigenvectors of a symmetric matrix, of several at a time: scipy.linalg.eigh keeps Python's lock as it computes.

The routine is the same, SciPy's `ssyevr`, at the address that scipy.linalg.cython_lapack gives for it.
"""

import ctypes

import numpy as np
from scipy.linalg import cython_lapack

ARGUMENTS = 21   # of ssyevr, all by address: LAPACK Users' Guide, "ssyevr"


def largest(matrix, count):
    """(values (count,), vectors (n, count)) float32, the largest last, of a symmetric float32 matrix (n, n).

    Only its upper half is read. Raises numpy.linalg.LinAlgError if LAPACK fails.
    """
    matrix, size = np.array(matrix, np.float32, order="F"), len(matrix)   # a copy, because LAPACK overwrites it
    values, vectors = np.empty(size, np.float32), np.empty((size, count), np.float32, order="F")
    support, solve = np.empty(2 * size, np.int32), _ssyevr()

    def call(room, integers, lengths):
        failed = ctypes.c_int()
        solve(b"V", b"I", b"U", _int(size), matrix.ctypes, _int(size), _zero(), _zero(), _int(size - count + 1), _int(size),
              _zero(), _int(0), values.ctypes, vectors.ctypes, _int(size), support.ctypes, room.ctypes, _int(lengths[0]),
              integers.ctypes, _int(lengths[1]), ctypes.byref(failed))
        if failed.value:
            raise np.linalg.LinAlgError(f"LAPACK's ssyevr ended with {failed.value}")

    room, integers = np.empty(1, np.float32), np.empty(1, np.int32)
    call(room, integers, (-1, -1))   # only says how much room it needs
    room, integers = np.empty(int(room[0]), np.float32), np.empty(int(integers[0]), np.int32)
    call(room, integers, (len(room), len(integers)))
    return values[:count], vectors


def _ssyevr():
    capsule, python = cython_lapack.__pyx_capi__["ssyevr"], ctypes.pythonapi
    python.PyCapsule_GetName.restype, python.PyCapsule_GetName.argtypes = ctypes.c_char_p, [ctypes.py_object]
    python.PyCapsule_GetPointer.restype = ctypes.c_void_p
    python.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    address = python.PyCapsule_GetPointer(capsule, python.PyCapsule_GetName(capsule))
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * ARGUMENTS)(address)   # which lets go of Python's lock


def _int(value):
    return ctypes.byref(ctypes.c_int(value))


def _zero():
    return ctypes.byref(ctypes.c_float(0))
