"""The mutation script kills what a test notices, and tells what the short run missed from what no
test notices.
"""

import pytest

import mutate_python
import mutations
from ladder.sources import ROOT

MODULE = """def most(values):
    return max(values) if len(values) > 0 else 0


def unused():
    return True
"""
TEST = """from ladder.store.odd import most

def test_some():
    assert most([3, 7]) == 7

def test_none_at_night():
    assert most([]) == 0
"""


@pytest.fixture
def toy(tmp_path):
    """A project of one module, with a test for the short run, one for the night, and a function
    that none calls.
    """
    for path, text in (
        ("workflow/scripts/ladder/store/odd.py", MODULE),
        ("tests/store/test_odd.py", TEST),
        ("tests/conftest.py", (ROOT / "tests/support/toy_conftest.py").read_text()),
        ("tests/README.md", "# Tests"),
        ("pyproject.toml", '[tool.pytest.ini_options]\npythonpath = ["workflow/scripts"]\n'),
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    return tmp_path


def test_each_mutant_has_its_fate(toy, capsys):
    mutate_python.main(["store/odd.py", "--short"], toy)
    file = "workflow/scripts/ladder/store/odd.py"
    assert sorted(capsys.readouterr().out.splitlines()) == sorted(
        [
            f"killed: {file}:2: return min(values) if len(values) > 0 else 0",
            f"killed by all: {file}:2: return max(values) if len(values) >= 0 else 0",
            f"SURVIVED: {file}:2: return max(values) if len(values) > 1 else 0",
            f"killed by all: {file}:2: return max(values) if len(values) > 0 else 1",
            f"SURVIVED: {file}:6: return False",
            "2 SURVIVED, 1 killed, 2 killed by all",
        ]
    )
    assert (toy / file).read_text() == MODULE


def test_tests_that_fail_without_a_mutation_are_said(toy):
    (toy / "tests/store/test_odd.py").write_text("def test(): assert 0")
    with pytest.raises(SystemExit, match="tests/store: tests fail without a mutation"):
        mutate_python.main(["store/odd.py"], toy)


def test_texts_comments_signatures_and_what_is_outside_of_functions_are_left_alone(tmp_path):
    text = 'A = 1 + 1\n@cached(1)\ndef f(a=1):\n    """1 + 1\n    2 + 2"""\n    return a - 9  # 1 + 1\n'
    (tmp_path / "m.py").write_text(text)
    (mutant,) = mutate_python.mutants(tmp_path, "m.py")
    assert (mutant.number, mutant.line) == (6, "return a + 9  # 1 + 1")


def test_a_mutation_is_made_at_its_place_behind_letters_of_several_bytes(tmp_path):
    text = 'def f(a):\n    return g("é") - a\n'
    (tmp_path / "m.py").write_text(text, "utf-8")
    (mutant,) = mutate_python.mutants(tmp_path, "m.py")
    assert mutant.mutated(text) == 'def f(a):\n    return g("é") + a\n'


def test_a_sample_is_the_same_for_a_seed_and_another_for_another():
    work = [mutations.Mutant("a", number, "", 0, 0, "") for number in range(100)]
    first = mutations.sample(work, 10, 1)
    assert (
        first == mutations.sample(work, 10, 1) != mutations.sample(work, 10, 2) and len(first) == 10
    )
    assert [mutant.number for mutant in first] == sorted(mutant.number for mutant in first)
    assert mutations.sample(work, None) == mutations.sample(work, 100) == work


def test_a_module_is_judged_by_its_tests_then_its_importers_then_its_package():
    own, importers, package = mutate_python.judges(
        ROOT, "workflow/scripts/ladder/training/training.py"
    )
    assert (own, package) == (["tests/training/test_training.py"], ["tests/training"])
    assert {"tests/executors/test_passes.py", "tests/stages/test_train_network.py"} <= {*importers}
    assert "tests/store/test_pull.py" not in importers
