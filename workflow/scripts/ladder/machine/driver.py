"""GPUs and versions as libcuda and NVML report them. Standard library only, since every start imports it."""

import ctypes
import dataclasses
import functools

_MAJOR, _MINOR, _SHARED = 75, 76, 97   # CUdevice_attribute: compute capability, opt-in shared memory per block
_SM_CLOCK = 1   # nvmlClockType_t


@dataclasses.dataclass(frozen=True)
class Gpu:
    """architecture: in the compiler's notation, e.g. 'sm_90'; block_shared_bytes: maximum shared memory per block."""

    name: str
    architecture: str
    memory_bytes: int
    block_shared_bytes: int


@functools.cache
def cuda_version():
    """The newest CUDA version that the driver supports, as (major, minor); None without a driver."""
    driver, version = _driver(), ctypes.c_int(0)
    if driver is None or driver.cuDriverGetVersion(ctypes.byref(version)) != 0:
        return None
    return version.value // 1000, version.value % 1000 // 10


@functools.cache
def gpu_count():
    """Number of GPUs visible to this process; 0 without a driver."""
    driver, count = _driver(), ctypes.c_int(0)
    if driver is None or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return 0
    return count.value


@functools.cache
def gpu():
    """The first visible Gpu, on which all GPU work runs; None without one."""
    if gpu_count() == 0:
        return None
    driver, device, memory = _driver(), ctypes.c_int(0), ctypes.c_size_t(0)
    name = ctypes.create_string_buffer(256)
    driver.cuDeviceGet(ctypes.byref(device), 0)
    driver.cuDeviceGetName(name, len(name), device)
    driver.cuDeviceTotalMem_v2(ctypes.byref(memory), device)
    major, minor, shared = (ctypes.c_int(0) for _ in range(3))
    for attribute, value in ((_MAJOR, major), (_MINOR, minor), (_SHARED, shared)):
        driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, device)
    return Gpu(name.value.decode(), f"sm_{major.value}{minor.value}", memory.value, shared.value)


def installed_gpus():
    """Number of GPUs in this machine, including those hidden from this process; 0 if NVML does not answer."""
    management, count = _management(), ctypes.c_uint(0)
    if management is None or management.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
        return 0
    return count.value


@functools.cache
def version():
    """The driver version, e.g. '580.95.05'; '' if NVML does not answer."""
    management, text = _management(), ctypes.create_string_buffer(96)
    if management is None or management.nvmlSystemGetDriverVersion(text, len(text)) != 0:
        return ""
    return text.value.decode()


def sm_clock():
    """The current clock of the first GPU's multiprocessors, in MHz; None if NVML does not answer."""
    handle, clock = _handle(), ctypes.c_uint(0)
    if handle is None or _management().nvmlDeviceGetClockInfo(handle, _SM_CLOCK, ctypes.byref(clock)) != 0:
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
    """NVML's handle of the first visible GPU, found by its PCI address: NVML also numbers hidden GPUs."""
    if gpu_count() == 0 or _management() is None:
        return None
    device, address, handle = ctypes.c_int(0), ctypes.create_string_buffer(64), ctypes.c_void_p()
    _driver().cuDeviceGet(ctypes.byref(device), 0)
    _driver().cuDeviceGetPCIBusId(address, len(address), device)
    found = _management().nvmlDeviceGetHandleByPciBusId_v2(address, ctypes.byref(handle))
    return handle if found == 0 else None
