"""Which tests `make test` runs while a person waits. `make test-all` runs all of them, and so does
pytest without --short.

1. Of the tests that run Snakemake, those in WHOLE_COMMANDS, each once.
2. Of every other test the cases that have none of the words in OTHER_AXES, if there are such; of
   these, the first, the last and those evenly between them, as many as the first fitting row of
   CASES says, in tests/operations of each operation on each back end.

How much that misses, and how that is measured, is in tests/README.md.
"""

import fnmatch

# Words of cases that differ in what seldom matters: GPUs older than the newest, products fused with
# sums as g++ fuses them beside products rounded as they are watched, and other numbers of threads.
OTHER_AXES = {"sm_75", "sm_80", "sm_86", "sm_89", "fused", "1 threads", "3 threads"}
RUN_SNAKEMAKE = {
    "tests/workflow/test_workflow.py",
    "tests/workflow/test_real_chain.py",
    "tests/workflow/test_trials.py",
    "tests/workflow/test_unlabelled.py",
    "tests/campaigns/test_kill.py",
    "tests/campaigns/test_damage.py",
}
# What only a whole command shows, a few seconds each.
WHOLE_COMMANDS = {
    "test_the_report_and_the_summary_are_made",
    "test_training_killed_after_an_epoch_gives_the_bytes_of_an_uninterrupted_run",
    "test_a_second_run_has_nothing_to_do",
    "test_switching_a_key_and_back_runs_nothing_the_second_time",
    "test_what_is_damaged_is_named_and_made_again_from_what_is_whole",
    "test_a_wrong_configuration_is_one_line",
    "test_a_stages_message_is_the_last_line",
    "test_two_runs_at_once_share_the_work",
    "test_a_reader_that_goes_away_ends_the_command_and_leaves_no_process",
    "test_a_failed_run_stops_no_other_of_a_list_and_is_not_repeated",
}
# Patterns of tests, FILE::FUNCTION, in tests/operations FILE::FUNCTION BACKEND OPERATION, and how
# many of their cases are run; 0: the night is early enough.
CASES = [
    # of tools for developers, which are used at night
    ("tests/support/test_mutate_*.py::*", 0),
    ("tests/test_notebook.py::test_it_runs_*", 0),  # two minutes
    # of the emulator, whose kernels are compiled one by one
    ("emulator/tests/test_example.py::*", 0),
    ("emulator/tests/test_language.py::*", 2),
    ("emulator/tests/test_hopper.py::*", 2),
    ("emulator/tests/test_tensor_cores.py::*", 2),
    ("*::test_the_thousand_odd_pictures_*", 0),  # downloads them
    ("*::test_scikit_learn_calibrates_stacks_validates_and_copies_*", 1),
    ("*::test_the_model_answers_alike_in_environments_without_*", 0),  # downloads packages
    ("tests/workflow/test_terminal.py::test_the_terminal_has_*", 0),  # four commands
    ("tests/workflow/test_terminal.py::test_ctrl_c_*", 0),  # three
    # of `make check`, which compiles and trains with rungs that it makes
    ("tests/support/test_judge_rung.py::*", 0),
    ("tests/test_course.py::test_make_check_*", 0),
    ("tests/test_course.py::test_a_solution_*", 99),
    ("tests/campaigns/test_settings.py::*", 0),  # a slice of a campaign
    ("tests/tools/test_commands.py::*", 0),
    # of the tests themselves, a million tokens
    ("*::test_the_tests_and_benchmarks_have_no_more_tokens_*", 0),
    # a step of the whole autoencoder in the emulator
    ("tests/rungs/test_whole_step.py::*", 0),
    ("*::test_the_record_is_of_todays_kernels_and_plans_*", 0),  # makes all plans of all rungs
    # the whole of a record, rung by rung
    ("*::test_a_race_has_the_rungs_and_the_best_of_pytorch_by_precision", 0),
    # These train networks with all layers, for which g++ compiles all kernels of a rung.
    ("*::test_a_network_that_classifies_is_compared", 0),
    ("*::test_the_record_has_every_section_the_headline_first", 0),
    ("*::test_the_page_of_a_card_can_be_read_by_everyone_*", 0),
    ("*::test_parity_with_the_tiles_of_large_batches", 0),
    ("*::test_a_right_rung_passes_where_tensor_cores_truncate_their_sums", 0),
    ("*::test_a_rung_for_a_lower_precision_is_compared_with_the_cpu_at_that_precision", 1),
    ("*::test_a_run_makes_every_stage_with_its_choices", 1),
    ("*::test_parity_holds_and_a_gradient_wrong_by_one_percent_in_one_tensor_fails_it", 0),
    ("*::test_a_network_of_copies_trains_as_on_the_cpu_in_the_same_bytes_in_every_order", 0),
    (
        "*::test_channel_blocks_train_as_on_the_cpu_in_the_same_bytes_in_every_order",
        0,
    ),
    ("*::test_whole_runs_are_of_the_best_of_each_precision", 0),
    ("*::test_prepared_kernels_and_one_folder_are_all_that_a_machine_needs", 0),
    ("*::test_a_measured_record_fills_both_tables", 0),
    ("*::test_a_rung_that_ends_its_process_leaves_the_others_alone", 0),
    ("*::test_the_bytes_of_a_training_do_not_depend_on_the_number_of_threads", 1),
    ("*::test_a_network_of_halves_trains_as_on_the_cpu_in_the_same_bytes_in_every_order", 1),
    # The other tests of their files have the usual tiles.
    ("*::test_any_tile_gives_the_same_bytes", 0),
    ("*::test_the_tile_changes_no_byte", 0),
    ("*::test_products_of_channel_blocks_in_large_tiles", 0),
    ("tests/kernels/test_gpu_gemm.py::test_conv2d_in_large_tiles", 1),
    # Whole trainings in the emulator, beside shorter ones of the same file.
    ("*::test_the_copies_of_weights_are_those_of_the_weights_before_each_step", 0),
    ("*::test_copies_follow_updates_of_other_batches_resumed_weights_and_other_plans", 0),
    (
        "*::test_a_training_with_phases_stopped_within_an_epoch_resumes_in_the_same_bytes",
        0,
    ),
    # Each case compiles kernels of its own, those for tensor cores the longest.
    ("tests/kernels/test_gpu_*tf32.py::*", 1),
    ("tests/kernels/test_gpu_bf16*.py::*", 1),
    ("tests/operations/* gpu_*tf32 *", 1),
    ("tests/operations/* gpu_bf16 *", 1),
    ("tests/operations/* gpu_[amrsw]* *", 1),  # lessons
    ("tests/kernels/*", 2),
    ("tests/rungs/*", 2),
    ("*::test_axe_finds_nothing*", 0),
    ("tests/browser/*", 2),  # of pages and sizes of the screen
    ("*", 3),
]
# What waits longest for a compiler or for processes.
FIRST = ("tests/operations", "tests/kernels", "tests/rungs", "tests/workflow")


def chosen(names):
    """The names of the tests, as pytest writes them, that the short run has."""
    cases = {}
    for name in names:
        cases.setdefault(_group(name), []).append(name)
    return {
        name
        for group, own in cases.items()
        for name in _evenly([case for case in own if not _other(case)] or own, _count(group))
    }


def place(name):
    """A key by which the tests of the short run are sorted."""
    return next(
        (number for number, folder in enumerate(FIRST) if name.startswith(folder)), len(FIRST)
    )


def _group(name):
    """FILE::FUNCTION, and in tests/operations the back end and the operation, the first two words
    of a case.
    """
    function, _, case = name.partition("[")
    return (
        " ".join((function, *case.split("-")[:2]))
        if function.startswith("tests/operations/")
        else function
    )


def _count(group):
    file, _, test = group.partition("::")
    if file in RUN_SNAKEMAKE:
        return int(test in WHOLE_COMMANDS)
    return next(count for pattern, count in CASES if fnmatch.fnmatchcase(group, pattern))


def _other(case):
    return not OTHER_AXES.isdisjoint(case.partition("[")[2].removesuffix("]").split("-"))


def _evenly(cases, count):
    """So many of the cases: the first, the last and those evenly between them; for one, the one in
    the middle.
    """
    if len(cases) <= count:
        return cases
    if count == 1:
        return [cases[len(cases) // 2]]
    return [cases[number * (len(cases) - 1) // (count - 1)] for number in range(count)]
