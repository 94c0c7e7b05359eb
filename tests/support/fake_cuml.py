"""Stand-ins for cuML's SVC by scikit-learn, as far as ladder/classifiers/svm.py uses it, and for CuPy by NumPy."""

import sys
import types

import sklearn.svm

import numpy_cupy


class SVC:
    """cuML's documented two-class SVC; fault: 'wrong' halves its coefficients, an exception is raised by the fit."""

    fault = None

    def __init__(self, *, kernel, C, gamma, degree, coef0, output_type):
        self.svc = sklearn.svm.SVC(kernel=kernel, C=C, gamma=gamma, degree=degree, coef0=coef0)

    def fit(self, rows, labels):
        if isinstance(self.fault, Exception):
            raise self.fault
        self.svc.fit(rows, labels)
        self.support_, self.intercept_ = self.svc.support_, self.svc.intercept_
        self.dual_coef_ = self.svc.dual_coef_ * (0.5 if self.fault == "wrong" else 1)
        return self


def install(monkeypatch, fault=None):
    monkeypatch.setattr(SVC, "fault", fault)
    numpy_cupy.install(monkeypatch).cuda.is_available = lambda: True
    monkeypatch.setitem(sys.modules, "cuml", types.ModuleType("cuml"))
    monkeypatch.setitem(sys.modules, "cuml.svm", types.SimpleNamespace(SVC=SVC))
