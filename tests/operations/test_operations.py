"""Every operation on every back end against its definition in float64."""

import functools
import shutil

import numpy as np
import pytest

import backends
import operation_cases
from operation_cases import Near, with_infinities
from rung_checks import ORDERS


@functools.cache
def parameters():
    """(back end, cases of a row of the table that it has); by back end and operation, which pytest --short goes by."""
    found = []
    for backend in backends.backends():
        for row in operation_cases.rows():
            if with_infinities in row.draws and getattr(backend, "variant", None) and backend.variant.on_tensor_cores:
                continue   # the small part of an infinite operand is no number
            for operation, cases in row.cases.items():
                own = [case for case in cases if backend.has(case)]
                name = "-".join(filter(None, (backend.name, operation, backend.variation, row.name)))
                found += [pytest.param(backend, own, id=name)] if own else []
    return found


@pytest.mark.parametrize("backend, cases", parameters())
def test_an_operation_is_its_definition(backend, cases):
    if not isinstance(backend, backends.Functions) and shutil.which("g++") is None:
        pytest.skip("no g++ (Debian package: g++)")
    for number, case in enumerate(cases):
        check(backend, case, ORDERS if case.exact or number == 0 else ("random",))


def check(backend, case, orders=ORDERS):
    """orders: of the threads of a GPU rung; sums of integers show a dependence on them."""
    found = backend.perform(case, orders)
    wanted = case.results(backend.rounded)
    assert wanted.keys() - found.keys() <= {"dbias"}   # which some rungs have by conv2d_bias_grad alone
    for role in wanted.keys() & found.keys():
        value, bound = expected(backend, case, wanted[role], found)
        value = np.asarray(value)
        with np.errstate(all="ignore"):
            right = np.abs(found[role] - value) <= bound
        if np.ndim(bound) == 0 and bound == 0:
            value = value.astype(found[role].dtype)
        right |= (found[role] == value) | (found[role] != found[role]) & (value != value)   # equal, infinite, or both NaN
        assert right.all(), f"{role} of {case.operation}: {found[role][~right][:5]} is not {value[~right][:5]}"


def expected(backend, case, wanted, found):
    """(value, bound of the error)."""
    unit = backend.unit(case)
    if callable(wanted):
        return wanted(found, unit)
    if not isinstance(wanted, Near):
        return wanted, 0
    value, size = wanted.value, np.abs(wanted.value) if wanted.size is None else wanted.size
    if backend.rounded and case.products:   # another rounding would be a hundred times as far
        return value, 1e-5 * np.nanmax(np.abs(value))
    terms = backend.roundings(case) * wanted.terms * unit
    return value, terms / (1 - terms) * size + wanted.slack
