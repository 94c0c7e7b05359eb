"""The page of runs in a real browser: its numbers are those of the program, and every question
about many runs is answered.
"""

import json
import shlex
import time

import numpy as np
import pytest
import yaml

import browser
import manifest_files
import needs
import synthetic_results
from browser import SMALL_TARGETS, EveryPage, check_width, on_paper
from ladder.classifiers import decisions
from ladder.network import networks, weights
from ladder.pages import intervals, spread, templates
from ladder.pages.runs import answers, discovery
from ladder.pages.runs import page as runs_page
from ladder.workflow import config, plans
from tools import make_runs

pytestmark = needs.BROWSER
RATES = (1e-4, 1e-3, 1e-2, 1e-1)
COUNT = 120
SAID = """[...document.querySelectorAll('#panel p')].map(one => one.textContent)
  .find(text => /^One class|decisions/.test(text) && !/^Mean|Loading/.test(text)) ?? ''"""
TEXTS = """[...document.querySelectorAll('#runs tbody tr')].map(row => [...row.cells].map(cell =>
  cell.textContent.replace('Copy command', '').replace(/\\s+/g, ' ').trim()))"""
VERSIONS = "[...document.querySelectorAll('#runs tbody a[title]')].map(link => link.title)"
MULTIPLIERS = ("exact", "acc16", "am32")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """A search of 120 runs of four learning rates, better by and by."""
    results = tmp_path_factory.mktemp("results")
    run = synthetic_results.add(
        results, dataset="mnist", network="lenet_5", epochs=2, made="2026-01-01T00:00:00Z"
    )
    for number in range(1, COUNT):
        synthetic_results.vary(
            results,
            run,
            f"2026-{1 + number // 28:02}-{1 + number % 28:02}T00:00:00Z",
            0.6 + 0.1 * (number % 4) + 0.0005 * (number * 7 % COUNT),
            learning_rate=RATES[number % 4],
            seed=number // 4,
        )
    runs_page.write(discovery.runs(results), results, make_runs.defaults(), make_runs.entry, 0)
    return results


@pytest.fixture(scope="module")
def page(results):
    return results / "runs.html"


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    """(results, {name: artifacts}) of runs with their files: networks, multipliers and seeds."""
    results = tmp_path_factory.mktemp("few")
    made = {}
    for network, accuracy in (("lenet_300_100", 0.9), ("lenet_5", 0.95)):
        for number, multiplier in enumerate(MULTIPLIERS):
            for seed in (1, 2, 3):
                made[network, multiplier, seed] = synthetic_results.add(
                    results, dataset="mnist", network=network, epochs=2, test=200, seed=seed,
                    accuracy=accuracy - 0.04 * number + 0.01 * seed * (number + 1),
                    multiplier=multiplier, noise=0.05 * seed if network == "lenet_5" else None,
                    made=f"2026-02-{len(made) + 1:02}T00:00:00Z",
                )  # fmt: skip
    for machine in (1, 2):
        made["svm", machine] = synthetic_results.add(
            results,
            epochs=2,
            learning_rate=0.01 * machine,
            noise=0.1 * machine,
            name=f"svm {machine}",
        )
    runs_page.write(discovery.runs(results), results, make_runs.defaults(), make_runs.entry)
    return results, made


def opened(chromium, path, state=""):
    chromium.open(path)
    if state:
        chromium.value(f"location.hash = {json.dumps(state)}")
    chromium.value(
        "new Promise(done => setTimeout(done, 50))"
    )  # the chart is drawn after the table
    return chromium


def panel_of(chromium, few, *names):
    """The text below the table when these runs are chosen, as soon as their files are loaded."""
    results, made = few
    state = "&".join(f"chosen={made[name]['report'].version}" for name in names)
    opened(chromium, results / "runs.html", state)
    deadline = time.monotonic() + browser.PATIENCE
    while (
        "Loading" in (text := chromium.value("document.getElementById('panel').innerText"))
        or not text
    ):
        assert time.monotonic() < deadline, text
        time.sleep(0.05)
    chromium.value(
        "document.querySelectorAll('#panel details').forEach(part => { part.open = true; })"
    )
    return chromium.value("document.getElementById('panel').innerText").replace("\u202f", " ")


# Its arithmetic is the program's.


def test_intervals_and_decimals_are_those_of_the_program(chromium, page):
    chromium.open(page)
    random = np.random.default_rng(1)
    cases = [
        (0, 9),
        (1, 9),
        *((float(random.random()), int(random.integers(2, 5000))) for _ in range(60)),
    ]
    found = chromium.value(f"{json.dumps(cases)}.map(one => statistics.wilson(...one))")
    assert np.allclose(found, [intervals.wilson(*case) for case in cases], rtol=0, atol=1e-12)
    digits = chromium.value(f"{json.dumps(found)}.map(one => statistics.decimals(one))")
    assert digits == [intervals.decimals(ends) for ends in found]
    counts = [(0, 0, 5), *(tuple(map(int, random.integers(0, 40, 2))) + (100,) for _ in range(60))]
    found = chromium.value(f"{json.dumps(counts)}.map(one => statistics.paired(...one).ends)")
    assert np.allclose(found, [intervals.paired(*case).interval for case in counts], atol=1e-12)
    pairs = [(*first, *second) for first, second in zip(cases, cases[::-1], strict=True)]
    found = chromium.value(f"{json.dumps(pairs)}.map(one => statistics.unpaired(...one).ends)")
    assert np.allclose(found, [intervals.unpaired(*case).interval for case in pairs], atol=1e-12)
    samples = [random.random(n).tolist() for n in (2, 3, 10)]
    found = chromium.value(
        f"{json.dumps(samples)}.map(one => statistics.spread(one, runsPage.data.t, 0, 1).ends)"
    )
    expected = [spread.spread(values, spread.SHARES).interval for values in samples]
    assert np.allclose(found, expected, atol=1e-6)
    equal = "statistics.spread(Array(9).fill(-0.03), runsPage.data.t).ends"  # their mean is rounded
    assert chromium.value(equal) is None


def test_a_mean_decides_as_the_program_does_by_pairs_and_by_scores(chromium, page):
    chromium.open(page)
    values = np.random.default_rng(2).standard_normal((2, 50, 6)).astype(np.float32)
    values[:, :3] = 0  # equal votes go to the lowest class
    for pairs, classes in ((True, 4), (False, 6)):
        arrays = ",".join(
            f"Float32Array.from({json.dumps(one.ravel().tolist())})" for one in values
        )
        found = chromium.value(
            f"statistics.named(statistics.average([{arrays}]), 50, {classes}, {str(pairs).lower()})"
        )
        expected = decisions.named(
            decisions.mean(list(values.astype(np.float64))), np.arange(classes), pairs
        )
        assert found == expected.tolist()


def test_what_explains_a_number_has_a_large_share_and_what_does_not_none(chromium, page):
    chromium.open(page)
    random = np.random.default_rng(3)
    kind, size, noise = random.integers(0, 3, 300), random.random(300), random.random(300)
    numbers = kind + 0.1 * random.standard_normal(300)
    explained = [
        chromium.value(
            f"statistics.explained({json.dumps(values)}, {json.dumps(numbers.tolist())})"
        )
        for values in ([f"k{one}" for one in kind], (size + kind).tolist(), noise.tolist())
    ]
    between = sum(
        np.sum(kind == one) * (numbers[kind == one].mean() - numbers.mean()) ** 2
        for one in range(3)
    )
    total = np.sum((numbers - numbers.mean()) ** 2)
    assert explained[0] == pytest.approx(1 - (total - between) / (300 - 3) / (total / 299))
    assert 0.5 < explained[1] < explained[0] and explained[2] < 0.02
    assert chromium.value("statistics.explained(['a', 'b'], [1, 2])") is None


# The table.


def test_a_cell_has_what_the_program_writes_and_a_link_to_the_report(chromium, page, results):
    run = discovery.runs(results)[0]
    first = opened(chromium, page).value(TEXTS)[0]
    shown = intervals.within(run.numbers["test_accuracy"], run.ends["test_accuracy"])
    assert first[0] == run.version
    assert first[1] == f"{shown['text']} {shown['interval_text']}".replace("\u202f", " ")
    assert templates.duration(run.numbers["seconds"]).replace("\u202f", " ") in first
    link = chromium.value("document.querySelector('#runs tbody a[title]').href")
    assert link == (results / f"report/{run.version}/report.html").resolve().as_uri()


@pytest.mark.parametrize(
    "words, fits",
    [
        ("learning_rate=0.01", lambda run: run.settings["learning_rate"] == 0.01),
        ("test_accuracy>0.85 seed<5", lambda run: run.numbers["test_accuracy"] > 0.85 and run.settings["seed"] < 5),
        ("-learning_rate=0.01 lenet", lambda run: run.settings["learning_rate"] != 0.01),
        ("nothing-of-the-kind", lambda run: False),
    ],
)  # fmt: skip
def test_the_filter_takes_words_settings_and_numbers(chromium, page, results, words, fits):
    opened(chromium, page, f"q={words}")
    wanted = [run.version for run in discovery.runs(results) if fits(run)]
    chromium.value("document.getElementById('all').click()")
    assert chromium.value(VERSIONS) == wanted
    counted = chromium.value("document.getElementById('filtered').textContent")
    assert counted == f"{len(wanted)} of {COUNT} runs"
    assert chromium.value("document.getElementById('none').hidden") == bool(wanted)


def test_it_sorts_turns_pages_and_keeps_its_state_in_the_address(chromium, page, results):
    opened(chromium, page)
    chromium.value("document.querySelector('#runs th:nth-child(2) button').click()")
    ranked = sorted((run.numbers["test_accuracy"] for run in discovery.runs(results)), reverse=True)
    scores = {run.version: run.numbers["test_accuracy"] for run in discovery.runs(results)}
    assert [scores[version] for version in chromium.value(VERSIONS)] == ranked[:50]
    chromium.value("document.getElementById('on').click()")
    assert [scores[version] for version in chromium.value(VERSIONS)] == ranked[50:100]
    address = chromium.value("location.hash")
    assert address == "#sort=-test_accuracy"
    opened(chromium, page, address.lstrip("#") + "&group=learning_rate&columns=test_accuracy")
    rows = chromium.value(TEXTS)
    assert [row[:2] for row in rows] == [
        ["0.1", "30"],
        ["0.01", "30"],
        ["0.001", "31"],
        ["0.0001", "29"],
    ]


def test_five_thousand_rows_are_sorted_in_a_fifth_of_a_second(chromium, results, tmp_path):
    runs = discovery.runs(results)
    many = [
        discovery.Run(
            {**run.about, "state": "trained", "run": f"r{number:011x}"}, run.settings,
            {key: value * (1 + number / 1e6) for key, value in run.numbers.items()}, run.ends,
        )
        for number, run in ((number, runs[number % COUNT]) for number in range(5000))
    ]  # fmt: skip
    (tmp_path / "runs.html").write_text(runs_page.page(many, {}))
    opened(chromium, tmp_path / "runs.html")
    chromium.call("Performance.enable", timeDomain="threadTicks")

    def spent():
        metrics = chromium.call("Performance.getMetrics")["metrics"]
        return next(one["value"] for one in metrics if one["name"] == "TaskDuration")

    before = spent()
    for number in range(5):
        chromium.value(f"runsPage.change({{sort: ['seed', '-test_accuracy'][{number % 2}]}})")
    assert 0 < (spent() - before) / 5 < 0.2


def test_what_is_saved_is_what_is_seen_groups_in_the_order_of_their_keys(chromium, page, results):
    opened(chromium, page, "group=learning_rate&columns=test_accuracy")
    lines = [line.split(",") for line in chromium.value("runsPage.csv()").splitlines()]
    assert lines[0][:3] == ["learning_rate", "runs", "mean test accuracy"]
    for line, rate in zip(lines[1:], RATES, strict=True):
        values = [
            run.numbers["test_accuracy"]
            for run in discovery.runs(results)
            if run.settings["learning_rate"] == rate
        ]
        own = spread.spread(values, spread.SHARES)
        assert np.allclose(
            [float(line[0]), *map(float, line[-3:])], [rate, own.mean, *own.interval], atol=1e-6
        )


def test_networks_by_multipliers_are_a_table_of_means(chromium, few):
    opened(
        chromium,
        few[0] / "runs.html",
        "q=network=lenet_5&rows=network&across=multiplier",
    )
    assert chromium.value("document.getElementById('value').value") == "test_accuracy"
    heads = chromium.value(
        "[...document.querySelectorAll('#runs thead th')].map(head => head.textContent)"
    )
    assert heads == ["network \\ multiplier", "acc16", "am32", "exact"]
    (row,) = chromium.value(TEXTS)
    for multiplier, text in zip(heads[1:], row[1:], strict=True):
        own = spread.spread(
            [
                few[1]["lenet_5", multiplier, seed]["report"].json("summary.json")["test_accuracy"]
                for seed in (1, 2, 3)
            ],
            spread.SHARES,
        )
        shown = intervals.within(own.mean, own.interval)
        assert text == f"{shown['text']} {shown['interval_text']} n 3".replace("\u202f", " ")


def test_two_reports_of_a_run_count_once_and_a_search_shows_its_own_number(chromium, tmp_path):
    def row(number, train, key, score, **settings):
        about = {"run": f"r{number:011x}", "train": train, "state": "trained", "made": "2026"}
        about |= {"trial": number}
        tags = [] if key == "test_accuracy" else ["search"]
        settings = {"network": "lenet_5", "multiplier": "exact", "seed": number} | settings
        ends = {key: [score - 0.01, score + 0.01]}
        return discovery.Run(about | {"tags": tags}, settings, {key: score}, ends)

    runs = [
        row(1, "t1", "test_accuracy", 0.9),
        row(2, "t1", "test_accuracy", 0.9, seed=1, controls=["pixels"]),
        row(3, "t3", "test_accuracy", 0.8),
        row(4, "t4", "validation_accuracy", 0.7),
        row(5, "t5", "validation_accuracy", 0.6),
    ]
    (tmp_path / "runs.html").write_text(runs_page.page(runs, {}))
    opened(chromium, tmp_path / "runs.html", "q=-tag:search&group=network&columns=test_accuracy")
    (group,) = chromium.value(TEXTS)
    own = intervals.within(0.85, spread.spread([0.9, 0.8], spread.SHARES).interval)
    assert group[:2] == ["lenet_5", "2"] and group[2].startswith(own["text"].replace("\u202f", " "))
    opened(chromium, tmp_path / "runs.html", "rows=network&across=multiplier")
    (cell,) = [row[1] for row in chromium.value(TEXTS)]
    assert cell.endswith("n 2")
    opened(chromium, tmp_path / "runs.html", "q=tag:search&x=trial")
    assert chromium.value("runsPage.firstNumber()") == "validation_accuracy"
    assert chromium.value("document.getElementById('y').value") == "validation_accuracy"
    shown = "runsPage.scatter(runsPage.filtered()).series.map(one => [one.x, one.y])"
    assert chromium.value(shown) == [[[4], [0.7]], [[5], [0.6]]], "each seed has a colour"


def test_a_group_is_held_against_another_seed_by_seed(chromium, few):
    opened(
        chromium, few[0] / "runs.html", "q=network=lenet_5&group=multiplier&columns=test_accuracy"
    )
    chromium.value("""[...document.querySelectorAll('#runs tbody tr')].find(row => row.cells[0].textContent === 'exact')
      .querySelector('td:last-child button').click()""")
    rows = {row[0]: row[3] for row in chromium.value(TEXTS)}
    scores = {
        name: {
            seed: few[1]["lenet_5", name, seed]["report"].json("summary.json")["test_accuracy"]
            for seed in (1, 2, 3)
        }
        for name in MULTIPLIERS
    }
    assert rows["exact"] == "– reference"
    for name in MULTIPLIERS[1:]:
        own = spread.paired(scores[name], scores["exact"])
        ends = intervals.words(intervals.Difference(own.mean, own.interval, True))
        assert (
            rows[name] == f"{ends['points']} {ends['interval_text']}, 3 pairs, {ends['luck_text']}"
        )


def test_each_row_has_the_command_that_makes_it_and_several_one_that_lists_them(chromium, few):
    names = [("lenet_5", "exact", 1), ("svm", 1)]
    text = panel_of(chromium, few, *names)
    runs = {run.version: run for run in discovery.runs(few[0])}
    chosen = [runs[few[1][name]["report"].version] for name in names]
    listing = next(
        line for line in text.splitlines() if line.startswith(".venv/bin/snakemake runs")
    )
    assert yaml.safe_load(shlex.split(listing)[3].removeprefix("runs=")) == [
        make_runs.entry(run.written) for run in chosen
    ]
    command = chromium.value(
        f"runsPage.command(runsPage.runs.find(run => runsPage.version(run) === '{chosen[0].version}'))"
    )
    words = shlex.split(command)
    assert words[:3] == [".venv/bin/snakemake", "report", "--config"]
    given = {
        key: yaml.safe_load(value) for key, _, value in (word.partition("=") for word in words[3:])
    }
    assert given == make_runs.entry(chosen[0].written)


def test_a_list_of_runs_with_one_name_and_lists_of_their_own_is_one_that_plans(chromium, tmp_path):
    for seed in (1, 2):
        report = synthetic_results.add(tmp_path, epochs=2, seed=seed, name="same")["report"]
        spec, listed = report.manifest["spec"], [{"overrides": {"batch_size": 32}, "reason": ""}]
        params = spec["params"] | {"runs": listed}
        manifest_files.rewrite(report.folder, spec=spec | {"params": params})
    runs_page.write(discovery.runs(tmp_path), tmp_path, make_runs.defaults(), make_runs.entry)
    opened(chromium, tmp_path / "runs.html")
    words = shlex.split(chromium.value("runsPage.listing([0, 1])"))
    entries = yaml.safe_load(words[3].removeprefix("runs="))
    assert [one.entry.name for one in plans.load(config.base() | {"runs": entries}).listed] == [
        "same",
        "",
    ]


# The chart.


def test_trainings_alone_have_a_table_and_no_chart(chromium, tmp_path):
    about = {"run": "t0123456789a", "state": "trained", "made": "2026-01-01T00:00:00Z", "tags": []}
    runs = [discovery.Run(about | {"name": name}, {"seed": 1}) for name in "ab"]
    (tmp_path / "runs.html").write_text(runs_page.page(runs, {}))
    opened(chromium, tmp_path / "runs.html")
    assert chromium.value("document.querySelectorAll('#runs tbody tr').length") == 2
    assert chromium.value("document.getElementById('chart-of-runs').hidden")
    assert not [one for one in chromium.events if one["method"] == "Runtime.exceptionThrown"]


def test_a_rectangle_in_the_chart_selects_rows(chromium, page, results):
    opened(chromium, page, "x=learning_rate&y=test_accuracy")
    chromium.value("document.getElementById('drawn').scrollIntoView({behavior: 'instant'})")
    x, y, width, height = chromium.value(
        "(box => [box.x, box.y, box.width, box.height])(document.querySelector('#drawn .drawing').getBoundingClientRect())"
    )
    places = [(x + 0.6 * width, y + 30), (x + 0.99 * width, y + height - 45)]
    for kind, at in zip(("mousePressed", "mouseMoved", "mouseReleased"), (0, 1, 1), strict=True):
        left, top = places[at]
        chromium.call(
            "Input.dispatchMouseEvent",
            type=kind,
            x=left,
            y=top,
            button="left",
            buttons=1,
            clickCount=1,
        )
    rates = {run.version: run.settings["learning_rate"] for run in discovery.runs(results)}
    chromium.value("document.getElementById('all').click()")
    assert {rates[version] for version in chromium.value(VERSIONS)} == {1e-2, 1e-1}
    chromium.value("document.getElementById('unbrush').click()")
    assert chromium.value("document.getElementById('filtered').textContent") == f"{COUNT} runs"


def test_the_chart_has_the_intervals_and_says_what_its_number_depends_on(chromium, page, results):
    opened(chromium, page, "x=seed&y=test_accuracy")
    shown = chromium.value(
        "runsPage.scatter(runsPage.filtered()).series.map(one => [one.y, one.low, one.high])"
    )
    ends = sorted(
        [run.numbers["test_accuracy"], *run.ends["test_accuracy"]]
        for run in discovery.runs(results)
    )
    assert np.allclose(
        sorted(point for series in shown for point in zip(*series, strict=True)), ends, atol=2e-6
    )
    names = chromium.value(
        "runsPage.importance(runsPage.filtered(), runsPage.columns.get('test_accuracy')).map(one => one[0])"
    )
    assert names[0] == "learning_rate" and "learning_rate" in chromium.value(
        "document.getElementById('importance').innerText"
    )


def test_lines_go_through_means_with_their_intervals_and_a_point_chooses_its_runs(chromium, few):
    state = "q=dataset=mnist&x=seed&y=test_accuracy&colour=multiplier&lines=1"
    opened(chromium, few[0] / "runs.html", state)
    shown = chromium.value(
        "runsPage.scatter(runsPage.filtered()).series.map(one => [one.name, one.x, one.y, one.low, one.high])"
    )
    assert [name for name, *_ in shown] == sorted(MULTIPLIERS)
    for name, seeds, *points in shown:
        assert seeds == [1, 2, 3]
        for seed, found in zip(seeds, zip(*points, strict=True), strict=True):
            runs = [few[1][network, name, seed] for network in ("lenet_300_100", "lenet_5")]
            scores = [run["report"].json("summary.json")["test_accuracy"] for run in runs]
            own = spread.spread(scores, spread.SHARES)
            assert np.allclose(found, [own.mean, *own.interval], atol=2e-6)
    said = chromium.value("document.getElementById('varying').textContent")
    assert said == "Means over runs that differ in network."
    chosen = chromium.value("""(stage => {
      for (const key of ["ArrowRight", "Enter"]) stage.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true}));
      return runsPage.state.chosen;
    })(document.querySelector("#drawn .stage"))""")
    assert set(chosen) in [
        {few[1][network, name, 1]["report"].version for network in ("lenet_300_100", "lenet_5")}
        for name in MULTIPLIERS
    ]


# Chosen runs.


def test_two_runs_differ_first_in_a_stage_then_in_all_else(chromium, few):
    text = panel_of(chromium, few, ("svm", 1), ("svm", 2))
    assert "The first difference is in train: learning_rate 0.01 → 0.02." in text
    a, b = (few[1]["svm", machine] for machine in (1, 2))
    loaded = [one["svm"].array("predictions.npy") for one in (a, b)]
    labels = a["data"].array("test_labels.npy")
    difference = intervals.words(intervals.counted(labels, loaded[1], loaded[0]))
    assert difference["points"] in text and difference["interval_text"] in text
    assert f"{int((loaded[0] != loaded[1]).sum())} of {len(labels)}" in text
    assert a["train"].version in text and b["train"].version in text
    network = networks.from_params(a["train"].manifest["spec"]["params"])
    first, other = (weights.of_artifact(one["train"], network) for one in (a, b))
    shown = chromium.value(
        f"Promise.all({json.dumps([one['report'].version for one in (a, b)])}.map(name => runsPage.load(name)))"
        ".then(files => runsPage.distances(...files))"
    )
    for tensor in shown:
        exact = np.linalg.norm(other[tensor["name"]] - first[tensor["name"]]) / (
            np.linalg.norm(first[tensor["name"]]) or np.nan
        )
        if np.isfinite(exact) and tensor["distance"] is not None:
            assert tensor["distance"] == pytest.approx(
                exact, rel=0.1 if tensor["sketched"] else 1e-4
            )
    assert {tensor["name"] for tensor in shown} == first.keys()


def test_pictures_that_only_one_gets_right_are_shown(chromium, few):
    names = [("lenet_5", "exact", 1), ("lenet_5", "am32", 1)]
    text = panel_of(chromium, few, *names)
    runs = {run.version: run for run in discovery.runs(few[0])}
    found = [answers.answers(runs[few[1][name]["report"].version]) for name in names]
    right = [one.labels == one.predictions for one in found]
    titles = chromium.value(
        "[...document.querySelectorAll('.sprites i')].map(one => Number(one.title.match(/\\d+/)[0]))"
    )
    assert sorted(titles) == np.flatnonzero(right[0] != right[1]).tolist() and titles
    assert "Only A is right" in text


def test_curves_lie_over_each_other_by_step_epoch_and_time(chromium, few):
    panel_of(chromium, few, ("lenet_5", "exact", 1), ("lenet_5", "exact", 2))
    curves = few[1]["lenet_5", "exact", 1]["report"].json("summary.json")
    last = chromium.value("""Promise.all(runsPage.state.chosen.map(name => runsPage.load(name))).then(files =>
      [...document.querySelectorAll('#panel .chart')].length)""")
    assert last >= 2 and curves["curves"]["loss"]
    assert chromium.value("document.querySelectorAll('#panel .chart .curve').length") >= 4


def test_several_runs_decide_on_their_mean_or_say_why_they_have_none(chromium, few):
    def ensemble(*names):
        panel_of(chromium, few, *names)
        chromium.value(
            "[...document.querySelectorAll('#panel button')].find(one => one.textContent.startsWith('Mean of')).click()"
        )
        deadline = time.monotonic() + browser.PATIENCE
        while not (said := chromium.value(SAID)):
            assert time.monotonic() < deadline
        return said.replace("\u202f", " ")

    machines = [few[1]["svm", machine] for machine in (1, 2)]
    mean = decisions.mean(
        [one["svm"].array("decisions.npy").astype(np.float64) for one in machines]
    )
    named = decisions.named(mean, np.arange(10), True)
    labels = machines[0]["data"].array("test_labels.npy")
    reached = intervals.share(float(np.mean(named == labels)), len(labels))
    said = ensemble(("svm", 1), ("svm", 2))
    assert f"{reached['text']} ({reached['interval_text']})".replace("\u202f", " ") in said
    assert "of different kinds" in ensemble(("svm", 1), ("lenet_5", "exact", 1))
    assert "probabilities" in ensemble(("lenet_5", "exact", 1), ("lenet_5", "exact", 2))


def test_a_run_without_a_file_is_named_with_the_command_that_makes_it(chromium, page, results):
    version = discovery.runs(results)[0].version
    opened(chromium, page, f"chosen={version}")
    deadline = time.monotonic() + browser.PATIENCE
    while "results/runs/ has no file" not in chromium.value(
        "document.getElementById('panel').innerText"
    ):
        assert time.monotonic() < deadline


# All readers.


@pytest.mark.parametrize("width", [390, 1280])
def test_it_fits_its_window(chromium, few, width):
    check_width(chromium, few[0] / "runs.html", width)
    if width == 390:
        assert chromium.value(SMALL_TARGETS) == []


def test_on_paper_it_has_the_table_without_the_controls(chromium, page):
    opened(chromium, page)
    with on_paper(chromium):
        assert not chromium.value(
            "[...document.querySelectorAll('#controls button, .tick')].some(one => one.checkVisibility())"
        )


def test_an_address_that_is_no_state_is_no_error(chromium, page):
    opened(chromium, page, "\N{LATIN SMALL LETTER E WITH ACUTE}")
    assert not [one for one in chromium.events if one["method"] == "Runtime.exceptionThrown"]


def test_it_asks_for_files_of_runs_alone_and_logs_no_error(chromium, few):
    panel_of(chromium, few, ("svm", 1), ("svm", 2))
    base = few[0].resolve().as_uri()
    asked = [address for address in chromium.requested() if not address.startswith("data:")]
    assert all(address.startswith((f"{base}/runs/", f"{base}/runs.html")) for address in asked)
    assert not [
        event
        for event in chromium.events
        if event["method"] in ("Log.entryAdded", "Runtime.exceptionThrown")
    ]


class TestEveryPage(EveryPage):
    pass
