"""The ladder: all rungs, the executor of each, and whether this machine can run it. Standard
library only.

`auto` is the fastest rung that passed the parity protocol on this machine, as `snakemake
results/parity.html` recorded it in results/parity.json for each precision. Without that record it
is the first rung of CHOICES that is for this GPU, else cpu. A rung that fails its check before the
first use (verify/first_use.py) is passed over for the next one: the others of CHOICES, the rungs
that run on any GPU, from the top of the ladder, then cpu. None has a lower precision than is asked
for, and only a rung of RUNGS with role "rung" is taken: a lesson is there to be read, and an own
rung has to be named.
"""

import dataclasses
import importlib.metadata
import importlib.util
import json
import math
import pathlib
import platform
import tomllib
from collections.abc import Mapping
from typing import Any, TypeGuard

from ladder.errors import UserError, one_line
from ladder.files import read
from ladder.machine import driver
from ladder.sources import ROOT

OLDEST_GPU = 75  # compute capability 7.5: sm_75
TENSOR_CORES = 80  # from which on tensor cores multiply TF32 and bfloat16, not only float16
HOPPER = 90  # whose own instructions no other GPU runs, a newer one neither
CUPY_FOR = (13, 12)  # major CUDA versions with a CuPy package
NEW_IN_CUDA_13 = (88, 110)  # compute capabilities for which no NVRTC of CUDA 12 compiles
RECORD = "parity.json"  # in results/
ROW = "rung.toml"  # of an own rung, in its folder below kernels/


@dataclasses.dataclass(frozen=True)
class Rung:
    """A row of the ladder; interface.implementation has the rung itself.

    executor   key of executors.create.EXECUTORS
    technique  the optimization that the rung demonstrates
    below      the rung that it builds on
    role       "rung", "lesson" (one step between two rungs) or "own" (of the user: _own_rungs)
    oldest     the least compute capability of a GPU that runs it, 80 for 8.0
    newest     the greatest, or None
    precision  key of multipliers.PRECISIONS, what the rung is made for: a rung for float32 can
               round the operands of its products to any; another takes no plan but its own
    """

    executor: str
    technique: str
    below: str | None = None
    role: str = "rung"
    oldest: int = OLDEST_GPU
    newest: int | None = None
    precision: str = "float32"

    @property
    def on_tensor_cores(self) -> bool:
        return self.oldest >= TENSOR_CORES or self.precision != "float32"


RUNGS = {
    "cpu": Rung(
        "numpy",
        "im2col and BLAS on blocks of images that fit the cache, one block per thread; ReLU and pooling "
        "fused into the convolution; upsample+conv as one transposed convolution (2.25x less work)",
    ),
    "cpu_sequential": Rung(
        "numba",
        "one thread, plain loops, one operation per layer: what the algorithm costs as written",
    ),
    "gpu_basic": Rung(
        "cuda", "one thread per output element, global memory only, one kernel per operation"
    ),
    "gpu_shared": Rung(
        "cuda", "tiles of convolutions in shared memory", below="gpu_basic", role="lesson"
    ),
    "gpu_registers": Rung(
        "cuda", "4x4 results in the registers of each thread", below="gpu_shared", role="lesson"
    ),
    "gpu_wide": Rung(
        "cuda",
        "accesses of 16 bytes to global and shared memory",
        below="gpu_registers",
        role="lesson",
    ),
    "gpu_split_k": Rung(
        "cuda",
        "weight gradients summed in parts by blocks (split-K)",
        below="gpu_wide",
        role="lesson",
    ),
    "gpu_fused": Rung(
        "cuda", "the ReLU behind a convolution as part of it", below="gpu_split_k", role="lesson"
    ),
    "gpu_opt_v1": Rung(
        "cuda",
        "tiles in shared memory and registers, ReLU fused into the convolution, 16-byte accesses, "
        "weight gradient split over blocks (split-K), losses added by trees, one launch for all "
        "updates",
        below="gpu_fused",
    ),
    "gpu_opt_v2": Rung(
        "cuda",
        "conv+ReLU+maxpool and upsample+conv as one operation each, the parts of all weight "
        "gradients added by the update, up to 8x8 products per thread",
        below="gpu_opt_v1",
    ),
    "gpu_gemm": Rung(
        "cuda",
        "convolution as implicit GEMM for any kernel size, stride and padding, up to 128x128 tiles "
        "with 8x8 of them per thread",
        below="gpu_opt_v1",
    ),
    "gpu_mma": Rung(
        "cuda",
        "a tile's products by tensor cores (mma.sync), its elements rounded to TF32 in shared memory; "
        "for precision tf32",
        below="gpu_fused",
        role="lesson",
        oldest=TENSOR_CORES,
        precision="tf32",
    ),
    "gpu_async": Rung(
        "cuda",
        "two stages of shared memory: one is copied (cp.async) while the other is multiplied; for "
        "precision tf32",
        below="gpu_mma",
        role="lesson",
        oldest=TENSOR_CORES,
        precision="tf32",
    ),
    "gpu_wgmma": Rung(
        "cuda",
        "for Hopper alone: a producer and a consumer of 128 threads each, full and empty barriers "
        "(mbarrier), products from shared memory (wgmma); for precision bfloat16",
        below="gpu_async",
        role="lesson",
        oldest=HOPPER,
        newest=HOPPER,
        precision="bfloat16",
    ),
    "gpu_3xtf32": Rung(
        "cuda",
        "three products of TF32 on tensor cores for one of float32",
        below="gpu_gemm",
        oldest=TENSOR_CORES,
    ),
    "gpu_tf32": Rung(
        "cuda",
        "one product of TF32 operands, rounded once to copies by the launch that makes them, which "
        "reach shared memory without passing registers (cp.async), a pixel once for all taps; for "
        "precision tf32",
        below="gpu_3xtf32",
        oldest=TENSOR_CORES,
        precision="tf32",
    ),
    "gpu_3xtf32_packed": Rung(
        "cuda",
        "gpu_tf32's copies with all bits of float32, each product of three of TF32",
        below="gpu_tf32",
        oldest=TENSOR_CORES,
    ),
    "gpu_bf16": Rung(
        "cuda",
        "bfloat16 operands, in copies of half the bytes, twice as many products an instruction; for "
        "precision bfloat16",
        below="gpu_tf32",
        oldest=TENSOR_CORES,
        precision="bfloat16",
    ),
    "gpu_bf16_sm90": Rung(
        "cuda",
        "for Hopper alone: its copy engine (TMA) and wgmma, a thread that "
        "does nothing else copies whole tiles, 128 threads multiply from shared memory",
        below="gpu_bf16",
        oldest=HOPPER,
        newest=HOPPER,
        precision="bfloat16",
    ),
    "gpu_f16": Rung(
        "cuda",
        "float16 operands and a loss scale, for a T4 and RTX 20 too, whose tensor cores multiply nothing "
        "else: gpu_tf32's kernels in 64 KB of shared memory; for precision float16",
        below="gpu_bf16",
        precision="float16",
    ),
    "gpu_f16_sm90": Rung(
        "cuda",
        "gpu_bf16_sm90's kernels with float16 operands, for Hopper alone; for precision float16",
        below="gpu_bf16_sm90",
        oldest=HOPPER,
        newest=HOPPER,
        precision="float16",
    ),
    "gpu_3xf16_sm90": Rung(
        "cuda",
        "float32 as the sum of two float16, three products of these for one, by gpu_bf16_sm90's "
        "kernels, for Hopper alone",
        below="gpu_f16_sm90",
        oldest=HOPPER,
        newest=HOPPER,
    ),
}


# What `auto` tries before anything was measured on a machine, in this order: rung -> compute
# capability -> why; ANY: of all that run it. Predicted is a training step of the autoencoder
# (docs/prediction.md); a GPU without a prediction is taken for the one that has its kind of
# multiprocessors.
ANY = 0
PREDICTED = "is predicted faster than"
FASTER, FASTEST = f"{PREDICTED} gpu_opt_v2 on", "is predicted the fastest in float32 on"
AS_H200 = f"{FASTER} an H200, whose multiprocessors are of its kind"
AS_4090 = f"{FASTEST} an RTX 4090, whose multiprocessors are of its kind"
CHOICES = {
    "gpu_bf16_sm90": {90: "took 13 % less time than gpu_bf16 on an H200"},
    "gpu_bf16": {ANY: "multiplies bfloat16 on tensor cores"},
    "gpu_tf32": {ANY: "multiplies TF32 on tensor cores"},
    "gpu_f16_sm90": {90: f"{PREDICTED} gpu_f16 on an H200"},
    "gpu_f16": {ANY: "multiplies float16 on tensor cores"},
    "gpu_3xf16_sm90": {90: f"{PREDICTED} gpu_3xtf32_packed on an H200"},
    "gpu_3xtf32_packed": {
        80: f"{FASTER} an A100",
        90: "took 40 % less time than gpu_opt_v2 on an H200",
        100: AS_H200,
        103: AS_H200,
        110: AS_H200,
    },
    "gpu_opt_v2": {
        75: f"{FASTEST} a T4",
        86: f"{FASTEST} an RTX 3060",
        89: f"{FASTEST} an RTX 4090",
        120: AS_4090,
        121: AS_4090,
        ANY: "multiplies float32",
    },
}


def _own_rungs(kernels: pathlib.Path = ROOT / "kernels") -> dict[str, Rung]:
    """Name -> Rung of the rungs with a file kernels/NAME/rung.toml, which has `technique` and
    `below`; by name.

    `make rung` writes it, so that a rung of one's own changes no file of the project.
    """
    return {path.parent.name: _own_rung(path) for path in sorted(kernels.glob(f"*/{ROW}"))}


def _own_rung(path: pathlib.Path) -> Rung:
    place = f"kernels/{path.parent.name}/{ROW}"
    try:
        row = tomllib.loads(read(path, 10_000).decode())
    except ValueError as error:
        raise UserError(f"{place}: {one_line(error, 150)}") from error
    if row.keys() != {"technique", "below"} or not all(
        isinstance(value, str) for value in row.values()
    ):
        raise UserError(f"{place}: it must have the texts technique and below, and nothing else")
    made_for = RUNGS.get(row["below"], Rung("cuda", ""))
    return dataclasses.replace(made_for, technique=row["technique"], below=row["below"], role="own")


RUNGS |= _own_rungs()


def computes_on_gpu(params: Mapping[str, Any]) -> bool:
    """True if a stage with these parameters uses a GPU."""
    on_gpu = params.get("backend") == "cuml" or params.get("array_library") == "cupy"
    return on_gpu or uses_gpu(params.get("variant"))


def counts_gpu_libraries(params: Mapping[str, Any]) -> bool:
    """True if a stage with these parameters computes with libraries of GPUs, where it compares
    rungs too.
    """
    return computes_on_gpu(params) or any(map(uses_gpu, params.get("rungs", ())))


def uses_gpu(rung: str | None) -> TypeGuard[str]:
    return rung in RUNGS and RUNGS[rung].executor == "cuda"


def is_for_auto(rung: str) -> bool:
    """Whether `auto` may take this rung."""
    return RUNGS[rung].role == "rung"


def candidates(precision: str, results: str | pathlib.Path = "results") -> dict[str, str]:
    """Rung -> why, of all that `auto` may take on this machine, the first choice first: see the
    module docstring.
    """
    fastest = _recorded(pathlib.Path(results, RECORD), precision)
    advice = "`snakemake results/parity.html` finds the fastest that passes on this machine"
    choices = {fastest: "the fastest that passed on this machine"} if fastest else {}
    lacking = no_gpu()
    if lacking is None:
        reasons = {
            rung: _why(rung) for rung in [*CHOICES, *reversed(RUNGS)] if _fits(rung, precision)
        }
        choices |= {
            rung: f"{why}; {advice}" for rung, why in reasons.items() if why and rung not in choices
        }
    elif driver.gpu_count():
        advice = f"a GPU rung {lacking}; {advice}"
    return choices | {"cpu": choices.get("cpu", advice)}


def _why(rung: str) -> str | None:
    """Why `auto` may take the rung on the GPU here before anything was measured; None where it may
    not.
    """
    if not (is_for_auto(rung) and uses_gpu(rung)) or _unfit(rung):
        return None
    reasons = CHOICES.get(
        rung, {ANY: "runs on any GPU"} if RUNGS[rung].oldest == OLDEST_GPU else {}
    )
    return reasons.get(_capability(), reasons.get(ANY))


def _fits(rung: str, precision: str) -> bool:
    return RUNGS[rung].precision in ("float32", precision)


def machine() -> dict[str, str | None]:
    """This host and its GPU, for which a measurement in RECORD is valid."""
    gpu = driver.gpu()
    return {"host": platform.node(), "gpu": gpu.name if gpu else None}


def available() -> list[str]:
    """The rungs that this machine can run, in ladder order."""
    return [rung for rung in RUNGS if unavailable(rung) is None]


def unavailable(rung: str) -> str | None:
    """One line: why this machine cannot run the rung, and the alternatives; None if it can."""
    reason = {"cuda": no_gpu, "numba": _no_numba}.get(
        RUNGS[rung].executor, lambda: None
    )() or _unfit(rung)
    if reason is None:
        return None
    others = [
        name
        for name, other in RUNGS.items()
        if other.executor in ("numpy", "numba")
        and name != rung
        and (other.executor != "numba" or _no_numba() is None)
    ]
    return f"variant {rung} {reason}; set variant to {', '.join(['auto', *others[:-1]])} or {others[-1]}"


def no_gpu() -> str | None:
    """Why no GPU rung can run here, as the end of a sentence; None if one can. NVRTC is left to the
    executor to check.
    """
    if driver.gpu_count() == 0:
        return "needs an NVIDIA GPU and no driver answers here"
    return _outside(OLDEST_GPU) or _not_installed() or _unknown_to_nvrtc()


def _not_installed() -> str | None:
    toolkit = _cupy_toolkit()
    if toolkit is None:
        return "needs CuPy, not installed here (pip install -r envs/gpu.txt)"
    newest = driver.cuda_version()
    if newest and toolkit > newest[0]:
        return (
            f"needs a newer NVIDIA driver: CuPy here is for CUDA {toolkit}, the driver runs CUDA {newest[0]}.{newest[1]} "
            "at most; update the driver"
        )
    return None


def _unknown_to_nvrtc() -> str | None:
    """Why no NVRTC for the CUDA version of the packages here compiles for the GPU; None if one
    does.
    """
    major = _bindings() or _cupy_toolkit()
    if not major or major >= 13 or _capability() not in NEW_IN_CUDA_13:
        return None
    gpu = driver.gpu()
    return (
        f"needs the compiler of CUDA 13 for {gpu.name} ({gpu.architecture}), and the packages here are for CUDA {major}; "
        "in .venv, pip uninstall cupy-cuda12x cuml-cu12, then pip install cupy-cuda13x[ctk] cuml-cu13 nvidia-cuda-nvrtc"
    )


def _bindings() -> int | None:
    """Major CUDA version of cuda-bindings, through which NVRTC is called where it is installed;
    None without it.
    """
    try:
        return int(importlib.metadata.version("cuda-bindings").partition(".")[0])
    except importlib.metadata.PackageNotFoundError:
        return None


def _unfit(rung: str) -> str | None:
    """Why the GPU here is none for the rung, as the end of a sentence; None if it is one."""
    entry = RUNGS[rung]
    return _outside(entry.oldest, entry.newest) if entry.executor == "cuda" else None


def _capability() -> int:
    """The compute capability of the GPU here, 80 for 8.0."""
    return int(driver.gpu().architecture.removeprefix("sm_"))


def _outside(oldest: int, newest: int | None = None) -> str | None:
    gpu = driver.gpu()
    if oldest <= _capability() <= (newest or math.inf):
        return None
    wanted = f"sm_{oldest}" if newest == oldest else f"sm_{oldest} or newer"
    return f"needs a GPU of {wanted}, and the {gpu.name} here is {gpu.architecture}"


def _no_numba() -> str | None:
    return (
        None
        if _installed("numba")
        else "needs Numba, not installed here (pip install -r envs/cpu.txt)"
    )


def _cupy_toolkit() -> int | None:
    """Major CUDA version of the installed CuPy; None without CuPy, 0 if its package does not
    say.
    """
    if not _installed("cupy"):
        return None
    packages = {distribution.name for distribution in importlib.metadata.distributions()}
    return next((major for major in CUPY_FOR if f"cupy-cuda{major}x" in packages), 0)


def _recorded(path: pathlib.Path, precision: str) -> str | None:
    """The fastest rung of this precision recorded for this machine if it can run now, else None."""
    try:
        record = json.loads(path.read_text("utf-8"))
        fastest = record["fastest"][precision]
        fits = (
            record["machine"] == machine()
            and is_for_auto(fastest)
            and _fits(fastest, precision)
            and unavailable(fastest) is None
        )
        return fastest if fits else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None
