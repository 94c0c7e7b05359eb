"""The SVM libraries that this machine can run. Standard library only, because the Snakefile imports it on every start.

| backend | library | needs |
|---|---|---|
| cuml | RAPIDS cuML | an NVIDIA GPU, CuPy and cuML |
| sklearnex | scikit-learn-intelex (oneDAL) | an x86-64 processor |
| sklearn | scikit-learn (libsvm) | nothing else |
"""

import importlib.util

from ladder.errors import UserError
from ladder.machine.driver import gpu_count

BACKENDS = ("cuml", "sklearnex", "sklearn")   # in the order of preference of `auto`


def resolve_backend(name):
    """`name` itself, or for 'auto' the first of BACKENDS that this machine can run.

    Raises UserError for an unknown name.
    """
    if name == "auto":
        return next(backend for backend in BACKENDS if unavailable(backend) is None)
    if name not in BACKENDS:
        raise UserError(f"svm_backend is {name!r}; it can be auto, {', '.join(BACKENDS)}")
    return name


def unavailable(name):
    """The reason why this machine cannot run the backend `name`, in one line with alternatives; None if it can."""
    if name == "cuml" and gpu_count() == 0:
        return f"svm_backend cuml needs an NVIDIA GPU and no driver answers here; {_instead()}"
    if name == "cuml" and not (_installed("cupy") and _installed("cuml")):
        return f"svm_backend cuml needs CuPy and cuML (the GPU set in envs/), not installed here; {_instead()}"
    if name == "sklearnex" and not _installed("sklearnex"):
        return "svm_backend sklearnex needs scikit-learn-intelex, not installed here; set svm_backend to auto or sklearn"
    return None


def _instead():
    return f"set svm_backend to {'auto, sklearnex or sklearn' if _installed('sklearnex') else 'auto or sklearn'}"


def _installed(package):
    return importlib.util.find_spec(package) is not None
