"""The page of predictions and the demo in a real browser: pictures are dropped, chosen, pasted and
drawn.
"""

import base64
import io
import threading
import time

import numpy as np
import pytest
from PIL import Image

import answering_run
import needs
from browser import (
    TOO_WIDE,
    EveryPage,
    check_contents,
    check_self_contained,
    check_width,
    run_axe,
)
from ladder.demo import local
from ladder.demo.predictor import Predictor
from ladder.pages import predictions
from ladder.pages.predictions import Skipped
from tools import make_predictions

pytestmark = needs.BROWSER

LONG = "a very long name of a picture " * 4 + "x" * 90 + ".png"
PATIENCE = 60


@pytest.fixture(scope="module")
def predictors(tmp_path_factory):
    return {
        network: Predictor(
            answering_run.make(tmp_path_factory.mktemp("results"), network), threads=1
        )
        for network in ("autoencoder", "lenet_5")
    }


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A wide stroke, a high one, and a file that is not a picture."""
    folder = tmp_path_factory.mktemp("my pictures")
    for name, size, box in (
        ("wide – 七.png", (600, 200), (50, 90, 500, 120)),
        ("high.png", (200, 300), (90, 20, 120, 280)),
    ):
        image = Image.new("RGB", size, "white")
        image.paste((0, 0, 120), box)
        image.save(folder / name)
    (folder / "no picture.png").write_bytes(b"hello")
    return [folder / name for name in ("wide – 七.png", "high.png", "no picture.png")]


# The page.


@pytest.fixture(scope="module")
def pages(predictors, files, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    for name, predictor in predictors.items():
        taken, skipped = make_predictions.take(files, predictor.inputs["data"])
        found = predictions.answers(predictor, taken)
        (folder / f"{name}.html").write_text(
            predictions.page(
                predictor, found, [*skipped, Skipped(LONG, "the file is empty")], ["notes.txt"]
            )
        )
    return lambda name: folder / f"{name}.html"


@pytest.fixture(params=["autoencoder", "lenet_5"])
def page(request, pages):
    return pages(request.param)


def test_the_page_asks_for_nothing_and_runs_nothing(chromium, page):
    check_self_contained(chromium, page)


@pytest.mark.parametrize("width", [360, 390, 768, 1280])
def test_the_page_never_scrolls_sideways(chromium, page, width):
    check_width(chromium, page, width)


def test_every_picture_of_the_page_is_drawn_and_none_is_stretched(chromium, page):
    chromium.open(page, 390)
    assert (
        chromium.value(
            "[...document.images].filter(image => !image.naturalWidth || image.clientWidth < 20).length"
        )
        == 0
    )
    assert set(
        chromium.value(
            "[...document.querySelectorAll('.given')].map(image => getComputedStyle(image).objectFit)"
        )
    ) == {"contain"}


def test_the_pages_contents_lead_to_their_sections(chromium, page):
    assert check_contents(chromium, page) == 4


# The demo.


@pytest.fixture(scope="module")
def addresses(predictors):
    server = pytest.importorskip(
        "ladder.demo.server", reason="Flask is not installed (envs/demo.txt)"
    )
    with local.listen(0) as one, local.listen(0) as other:
        found, sites = {}, []
        for listening, (name, predictor) in zip((one, other), predictors.items(), strict=True):
            sites.append(server.create_server(server.create_app(predictor), listening))
            threading.Thread(target=sites[-1].run, daemon=True).start()
            found[name] = "http://{}:{}/".format(*listening.getsockname())
        yield found
        for site in sites:
            site.close()


@pytest.fixture(params=["autoencoder", "lenet_5"])
def address(request, addresses):
    return addresses[request.param]


def wait_for(chromium, expression):
    """The first true value of the expression."""
    deadline = time.monotonic() + PATIENCE
    while not (value := chromium.value(expression)):
        assert time.monotonic() < deadline, (
            f"{expression}; the page: {chromium.value('document.body.innerText')}"
        )
        time.sleep(0.05)
    return value


def names(chromium, count):
    """Names of the predictions, from the top, as soon as there are `count`."""
    return wait_for(
        chromium,
        f"""(() => {{
      const found = [...document.querySelectorAll(".answer .file")].map(name => name.textContent);
      return found.length === {count} && !document.querySelector(".waiting") && found;
    }})()""",
    )


@pytest.mark.parametrize("width", [390, 1280])
def test_dropped_pictures_are_answered_the_newest_first(chromium, address, files, width):
    chromium.open(address, width)
    x, y = (
        chromium.value("""(() => { const box = document.querySelector("#drop").getBoundingClientRect();
      return [box.x + box.width / 2, box.y + box.height / 2]; })()""")
    )
    data = {"items": [], "files": [str(path) for path in files[:2]], "dragOperationsMask": 1}
    for kind in ("dragEnter", "dragOver"):
        chromium.call("Input.dispatchDragEvent", type=kind, x=x, y=y, data=data)
    assert chromium.value("document.querySelector('#drop').matches('.over')")
    chromium.call("Input.dispatchDragEvent", type="drop", x=x, y=y, data=data)
    assert names(chromium, 2) == ["high.png", "wide – 七.png"]
    assert not chromium.value("document.querySelector('#drop').matches('.over')")
    assert chromium.value("document.querySelector('#none').hidden")
    assert chromium.value(
        "[...document.images].every(image => image.naturalWidth && image.clientWidth)"
    )
    assert (
        chromium.value("document.documentElement.scrollWidth") == width
        and chromium.value(TOO_WIDE) == []
    )
    assert not [
        event
        for event in chromium.events
        if event["method"] in ("Log.entryAdded", "Runtime.exceptionThrown")
    ]


def test_a_chosen_picture_is_answered_and_one_that_cannot_be_read_says_why(
    chromium, address, files
):
    chromium.open(address)
    root = chromium.call("DOM.getDocument")["root"]["nodeId"]
    node = chromium.call("DOM.querySelector", nodeId=root, selector="#files")["nodeId"]
    chromium.call("DOM.setFileInputFiles", nodeId=node, files=[str(path) for path in files[1:]])
    assert names(chromium, 1) == ["high.png"]
    assert wait_for(chromium, "document.querySelector('.problem')?.textContent").startswith(
        "no picture.png: not a picture"
    )


def test_a_pasted_picture_is_answered(chromium, address, files):
    chromium.open(address)
    data = base64.b64encode(files[1].read_bytes()).decode()
    chromium.value(f"""(() => {{
      const bytes = Uint8Array.from(atob("{data}"), letter => letter.charCodeAt(0)), clipboard = new DataTransfer();
      clipboard.items.add(new File([bytes], "image.png", {{type: "image/png"}}));
      document.dispatchEvent(new ClipboardEvent("paste", {{clipboardData: clipboard}}));
    }})()""")
    assert names(chromium, 1) == ["image.png"]


def stroke(chromium, points):
    """Draw on the canvas; points are in shares of its size."""
    left, top, size = chromium.value("""(() => { const canvas = document.querySelector("#canvas");
      canvas.scrollIntoView({block: "center", behavior: "instant"});
      const box = canvas.getBoundingClientRect();
      return [box.x, box.y, box.width]; })()""")
    places = [(left + x * size, top + y * size) for x, y in points]
    for at, (x, y) in enumerate(places):
        chromium.call(
            "Input.dispatchMouseEvent",
            type="mouseMoved" if at else "mousePressed",
            x=x,
            y=y,
            button="left",
            buttons=1,
            clickCount=1,
        )
    chromium.call(
        "Input.dispatchMouseEvent",
        type="mouseReleased",
        x=places[-1][0],
        y=places[-1][1],
        button="left",
    )


@pytest.mark.parametrize("width", [390, 1280])
def test_a_digit_is_drawn_stroke_by_stroke_and_its_answer_kept_up_to_date(chromium, address, width):
    chromium.open(address, width)
    stroke(chromium, [(0.3, 0.2), (0.3, 0.8)])
    assert names(chromium, 1) == ["your drawing"]
    first = chromium.value("document.querySelector('.given').src")
    stroke(chromium, [(0.3, 0.8), (0.7, 0.8)])
    wait_for(chromium, f"document.querySelector('.given').src !== '{first}'")
    assert names(chromium, 1) == ["your drawing"]

    chromium.value("document.querySelector('#clear').click()")
    assert chromium.value("""document.querySelector("#canvas").getContext("2d").getImageData(0, 0, 280, 280).data
      .every(value => value === 255)""")
    stroke(chromium, [(0.2, 0.2), (0.7, 0.2)])
    assert names(chromium, 2) == ["your drawing"] * 2  # another drawing gets another prediction


def test_a_drawing_is_read_as_it_was_drawn(chromium, addresses):
    chromium.open(addresses["lenet_5"])
    stroke(chromium, [(0.5, 0.2), (0.5, 0.8)])
    names(chromium, 1)
    data = chromium.value("document.querySelector('.seen figure:nth-child(2) img').src").partition(
        ","
    )[2]
    seen = np.asarray(Image.open(io.BytesIO(base64.b64decode(data))))
    rows, columns = (np.flatnonzero((seen > 60).any(axis=axis)) for axis in (1, 0))
    assert (
        seen.shape == (28, 28)
        and np.ptp(rows) + 1 == 20
        and np.ptp(columns) + 1 <= 4
        and abs(columns.mean() - 13.5) <= 1
    )


def test_when_the_demo_has_ended_the_page_says_so(chromium, addresses, files):
    chromium.open(addresses["autoencoder"])
    chromium.call(
        "Network.emulateNetworkConditions",
        offline=True,
        latency=0,
        downloadThroughput=-1,
        uploadThroughput=-1,
    )
    try:
        root = chromium.call("DOM.getDocument")["root"]["nodeId"]
        node = chromium.call("DOM.querySelector", nodeId=root, selector="#files")["nodeId"]
        chromium.call("DOM.setFileInputFiles", nodeId=node, files=[str(files[1])])
        assert "is it still running?" in wait_for(
            chromium, "document.querySelector('.problem')?.textContent"
        )
    finally:
        chromium.call(
            "Network.emulateNetworkConditions",
            offline=False,
            latency=0,
            downloadThroughput=-1,
            uploadThroughput=-1,
        )


@pytest.mark.parametrize("width", [360, 390, 768, 1280])
def test_the_demo_never_scrolls_sideways(chromium, address, width):
    chromium.open(address, width)
    assert (
        chromium.value("document.documentElement.scrollWidth") == width
        and chromium.value(TOO_WIDE) == []
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_axe_finds_nothing_in_the_demo(chromium, address, width, scheme):
    chromium.open(address, width, scheme=scheme)
    stroke(chromium, [(0.3, 0.2), (0.3, 0.8)])
    names(chromium, 1)
    chromium.value("say(place(), 'something to read', 'problem')")
    run_axe(chromium)


class TestEveryPage(EveryPage):
    pass
