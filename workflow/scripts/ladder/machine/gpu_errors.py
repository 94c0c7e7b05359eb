"""What an exception of CuPy, NVRTC, the driver or cuML means, and what to do about it. Standard
library only.
"""

import re
import traceback

from ladder.errors import UserError, one_line

# Packages that work on a GPU, by the first part of their modules' names.
PACKAGES = frozenset(
    ("cuda", "cudf", "cuml", "cupy", "cupy_backends", "cupyx", "cuvs", "nvidia", "pylibraft", "rmm")
)
MOST_SHOWN = 250  # characters of an exception
ELSEWHERE = "variant=cpu and svm_backend=sklearn need no GPU"
BROKEN = "a kernel failed, which is a fault of this program or of the machine: please report it (CONTRIBUTING.md)"
# (words of an exception's type and message, what to do, whether it may work at another time); the
# first that fits counts.
KINDS = (
    (
        r"out.?of.?memory|MemoryAllocation|bad_alloc|ALLOC_FAILED",
        "the GPU has too little free memory: nvidia-smi lists what uses it, and a smaller batch_size or data_residency=host needs "
        "less",
        True,
    ),
    (
        r"DevicesUnavailable|DeviceAlreadyInUse|device.*(busy|unavailable)",
        "another process has this GPU to itself; nvidia-smi lists it",
        True,
    ),
    (
        r"InsufficientDriver|driver version is insufficient|SYSTEM_DRIVER_MISMATCH|SystemDriverMismatch|UNSUPPORTED_PTX|"
        r"UnsupportedPtx|CompatNotSupported|forward compatibility",
        "the NVIDIA driver is too old for these packages, or was updated without a restart; update it or restart",
        False,
    ),
    (
        r"NoKernelImage|no kernel image|NO_BINARY_FOR_GPU|INVALID_IMAGE|InvalidDeviceFunction|INVALID_DEVICE_FUNCTION",
        "a package holds no code that this GPU and driver take; update the driver, and the packages by pip install -r "
        "envs/gpu.txt",
        False,
    ),
    (
        r"NoDevice|NO_DEVICE|no CUDA-capable device",
        "the driver shows no GPU; look at CUDA_VISIBLE_DEVICES and nvidia-smi",
        False,
    ),
    (
        r"LaunchTimeout|LAUNCH_TIMEOUT",
        "a kernel took longer than the driver of a screen allows; a smaller batch_size helps",
        False,
    ),
    (
        r"ECC|Uncorrectable|HardwareStack|DEVICE_LOST|fell off",
        "the GPU reports a defect; nvidia-smi -q tells more",
        False,
    ),
    (
        r"IllegalAddress|ILLEGAL_ADDRESS|illegal memory|Misaligned|MISALIGNED|IllegalInstruction|ILLEGAL_INSTRUCTION|"
        r"LaunchFailure|LAUNCH_FAILED|InvalidAddressSpace|LaunchOutOfResources|LAUNCH_OUT_OF_RESOURCES|InvalidConfiguration",
        BROKEN,
        False,
    ),
    (
        r"ImportError|ModuleNotFoundError|shared object|undefined symbol|cannot load|dlopen",
        "a package of the GPU set does not load; install it again: pip install -r envs/gpu.txt",
        False,
    ),
    (
        r"NVRTC",
        "the compiler of the kernels failed; install it again: pip install -r envs/gpu.txt",
        False,
    ),
)
OTHER = "nvidia-smi tells whether the GPU works"


class GpuError(UserError):
    """A failure of a GPU's library in one line. passing: it may work at another time."""

    def __init__(self, message: str, passing: bool) -> None:
        super().__init__(message)
        self.passing = passing


def explained(error: BaseException) -> GpuError | None:
    """The GpuError that says what to do about the exception; None where no library of a GPU has
    raised it.
    """
    if isinstance(error, UserError):
        return error if isinstance(error, GpuError) else None
    text = one_line(
        f"{type(error).__name__}: {' '.join(str(error).split())}".removesuffix(": "), MOST_SHOWN
    )
    if not (PACKAGES & _packages(error) or re.search(r"NVRTC_ERROR|CUDA_ERROR|cudaError", text)):
        return None
    for words, advice, passing in KINDS:
        if re.search(words, text, re.IGNORECASE):
            return GpuError(f"{text}: {advice}; {ELSEWHERE}", passing)
    return GpuError(f"{text}: {OTHER}; {ELSEWHERE}", False)


def outcome(what: str, error: Exception) -> dict[str, object]:
    """Of a check before the first use (store/first_use.py) that this exception ended; what: was
    checked.
    """
    known = explained(error)
    fault = known or one_line(f"{type(error).__name__}: {error}")
    return {
        "passed": False,
        "fault": f"{what} does not run here: {fault}",
        "passing": bool(known and known.passing),
        "report": known is None,
        "summary": "",
    }


def _packages(error: BaseException) -> set[str]:
    """The packages of an exception's type, of the code that it went through, and of what could not
    be imported.
    """
    modules = [
        type(error).__module__,
        getattr(error, "name", None) if isinstance(error, ImportError) else None,
    ]
    modules += [
        frame.f_globals.get("__name__") for frame, _ in traceback.walk_tb(error.__traceback__)
    ]
    return {str(module).partition(".")[0] for module in modules}
