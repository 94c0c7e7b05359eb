"""What an artifact is to a run, as text and as parts of it."""

import pytest

from ladder.store.roles import Role


@pytest.mark.parametrize(
    "role, text",
    [
        (Role("svm"), "svm"),
        (Role("svm", "random"), "svm_random"),
        (Role("features", part=2), "features_part2"),
        (Role("features", "random", 12), "features_random_part12"),
        (Role("knn", seed=0), "knn_seed0"),
        (Role("svm", "start", seed=3), "svm_start_seed3"),
        (Role("shifted", "pixels", 2, 5), "shifted_pixels_part2_seed5"),
        (Role("score", "ablation1"), "score_ablation1"),
    ],
)
def test_a_role_and_its_text_say_the_same(role, text):
    assert str(role) == text and Role.parse(text) == role


@pytest.mark.parametrize(
    "text", ["", "report0", "a__b", "features_part", "a_seed", "a_part2_b", "a\n_b\n"]
)
def test_any_text_is_read_as_a_role_and_stays_as_it_is(text):
    assert str(Role.parse(text)) == text
