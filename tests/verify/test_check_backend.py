"""The check of cuML, on a stand-in by scikit-learn."""

import pytest

import fake_cuml
import fake_cupy
from ladder.verify import check_backend


@pytest.fixture
def check(monkeypatch):
    """check(fault) is the outcome of the check of a cuML with this fault."""

    def check(fault=None):
        fake_cuml.install(monkeypatch, fault)
        return check_backend.check()

    return check


def test_a_cuml_that_computes_as_scikit_learn_passes(check):
    found = check()
    assert found["passed"] and found["fault"] == "" and found["summary"].startswith("rbf within ")
    assert all(largest < 1e-2 and others == 0 for largest, others in found["largest"].values())


def test_other_numbers_are_named_with_how_much(check):
    found = check("wrong")
    assert not found["passed"] and found["report"] and not found["passing"]
    assert found["fault"].startswith(
        "svm_backend cuml: with kernel rbf a decision value differs by "
    )
    assert (
        "0.05 at most" in found["fault"]
        and "of 200 rows get another class, 4 at most" in found["fault"]
    )


@pytest.mark.parametrize(
    "error, words, passing",
    [
        (
            RuntimeError("CUDA error: cudaErrorInsufficientDriver: driver version is insufficient"),
            "update it or restart",
            False,
        ),
        (
            fake_cupy.CUDARuntimeError("cudaErrorMemoryAllocation: out of memory"),
            "too little free memory",
            True,
        ),
        (
            ImportError("libcuml.so: cannot open shared object file", name="cuml"),
            "install it again",
            False,
        ),
        (
            ZeroDivisionError("a bug"),
            "svm_backend cuml does not run here: ZeroDivisionError: a bug",
            False,
        ),
    ],
    ids=repr,
)
def test_an_exception_is_an_outcome_in_one_line(check, error, words, passing):
    found = check(error)
    assert not found["passed"] and found["passing"] == passing
    assert words in found["fault"] and "\n" not in found["fault"]
