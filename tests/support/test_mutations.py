"""What the scripts that change kernels share: samples of mutants."""

import mutations


def test_a_sample_is_the_same_for_a_seed_and_another_for_another():
    work = [mutations.Mutant("a", number, "", 0, 0, "") for number in range(100)]
    first = mutations.sample(work, 10, 1)
    assert (
        first == mutations.sample(work, 10, 1) != mutations.sample(work, 10, 2) and len(first) == 10
    )
    assert [mutant.number for mutant in first] == sorted(mutant.number for mutant in first)
    assert mutations.sample(work, None) == mutations.sample(work, 100) == work
