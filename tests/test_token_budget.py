"""How many tokens each part may have: a change that needs more raises its number here, on purpose.

`.venv/bin/python tests/support/count_tokens.py` prints what there is.
"""

import count_tokens

BUDGET = {
    "scripts": 11612,
    "ladder": 1607,
    "arithmetic": 11927,
    "classifiers": 11537,
    "data": 18702,
    "demo": 3045,
    "executors": 58169,
    "export": 8785,
    "features": 8821,
    "machine": 4601,
    "network": 8189,
    "pages": 42594,
    "rungs": 41642,
    "store": 8995,
    "training": 6204,
    "plan": 3590,
    "stage": 1610,
    "tools": 5088,
    "verify": 5031,
    "workflow": 36860,
    # a package of its own, where Snakemake looks for it
    "snakemake_logger_plugin_ladder": 564,
    "package": 263,
    "benchmarks": 54221,
    "tests": 444228,
    # with its tests
    "emulator": 48667,
}


def test_no_part_of_the_program_has_more_tokens_than_its_budget():
    assert not over_budget("workflow", "package")


def test_the_tests_and_benchmarks_have_no_more_tokens_than_their_budgets():
    assert not over_budget("tests", "benchmarks", "emulator")


def over_budget(*folders):
    """{part: tokens} of the parts that have too many."""
    parts = {part: sum(files.values()) for part, files in count_tokens.by_file(*folders).items()}
    return {part: tokens for part, tokens in parts.items() if tokens > BUDGET.get(part, 0)}


def test_names_numbers_operators_and_strings_are_counted_no_docstrings_or_comments():
    text = '"""Module."""\nclass A:\n    """Of A."""\n    x = 1  # one\n    """Of x."""\n'
    assert count_tokens.count(text) == 3 + 3
    assert count_tokens.count("y = f'{x} b'\n") == 3
