"""GPUs and versions as libcuda and NVML report them. Standard library only, since every start
imports it.
"""

import ctypes
import dataclasses
import functools
from typing import Any

# CUdevice_attribute: compute capability, opt-in shared memory per block
_MAJOR, _MINOR, _SHARED = 75, 76, 97
_SM_CLOCK = 1  # nvmlClockType_t
# CUdevice_attribute
_CLOCK, _MULTIPROCESSORS, _MEMORY_CLOCK, _BUS_WIDTH, _LEVEL_2 = 13, 16, 36, 37, 38


@dataclasses.dataclass(frozen=True)
class Gpu:
    """architecture: in the compiler's notation, e.g. 'sm_90'; block_shared_bytes: maximum shared
    memory per block.
    """

    name: str
    architecture: str
    memory_bytes: int
    block_shared_bytes: int


@dataclasses.dataclass(frozen=True)
class Size:
    """What a GPU's speed follows from; hertz: the highest clock of its multiprocessors,
    memory_hertz: of its memory.
    """

    multiprocessors: int
    hertz: float
    memory_hertz: float
    bus_bits: int
    level_2_bytes: int


@functools.cache
def cuda_version() -> tuple[int, int] | None:
    """The newest CUDA version that the driver supports, as (major, minor); None without a
    driver.
    """
    driver, version = _driver(), ctypes.c_int(0)
    if driver is None or driver.cuDriverGetVersion(ctypes.byref(version)) != 0:
        return None
    return version.value // 1000, version.value % 1000 // 10


@functools.cache
def gpu_count() -> int:
    """Number of GPUs visible to this process; 0 without a driver."""
    driver, count = _driver(), ctypes.c_int(0)
    if driver is None or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return 0
    return count.value


@functools.cache
def gpu() -> Gpu | Any:  # Any: None without one, after gpu_count has told
    """The first visible Gpu, on which all GPU work runs; None without one."""
    if gpu_count() == 0:
        return None
    driver, device, memory = _driver(), ctypes.c_int(0), ctypes.c_size_t(0)
    name = ctypes.create_string_buffer(256)
    driver.cuDeviceGet(ctypes.byref(device), 0)
    driver.cuDeviceGetName(name, len(name), device)
    driver.cuDeviceTotalMem_v2(ctypes.byref(memory), device)
    major, minor, shared = (_attribute(number) for number in (_MAJOR, _MINOR, _SHARED))
    return Gpu(name.value.decode(), f"sm_{major}{minor}", memory.value, shared)


def gpu_size() -> Size | None:
    """The Size of the first visible GPU; None without one. A clock that the driver does not tell is
    0.
    """
    if gpu_count() == 0:
        return None
    return Size(
        _attribute(_MULTIPROCESSORS),
        1e3 * _attribute(_CLOCK),
        1e3 * _attribute(_MEMORY_CLOCK),
        _attribute(_BUS_WIDTH),
        _attribute(_LEVEL_2),
    )


def pci_address() -> str:
    """The PCI address of the first visible GPU, as nvidia-smi takes it; '' without one."""
    if gpu_count() == 0:
        return ""
    device, address = ctypes.c_int(0), ctypes.create_string_buffer(64)
    _driver().cuDeviceGet(ctypes.byref(device), 0)
    _driver().cuDeviceGetPCIBusId(address, len(address), device)
    return address.value.decode()


def installed_gpus() -> int:
    """Number of GPUs in this machine, including those hidden from this process; 0 if NVML does not
    answer.
    """
    management, count = _management(), ctypes.c_uint(0)
    if management is None or management.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
        return 0
    return count.value


@functools.cache
def version() -> str:
    """The driver version, e.g. '580.95.05'; '' if NVML does not answer."""
    management, text = _management(), ctypes.create_string_buffer(96)
    if management is None or management.nvmlSystemGetDriverVersion(text, len(text)) != 0:
        return ""
    return text.value.decode()


def sm_clock() -> int | None:
    """The current clock of the first GPU's multiprocessors, in MHz; None if NVML does not
    answer.
    """
    handle, clock = _handle(), ctypes.c_uint(0)
    if (
        handle is None
        or _management().nvmlDeviceGetClockInfo(handle, _SM_CLOCK, ctypes.byref(clock)) != 0
    ):
        return None
    return clock.value


@functools.cache
def _driver():
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    return driver if driver.cuInit(0) == 0 else None


@functools.cache
def _management():
    """The NVML library, for versions and clocks; None without it."""
    try:
        management = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    return management if management.nvmlInit_v2() == 0 else None


@functools.cache
def _handle():
    """NVML's handle of the first visible GPU, found by its PCI address: NVML also numbers hidden
    GPUs.
    """
    if gpu_count() == 0 or _management() is None:
        return None
    handle = ctypes.c_void_p()
    status = _management().nvmlDeviceGetHandleByPciBusId_v2(
        pci_address().encode(), ctypes.byref(handle)
    )
    return handle if status == 0 else None


def _attribute(number: int) -> int:
    """A CUdevice_attribute of the first visible GPU."""
    device, value = ctypes.c_int(0), ctypes.c_int(0)
    _driver().cuDeviceGet(ctypes.byref(device), 0)
    _driver().cuDeviceGetAttribute(ctypes.byref(value), number, device)
    return value.value
