import os
import pathlib
import shutil

import pytest

import cuda_emulator

SOURCE = pathlib.Path(cuda_emulator.__file__).parents[1]


@pytest.fixture(autouse=True, scope="session")
def compiler():
    if shutil.which("g++") is None:
        pytest.skip("no g++ (Debian package: g++)")


@pytest.fixture(autouse=True)
def python_path(monkeypatch):
    """Python finds the package in processes that a test starts."""
    monkeypatch.setenv("PYTHONPATH", str(SOURCE), prepend=os.pathsep)


@pytest.fixture(params=cuda_emulator.TENSOR_SUMS)
def sums(request, monkeypatch):
    monkeypatch.setattr(cuda_emulator, "tensor_sums", request.param)
    return request.param


@pytest.fixture(autouse=True)
def isolated(request, monkeypatch):
    """Kernels run in the tests' own process, but in modules with ISOLATED, as users have it."""
    monkeypatch.setattr(cuda_emulator, "isolated", getattr(request.module, "ISOLATED", False))
