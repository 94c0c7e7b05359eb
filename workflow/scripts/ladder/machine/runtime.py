"""The machine of this process: cores, threads, memory, BLAS, and their description in manifests."""

import functools
import os
import pathlib
import platform
import resource
import sys

from ladder import caller

# OpenBLAS core types without 512-bit instructions.
NARROW_CORE_TYPES = {
    "nehalem",
    "sandybridge",
    "haswell",
    "zen",
    "barcelona",
    "bulldozer",
    "piledriver",
    "steamroller",
    "excavator",
    "prescott",
    "core2",
    "penryn",
    "dunnington",
    "atom",
    "nano",
}


def release_blas() -> str | None:
    """Drop an OPENBLAS_CORETYPE that keeps BLAS from using instructions of this CPU; must run
    before NumPy is imported.

    Returns a sentence for the log, or None if nothing was changed.
    """
    core_type = os.environ.get("OPENBLAS_CORETYPE", "")
    if core_type.lower() not in NARROW_CORE_TYPES or "avx512f" not in cpu_flags():
        return None
    del os.environ["OPENBLAS_CORETYPE"]
    return f"OPENBLAS_CORETYPE={core_type} is ignored: it would keep BLAS from this CPU's 512-bit instructions"


def jobs_run_elsewhere() -> bool:
    """True if the stages run on other machines than the one that plans them, e.g. nodes of a
    cluster.
    """
    return bool(caller.fact("elsewhere"))


def set_threads(count: int) -> None:
    """Let OpenMP use `count` threads, overriding OMP_NUM_THREADS (which Snakemake lowers to
    --cores), and BLAS one.

    BLAS splits a product by threads, which changes its last digits. So products are cut into pieces
    of fixed size (arithmetic/matmul.py and the executors), and the pieces are spread over threads.
    """
    # of libraries that are loaded later
    os.environ |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": str(count)}
    thread_pools().limit(limits={"blas": 1, "openmp": count})


def one_blas_thread():
    """A context in which BLAS computes on one thread, so that its last digits are the same on every
    machine.
    """
    return thread_pools().limit(limits=1, user_api="blas")


def thread_pools():
    """The threadpoolctl.ThreadpoolController of the libraries that are loaded; finding them takes
    milliseconds, so once.
    """
    return _thread_pools(len(sys.modules))  # a library is loaded by an import


@functools.lru_cache(maxsize=1)
def _thread_pools(_modules):
    import threadpoolctl

    return threadpoolctl.ThreadpoolController()


def available_cores() -> int:
    """Number of CPU cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def peak_memory_bytes() -> int:
    """Peak resident set size of this process, memory-mapped files included."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def memory_bytes() -> int:
    """Bytes of main memory that this machine has."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def machine() -> dict[str, str | int]:
    """The machine, its Python and BLAS, as JSON-compatible values, for manifests and the report."""
    return {
        "host": platform.node(),
        "system": f"{platform.system()} {platform.release()}",
        "processor": _cpu_name(),
        "cores": available_cores(),
        "python": platform.python_version(),
        "blas": _blas(),
    }


def _blas() -> str:
    return ", ".join(
        sorted(
            {
                f"{pool['internal_api']} {pool['version']} {pool.get('architecture', '')}".strip()
                for pool in thread_pools().info()
                if pool["user_api"] == "blas"
            }
        )
    )


def _cpu_info(field: str) -> str:
    try:
        text = pathlib.Path("/proc/cpuinfo").read_text("utf-8")
    except OSError:
        return ""
    return next(
        (line.partition(":")[2].strip() for line in text.splitlines() if line.startswith(field)), ""
    )


def cpu_flags() -> list[str]:
    return _cpu_info("flags").split()


def _cpu_name() -> str:
    return _cpu_info("model name") or platform.processor() or platform.machine()
