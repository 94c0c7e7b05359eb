"""What the NVIDIA driver says about this machine, asked of libcuda itself. Standard library only: read on every start."""

import ctypes
import dataclasses
import functools

_MAJOR, _MINOR, _SHARED = 75, 76, 97   # of CUdevice_attribute: the compute capability, and shared memory for a block
_SM_CLOCK = 1   # of nvmlClockType_t


@dataclasses.dataclass(frozen=True)
class Gpu:
    """architecture: as the compiler names it, such as 'sm_90'; block_shared_bytes: the most a block can be given."""

    name: str
    architecture: str
    memory_bytes: int
    block_shared_bytes: int


@functools.cache
def cuda_version():
    """The newest CUDA that the driver runs, as (major, minor); None where no driver answers."""
    driver, version = _driver(), ctypes.c_int(0)
    if driver is None or driver.cuDriverGetVersion(ctypes.byref(version)) != 0:
        return None
    return version.value // 1000, version.value % 1000 // 10


@functools.cache
def gpu_count():
    """Number of GPUs that the driver offers this process; 0 where there is no driver."""
    driver, count = _driver(), ctypes.c_int(0)
    if driver is None or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return 0
    return count.value


@functools.cache
def gpu():
    """The first Gpu of this process, which everything here runs on; None where there is none."""
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
    """Number of GPUs in this machine, also of those that CUDA does not show this process; 0 where NVML does not say."""
    management, count = _management(), ctypes.c_uint(0)
    if management is None or management.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
        return 0
    return count.value


@functools.cache
def version():
    """The driver's own version, such as '580.95.05'; '' where NVML does not say."""
    management, text = _management(), ctypes.create_string_buffer(96)
    if management is None or management.nvmlSystemGetDriverVersion(text, len(text)) != 0:
        return ""
    return text.value.decode()


def sm_clock():
    """The clock of the first GPU's multiprocessors now, in MHz; None where NVML does not say."""
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
    """NVML, which tells versions and clocks."""
    try:
        management = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    return management if management.nvmlInit_v2() == 0 else None


@functools.cache
def _handle():
    """NVML's handle of the first GPU that CUDA shows this process; NVML numbers all that there are."""
    if gpu_count() == 0 or _management() is None:
        return None
    device, address, handle = ctypes.c_int(0), ctypes.create_string_buffer(64), ctypes.c_void_p()
    _driver().cuDeviceGet(ctypes.byref(device), 0)
    _driver().cuDeviceGetPCIBusId(address, len(address), device)
    found = _management().nvmlDeviceGetHandleByPciBusId_v2(address, ctypes.byref(handle))
    return handle if found == 0 else None
