"""What exceptions of a GPU's libraries mean."""

import types

import pytest

from ladder.errors import UserError
from ladder.machine import gpu_errors


def raised(name, message, module, base=Exception):
    """An exception of type `name` that a function of `module` has raised."""
    kind = type(name, (base,), {"__module__": "builtins"})
    code = types.FunctionType(
        compile("raise error", "x", "exec"), {"__name__": module, "error": kind(message)}
    )
    try:
        code()
    except Exception as error:
        return error


@pytest.mark.parametrize(
    "name, message, module, words, passing",
    [
        (
            "CUDARuntimeError",
            "cudaErrorMemoryAllocation: out of memory",
            "cupy_backends.cuda.api.runtime",
            "too little free",
            True,
        ),
        (
            "OutOfMemoryError",
            "Out of memory allocating 9 bytes",
            "cupy.cuda.memory",
            "nvidia-smi lists what uses it",
            True,
        ),
        (
            "MemoryError",
            "std::bad_alloc: CUDA error at: rmm/x.hpp",
            "rmm.pylibrmm",
            "batch_size",
            True,
        ),
        (
            "RuntimeError",
            "CUDA error: cudaErrorInsufficientDriver",
            "cuml.svm.svc",
            "too old for these packages",
            False,
        ),
        (
            "CUDARuntimeError",
            "cudaErrorIllegalAddress: an illegal memory access",
            "cupy_backends.cuda",
            "please report it",
            False,
        ),
        (
            "CUDADriverError",
            "CUDA_ERROR_NO_BINARY_FOR_GPU: no kernel image",
            "cupy.cuda",
            "update the driver",
            False,
        ),
        ("CUDARuntimeError", "cudaErrorDevicesUnavailable: busy", "cupy", "to itself", True),
        (
            "RuntimeError",
            "nvrtcCreateProgram: NVRTC_ERROR_INTERNAL_ERROR",
            "ladder.executors.cuda.nvrtc",
            "the compiler",
            False,
        ),
        (
            "ValueError",
            "something else",
            "cuml.internals",
            "nvidia-smi tells whether the GPU works",
            False,
        ),
    ],
)
def test_an_exception_of_a_gpus_library_is_one_line_with_what_to_do(
    name, message, module, words, passing
):
    found = gpu_errors.explained(raised(name, f"{message}\nat line 3", module))
    assert isinstance(found, UserError) and found.passing == passing
    assert (
        str(found).startswith(f"{name}: {message} at line 3: ")
        and words in str(found)
        and "\n" not in str(found)
    )
    assert str(found).endswith("variant=cpu and svm_backend=sklearn need no GPU")


def test_a_package_that_does_not_load_is_named():
    try:
        raise ImportError("libnvrtc.so.12: cannot open shared object file", name="cuml.common")
    except ImportError as error:
        assert "install it again: pip install -r envs/gpu.txt" in str(gpu_errors.explained(error))


@pytest.mark.parametrize(
    "error",
    [
        raised("ValueError", "no", "ladder.plan.plan"),
        raised("MemoryError", "9 GB", "numpy"),
        UserError("out of memory of the GPU"),
        ImportError("no", name="sklearn"),
    ],
    ids=repr,
)
def test_other_exceptions_are_left_alone(error):
    assert gpu_errors.explained(error) is None


def test_a_long_message_is_cut():
    assert len(str(gpu_errors.explained(raised("CUDARuntimeError", "x" * 10**6, "cupy")))) < 500
