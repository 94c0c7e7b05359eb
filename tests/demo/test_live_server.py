"""The server of the page of the training that runs: what it answers, to whom, and what slow clients
cannot do.
"""

import argparse
import asyncio
import contextlib
import http.client
import json
import socket
import threading
import time

import pytest

from ladder.demo import live_server, local
from ladder.errors import UserError
from ladder.pages import live


@pytest.fixture
def site(tmp_path):
    """The (host, port) of a server of two empty folders."""
    listening = local.listen(0, "make watch")
    address = listening.getsockname()
    loop = asyncio.new_event_loop()
    serving = loop.create_task(
        live_server.serve(listening, tmp_path / "results", tmp_path / "logs")
    )

    def run():
        with contextlib.suppress(asyncio.CancelledError):
            loop.run_until_complete(serving)
        loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    yield address
    loop.call_soon_threadsafe(serving.cancel)
    thread.join()


def ask(address, path="/", method="GET", **headers):
    connection = http.client.HTTPConnection(*address, timeout=30)
    connection.request(method, path, headers=headers)
    return connection.getresponse()


@pytest.fixture
def connect(site):
    """A function that opens a connection to the server."""
    with contextlib.ExitStack() as stack:
        yield lambda: stack.enter_context(socket.create_connection(site, timeout=30))


def test_the_page_and_its_numbers_are_answered(site, tmp_path):
    answer = ask(site)
    assert (
        answer.status == 200
        and answer.headers.get_content_type() == "text/html"
        and "Live" in answer.read().decode()
    )
    assert json.load(ask(site, "/state")) is None
    (tmp_path / "logs/train").mkdir(parents=True)
    (tmp_path / "logs/train/t0.log").write_text(
        "10:00:02 epoch 1/2  loss nan  1.2 s  1,351 images/s\n"
    )

    def refuse(name):
        raise AssertionError(f"{name} is no JSON")

    found = json.loads(ask(site, "/state").read(), parse_constant=refuse)
    assert found["version"] == "t0" and found["epochs"][0]["loss"] == "nan"


@pytest.mark.parametrize("path, method, status", [("/gone", "GET", 404), ("/state", "POST", 405)])
def test_anything_else_is_refused(site, path, method, status):
    assert ask(site, path, method).status == status


@pytest.mark.parametrize(
    "host, allowed",
    [
        ("127.0.0.1", True),
        ("localhost:8010", True),
        ("evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("", False),
    ],
)
@pytest.mark.parametrize("path", ["/", "/state"])
def test_names_of_other_machines_are_refused(site, path, host, allowed):
    assert ask(site, path, Host=host).status == (200 if allowed else 403)


@pytest.mark.parametrize("path", ["/", "/state", "/gone"])
def test_answers_carry_the_headers_of_the_demo(site, path):
    assert local.HEADERS.items() <= dict(ask(site, path).headers).items()
    assert local.HEADERS["Content-Security-Policy"] == "frame-ancestors 'none'"


def test_connections_that_never_finish_their_requests_are_closed(connect, site, monkeypatch):
    monkeypatch.setattr(local, "SECONDS", 1)
    threads = threading.active_count()
    slow = [connect() for _ in range(100)]
    for connection in slow:
        connection.sendall(b"GET / HTTP/1.1\r\n")
    assert ask(site).status == 200 and threading.active_count() == threads
    closed, begun = set(), time.monotonic()
    # each drips, which does not keep it open
    while len(closed) < len(slow) and time.monotonic() < begun + 20:
        for connection in set(slow) - closed:
            try:
                connection.sendall(b"x")
            except OSError:
                closed.add(connection)
        time.sleep(0.1)
    assert len(closed) == len(slow)


def test_a_client_that_takes_no_answer_is_closed(connect, monkeypatch):
    monkeypatch.setattr(local, "SECONDS", 0.3)
    # more than the system keeps on its way
    monkeypatch.setattr(live, "page", lambda: "x" * 50_000_000)
    connection = connect()
    connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    time.sleep(0.8)
    received = 0
    with contextlib.suppress(ConnectionError):
        while data := connection.recv(10**6):
            received += len(data)
    assert received < 50_000_000


def test_connections_beyond_the_limit_are_closed_at_once(connect, site, monkeypatch):
    monkeypatch.setattr(local, "CONNECTIONS", 3)
    slow = [connect() for _ in range(3)]
    for connection in slow:
        connection.sendall(b"G")
    with pytest.raises(ConnectionError):
        ask(site)
    slow[0].close()
    time.sleep(0.1)
    assert ask(site).status == 200


@pytest.mark.parametrize("request_of", [b"x" * 100_000, b"\r\n\r\n", b"\x00\xff\r\n\r\n"])
def test_what_is_no_request_harms_nobody(connect, site, request_of):
    with contextlib.suppress(ConnectionError):
        connection = connect()
        connection.sendall(request_of)
        connection.recv(1000)
    assert ask(site).status == 200


@pytest.mark.parametrize("text", ["", "x", "-1", "65536", "1e3"])
def test_what_is_no_port_is_refused(text):
    with pytest.raises(
        argparse.ArgumentTypeError, match="is not a port; choose a number from 0 to 65535"
    ):
        local.port(text)


def test_a_port_that_is_taken_is_one_line_with_the_command_to_type(site):
    with pytest.raises(
        UserError, match=f"port {site[1]} is in use by another program.*make watch PORT="
    ):
        local.listen(site[1], "make watch")
