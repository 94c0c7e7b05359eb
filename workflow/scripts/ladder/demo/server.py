"""A local site for a single user: a run's model classifies pictures that are dropped, pasted or
drawn there.

It listens only on 127.0.0.1 and writes no files. Pages of other sites cannot read from it, because
requests for other host names are refused (which also prevents DNS rebinding), and cannot make it
work: pictures must be application/octet-stream, which a browser sends across sites only with a CORS
permission, and this site never gives one.
"""

import threading

import flask
import waitress.channel
import waitress.parser
import waitress.server
import waitress.utilities

from ladder.data.reading import pictures
from ladder.demo import local
from ladder.errors import UserError
from ladder.pages import predictions, templates
from ladder.progress import size

LONGEST_NAME = 200
MOST_BYTES = 50_000_000  # of an upload
KIND = "application/octet-stream"


def create_app(predictor):
    """The WSGI application of a predictor.Predictor: GET / is the page; POST /answer?name=NAME with
    the bytes of a picture returns the HTML of its prediction; errors are a line of text."""
    app = flask.Flask(__name__, static_folder=None)
    app.config |= {"TRUSTED_HOSTS": local.NAMES, "MAX_CONTENT_LENGTH": MOST_BYTES}
    # the model has one set of buffers, and a large picture takes much memory
    one_at_a_time = threading.Lock()

    @app.get("/")
    def page():
        return templates.render(
            "demo.html",
            {
                **predictions.context(predictor),
                "draws": predictor.dataset in pictures.DIGITS,
                "most_bytes": MOST_BYTES,
                "most": size(MOST_BYTES),
            },
        )

    @app.post("/answer")
    def answer():
        if flask.request.mimetype != KIND:
            return _text(f"a picture must be sent as {KIND}", 415)
        name = _one_line(flask.request.args.get("name", ""))[:LONGEST_NAME] or "picture"
        data = flask.request.get_data(cache=False)
        with one_at_a_time:
            picture = pictures.take(data, predictor.dataset, predictor.network.input_shape, name)
            return predictions.fragment(predictor, predictions.answers(predictor, [picture])[0])

    @app.errorhandler(pictures.PictureError)
    @app.errorhandler(UserError)
    def fault(error):
        return _text(str(error), 422)

    @app.errorhandler(413)
    def too_large(error):
        return _text(f"the file is larger than {size(MOST_BYTES)}", 413)

    @app.after_request
    def add_headers(response):
        response.headers.update(local.HEADERS)
        return response

    return app


def _one_line(text):
    return " ".join(
        "".join(character if character.isprintable() else " " for character in text).split()
    )


def _text(words, status):
    return flask.Response(words, status, mimetype="text/plain")


class _Parser(waitress.parser.HTTPRequestParser):
    """Reads a body that is too large to its end without keeping it: a client that is still sending
    does not see the answer.
    """

    _left = 0  # bytes of such a body

    def received(self, data):
        if self._left:
            taken = min(self._left, len(data))
            self._left -= taken
            self.completed = not self._left
            return taken
        taken = super().received(data)
        if isinstance(self.error, waitress.utilities.RequestEntityTooLarge):
            self._left = 0 if self.expect_continue else self.content_length
            self.completed, self.expect_continue = not self._left, False
        return taken


class _Channel(waitress.channel.HTTPChannel):
    """A connection that is closed local.SECONDS after its last request began: nothing else counts
    as activity.
    """

    parser_class = _Parser

    def handle_read(self):
        begun, before = self.request is not None, self.last_activity
        super().handle_read()
        if begun:
            self.last_activity = before


def create_server(app, listening):
    """A server of the application on a socket of `local.listen`; its run() serves."""
    site = waitress.server.create_server(
        app,
        sockets=[listening],
        connection_limit=local.CONNECTIONS,
        channel_timeout=local.SECONDS,
        cleanup_interval=1,
        max_request_body_size=MOST_BYTES + 1,  # the first that is refused
        inbuf_overflow=2 * MOST_BYTES,
        outbuf_overflow=2 * MOST_BYTES,
    )  # no temporary files
    site.channel_class = _Channel
    return site
