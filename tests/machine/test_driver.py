"""The driver's answers, from a stand-in for libcuda."""

import pytest

from ladder.machine import driver

CACHED = (driver._driver, driver.cuda_version, driver.gpu_count, driver.gpu)


# CUdevice_attribute: compute capability, shared memory, clock, multiprocessors, memory clock, bus
# width, level-2 cache.
ATTRIBUTES = {75: 7, 76: 5, 97: 65536, 13: 1_590_000, 16: 40, 36: 5_001_000, 37: 256, 38: 4 << 20}


class Cuda:
    """libcuda with one Tesla T4; `answers` sets the status of a function."""

    def __init__(self, **answers):
        self.answers = answers

    def __getattr__(self, name):
        def function(*arguments):
            values = {
                "cuDeviceGetCount": 1,
                "cuDriverGetVersion": 12040,
                "cuDeviceTotalMem_v2": 16 << 30,
            }
            if name == "cuDeviceGetName":
                arguments[0].value = b"Tesla T4"
            elif name == "cuDeviceGetPCIBusId":
                arguments[0].value = b"0000:00:1E.0"
            elif name == "cuDeviceGetAttribute":
                arguments[0]._obj.value = ATTRIBUTES[arguments[1]]
            elif name in values:
                arguments[0]._obj.value = values[name]
            return self.answers.get(name, 0)

        return function


@pytest.fixture
def pretend(monkeypatch):
    """A function that replaces libcuda by a library, or by the exception raised on loading."""

    def clear():
        for function in CACHED:
            function.cache_clear()

    def load(library):
        def load_library(name):
            if isinstance(library, OSError):
                raise library
            return library

        monkeypatch.setattr(driver.ctypes, "CDLL", load_library)
        clear()

    yield load
    clear()


def test_the_first_gpu_is_described(pretend):
    pretend(Cuda())
    assert driver.gpu() == driver.Gpu("Tesla T4", "sm_75", 16 << 30, 65536)
    assert driver.gpu_count() == 1 and driver.cuda_version() == (12, 4)


def test_the_first_gpu_has_a_size_and_an_address(pretend):
    pretend(Cuda())
    assert driver.gpu_size() == driver.Size(40, 1.59e9, 5.001e9, 256, 4 << 20)
    assert driver.pci_address() == "0000:00:1E.0"


@pytest.mark.parametrize(
    "library", [OSError("no libcuda.so.1"), Cuda(cuInit=100)], ids=["not installed", "no GPU"]
)
def test_without_a_driver_there_is_nothing(pretend, library):
    pretend(library)
    assert driver.gpu_count() == 0 and driver.gpu() is None and driver.cuda_version() is None
    assert driver.gpu_size() is None and driver.pci_address() == ""


def test_a_driver_that_cannot_count_has_no_gpu(pretend):
    pretend(Cuda(cuDeviceGetCount=3))
    assert driver.gpu_count() == 0 and driver.gpu() is None
