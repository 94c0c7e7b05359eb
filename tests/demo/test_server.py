"""The demo's server: allowed hosts, accepted and refused requests, error messages, and how its
script finds the run.
"""

import contextlib
import io
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import pytest
from PIL import Image

import answering_run
import picture_folders
from ladder.demo.predictor import Predictor
from ladder.errors import UserError
from ladder.sources import ROOT
from ladder.workflow import chains

flask = pytest.importorskip("flask", reason="Flask is not installed (envs/demo.txt)")

from ladder.demo import local, server  # noqa: E402
from tools import demo  # noqa: E402

KIND = {"Content-Type": "application/octet-stream"}


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    return server.create_app(
        Predictor(answering_run.make(tmp_path_factory.mktemp("results")), threads=1)
    )


@pytest.fixture
def client(app):
    return app.test_client()


@pytest.fixture(scope="module")
def address(app):
    """The address of the application behind its real server."""
    with local.listen(0) as listening:
        site = server.create_server(app, listening)
        threading.Thread(target=site.run, daemon=True).start()
        yield "http://{}:{}".format(*listening.getsockname())
        site.close()


@pytest.fixture(scope="module")
def picture():
    image = Image.new("L", (200, 200), 255)
    image.paste(0, (90, 20, 120, 180))
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def ask(address, data, headers=KIND, path="/answer?name=mine"):
    """(status, text)"""
    request = urllib.request.Request(address + path, data, headers, method="POST")
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_a_picture_is_answered_over_http(address, picture):
    status, text = ask(address, picture)
    assert status == 200 and '<article class="answer" aria-label="mine: ' in text
    assert text.count("<img") == 3 + 1 + 6  # of the picture, of maps, of neighbours


def test_it_listens_on_this_machine_alone():
    with local.listen(0) as listening:
        host, port = listening.getsockname()
        assert host == "127.0.0.1"
        with socket.socket() as elsewhere:  # it does not listen on another address of this machine
            elsewhere.bind(("127.0.0.2", port))


@pytest.mark.parametrize("path", ["/", "/nowhere"])
@pytest.mark.parametrize(
    "host, allowed",
    [
        ("127.0.0.1", True),
        ("127.0.0.1:8000", True),
        ("localhost:8000", True),
        ("evil.example", False),
        ("evil.example:8000", False),
        ("127.0.0.1.evil.example", False),
        ("localhost.evil.example", False),
        ("", False),
    ],
)
def test_names_of_other_machines_are_refused(client, path, host, allowed):
    answer = client.get(path, headers={"Host": host})
    assert answer.status_code == (400 if not allowed else 200 if path == "/" else 404)
    assert allowed or b"Kernel Ladder" not in answer.data


def test_a_picture_under_another_machines_name_is_refused(client, picture):
    answer = client.post("/answer", data=picture, headers={**KIND, "Host": "evil.example"})
    assert answer.status_code == 400 and b"<article" not in answer.data


@pytest.mark.parametrize(
    "kind",
    ["text/plain", "multipart/form-data; boundary=x", "application/x-www-form-urlencoded", ""],
)
def test_what_a_page_of_another_site_can_send_without_asking_is_refused(client, picture, kind):
    assert client.post("/answer", data=picture, headers={"Content-Type": kind}).status_code == 415


def test_another_site_that_asks_is_not_allowed(client):
    answer = client.options(
        "/answer",
        headers={
            "Origin": "http://evil.example",
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "content-type",
        },
    )
    assert not [name for name, _ in answer.headers if name.lower().startswith("access-control")]


def test_answers_carry_headers_that_keep_them_here(client, picture):
    for answer in (
        client.get("/"),
        client.post("/answer", data=picture, headers=KIND),
        client.get("/nowhere"),
    ):
        assert answer.headers["Content-Security-Policy"] == "frame-ancestors 'none'"
        assert (
            answer.headers["Cache-Control"] == "no-store"
            and answer.headers["X-Content-Type-Options"] == "nosniff"
        )


@pytest.mark.parametrize(
    "data, words",
    [
        (b"", "the file is empty"),
        (b"hello", "not a picture"),
        (None, "damaged or cut short"),
        ("bomb", "too large: 200 million pixels at most"),
    ],
)
def test_what_is_no_picture_says_so(client, picture, data, words):
    if data is None:
        data = picture[:-60]
    if data == "bomb":
        data = picture_folders.claiming(20_100, 10_000)
    answer = client.post("/answer", data=data, headers=KIND)
    assert answer.status_code == 422 and words in answer.text and answer.mimetype == "text/plain"


def test_a_name_cannot_bring_html_and_is_cut(client, picture):
    answer = client.post(
        "/answer", query_string={"name": "<script>" + "x" * 1000}, data=picture, headers=KIND
    )
    assert (
        answer.status_code == 200
        and "&lt;script&gt;" in answer.text
        and "<script" not in answer.text
    )
    assert "x" * 201 not in answer.text


def test_a_name_is_one_printable_line(client, picture):
    answer = client.post(
        "/answer?name=%0a%20a%0d%0aX-Evil:%201%00%1b%e2%80%ae", data=picture, headers=KIND
    )
    assert '<p class="file">a X-Evil: 1</p>' in answer.text and "X-Evil" not in answer.headers
    answer = client.post("/answer?name=%0d%0a", data=picture, headers=KIND)
    assert '<p class="file">picture</p>' in answer.text


def head(size, *lines):
    """The head of a POST request that announces a picture of this size."""
    return "\r\n".join(
        [
            "POST /answer HTTP/1.1",
            "Host: localhost",
            "Content-Type: application/octet-stream",
            f"Content-Length: {size}",
            *lines,
            "",
            "",
        ]
    ).encode()


@pytest.fixture
def connect(address):
    """A function that opens a connection to the server."""
    host, port = address.removeprefix("http://").split(":")
    with contextlib.ExitStack() as stack:
        yield lambda: stack.enter_context(socket.create_connection((host, int(port)), timeout=30))


@pytest.mark.parametrize(
    "size, status",
    [(server.MOST_BYTES, 422), (server.MOST_BYTES + 1, 413), (3 * server.MOST_BYTES, 413)],
)
def test_large_uploads_are_refused_in_an_answer_that_arrives(client, connect, size, status):
    if status == 413:
        answer = client.post("/answer", data=bytes(size), headers=KIND)
        assert answer.status_code == 413 and answer.text == "the file is larger than 50.0 MB"
    connection = connect()
    # raises if the server closes the connection meanwhile
    connection.sendall(head(size) + bytes(size))
    assert f" {status} ".encode() in connection.recv(100)


def test_a_client_that_asks_before_it_sends_too_much_is_refused_before(connect):
    connection = connect()
    connection.sendall(head(server.MOST_BYTES + 1, "Expect: 100-continue"))
    assert b" 413 " in connection.recv(100)


def test_connections_that_never_finish_keep_no_picture_waiting_and_are_closed(
    app, picture, monkeypatch
):
    monkeypatch.setattr(local, "SECONDS", 2)
    with local.listen(0) as listening, contextlib.ExitStack() as stack:
        site = server.create_server(app, listening)
        threading.Thread(target=site.run, daemon=True).start()
        begun = time.monotonic()
        slow = [
            stack.enter_context(socket.create_connection(listening.getsockname(), timeout=30))
            for _ in range(100)
        ]
        for connection in slow:
            connection.sendall(head(1000)[:50])
        assert ask("http://{}:{}".format(*listening.getsockname()), picture)[0] == 200
        closed = set()
        # each drips, which does not keep it open
        while len(closed) < len(slow) and time.monotonic() < begun + 20:
            for connection in set(slow) - closed:
                try:
                    connection.sendall(b"x")
                except OSError:
                    closed.add(connection)
            time.sleep(0.2)
        site.close()
    assert len(closed) == len(slow)


def test_nothing_is_written(address, picture, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert ask(address, picture + bytes(2_000_000))[0] == 200
    assert list(tmp_path.iterdir()) == []


def test_a_port_that_is_taken_is_one_line_that_names_another():
    with local.listen(0) as listening:
        port = listening.getsockname()[1]
        with pytest.raises(
            UserError, match=f"port {port} is in use by another program.*make demo PORT={port + 1}"
        ):
            local.listen(port)


# The script.


@pytest.fixture
def project(tmp_path, monkeypatch):
    (tmp_path / "config.yaml").write_text((ROOT / "tests/support/experiment.yaml").read_text())
    (tmp_path / "over.yaml").write_text("network: lenet_5\nepochs: 3\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_settings_are_those_of_the_files_and_the_command_line_in_this_order(project):
    run = demo.read_run(["over.yaml"], ["epochs=4", "controls=[]", "learning_rate=1e-2"])
    assert list(run.pick("network", "epochs", "controls", "learning_rate").values()) == [
        "lenet_5",
        4,
        [],
        0.01,
    ]


def test_a_run_that_is_not_trained_yet_says_which_command_trains_it(project):
    files, overrides = ["over.yaml"], ["name=a b"]
    chain = chains.chain(demo.read_run(files, overrides))
    command = ".venv/bin/snakemake evaluate --configfile over.yaml --config 'name=a b'"
    with pytest.raises(UserError, match="not trained yet") as fault:
        demo.open_run(chain, demo.options(files, overrides))
    assert str(fault.value).endswith(f"type: {command}")


def run(project, *arguments):
    """(status, last line) of the script."""
    done = subprocess.run(
        [sys.executable, ROOT / "workflow/scripts/tools/demo.py", *arguments],
        cwd=project,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=os.environ | {"COLUMNS": "200"},
    )
    assert "Traceback" not in done.stdout
    return done.returncode, done.stdout.strip().splitlines()[-1]


@pytest.mark.parametrize(
    "arguments, words",
    [
        ([], "type: .venv/bin/snakemake svm"),
        (["--config", "epochz=3"], "did you mean epochs?"),
        (["--config", "epochs"], "write KEY=VALUE"),
        (["--configfile", "gone.yaml"], "there is no file gone.yaml"),
        (["--configfile", "broken.yaml"], "broken.yaml is not a YAML file of keys and values"),
        (["--config", "name=[["], "--config name: the value is not YAML"),
        (["--port", "70000"], "70000 is not a port"),
    ],
)
def test_a_users_mistake_is_one_line(project, arguments, words):
    (project / "broken.yaml").write_text("a: [")
    status, line = run(project, *arguments)
    assert status == 2 and words in line


@pytest.mark.parametrize("name", ["config.yaml", "over.yaml"])
@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x00\xff",
        "name: \xe9".encode("latin-1"),
        b"[" * 100_000,
        b"- a\n- b",
        b"text",
        b"7",
        b"? [a]\n: 1",
        b"a: 2001-99-99",
        b"name: &a [*a]",
        b"1: 2",
        b"a: " + b"9" * 5000,
        b"#" * 2_000_000,
        b"name: !!python/object:os.system",
    ],
)
def test_a_configuration_file_that_is_none_is_one_line(project, name, content):
    (project / name).write_bytes(content)
    with pytest.raises(UserError) as fault:
        demo.read_run(["over.yaml"], [])
    assert name in str(fault.value) or "config:" in str(fault.value)
    assert "\n" not in str(fault.value) and len(str(fault.value)) < 500


def test_a_pipe_as_a_configuration_file_is_not_waited_for(project):
    os.mkfifo(project / "pipe")
    with pytest.raises(UserError, match="cannot read pipe: it is not a plain file"):
        demo.read_run(["pipe"], [])
