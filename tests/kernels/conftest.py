"""Every test of a kernel's results runs in both arithmetics that a compiler may choose; those that read or compile files, once."""

import pytest

import cuda_emulator

ONCE = {"architecture", "file"}   # parameters of tests whose kernels do not run


def pytest_generate_tests(metafunc):
    if not ONCE & set(metafunc.fixturenames):
        metafunc.fixturenames.append("arithmetic")
        metafunc.parametrize("arithmetic", cuda_emulator.ARITHMETIC, indirect=True)


@pytest.fixture
def arithmetic(request, monkeypatch):
    monkeypatch.setattr(cuda_emulator, "arithmetic", request.param)
