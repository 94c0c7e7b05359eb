"""A small site for one person on one machine: a picture that is dropped, pasted or drawn there is answered by a run's model.

It listens on 127.0.0.1 alone and writes nothing. A page of another site can neither read from it, as names other than this
machine's own are refused (which also stops DNS rebinding), nor have it work: pictures come as application/octet-stream, which
a browser sends to another site only after that site agreed, and this one never does.
"""

import errno
import socket
import threading

import flask
import waitress.server

from ladder.data import pictures
from ladder.errors import UserError
from ladder.pages import predictions, templates
from ladder.progress import size

HOST = "127.0.0.1"
NAMES = [HOST, "localhost"]   # in a request's Host
LONGEST_NAME = 200
KIND = "application/octet-stream"
HEADERS = {
    "Content-Security-Policy": "frame-ancestors 'none'", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin", "Cache-Control": "no-store",
}


def create_app(predictor):
    """The WSGI application that answers with a predictor.Predictor: GET / is the page, POST /answer?name=NAME, its body a
    picture's bytes, the HTML of one answer; faults are a line of text."""
    app = flask.Flask(__name__, static_folder=None)
    app.config |= {"TRUSTED_HOSTS": NAMES, "MAX_CONTENT_LENGTH": pictures.MOST_BYTES}
    one_at_a_time = threading.Lock()   # the model's buffers, and memory for one large picture

    @app.get("/")
    def page():
        return templates.render("demo.html", {
            **predictions.context(predictor), "draws": predictor.dataset in pictures.DIGITS,
            "most_bytes": pictures.MOST_BYTES, "most": size(pictures.MOST_BYTES)})

    @app.post("/answer")
    def answer():
        if flask.request.mimetype != KIND:
            return _text(f"a picture is sent as {KIND}", 415)
        name = (flask.request.args.get("name") or "picture")[:LONGEST_NAME]
        data = flask.request.get_data(cache=False)
        with one_at_a_time:
            picture = pictures.take(data, predictor.dataset, name)
            return predictions.fragment(predictor, predictions.answers(predictor, [picture])[0])

    @app.errorhandler(UserError)
    def fault(error):
        return _text(str(error), 422)

    @app.errorhandler(413)
    def too_large(error):
        return _text(f"more than {size(pictures.MOST_BYTES)}", 413)

    @app.after_request
    def add_headers(response):
        response.headers.update(HEADERS)
        return response

    return app


def _text(words, status):
    return flask.Response(words, status, mimetype="text/plain")


def listen(port):
    """A socket that listens on 127.0.0.1; port 0: any that is free. Raises UserError where the port cannot be had."""
    try:
        return socket.create_server((HOST, port))
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            raise
        why = "taken by another program" if error.errno == errno.EADDRINUSE else "not for every program to have"
        raise UserError(f"port {port} is {why}; choose another: make demo PORT={port + 1 if 1024 <= port < 65535 else 8001} "
                        "(PORT=0 takes any that is free)") from error


def create_server(app, listening):
    """A server of the application on a socket of `listen`, to run()."""
    return waitress.server.create_server(
        app, sockets=[listening], connection_limit=20, max_request_body_size=pictures.MOST_BYTES,
        inbuf_overflow=2 * pictures.MOST_BYTES, outbuf_overflow=2 * pictures.MOST_BYTES)   # nothing goes to files
