"""Figures for papers: their marks lie at their values, and their files are the same bytes each time."""

import re
import subprocess
import sys

import numpy as np
import pytest

import synthetic_run
from ladder.errors import UserError
from ladder.pages import paper, report, templates

matplotlib = pytest.importorskip("matplotlib", reason="Matplotlib is not installed (envs/figures.txt)")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return synthetic_run.make(tmp_path_factory.mktemp("lenet"), "mnist", network="lenet_5", epochs=3, validation=180)


@pytest.fixture(scope="module")
def numbers(run):
    return report.summary(run, "r0123456789e")


@pytest.fixture(scope="module")
def shown(run, numbers):
    return report.context(run, numbers)


@pytest.fixture(scope="module")
def drawn(shown):
    return {name: figure.axes[0] for name, figure in paper.drawings(shown).items()}


def test_the_curves_go_through_their_values(drawn, numbers):
    lines = {line.get_label(): line for line in drawn["loss"].lines}
    assert lines["training"].get_xdata().tolist() == numbers["curves"]["step"]
    assert lines["training"].get_ydata().tolist() == numbers["curves"]["loss"]
    assert lines["validation"].get_xdata().tolist() == numbers["validation_curve"]["step"]
    assert lines["validation"].get_ydata() == pytest.approx(numbers["validation_curve"]["loss"], rel=1e-5)
    assert lines["validation"].get_linestyle() == "--" and drawn["loss"].get_yscale() == "log"
    assert drawn["loss"].get_ylabel() == "Loss, cross-entropy"


def test_the_dots_and_bars_lie_at_the_accuracies_and_their_intervals(drawn, numbers):
    axes = drawn["accuracy"]
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names[-1] == "Trained network" and len(names) == 1 + len(numbers["controls"])
    dots = {line.get_ydata()[0]: line.get_xdata()[0] for line in axes.lines if line.get_marker() == "o"}
    bars = {line.get_ydata()[0]: line.get_xdata() for line in axes.lines if line.get_marker() == "None"}
    expected = [(100 * one["accuracy"], one["interval"]) for one in reversed(numbers["controls"])]
    expected.append((100 * numbers["test_accuracy"], numbers["accuracy_interval"]))
    for at, (value, interval) in enumerate(expected):
        assert dots[at] == pytest.approx(value) and bars[at] == pytest.approx([100 * end for end in interval])


def test_the_cells_have_the_shares_and_the_numbers_of_the_confusion_matrix(drawn, numbers):
    axes, matrix = drawn["confusion"], np.array(numbers["confusion"])
    assert np.allclose(axes.images[0].get_array(), matrix / matrix.sum(axis=1, keepdims=True))
    cells = {tuple(text.get_position()): text.get_text() for text in axes.texts}
    assert cells == {(named, true): str(count) for (true, named), count in np.ndenumerate(matrix)}


def test_a_run_without_a_classifier_has_its_loss_alone(tmp_path):
    run = synthetic_run.make(tmp_path, controls=())
    alone = {role: one for role, one in run.items() if role in ("data", "normalized", "initial", "train")}
    assert list(paper.titles(report.context(alone, report.summary(alone, "r0")))) == ["loss.pdf"]


def test_files_are_the_same_bytes_in_another_process_and_have_no_date(shown):
    made = paper.files(shown)
    assert list(made) == list(paper.titles(shown)) == ["loss.pdf", "accuracy.pdf", "confusion.pdf"]
    assert all(content.startswith(b"%PDF") and b"CreationDate" not in content for content in made.values())
    curve = {"loss_curve": {"data": shown["training"]["loss_curve"]["data"]}}
    told = {"training": curve, "verdict": None, "run": {"confusion": None}}
    code = (f"import sys; sys.path.insert(0, {str(templates.sources.ROOT / 'workflow/scripts')!r})\n"
            f"from ladder.pages import paper\nsys.stdout.buffer.write(paper.files({told!r})['loss.pdf'])")
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == made["loss.pdf"]


def test_the_page_links_to_the_figures_that_were_made(run, numbers, shown):
    page = report.page(run, numbers, paper.titles(shown))
    links = re.findall(r'<a href="\.\./\.\./report/r0123456789e/(\w+\.pdf)">', page)
    assert links == ["loss.pdf", "accuracy.pdf", "confusion.pdf"]
    assert ".pdf" not in report.page(run, numbers)


def test_colours_are_those_of_the_pages():
    style = (templates.TEMPLATES / "style.css").read_text()
    assert all(colour in style for colour in paper.COLOURS.values())


def test_without_matplotlib_one_line_says_what_to_install(shown, monkeypatch):
    monkeypatch.setattr(paper.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"^figures need Matplotlib, .* `envs/install figures`"):
        paper.files(shown)
