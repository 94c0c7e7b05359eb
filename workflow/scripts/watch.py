"""Serve a page, on this machine only, with the curves of the latest training as they grow.

It reads the training's log and checkpoints and leaves it alone. Ctrl-C ends it; the exit status is 2, with a one-line message,
if the port is in use.
"""

import argparse
import contextlib
import http.server
import json
import sys

from ladder.pages import live

HOST = "127.0.0.1"


class Handler(http.server.BaseHTTPRequestHandler):
    """GET / is the page, GET /state its numbers; requests by another name than this machine's own are refused."""

    def do_GET(self):
        if self.headers.get("Host", "").partition(":")[0] not in (HOST, "localhost"):
            self._answer(403, "text/plain", "this page is for this machine only")
        elif self.path == "/":
            self._answer(200, "text/html; charset=utf-8", live.page())
        elif self.path == "/state":
            self._answer(200, "application/json", json.dumps(live.state("results", "logs")))
        else:
            self._answer(404, "text/plain", "there is no such page")

    def _answer(self, status, kind, text):
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *arguments):
        """No line for each request."""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=8010, help="0: any free port (default: %(default)s)")
    arguments = parser.parse_args()
    try:
        server = http.server.ThreadingHTTPServer((HOST, arguments.port), Handler)
    except (OSError, OverflowError) as error:
        print(f"port {arguments.port} cannot be used ({error}); choose another, as in make watch PORT=8011", file=sys.stderr)
        return 2
    print("open http://{}:{}/ on this machine; Ctrl-C ends it".format(*server.server_address), flush=True)
    with server, contextlib.suppress(KeyboardInterrupt):
        server.serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main())
