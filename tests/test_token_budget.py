"""How many tokens each part may have: a change that needs more raises its number here, on purpose.

`.venv/bin/python tests/support/count_tokens.py` prints what there is.
"""

import count_tokens

BUDGET = {
    "scripts": 17183,
    "ladder": 1797,
    "arithmetic": 11348,
    "classifiers": 10504,
    "data": 16229,
    "demo": 3443,
    "executors": 54339,
    "export": 7938,
    "features": 6668,
    "machine": 4423,
    "network": 8114,
    "pages": 55492,
    "rungs": 39038,
    "store": 11269,
    "training": 21105,
    "workflow": 33329,
    # a package of its own, where Snakemake looks for it
    "snakemake_logger_plugin_ladder": 548,
    "package": 263,
    "benchmarks": 47500,
    "tests": 458781,
}


def test_no_part_of_the_program_has_more_tokens_than_its_budget():
    assert not over_budget("workflow", "package")


def test_the_tests_and_benchmarks_have_no_more_tokens_than_their_budgets():
    assert not over_budget("tests", "benchmarks")


def over_budget(*folders):
    """{part: tokens} of the parts that have too many."""
    parts = {part: sum(files.values()) for part, files in count_tokens.by_file(*folders).items()}
    return {part: tokens for part, tokens in parts.items() if tokens > BUDGET.get(part, 0)}


def test_names_numbers_operators_and_strings_are_counted_no_docstrings_or_comments():
    text = '"""Module."""\nclass A:\n    """Of A."""\n    x = 1  # one\n    """Of x."""\n'
    assert count_tokens.count(text) == 3 + 3
    assert count_tokens.count("y = f'{x} b'\n") == 3
