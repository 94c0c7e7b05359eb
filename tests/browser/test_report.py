"""The pages in a real browser: no requests, no horizontal scrolling, readable in light and dark,
with all parts unfolded.
"""

import pytest

import needs
import synthetic_run
from browser import (
    SCROLLING,
    SMALL_TARGETS,
    EveryPage,
    check_contents,
    check_keys_scroll,
    check_self_contained,
    check_width,
    on_paper,
    show,
)
from ladder.network import networks
from ladder.pages import network as network_page
from ladder.pages import report

pytestmark = needs.BROWSER


REPORTS = {
    "digits": {},
    "cifar10": {"dataset": "cifar10"},
    "lenet": {"dataset": "mnist", "network": "lenet_5", "features_layer": "fc2_relu"},
    "dense": {"dataset": "mnist", "network": "lenet_300_100", "epochs": 1},
    "resnet": {"dataset": "cifar10", "network": "resnet50", "steps": 5},
    "fitted": {"dataset": "cifar10", "epochs": 1, "fitted": True},
    "patch net": {"dataset": "cifar10", "network": "patch_net", "fitted": True},
    "all": {
        "dataset": "cifar10",
        "evaluations": ("linear", "ridge", "knn"),
        "seeds": (0, 2, 3, 4),
        "listed": 1,
        "parts": (0.5,),
        "mapped": 200,
        "options": {"features_two_polarity": 0.5, "features_flip": True, "features_pca": 64},
    },
}
LISTED = [
    {"overrides": {"features_layer": "enc1_pool", "features_standardize": True}, "reason": ""},
    {"overrides": {"variant": "gpu_basic"}, "reason": "variant gpu_basic needs an NVIDIA GPU"},
]
DRAWINGS = {
    "drawn lenet": ("lenet_5", (28, 28, 1)),
    "drawn patch net": ("patch_net", (32, 32, 3)),
    "drawn resnet": ("resnet50", (28, 28, 1)),
}


def report_of(folder, settings):
    run = synthetic_run.make(folder, **settings)
    return report.page(
        run,
        report.summary(run, "r0123456789e", {"runs": LISTED if settings.get("listed") else ()}),
    )


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Name -> path of the page, made on demand."""
    folder, made = tmp_path_factory.mktemp("pages"), {}

    def path(name):
        if name not in made:
            text = (
                report_of(folder / name, REPORTS[name])
                if name in REPORTS
                else network_page.page(networks.build(*DRAWINGS[name]), "cpu", 64, "adam")
            )
            made[name] = folder / f"{name}.html"
            made[name].write_text(text)
        return made[name]

    return path


@pytest.fixture(params=[*REPORTS, *DRAWINGS])
def page(request, pages):
    return pages(request.param)


@pytest.fixture(params=REPORTS)
def a_report(request, pages):
    return pages(request.param)


def test_it_asks_for_nothing_but_itself(chromium, page):
    check_self_contained(chromium, page)


@pytest.mark.parametrize("width", [360, 390, 768, 1280])
def test_it_never_scrolls_sideways(chromium, page, width):
    check_width(chromium, page, width)


def test_light_and_dark_differ(chromium, page):
    backgrounds = set()
    for scheme in ("light", "dark"):
        chromium.open(page, scheme=scheme)
        backgrounds.add(chromium.value("getComputedStyle(document.body).backgroundColor"))
    assert len(backgrounds) == 2


def test_every_picture_is_drawn(chromium, a_report):
    chromium.open(a_report)
    assert chromium.value("document.images.length") > 10
    assert (
        chromium.value(
            "[...document.images].filter(image => !image.naturalWidth || !image.clientWidth).length"
        )
        == 0
    )


def test_pictures_fill_their_places_on_a_phone(chromium, a_report):
    chromium.open(a_report, 360)
    for pictures, least in ((".rebuilt img", 60), (".gallery i", 40)):
        assert (
            min(
                chromium.value(
                    f"[...document.querySelectorAll('{pictures}')].filter(one => one.checkVisibility())"
                    ".map(image => image.clientWidth)"
                ),
                default=least,
            )
            >= least
        )


def test_the_contents_lead_to_their_sections(chromium, page):
    assert check_contents(chromium, page) > 1


def test_the_drawing_of_a_network_can_be_saved_with_a_row_for_each_layer(chromium, pages):
    chromium.open(pages("drawn lenet"))
    rows = chromium.value(
        "[...document.querySelectorAll('.graph [data-row]')].map(row => JSON.parse(row.dataset.row))"
    )
    heads = chromium.value("JSON.parse(document.querySelector('.graph').dataset.head)")
    assert heads == ["layer", "output", "parameters", "MACs", "memory", "kernel"] and {
        len(row) for row in rows
    } == {len(heads)}
    assert [row[0] for row in rows] == [
        "input",
        *(layer.name for layer in networks.build(*DRAWINGS["drawn lenet"]).layers),
    ]
    text = chromium.value("""new Promise(done => {
      URL.createObjectURL = blob => { blob.text().then(done); return "#"; };
      document.querySelector(".wide:has(.graph) + .saves button").click();
    })""")
    drawn = "document.querySelectorAll('.graph svg').length"
    assert text.count("<svg") == 1 + chromium.value(drawn) and "conv1" in text


def test_tables_that_scroll_do_so_by_the_keyboard(chromium, pages):
    show(chromium, pages("resnet"), 320)
    check_keys_scroll(chromium)


# For each row of a drawing: how far the middle of its node is from where the lines are drawn for
# it.
NODES_OFF = """
[...document.querySelectorAll(".graph")].flatMap(graph => {
  const svg = graph.querySelector("svg").getBoundingClientRect(), rows = [...graph.querySelectorAll("tbody tr")];
  return rows.map((row, number) => {
    const node = row.querySelector(".node").getBoundingClientRect();
    return Math.abs(node.y + node.height / 2 - svg.y - (number + 0.5) * svg.height / rows.length);
  });
})
"""


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("name", DRAWINGS)
def test_nodes_lie_on_their_lines(chromium, pages, name, width):
    show(chromium, pages(name), width)
    off = chromium.value(NODES_OFF)
    assert len(off) > 10 and max(off) < 1.5


def test_a_small_network_fits_one_screen(chromium, pages):
    chromium.open(pages("drawn lenet"), 1280, 900)
    assert chromium.value("document.querySelector('.graph').getBoundingClientRect().bottom") <= 900


def test_on_paper_a_dark_page_is_light_has_its_colours_and_every_part_open(chromium, pages):
    chromium.open(pages("resnet"), scheme="dark")
    with on_paper(chromium):
        of = "(name, property) => getComputedStyle(document.querySelector(name))[property]"
        assert chromium.value(f"({of})('body', 'backgroundColor')") == "rgb(255, 255, 255)"
        assert chromium.value(f"({of})('body', 'color')") == "rgb(30, 32, 36)"
        assert chromium.value(f"({of})('.bars .bar', 'printColorAdjust')") == "exact"
        assert chromium.value(f"({of})('.confusion td.right', 'printColorAdjust')") == "exact"
        closed = "[...document.querySelectorAll('details:not([open]) table')]"
        assert chromium.value(f"{closed}.length") > 0 and chromium.value(
            f"{closed}.every(one => one.checkVisibility())"
        )
        assert not chromium.value(
            "[...document.querySelectorAll('.contents, .controls')].some(one => one.checkVisibility())"
        )


@pytest.mark.parametrize("name", ["digits", "resnet", *DRAWINGS])
def test_on_a_phone_tables_fit_without_scrolling_and_fingers_find_what_they_press(
    chromium, pages, name
):
    show(chromium, pages(name), 390)
    assert chromium.value(f"{SCROLLING}.map(one => [one.ariaLabel, one.scrollWidth])") == []
    assert chromium.value(SMALL_TARGETS) == []


class TestEveryPage(EveryPage):
    pass
