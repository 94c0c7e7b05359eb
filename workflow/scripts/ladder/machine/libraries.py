"""The installed versions of the libraries that compute: another version may round the last bits of
a result differently.
"""

import functools
import importlib.metadata
from collections.abc import Iterable, Mapping

from ladder import sources

# Imported module -> the packages that may provide it. Other libraries only read, write or draw what
# is computed.
PACKAGES = {
    "numpy": ["numpy"],
    "scipy": ["scipy"],
    "numba": ["numba", "llvmlite"],
    "sklearn": ["scikit-learn"],
    "sklearnex": ["scikit-learn-intelex", "daal"],
    "cupy": ["cupy-cuda12x", "cupy-cuda13x", "cupy", "nvidia-cuda-nvrtc-cu12", "nvidia-cuda-nvrtc"],
    "cuml": ["cuml-cu12", "cuml-cu13", "cuml"],
    "onnx": ["onnx"],
    "onnxruntime": ["onnxruntime"],
    "pyarrow": ["pyarrow"],
}


# they compute on nothing else
OF_GPUS = {package for module in ("cupy", "cuml") for package in PACKAGES[module]}


def installed(files: Iterable[str], on_gpu: bool) -> dict[str, str]:
    """Package -> version of the packages that the project's source `files` import and compute with,
    as far as they are here.
    """
    return computing(versions(sources.libraries(files)), on_gpu)


def computing(versions: Mapping[str, str], on_gpu: bool) -> dict[str, str]:
    """The packages that can change what a stage computes: those of GPUs only if it computes on
    one.
    """
    return {
        package: version
        for package, version in versions.items()
        if on_gpu or package not in OF_GPUS
    }


def versions(modules: Iterable[str]) -> dict[str, str]:
    """Package -> version of the packages that provide these modules, as far as they are installed
    here.
    """
    releases = {
        package: _version(package) for module in modules for package in PACKAGES.get(module, ())
    }
    return {package: version for package, version in sorted(releases.items()) if version}


def changed(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """'numpy 2.4.5 -> 2.4.6' for each package whose version differs; `none` stands for one that is
    not installed.
    """
    return [
        f"{package} {before.get(package, 'none')} -> {after.get(package, 'none')}"
        for package in sorted(before.keys() | after.keys())
        if before.get(package) != after.get(package)
    ]


@functools.cache
def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
