"""What every page has, in a real browser: links of headings, buttons that copy, pictures at their
largest.
"""

import json

import numpy as np
import pytest

import needs
from ladder.pages import figures, templates

pytestmark = needs.BROWSER

# The text that is copied, and what it is without the way to copy it.
PRESS = """(async index => {
  const told = [];
  Object.defineProperty(navigator, "clipboard", {value: {writeText: async text => told.push(text)}, configurable: true});
  document.querySelectorAll("button.copies")[index].click();
  await Promise.resolve();
  return [...told, document.querySelectorAll("button.copies")[index].ariaLabel];
})"""


@pytest.fixture
def opened(chromium, tmp_path):
    """Opens a page with this main part."""

    def open_page(main, width=800, scripts=("page.js",)):
        style = "".join(
            (templates.TEMPLATES / name).read_text() for name in ("style.css", "site.css")
        )
        page = tmp_path / "page.html"
        page.write_text(
            f"<!doctype html><meta charset=utf-8><title>t</title><style>{style}</style>"
            f"<main>{main}</main>{''.join(map(str, map(templates.script, scripts)))}"
        )
        chromium.open(page, width)

    return open_page


def test_every_heading_is_a_link_to_its_place(chromium, opened):
    opened("""<section id="data"><h2>The data</h2><h3>Two words &amp; more</h3></section>
      <h3 id="own">Mine</h3><h3>Mine</h3><h3><a href="x">elsewhere</a></h3>""")
    links = """[...document.querySelectorAll('.anchor')].map(one =>
      [one.textContent, one.hash, Boolean(document.querySelector(one.hash))])"""
    assert chromium.value(links) == [
        ["The data", "#data", True],
        ["Two words & more", "#two-words-more", True],
        ["Mine", "#own", True],
        ["Mine", "#mine", True],
    ]


def test_commands_and_texts_have_a_button_that_copies_them_and_files_are_kept(chromium, opened):
    command = (
        templates._environment().get_template("pieces.html").module.command("make  report A=1")
    )
    opened(f"""<p>{command}</p><p>Then <code>make demo</code> or <code>epochs</code>.</p>
      <pre class="copy" data-file="run.yaml" aria-label="run.yaml"><code>a: 1\nb: 2</code></pre>""")
    assert chromium.value("document.querySelectorAll('button.copies').length") == 3
    assert chromium.value(f"{PRESS}(0)") == ["make report A=1", "copy make report A=1"]
    assert chromium.value(f"{PRESS}(1)")[0] == "make demo"
    assert chromium.value(f"{PRESS}(2)") == ["a: 1\nb: 2", "copy run.yaml"]
    kept = "(link => fetch(link.href).then(answer => answer.text()).then(text => [link.download, text]))"
    assert chromium.value(f"{kept}(document.querySelector('a.copies'))") == [
        "run.yaml",
        "a: 1\nb: 2\n",
    ]


def test_pictures_are_enlarged_by_a_press_and_by_keys(chromium, opened):
    picture = figures.png_uri(np.zeros((2, 2, 3), np.uint8))
    images = "".join(f'<img src="{picture}" alt="{name}" width="20">' for name in ("one", "two"))
    opened(f"<figure>{images}</figure>")
    shown = """(dialog => dialog?.open ? [dialog.ariaLabel, dialog.querySelector("img").getBoundingClientRect().width > 300] : null)(
      document.querySelector("dialog"))"""
    assert chromium.value(shown) is None
    chromium.value("document.querySelectorAll('img')[1].click()")
    assert chromium.value(shown) == ["two", True]

    def press(key):
        for kind in ("keyDown", "keyUp"):
            chromium.call("Input.dispatchKeyEvent", type=kind, key=key, code=key,
                          windowsVirtualKeyCode={"Escape": 27, "ArrowRight": 39}[key])  # fmt: skip

    press("ArrowRight")
    assert chromium.value(shown) == ["one", True]
    press("Escape")
    assert chromium.value(shown) is None
    chromium.value("document.querySelector('figure + .controls button').click()")
    assert chromium.value(shown) == ["one", True]
    assert json.loads(
        chromium.value(
            "JSON.stringify([...document.querySelectorAll('dialog button')].map(one => one.textContent))"
        )
    ) == ["previous", "next", "close"]


def test_a_picture_of_the_wall_is_chosen_and_found_by_its_name(chromium, opened):
    data = {"names": ["a/x.png", "b/y.png"], "nearest": [[1], [0]], "clusters": [], "columns": 2}
    box = f'<div class="alike"><script type="application/json">{json.dumps(data)}</script></div>'
    opened(box, scripts=("page.js", "neighbours.js"))
    shown = """[document.querySelector('.own b').textContent, document.querySelector('.near small').textContent,
      document.querySelectorAll('.wall button').length]"""
    assert chromium.value(shown) == ["a/x.png", "y.png", 2]
    chromium.value("document.querySelector('.near button').click()")
    assert chromium.value(shown) == ["b/y.png", "x.png", 2]
    chromium.value("""(input => { input.value = "B/"; input.dispatchEvent(new Event("input")); })(
      document.querySelector('.alike input'))""")
    assert chromium.value(shown) == ["b/y.png", "x.png", 1]


def test_a_slider_shows_one_frame_and_begins_at_the_last(chromium, opened):
    opened(
        '<ol class="frames" data-label="Filters"><li>epoch 1</li><li>the end</li></ol>',
        scripts=("page.js", "frames.js"),
    )
    shown = """[...document.querySelectorAll('.frames li')].filter(one => !one.matches('.off')).map(one => one.textContent)"""
    assert chromium.value(shown) == ["the end"]
    slide = "document.querySelector('[type=range]')"
    assert chromium.value(f"{slide}.ariaLabel") == "Filters"
    chromium.value(f"{slide}.value = 0; {slide}.dispatchEvent(new Event('input'))")
    assert chromium.value(shown) == ["epoch 1"]
