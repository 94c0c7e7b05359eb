"""How numbers are written, and that a template cannot name what is not there."""

import jinja2
import pytest

from ladder import pages


@pytest.mark.parametrize("fraction, text", [
    (0.98611, "98.6 %"), (1.0, "100.0 %"), (0.0, "0.0 %"), (0.00017, "0.017 %"), (0.018, "1.8 %"), (0.0042, "0.42 %"),
])
def test_small_percentages_have_digits_that_say_something(fraction, text):
    assert pages.small_percent(fraction).replace(pages.NARROW_SPACE, " ") == text


@pytest.mark.parametrize("value, text", [
    (174_612_480, "174.6 M"), (7_077_888, "7.1 M"), (1500, "1.5 k"), (12, "12"), (4.1e9, "4.1 G"),
])
def test_large_numbers_get_a_unit(value, text):
    assert pages.large(value).replace(pages.NARROW_SPACE, " ") == text


@pytest.mark.parametrize("seconds, text", [(0.004, "4 ms"), (0.4, "0.4 s"), (84, "1 min 24 s")])
def test_durations_are_words(seconds, text):
    assert pages.duration(seconds).replace(pages.NARROW_SPACE, " ") == text


@pytest.mark.parametrize("value, text", [
    (True, "true"), (None, "none"), (0.001, "0.001"), (["random", "pixels"], "random, pixels"), ([], "none"),
])
def test_settings_read_as_in_the_configuration(value, text):
    assert pages.setting(value) == text


def test_an_unknown_name_in_a_template_is_an_error():
    with pytest.raises(jinja2.UndefinedError):
        pages.render("report.html", {})
