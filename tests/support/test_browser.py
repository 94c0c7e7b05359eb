"""The browser of the tests waits for the page it was told to open."""

import http.server
import json
import threading
import time

import browser
import needs

pytestmark = needs.BROWSER

PAGE = b"<title>slow</title><img src='picture'>"


class SlowPicture(http.server.BaseHTTPRequestHandler):
    """A page whose picture takes half a second, so that it is loaded long after it is there."""

    def do_GET(self):
        if self.path.endswith("picture"):
            time.sleep(0.5)
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(PAGE)

    def log_message(self, *_):
        pass


class LateMessages(browser.Browser):
    """A browser in which the messages of the page before arrive again while the next one is asked
    for.
    """

    before = ()

    def call(self, method, **params):
        if method == "Page.navigate":
            self._rest += b"".join(json.dumps(event).encode() + b"\0" for event in self.before)
        return super().call(method, **params)


def test_a_late_message_of_the_page_before_does_not_end_the_wait_for_this_one(tmp_path):
    (tmp_path / "first.html").write_text("<title>first</title>")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), SlowPicture)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    chromium = LateMessages(browser.find())
    try:
        chromium.open(tmp_path / "first.html")
        chromium.before = list(chromium.events)
        chromium.open(f"http://127.0.0.1:{server.server_address[1]}/")
        assert chromium.value("[document.title, document.readyState]") == ["slow", "complete"]
    finally:
        chromium.close()
        server.shutdown()
        server.server_close()
