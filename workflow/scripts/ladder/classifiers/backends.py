"""The SVM libraries that this machine can run. Standard library only, because the Snakefile imports
it on every start.

| backend | library | needs |
|---|---|---|
| cuml | RAPIDS cuML | an NVIDIA GPU, CuPy and cuML |
| sklearnex | scikit-learn-intelex (oneDAL) | an x86-64 processor |
| sklearn | scikit-learn (libsvm) | nothing else |

cuML is compared with scikit-learn before its first use on a machine (check_backend.py, in a process
of its own).
"""

import functools
import importlib.util
from typing import Any

from ladder import caller
from ladder.errors import UserError
from ladder.machine.driver import gpu_count
from ladder.progress import log
from ladder.store import first_use

BACKENDS = ("cuml", "sklearnex", "sklearn")  # in the order of preference of `auto`
ON_GPU = "cuml"
CHECK = "ladder.verify.check_backend"


def resolve_backend(name: str) -> str:
    """`name` itself, or for 'auto' the first of BACKENDS that this machine can run and that passes
    its check.

    Only a command that runs jobs makes a check that was never made: caller.fact("checks"). Others
    trust the backend. Raises UserError for an unknown name.
    """
    if name == "auto":
        return next(
            backend for backend in BACKENDS if unavailable(backend) is None and _passes(backend)
        )
    if name not in BACKENDS:
        raise UserError(f"svm_backend is {name!r}; it can be auto, {', '.join(BACKENDS)}")
    return name


def unavailable(name: str) -> str | None:
    """The reason why this machine cannot run the backend `name`, in one line with alternatives;
    None if it can.
    """
    if name == ON_GPU and gpu_count() == 0:
        return f"svm_backend cuml needs an NVIDIA GPU and no driver answers here; {_instead()}"
    if name == ON_GPU and not (_installed("cupy") and _installed("cuml")):
        return f"svm_backend cuml needs CuPy and cuML (the GPU set in envs/), not installed here; {_instead()}"
    if name == "sklearnex" and not _installed("sklearnex"):
        return "svm_backend sklearnex needs scikit-learn-intelex, not installed here; set svm_backend to auto or sklearn"
    return None


def require(name: str | None) -> dict[str, Any]:
    """The notes of a stage on the check of its backend, {} for one that needs none; raises
    UserError if it fails.
    """
    if name != ON_GPU or unavailable(name):  # the fit gives the reason
        return {}
    return first_use.require(_check(), _instead())


@functools.cache
def _passes(name: str) -> bool:
    if name != ON_GPU:
        return True
    outcome = first_use.outcome(_check(), makes=bool(caller.fact("checks")))
    if outcome is None or outcome["passed"]:
        return True
    log.warning("svm_backend cuml is passed over: %s", first_use.refusal(_check(), outcome))
    return False


def _check() -> first_use.Check:
    how = (
        f"it fits and predicts 200 rows, compared with scikit-learn, once for this GPU, driver and program; at most "
        f"{first_use.SECONDS // 60} minutes"
    )
    key = {"code": first_use.code(CHECK), **first_use.machine(["cupy", "cuml", "sklearn"])}
    return first_use.Check(ON_GPU, how, CHECK, "check", (), key)


def _instead() -> str:
    return f"set svm_backend to {'auto, sklearnex or sklearn' if _installed('sklearnex') else 'auto or sklearn'}"


def _installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None
