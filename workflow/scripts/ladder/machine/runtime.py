"""What this process runs on, and how many threads it may use there."""

import os
import pathlib
import platform
import resource
import sys

# Core types of OpenBLAS that use no 512-bit instructions.
NARROW_CORE_TYPES = {"nehalem", "sandybridge", "haswell", "zen", "barcelona", "bulldozer", "piledriver", "steamroller",
                     "excavator", "prescott", "core2", "penryn", "dunnington", "atom", "nano"}


def release_blas():
    """Drop an OPENBLAS_CORETYPE that holds BLAS below what this CPU can do; must run before NumPy is imported.

    Returns the sentence to tell the user, or None where nothing was changed.
    """
    core_type = os.environ.get("OPENBLAS_CORETYPE", "")
    if core_type.lower() not in NARROW_CORE_TYPES or "avx512f" not in _cpu_flags():
        return None
    del os.environ["OPENBLAS_CORETYPE"]
    return f"OPENBLAS_CORETYPE={core_type} is ignored: it would keep BLAS from this CPU's 512-bit instructions"


def jobs_run_elsewhere():
    """Whether the stages run on other machines than the one that plans them, such as a cluster's nodes."""
    return "LADDER_ELSEWHERE" in os.environ


def set_threads(count):
    """Let BLAS and OpenMP use `count` threads, whatever OMP_NUM_THREADS says (Snakemake lowers it to --cores)."""
    import threadpoolctl

    threadpoolctl.threadpool_limits(limits=count)


def available_cores():
    """Number of CPU cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def peak_memory_bytes():
    """Largest resident size this process has had so far, mapped files included."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def machine():
    """A JSON-able description of the machine and the libraries, for manifests and the report."""
    import numpy as np

    return {
        "host": platform.node(),
        "system": f"{platform.system()} {platform.release()}",
        "processor": _cpu_name(),
        "cores": available_cores(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "blas": _blas(),
    }


def _blas():
    import threadpoolctl

    return ", ".join(sorted({f"{pool['internal_api']} {pool['version']} {pool.get('architecture', '')}".strip()
                             for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"}))


def _cpu_info(field):
    try:
        text = pathlib.Path("/proc/cpuinfo").read_text()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in text.splitlines() if line.startswith(field)), "")


def _cpu_flags():
    return _cpu_info("flags").split()


def _cpu_name():
    return _cpu_info("model name") or platform.processor() or platform.machine()
