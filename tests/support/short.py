"""Which tests `make test` runs while a person waits. `make test-all` runs all of them, and so does pytest without --short.

1. Of the tests that run Snakemake, those in WHOLE_COMMANDS.
2. Nothing that a pattern of AT_NIGHT names.
3. Of every other test the cases that have none of the words in OTHER_AXES, if there are such; of these, the first, the last and
   those evenly between them, CASES in all.

How much that misses, and how that is measured, is in tests/README.md.
"""

import fnmatch

CASES = 3
# Words of cases that differ in what seldom matters: GPUs older than the newest, products fused with sums as g++ fuses them
# beside products rounded as they are watched, and other numbers of threads.
OTHER_AXES = {"sm_75", "sm_80", "sm_86", "sm_89", "fused", "1 threads", "3 threads"}
RUN_SNAKEMAKE = {"tests/workflow/test_workflow.py", "tests/workflow/test_chain.py", "tests/workflow/test_trials.py",
                 "tests/workflow/test_snakemake_internals.py", "tests/campaigns/test_kill.py", "tests/campaigns/test_damage.py"}
# What only a whole command shows, a few seconds each.
WHOLE_COMMANDS = {
    "test_the_report_and_the_summary_are_made",
    "test_training_killed_after_an_epoch_gives_the_bytes_of_an_uninterrupted_run",
    "test_a_second_run_has_nothing_to_do",
    "test_switching_a_key_and_back_runs_nothing_the_second_time",
    "test_what_is_damaged_is_named_and_made_again_from_what_is_whole",
    "test_forcing_a_rule_makes_it_and_what_depends_on_it_again",
    "test_a_wrong_configuration_is_one_line",
    "test_a_stages_message_is_the_last_line",
    "test_two_runs_at_once_share_the_work",
    "test_a_reader_that_goes_away_ends_the_command_and_leaves_no_process_and_the_plain_command_finishes",
    "test_a_failed_run_stops_no_other_of_a_list_and_is_not_repeated",
    "test_gc_removes_unreachable_artifacts_and_only_when_confirmed",
}
# Patterns of tests, FILE::FUNCTION -> why the night is early enough for them.
AT_NIGHT = {
    "tests/support/test_mutate_kernels.py::*": "of a tool for developers, which is used at night",
    "tests/support/test_judge_rung.py::*": "of `make check`, which compiles and trains with rungs that it makes",
    "tests/rungs/test_whole_step.py::*": "a step of the whole autoencoder in the emulator",
    "tests/campaigns/test_settings.py::*": "a slice of a campaign",
}
FIRST = ("tests/kernels", "tests/rungs", "tests/workflow")   # what waits longest for a compiler or for processes


def chosen(names):
    """The names of the tests, as pytest writes them, that the short run has."""
    cases = {}
    for name in names:
        function = name.partition("[")[0]
        if not _at_night(function):
            cases.setdefault(function, []).append(name)
    return {name for of_one in cases.values() for name in _evenly([case for case in of_one if not _other(case)] or of_one)}


def place(name):
    """A key by which the tests of the short run are sorted."""
    return next((number for number, folder in enumerate(FIRST) if name.startswith(folder)), len(FIRST))


def _at_night(function):
    file, _, test = function.partition("::")
    if file in RUN_SNAKEMAKE:
        return test not in WHOLE_COMMANDS
    return any(fnmatch.fnmatchcase(function, pattern) for pattern in AT_NIGHT)


def _other(case):
    return not OTHER_AXES.isdisjoint(case.partition("[")[2].removesuffix("]").split("-"))


def _evenly(cases):
    """At most CASES of the cases, the first and the last among them."""
    if len(cases) <= CASES:
        return cases
    return [cases[number * (len(cases) - 1) // (CASES - 1)] for number in range(CASES)]
