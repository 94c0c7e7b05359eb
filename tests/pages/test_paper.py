"""Figures for papers: their marks lie at their values, and their files are the same bytes each
time.
"""

import re
import subprocess
import sys

import numpy as np
import pytest

import make_report
import manifest_files
import synthetic_results
import synthetic_run
from ladder.errors import UserError
from ladder.pages import compare, paper, parity, report, run_table, templates
from ladder.pages.sections import labels
from ladder.store import artifacts

matplotlib = pytest.importorskip(
    "matplotlib", reason="Matplotlib is not installed (envs/figures.txt)"
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return synthetic_run.make(
        tmp_path_factory.mktemp("lenet"), "mnist", network="lenet_5", epochs=3, validation=180
    )


@pytest.fixture(scope="module")
def numbers(run):
    return report.summary(run, "r0123456789e")


@pytest.fixture(scope="module")
def shown(run, numbers):
    return report.context(run, numbers)


@pytest.fixture(scope="module")
def drawn(shown):
    return {name: figure.axes[0] for name, figure in paper.drawings("report", shown).items()}


def test_the_curves_go_through_their_values(drawn, numbers):
    lines = {line.get_label(): line for line in drawn["loss"].lines}
    assert lines["training"].get_xdata().tolist() == numbers["curves"]["step"]
    assert lines["training"].get_ydata().tolist() == numbers["curves"]["loss"]
    assert lines["validation"].get_xdata().tolist() == numbers["validation_curve"]["step"]
    assert lines["validation"].get_ydata() == pytest.approx(
        numbers["validation_curve"]["loss"], rel=1e-5
    )
    assert lines["validation"].get_linestyle() == "--" and drawn["loss"].get_yscale() == "log"
    assert drawn["loss"].get_ylabel() == "Loss, cross-entropy"


def test_the_dots_and_bars_lie_at_the_accuracies_and_their_intervals(drawn, numbers):
    axes = drawn["accuracy"]
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names[-1] == "Trained network" and len(names) == 1 + len(numbers["controls"])
    dots = {
        line.get_ydata()[0]: line.get_xdata()[0] for line in axes.lines if line.get_marker() == "o"
    }
    bars = {
        line.get_ydata()[0]: line.get_xdata() for line in axes.lines if line.get_marker() == "None"
    }
    expected = [(100 * one["accuracy"], one["interval"]) for one in reversed(numbers["controls"])]
    expected.append((100 * numbers["test_accuracy"], numbers["accuracy_interval"]))
    for at, (value, interval) in enumerate(expected):
        assert dots[at] == pytest.approx(value) and bars[at] == pytest.approx(
            [100 * end for end in interval]
        )


def test_the_cells_have_the_shares_and_the_numbers_of_the_confusion_matrix(drawn, numbers):
    axes, matrix = drawn["confusion"], np.array(numbers["confusion"])
    assert np.allclose(axes.images[0].get_array(), matrix / matrix.sum(axis=1, keepdims=True))
    cells = {tuple(text.get_position()): text.get_text() for text in axes.texts}
    assert cells == {(named, true): str(count) for (true, named), count in np.ndenumerate(matrix)}


def test_a_run_without_a_classifier_has_its_loss_alone(tmp_path):
    run = synthetic_run.make(tmp_path, controls=())
    alone = {
        role: one for role, one in run.items() if role in ("data", "normalized", "initial", "train")
    }
    assert [
        name
        for name, *_ in paper.figures("report", report.context(alone, report.summary(alone, "r0")))
    ] == ["loss"]


def test_files_are_the_same_bytes_in_another_process_and_have_no_date(shown):
    made = {name: paper.pdf(figure) for name, figure in paper.drawings("report", shown).items()}
    assert list(made) == ["loss", "accuracy", "confusion"]
    assert all(
        content.startswith(b"%PDF") and b"CreationDate" not in content for content in made.values()
    )
    curve = {"loss_curve": {"data": shown["training"]["loss_curve"]["data"]}}
    told = {"training": curve, "verdict": None, "few_labels": None, "run": {"confusion": None}}
    code = (
        f"import sys; sys.path.insert(0, {str(templates.sources.ROOT / 'workflow/scripts')!r})\n"
        f"from ladder.pages import paper\nsys.stdout.buffer.write(paper.pdf(paper.drawings('report', {told!r})['loss']))"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
        == made["loss"]
    )


def test_the_page_links_to_the_figures_that_were_made(run, numbers, tmp_path):
    folder = tmp_path / "report/r0123456789e"
    with artifacts.making(folder, manifest_files.spec("report")) as work:
        make_report.make(work, run, {"variant": "cpu", "seed": 1, "figures": True})
    links = re.findall(
        r'<a href="\.\./\.\./report/r0123456789e/(\w+\.pdf)">', (folder / "report.html").read_text()
    )
    assert links == ["loss.pdf", "accuracy.pdf", "confusion.pdf"] and all(
        (folder / name).stat().st_size for name in links
    )
    assert ".pdf" not in report.page(run, numbers)


def test_the_curves_of_few_labels_have_their_means_over_a_logarithmic_axis():
    measured = {
        "counts": [10, 100],
        "draws": 5,
        "all": {"labels": 1000, "accuracy": {"run": 0.9, "pixels": 0.8}},
        "curves": {
            name: {"mean": mean, "interval": [None, None], "each": [[value] * 5 for value in mean]}
            for name, mean in (("run", [0.5, 0.8]), ("pixels", [0.4, 0.7]))
        },
    }
    page = {
        "training": None,
        "verdict": None,
        "run": {"confusion": None},
        "data": {"classes": []},
        "few_labels": labels.section({}, {"few_labels": measured}),
    }
    (axes,) = paper.drawings("report", page)["few_labels"].axes
    assert [line.get_ydata().tolist() for line in axes.lines] == [
        pytest.approx([50, 80, 90]),
        pytest.approx([40, 70, 80]),
    ]
    assert axes.get_xscale() == "log" and axes.lines[0].get_xdata().tolist() == [10, 100, 1000]
    assert axes.get_ylabel() == "accuracy, %"


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """The variables of a comparison of two runs, the second not available here beside them."""
    results = tmp_path_factory.mktemp("results")
    made = [
        synthetic_results.add(results, epochs=2),
        synthetic_results.add(results, epochs=2, learning_rate=0.01, noise=0.1),
    ]
    inputs = {
        f"{role}{number}": run[role]
        for number, run in enumerate(made)
        for role in ("report", "train")
    }
    entries = [
        {"overrides": {}, "reason": ""},
        {"overrides": {"learning_rate": 0.01}, "reason": ""},
    ]
    return compare.context(run_table.read(inputs, entries))


def test_a_comparison_has_its_accuracies_with_intervals_and_a_curve_of_each_run(compared):
    figures = paper.drawings("compare", compared)
    bars = [
        line.get_xdata()
        for line in figures["accuracy"].axes[0].lines
        if line.get_marker() == "None"
    ]
    expected = [row["interval"] for row in reversed(compared["accuracies"]["rows"])]
    assert bars == [pytest.approx([100 * end for end in interval]) for interval in expected]
    lines = figures["curves1"].axes[0].lines
    assert [line.get_ydata().tolist() for line in lines] == [
        line["y"] for line in compared["charts"][0]["data"]["series"]
    ]


def test_the_figures_of_multipliers_have_an_arm_each():
    rows = [
        {"key": key, "name": name, "value": value, "interval": [value - 0.01, value + 0.01]}
        for key, name, value in (("own", "exact", 0.98), ("", "am32", 0.95))
    ]
    (figure,) = paper.drawings("multipliers", {"first": {"rows": rows}, "groups": []}).values()
    assert [
        line.get_xdata()[0] for line in figure.axes[0].lines if line.get_marker() == "o"
    ] == pytest.approx([95, 98])


def test_a_bar_of_the_ladder_ends_at_its_time_or_in_the_middle_of_its_interval():
    summary = {"rungs": [], "unavailable": {}, "network": "", "batch": 0}
    page = parity.context(
        summary,
        "",
        [
            {
                "name": name,
                "below": None,
                "floor": 1.0,
                "predicted": ends,
                "bound": "issue",
                "launches": [["a forward", "a.cu a", 8, 8, sum(ends) / 2, "issue"]],
            }
            for name, ends in (("cpu", [81_000.0, 83_000.0]), ("gpu", [90.0, 91.0]))
        ],
    )
    (axes,) = paper.drawings("parity", page)["predicted"].axes
    assert [bar.get_width() for bar in axes.patches] == [0.0905, 82]
    (intervals,) = axes.collections
    assert [line[:, 0].tolist() for line in intervals.get_segments()] == [
        pytest.approx([0.09, 0.091]),
        pytest.approx([81, 83]),
    ]
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        "gpu",
        "cpu",
    ] and axes.get_xscale() == "log"


def test_colours_are_those_of_the_pages():
    style = (templates.TEMPLATES / "style.css").read_text()
    assert all(colour in style for colour in paper.COLOURS.values())


def test_without_matplotlib_one_line_says_what_to_install(shown, monkeypatch):
    monkeypatch.setattr(paper.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"^figures need Matplotlib, .* `envs/install figures`"):
        paper.drawings("report", shown)
