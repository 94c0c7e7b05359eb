"""The rule of the short run: which cases it takes, and that what it names is there."""

import fnmatch
import pathlib
import re

import pytest

import short

TESTS = pathlib.Path(__file__).resolve().parents[1]


def names(function, *cases):
    return [f"{function}[{case}]" for case in cases]


def test_of_many_cases_the_first_the_middle_and_the_last_are_taken():
    cases = names("tests/data/test_tiff.py::test_it", *range(7))
    assert short.chosen(cases) == {cases[0], cases[3], cases[6]}


def test_a_test_with_few_cases_has_all_of_them():
    cases = names("tests/data/test_tiff.py::test_it", 1, 2, 3) + [
        "tests/data/test_tiff.py::test_one"
    ]
    assert short.chosen(cases) == {*cases}


def test_where_each_case_compiles_kernels_there_are_fewer():
    cases = names("tests/kernels/test_gpu_basic.py::test_it", *range(5))
    assert short.chosen(cases) == {cases[0], cases[4]}
    cases = names("tests/kernels/test_gpu_bf16_sm90.py::test_it", *range(5))
    assert short.chosen(cases) == {cases[2]}


def test_cases_of_other_axes_are_taken_where_there_are_no_others():
    cases = names("tests/data/test_tiff.py::test_it", "sm_75-a", "sm_90-a", "sm_90-b")
    assert short.chosen(cases) == {*cases[1:]}
    cases = names("tests/data/test_tiff.py::test_it", "sm_75", "sm_80")
    assert short.chosen(cases) == {*cases}


def test_of_operations_each_back_end_has_some_cases_of_each():
    groups = [
        names(
            "tests/operations/test_operations.py::test_it",
            *(f"{group}-{case}" for case in ("fused-a", *"abcde")),
        )
        for group in (
            "cpu-relu_forward",
            "cpu-conv2d_forward",
            "gpu_basic-relu_forward",
            "gpu_tf32-conv2d_forward",
        )
    ]
    assert short.chosen(sum(groups, [])) == {
        *groups[0][1::2],
        *groups[1][1::2],
        *groups[2][1::2],
        groups[3][3],
    }


def test_of_tests_that_run_snakemake_only_those_that_are_named_are_taken_each_once():
    named = names(
        "tests/workflow/test_workflow.py::test_a_second_run_has_nothing_to_do", "a", "b", "c"
    )
    assert short.chosen([*named, "tests/workflow/test_workflow.py::test_another"]) == {named[1]}


@pytest.fixture(scope="module")
def functions():
    """FILE::FUNCTION of every test, classes left out."""
    return [
        f"{path.relative_to(TESTS.parent).as_posix()}::{name}"
        for folder in (TESTS, TESTS.parent / "emulator/tests")
        for path in folder.rglob("test_*.py")
        for name in re.findall(r"def (test_\w+)", path.read_text("utf-8"))
    ]


@pytest.mark.parametrize("pattern", [pattern for pattern, _ in short.CASES])
def test_every_pattern_fits_a_test(pattern, functions):
    assert fnmatch.filter(functions, pattern.partition(" ")[0])


def test_every_whole_command_is_a_test_that_runs_snakemake(functions):
    running = {
        name
        for file, name in (function.split("::") for function in functions)
        if file in short.RUN_SNAKEMAKE
    }
    assert short.WHOLE_COMMANDS <= running
    assert all((TESTS.parent / file).exists() for file in short.RUN_SNAKEMAKE)
