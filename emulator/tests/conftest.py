import shutil

import pytest

import cuda_emulator


@pytest.fixture(autouse=True, scope="session")
def compiler():
    if shutil.which("g++") is None:
        pytest.skip("no g++ (Debian package: g++)")


@pytest.fixture(params=cuda_emulator.TENSOR_SUMS)
def sums(request, monkeypatch):
    monkeypatch.setattr(cuda_emulator, "tensor_sums", request.param)
    return request.param
