"""How many tokens each part may have: a change that needs more raises its number here, on purpose.

`.venv/bin/python tests/support/count_tokens.py` prints what there is.
"""

import ast

import count_tokens
from ladder.sources import SCRIPTS

BUDGET = {
    "scripts": 11621,
    "ladder": 1618,
    "arithmetic": 12043,
    "classifiers": 11776,
    "data": 16967,
    "demo": 3045,
    "executors": 58256,
    "export": 8785,
    "features": 8890,
    "machine": 4617,
    "network": 8254,
    "pages": 43308,
    "rungs": 41601,
    "store": 8896,
    "training": 6764,
    "plan": 3913,
    "stage": 1610,
    "tools": 5088,
    "verify": 5111,
    "workflow": 37279,
    # a package of its own, where Snakemake looks for it
    "snakemake_logger_plugin_ladder": 599,
    "package": 263,
    "benchmarks": 55237,
    "tests": 438363,
    # with its tests
    "emulator": 52195,
}
MOST_LONG = 59  # functions of over six arguments, outside Numba's loops


def test_no_part_of_the_program_has_more_tokens_than_its_budget():
    assert not over_budget("workflow", "package")


def test_the_tests_and_benchmarks_have_no_more_tokens_than_their_budgets():
    assert not over_budget("tests", "benchmarks", "emulator")


def over_budget(*folders):
    """{part: tokens} of the parts that have too many."""
    parts = {part: sum(files.values()) for part, files in count_tokens.by_file(*folders).items()}
    return {part: tokens for part, tokens in parts.items() if tokens > BUDGET.get(part, 0)}


def test_few_functions_have_over_six_arguments():
    """Of those that Numba compiles, arrays cannot be put together."""
    long = [
        node.name
        for path in SCRIPTS.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef) and argument_count(node) > 6 and not compiled(node)
    ]
    assert len(long) <= MOST_LONG


def argument_count(function):
    names = [each.arg for each in (*function.args.args, *function.args.kwonlyargs)]
    return len(names) - (names[:1] in (["self"], ["cls"]))


def compiled(function):
    words = {
        node.id
        for each in function.decorator_list
        for node in ast.walk(each)
        if isinstance(node, ast.Name)
    }
    return bool(words & {"compiled", "intrinsic", "loop"})


def test_names_numbers_operators_and_strings_are_counted_no_docstrings_or_comments():
    text = '"""Module."""\nclass A:\n    """Of A."""\n    x = 1  # one\n    """Of x."""\n'
    assert count_tokens.count(text) == 3 + 3
    assert count_tokens.count("y = f'{x} b'\n") == 3
