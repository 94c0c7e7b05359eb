"""A stand-in for CuPy as ladder/arithmetic/arrays.py and its users know it: NumPy computes, in GPU
memory that ends.

It is as strict as CuPy: an array meets no NumPy array and becomes none by itself, and only
functions that CuPy has, with the parameters that it takes, are there. Everything that an array
takes is counted; beyond `memory` bytes allocating fails.
"""

import contextlib
import functools
import sys
import types
import weakref

import numpy as np
import scipy.linalg

from ladder.arithmetic import arrays
from ladder.machine import driver

FUNCTIONS = (
    "abs",
    "arange",
    "broadcast_to",
    "concatenate",
    "einsum",
    "empty",
    "exp",
    "eye",
    "full",
    "isfinite",
    "minimum",
    "power",
    "sign",
    "square",
    "stack",
    "take_along_axis",
    "zeros",
)
METHODS = ("all", "any", "argmax", "astype", "copy", "max", "min", "reshape", "sum", "trace")


def install(monkeypatch, **options):
    """Give this machine a Gpu, which is returned."""
    gpu = Gpu(**options)
    linalg = types.SimpleNamespace(solve_triangular=gpu.solve_triangular)
    modules = {
        "cupy": gpu,
        "cupyx": types.SimpleNamespace(
            errstate=gpu.errstate, scipy=types.SimpleNamespace(linalg=linalg)
        ),
        "cupyx.scipy": types.SimpleNamespace(linalg=linalg),
        "cupyx.scipy.linalg": linalg,
    }
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(driver, "gpu", lambda: driver.Gpu("Fake", "sm_80", gpu.total, 100 << 10))
    monkeypatch.setattr(driver, "version", lambda: "550.54.14")
    for name in ("CUPY_TF32", "NVIDIA_TF32_OVERRIDE"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setattr(arrays, "PROBE", 16)
    monkeypatch.setattr(arrays, "_cupy", functools.cache(arrays._cupy.__wrapped__))
    return gpu


class OutOfMemoryError(MemoryError):
    pass


class CUDARuntimeError(RuntimeError):
    pass


class Gpu:
    """The module `cupy` of one made-up GPU with `memory` bytes.

    tf32: products round their factors to 11 bits. moved: arrays uploaded and downloaded; uploaded:
    bytes; most: bytes in use at a time.
    """

    __version__ = "0.0"

    def __init__(self, memory=1 << 30, tf32=False):
        self.total, self.tf32, self.used, self.most, self.moved = (
            memory,
            tf32,
            0,
            0,
            {"there": 0, "back": 0},
        )
        self.uploaded, self.raises, self.taken = 0, False, {}
        self.ndarray = Array
        self.cuda = types.SimpleNamespace(
            is_available=lambda: True,
            runtime=types.SimpleNamespace(
                CUDARuntimeError=CUDARuntimeError,
                memGetInfo=lambda: (self.total - self.used, self.total),
            ),
        )
        self.linalg = types.SimpleNamespace(cholesky=self.cholesky, eigh=self.eigh)
        for name in FUNCTIONS:
            setattr(self, name, self._function(getattr(np, name)))

    def get_default_memory_pool(self):
        return types.SimpleNamespace(free_all_blocks=lambda: None)

    def asarray(self, values):
        if isinstance(values, Array):
            return values
        self.moved["there"] += 1
        self.uploaded += values.nbytes
        return self.own(np.array(values))

    def asnumpy(self, values):
        assert isinstance(values, Array)
        self.moved["back"] += 1
        return np.array(values.values, order="C")

    def argsort(self, values, axis):
        return self.own(np.argsort(values.values, axis=axis, kind="stable"))

    def cholesky(self, matrix):
        assert matrix.dtype == np.float32
        try:
            return self.own(np.linalg.cholesky(matrix.values))
        except np.linalg.LinAlgError:
            if self.raises:
                raise
            return self.own(np.full_like(matrix.values, 7))  # what cuSOLVER leaves is no factor

    def eigh(self, matrix, UPLO):
        return tuple(map(self.own, np.linalg.eigh(matrix.values, UPLO)))

    def solve_triangular(self, factor, values, trans=0, lower=False):
        found = scipy.linalg.solve_triangular(
            factor.values, values.values, trans=trans, lower=lower
        )
        return self.own(np.asfortranarray(found))

    @contextlib.contextmanager
    def errstate(self, *, linalg):
        self.raises = linalg == "raise"
        yield
        self.raises = False

    def own(self, values):
        """NumPy's array as one of this GPU."""
        return Array(self, values) if isinstance(values, np.ndarray | np.generic) else values

    def take(self, values):
        """Count the memory of a NumPy array, once, until it is gone; a view has none of its own."""
        if values.base is not None or id(values) in self.taken:
            return
        if values.nbytes > self.total - self.used:
            raise OutOfMemoryError(f"Out of memory allocating {values.nbytes:,} bytes")
        self.taken[id(values)] = values.nbytes
        self.used += values.nbytes
        self.most = max(self.most, self.used)
        weakref.finalize(values, self.give, id(values))

    def give(self, key):
        self.used -= self.taken.pop(key)

    def rounded(self, values):
        """A factor as TF32 has it: 10 of 23 bits behind the point."""
        if not self.tf32 or values.dtype != np.float32:
            return values
        return ((values.view(np.uint32) + np.uint32(1 << 12)) & np.uint32(0xFFFFE000)).view(
            np.float32
        )

    def _function(self, function):
        def call(*arguments, **options):
            return self.own(
                function(
                    *map(plain, arguments),
                    **{name: plain(value) for name, value in options.items()},
                )
            )

        return call


class Array:
    """A cupy.ndarray."""

    __array_ufunc__ = None  # an operation of a NumPy array with one raises TypeError

    def __init__(self, gpu, values):
        self.gpu, self.values = gpu, np.asarray(values)
        gpu.take(self.values)

    def __array__(self, *arguments, **options):
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Please use `.get()`")

    shape = property(lambda self: self.values.shape)
    dtype = property(lambda self: self.values.dtype)
    nbytes = property(lambda self: self.values.nbytes)
    ndim = property(lambda self: self.values.ndim)

    @property
    def T(self):
        return self.gpu.own(self.values.T)

    def __len__(self):
        return len(self.values)

    def __bool__(self):
        return bool(self.values)

    def __float__(self):
        return float(self.values)

    def __getitem__(self, at):
        return self.gpu.own(self.values[plain(at)])

    def __setitem__(self, at, values):
        self.values[plain(at)] = plain(values)

    def __matmul__(self, other):
        return self.gpu.own(self.gpu.rounded(self.values) @ self.gpu.rounded(plain(other)))


def plain(value):
    """What NumPy computes with in place of an argument; TypeError for a NumPy array, as CuPy
    refuses it.
    """
    if isinstance(value, Array):
        return value.values
    if isinstance(value, (tuple, list)):
        return type(value)(map(plain, value))
    if isinstance(value, np.ndarray):
        raise TypeError(f"Unsupported type {type(value)}")
    return value


def _method(name):
    def call(self, *arguments, **options):
        return self.gpu.own(getattr(self.values, name)(*map(plain, arguments), **options))

    return call


def _operator(name):
    def call(self, other=None):
        result = getattr(self.values, name)(*([] if name == "__neg__" else [plain(other)]))
        if result is NotImplemented:
            return result
        return self if name.startswith("__i") else self.gpu.own(result)

    return call


for _name in METHODS:
    setattr(Array, _name, _method(_name))
for _name in (
    "add",
    "sub",
    "mul",
    "truediv",
    "radd",
    "rsub",
    "rmul",
    "iadd",
    "isub",
    "imul",
    "itruediv",
    "neg",
    "eq",
    "lt",
    "le",
    "gt",
    "ge",
):
    setattr(Array, f"__{_name}__", _operator(f"__{_name}__"))
