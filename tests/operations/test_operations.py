"""Every operation on every back end against its definition in float64."""

import functools
import shutil

import pytest

import backends
import operation_cases
from backends import check
from rung_checks import ORDERS


@functools.cache
def parameters():
    """(back end, cases of a row of the table that it has); by back end and operation, which pytest
    --short goes by.
    """
    found = []
    for backend in backends.backends():
        for row, operations in operation_cases.rows():
            for operation, cases in operations.items():
                own = [case for case in cases if backend.has(case)]
                name = "-".join(filter(None, (backend.name, operation, backend.variation, row)))
                found += [pytest.param(backend, own, id=name)] if own else []
    return found


@pytest.mark.parametrize("backend, cases", parameters())
def test_an_operation_is_its_definition(backend, cases):
    if not isinstance(backend, backends.Functions) and shutil.which("g++") is None:
        pytest.skip("no g++ (Debian package: g++)")
    for number, case in enumerate(cases):
        check(backend, case, ORDERS if case.exact or number == 0 else ("random",))
