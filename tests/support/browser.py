"""A headless Chromium, controlled with its DevTools protocol over a pipe, without a driver program
or a package.
"""

import base64
import contextlib
import importlib.resources
import json
import os
import pathlib
import select
import shutil
import subprocess
import tempfile
import time

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
# CSS pixels of 182 and 269 mm, the width between the margins of A4 upright and turned
PAPER, TURNED = 688, 1017
PATIENCE = 60  # timeout of an answer in seconds; a browser starts slowly on a busy machine

# Elements that extend beyond the right edge of the page and are not in a box with its own scroll
# bar.
TOO_WIDE = """
[...document.querySelectorAll("body *")]
  .filter(element => element.getBoundingClientRect().right > innerWidth + 1 && !element.closest(".wide, .skip"))
  .map(element => element.outerHTML.slice(0, 120))
"""

# Boxes of tables that are wider inside.
SCROLLING = "[...document.querySelectorAll('.wide')].filter(one => one.checkVisibility() && one.scrollWidth > one.clientWidth)"

# What a finger presses and is less than 44 CSS pixels high or wide; links within a text are as high
# as their lines.
SMALL_TARGETS = """
[...document.querySelectorAll(".site a, .brand a, .contents a, summary, button, select, input:not(.pick), .tick")]
  .filter(one => one.checkVisibility() && !one.matches(".drop input"))
  .filter(one => Math.min(one.getBoundingClientRect().height, one.getBoundingClientRect().width) < 44)
  .map(one => [one.outerHTML.slice(0, 90), one.getBoundingClientRect().width, one.getBoundingClientRect().height])
"""

# The texts that are smaller than 9 pt on the open page, with their sizes in CSS pixels.
TINY = """
(() => {
  const tiny = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || !element.checkVisibility() || element.closest(".hidden, script")) continue;
    const size = parseFloat(getComputedStyle(element).fontSize) * (element.ownerSVGElement ? element.getScreenCTM().a : 1);
    if (size < 11.95) tiny.push([texts.currentNode.data.trim().slice(0, 30), element.outerHTML.slice(0, 60), size]);
  }
  return tiny;
})()
"""

# The words of up to 30 characters in tables that end in another line than they begin in.
BROKEN = r"""
[...document.querySelectorAll("table :is(th, td)")].filter(cell => cell.checkVisibility()).flatMap(cell => {
  const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT), range = document.createRange(), broken = [];
  while (texts.nextNode()) {
    for (const {0: word, index} of texts.currentNode.data.matchAll(/[\p{L}\p{N}_.,]+/gu)) {
      range.setStart(texts.currentNode, index);
      range.setEnd(texts.currentNode, index + word.length);
      if (word.length <= 30 && new Set([...range.getClientRects()].map(box => box.bottom)).size > 1) broken.push(word);
    }
  }
  return broken;
})
"""


def find():
    """Path of a Chromium on this machine, or None."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    """One browser with one page. `events` are the messages of the protocol that are not answers,
    such as requests.
    """

    def __init__(self, executable):
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        # The protocol's pipe is file descriptors 3 and 4 of the browser.
        self.process = subprocess.Popen(
            [
                "bash",
                "-c",
                f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}',
                "-",
                executable,
                *FLAGS,
                f"--user-data-dir={self.profile.name}",
            ],
            pass_fds=(theirs_in, theirs_out),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self.events = []
        self._rest, self._number, self._session = b"", 0, None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        self.call("Page.setLifecycleEventsEnabled", enabled=True)

    def close(self):
        self.process.terminate()
        self.process.wait(PATIENCE)
        os.close(self._in)
        os.close(self._out)
        self.profile.cleanup()

    def open(self, path, width=1280, height=900, scheme="light"):
        """Open a file or an http address at this width (CSS pixels) in the colour scheme light or
        dark, and wait until it is loaded. A narrow window is that of a phone, where fingers are the
        pointer.
        """
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        self.call("Emulation.setTouchEmulationEnabled", enabled=width < 600)
        self.call(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": scheme}],
        )
        self.events.clear()
        address = str(path)
        loader = self.call(
            "Page.navigate",
            url=address if address.startswith("http:") else pathlib.Path(path).resolve().as_uri(),
        )["loaderId"]
        while not any(_is_load(event, loader) for event in self.events):
            self.events.append(self._message())

    def value(self, expression):
        """The JSON value of a JavaScript expression in the page, or of the promise that it is."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def requested(self):
        """The addresses requested since the page was opened."""
        return [
            event["params"]["request"]["url"]
            for event in self.events
            if event["method"] == "Network.requestWillBeSent"
        ]

    def screenshot(self, path, width, height, scale=1):
        """The beginning of the page, width by height CSS pixels, as a PNG with `scale` pixels for
        each.
        """
        answer = self.call(
            "Page.captureScreenshot",
            clip={"x": 0, "y": 0, "width": width, "height": height, "scale": scale},
        )
        pathlib.Path(path).write_bytes(base64.b64decode(answer["data"]))

    def call(self, method, **params):
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._message()
            if answer.get("id") != self._number:
                self.events.append(answer)
            elif "error" in answer:
                raise RuntimeError(f"{method}: {answer['error']['message']}")
            else:
                return answer["result"]

    def _message(self):
        """The next message of the browser; the protocol ends each with a zero byte."""
        deadline = time.monotonic() + PATIENCE
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._in], [], [], max(0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError("the browser does not answer")
            piece = os.read(self._in, 1 << 20)
            if not piece:
                raise ConnectionError("the browser ended")
            self._rest += piece
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)


def _is_load(event, loader):
    """Whether the event says that this loader's page is loaded: the page left before may say the
    same of itself late.
    """
    return event["method"] == "Page.lifecycleEvent" and (
        event["params"]["name"],
        event["params"]["loaderId"],
    ) == ("load", loader)


def show(chromium, page, *place, **settings):
    """Open a page and unfold all its parts."""
    chromium.open(page, *place, **settings)
    chromium.value("document.querySelectorAll('details').forEach(part => { part.open = true; })")


def check_self_contained(chromium, page):
    """A page requests nothing but itself and logs no errors."""
    chromium.open(page)
    assert [address for address in chromium.requested() if not address.startswith("data:")] == [
        page.as_uri()
    ]
    assert not [
        event
        for event in chromium.events
        if event["method"] in ("Log.entryAdded", "Runtime.exceptionThrown")
    ]


def check_width(chromium, page, width):
    """A page of this width needs no horizontal scrolling."""
    show(chromium, page, width)
    assert chromium.value("document.documentElement.scrollWidth") == width
    assert chromium.value(TOO_WIDE) == []


def check_axe(chromium, page, width, scheme):
    """axe-core finds nothing to object to in a page with all parts unfolded; in the dark only
    colours are others.
    """
    show(chromium, page, width, scheme=scheme)
    run_axe(chromium, scheme)


def run_axe(chromium, scheme="light"):
    """axe-core finds nothing to object to in the open page."""
    engine = importlib.resources.files(pytest.importorskip("axe_core_python")) / "axe.min.js"
    chromium.call("Runtime.evaluate", expression=engine.read_text("utf-8"))
    rules = {} if scheme == "light" else {"runOnly": ["color-contrast", "link-in-text-block"]}
    violations = chromium.value(f"""axe.run({json.dumps(rules)}).then(found => found.violations.map(rule =>
      [rule.id, rule.nodes.length, ...rule.nodes.slice(0, 3).map(node => node.html.slice(0, 160))]))""")
    assert not violations, violations


def check_print(chromium, page):
    """On paper, whose pages are turned for tables of many columns, every text is 9 pt or larger, no
    word of a table is broken, and nothing is wider than the page."""
    for width, named in ((PAPER, "auto"), (TURNED, "turned")):
        chromium.open(page)
        with on_paper(chromium, width):
            chromium.value(f"""document.querySelectorAll("section").forEach(
              part => {{ part.hidden = getComputedStyle(part).page !== "{named}"; }})""")
            wrong = chromium.value(TINY) + chromium.value(BROKEN)
            assert not wrong, wrong
            assert chromium.value("document.documentElement.scrollWidth") == width


class EveryPage:
    """What holds for every page: a subclass in a module of tests has these of the module's fixture
    `page`.
    """

    @pytest.mark.parametrize("scheme", ["light", "dark"])
    @pytest.mark.parametrize("width", [390, 1280])
    def test_axe_finds_nothing(self, chromium, page, width, scheme):
        check_axe(chromium, page, width, scheme)

    def test_on_paper_it_fits_in_9_pt_with_whole_words(self, chromium, page):
        check_print(chromium, page)


@contextlib.contextmanager
def on_paper(chromium, width=PAPER):
    """The open page as it is printed on A4, with the width between its margins, by a browser in the
    dark.
    """
    chromium.call(
        "Emulation.setDeviceMetricsOverride",
        width=width,
        height=1000,
        deviceScaleFactor=1,
        mobile=False,
    )
    chromium.call(
        "Emulation.setEmulatedMedia",
        media="print",
        features=[{"name": "prefers-color-scheme", "value": "dark"}],
    )
    try:
        yield
    finally:
        chromium.call("Emulation.setEmulatedMedia", media="", features=[])


def check_keys_scroll(chromium):
    """Some boxes of the open page are wider inside than they are, and the arrow keys scroll each of
    them.
    """
    chromium.value(f"globalThis.scrolling = {SCROLLING}; undefined")
    count = chromium.value("scrolling.length")
    assert count, "no table scrolls"
    for number in range(count):
        box = f"scrolling[{number}]"
        chromium.value(f"{box}.focus()")
        assert chromium.value(f"document.activeElement === {box} && Boolean({box}.ariaLabel)")
        for kind in ("keyDown", "keyUp"):
            chromium.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key="ArrowRight",
                code="ArrowRight",
                windowsVirtualKeyCode=39,
            )
        deadline = time.monotonic() + PATIENCE
        while not chromium.value(f"{box}.scrollLeft"):  # it moves smoothly
            assert time.monotonic() < deadline, chromium.value(f"{box}.ariaLabel")


def check_contents(chromium, page):
    """The contents of a page link to each of its sections; returns their number."""
    chromium.open(page)
    links = "[...document.querySelectorAll('.contents a')]"
    sections = chromium.value("document.querySelectorAll('section').length")
    assert chromium.value(f"{links}.length") == sections
    assert chromium.value(f"{links}.filter(link => !document.querySelector(link.hash)).length") == 0
    return sections
