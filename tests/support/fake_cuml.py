"""Stand-ins for cuML's SVC by scikit-learn, as far as ladder/classifiers/svm.py uses it, and for
CuPy by NumPy.
"""

import sys
import types

import numpy as np
import sklearn.svm

import numpy_cupy
from ladder.classifiers import backends


class SVC:
    """cuML's documented SVC for labels 0 and 1: it copies what is not on the GPU there.

    fault: 'wrong' halves its coefficients, an exception is raised by the fit.
    """

    fault = None

    def __init__(self, *, kernel, C, gamma, degree, coef0, output_type):
        assert output_type == "numpy"
        self.svc = sklearn.svm.SVC(kernel=kernel, C=C, gamma=gamma, degree=degree, coef0=coef0)

    def fit(self, rows, labels):
        if isinstance(self.fault, Exception):
            raise self.fault
        rows, labels = (sys.modules["cupy"].asarray(values).values for values in (rows, labels))
        assert rows.dtype == np.float32 and set(labels) == {0, 1}
        self.svc.fit(rows, labels)
        self.support_, self.intercept_ = self.svc.support_, self.svc.intercept_.astype(np.float32)
        self.dual_coef_ = self.svc.dual_coef_.astype(np.float32) * np.float32(
            0.5 if self.fault == "wrong" else 1
        )
        return self


def install(monkeypatch, fault=None):
    """Give this machine cuML and a numpy_cupy.Gpu, which is returned."""
    monkeypatch.setattr(backends, "unavailable", lambda name: None)
    monkeypatch.setattr(SVC, "fault", fault)
    monkeypatch.setitem(sys.modules, "cuml", types.ModuleType("cuml"))
    monkeypatch.setitem(sys.modules, "cuml.svm", types.SimpleNamespace(SVC=SVC))
    return numpy_cupy.install(monkeypatch, memory=4 << 30)
