"""Every test of a kernel's results runs in both arithmetics that a compiler may choose, but for
modules with ONE_ARITHMETIC.
"""

import pytest

import cuda_emulator

# Parameters and fixtures of tests to which it makes no difference: files that are read or compiled,
# products always plain.
ONCE = {"architecture", "file", "source"}


def pytest_generate_tests(metafunc):
    if not ONCE & set(metafunc.fixturenames) and not getattr(
        metafunc.module, "ONE_ARITHMETIC", False
    ):
        metafunc.fixturenames.append("arithmetic")
        metafunc.parametrize("arithmetic", cuda_emulator.ARITHMETIC, indirect=True)


@pytest.fixture
def arithmetic(request, monkeypatch):
    monkeypatch.setattr(cuda_emulator, "arithmetic", request.param)
