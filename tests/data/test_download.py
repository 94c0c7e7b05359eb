import functools
import http.server
import multiprocessing
import os
import threading

import numpy as np
import pytest

from ladder.data import download
from ladder.errors import UserError

DATA = np.random.default_rng(0).integers(0, 256, 3_000_000, dtype=np.uint8).tobytes()


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves server.data at any path, with faults given by the server's attributes."""

    def do_GET(self):
        server = self.server
        asked = self.headers.get("Range")
        server.asked.append(asked)
        status = server.statuses.pop(0) if server.statuses else 200
        if status != 200:
            self.send_error(status)
            return
        start = (
            int(asked.removeprefix("bytes=").removesuffix("-")) if asked and server.ranges else 0
        )
        if start >= len(server.data) and start:
            self.send_error(416)
            return
        body = server.data[start:]
        self.send_response(206 if start else 200)
        if start:
            self.send_header(
                "Content-Range",
                f"bytes {start + server.shift}-{len(server.data) - 1}/{len(server.data)}",
            )
        if server.says_length:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: server.breaks.pop(0)] if server.breaks else body)

    def log_message(self, *_):
        pass


@pytest.fixture
def serve(monkeypatch):
    """serve(**attributes) starts one more server on 127.0.0.1 and returns it; its `url` is that of
    the file.
    """
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(download, "FIRST_WAIT", 0.0)
    servers = []

    def start(**attributes):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        vars(server).update(
            {
                "data": DATA,
                "ranges": True,
                "says_length": True,
                "shift": 0,
                "breaks": [],
                "statuses": [],
                "asked": [],
                "url": f"http://127.0.0.1:{server.server_port}/data.bin",
            }
            | attributes
        )
        # a client that stops reading is no fault of these tests
        server.handle_error = lambda *_: None
        threading.Thread(
            target=functools.partial(server.serve_forever, poll_interval=0.01), daemon=True
        ).start()
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "downloads" / "data.bin"


def data_fault(path):
    """Why a file is not DATA."""
    try:
        return "" if path.read_bytes() == DATA else "it is another"
    except OSError as error:
        return f"it cannot be read ({error.strerror})"


def fetch(urls, path, largest=10**7):
    """download.fetch of DATA."""
    hand = "put a and b by hand in c"
    return download.fetch(urls, path, data_fault, largest, setting="some_urls", by_hand=hand)


def fault(*arguments):
    """The one-line error of fetch."""
    with pytest.raises(UserError) as error:
        fetch(*arguments)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_file_is_downloaded_whole_and_nothing_else_is_left(serve, path):
    assert fetch([serve().url], path) == path
    assert path.read_bytes() == DATA
    assert [file.name for file in path.parent.iterdir() if not file.name.startswith(".")] == [
        "data.bin"
    ]


def test_a_file_that_is_there_is_not_asked_for_again(serve, path):
    server = serve()
    for _ in range(2):
        fetch([server.url], path)
    assert server.asked == [None]


BROKEN = {  # what a server does: what it is asked for
    "goes on": ({"breaks": [1_234_567, 1_000_000]}, [None, "bytes=1234567-", "bytes=2234567-"]),
    "starts over": ({"breaks": [1_500_000], "ranges": False}, [None, "bytes=1500000-"]),
    "is tried again": ({"statuses": [503, 500]}, [None] * 3),
}


@pytest.mark.parametrize("does, asked", BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_transfer_goes_on_where_it_broke_if_it_can(serve, path, does, asked):
    server = serve(**does)
    fetch([server.url], path)
    assert path.read_bytes() == DATA and server.asked == asked


def test_a_transfer_that_keeps_advancing_may_break_more_often_than_a_stuck_one(
    serve, path, monkeypatch
):
    monkeypatch.setattr(download, "BLOCK", 1000)
    server = serve(breaks=[200_000] * 10)
    fetch([server.url], path)
    assert path.read_bytes() == DATA and len(server.asked) == 11


def test_a_later_run_resumes_what_an_earlier_one_left(serve, path):
    stuck = serve(breaks=[1_500_000, 0, 0, 0])
    assert "broke after 1,500,000 of 3,000,000 bytes" in fault([stuck.url], path)
    assert not path.exists()
    server = serve()
    fetch([server.url], path)
    assert path.read_bytes() == DATA and server.asked == ["bytes=1500000-"]


def test_a_server_that_always_breaks_is_given_up(serve, path):
    server = serve(ranges=False, breaks=[1_500_000] * 99)
    assert "broke after" in fault([server.url], path)
    assert len(server.asked) == 1 + download.ATTEMPTS


def test_the_next_mirror_is_tried_at_once_after_404(serve, path):
    first, second = serve(statuses=[404] * 9), serve()
    fetch([first.url, second.url], path)
    assert path.read_bytes() == DATA and len(first.asked) == 1


def test_a_missing_file_is_reported(serve, path):
    assert "HTTP 404 Not Found" in fault([serve(statuses=[404]).url], path)


def test_the_next_mirror_goes_on_where_the_first_broke(serve, path):
    first, second = serve(breaks=[2_000_000, 0, 0, 0]), serve()
    fetch([first.url, second.url], path)
    assert path.read_bytes() == DATA and second.asked == ["bytes=2000000-"]


def test_a_stale_part_is_replaced_by_a_fresh_download(serve, path):
    path.parent.mkdir()
    for stale in (b"x" * 1000, b"x" * len(DATA), b"x" * (len(DATA) + 10)):
        path.with_name("data.bin.part").write_bytes(stale)
        fetch([serve().url], path)
        assert path.read_bytes() == DATA
        path.unlink()


def test_the_next_mirror_is_tried_after_a_wrong_checksum(serve, path):
    fetch([serve(data=b"wrong").url, serve().url], path)
    assert path.read_bytes() == DATA


def test_a_server_that_never_says_how_much_it_sends_is_stopped(serve, path, monkeypatch):
    monkeypatch.setattr(download, "LARGEST", 2_000_000)
    assert "sends more than 2,000,000 bytes" in fault([serve(says_length=False).url], path, None)


def test_an_answer_for_another_range_is_refused(serve, path):
    server = serve(breaks=[1_500_000], shift=1)
    assert "another range" in fault([server.url], path)


def test_a_silent_server_is_left_after_the_timeout(path, monkeypatch):
    import socket

    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(download, "FIRST_WAIT", 0.0)
    monkeypatch.setattr(download, "TIMEOUT", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert "timed out" in fault([f"http://127.0.0.1:{silent.getsockname()[1]}/data.bin"], path)


def test_without_a_network_one_line_says_what_to_do(serve, path):
    server = serve()
    server.shutdown()
    server.server_close()
    message = fault([server.url], path)
    assert server.url in message and "refused" in message
    assert "put a and b by hand in c " in message
    assert message.endswith(
        "or use the images that come with the program: --config dataset=mnist_small"
    )


def test_every_mirror_that_failed_is_named(path):
    message = fault(
        ["ftp://a/b", "file:///no/such/file", "file://folder/name", "/plain/path"], path
    )
    assert (
        "(ftp://a/b: not an http:, https: or file: address, nor a path; file:///no/such/file: No such file or directory; "
        "file://folder/name: a file of this machine is file:///folder/name, with three slashes; "
        "/plain/path: there is no /plain/path); put"
    ) in message


@pytest.mark.parametrize(
    "address",
    ["{}/a%20b: c#d?.bin", "here/a%20b: c#d?.bin", "~/a%20b: c#d?.bin", "{}", "here", "~"],
)
def test_a_path_of_a_file_or_of_the_folder_that_has_it_is_an_address(
    path, tmp_path, monkeypatch, address
):
    (tmp_path / "here").mkdir()
    for name in ("a%20b: c#d?.bin", "data.bin"):
        (tmp_path / "here" / name).write_bytes(DATA)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "here"))
    fetch(["nowhere", address.format(tmp_path / "here")], path)
    assert path.read_bytes() == DATA and (tmp_path / "here/data.bin").exists()


def test_a_path_that_does_not_hold_the_file_is_one_line(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "other.bin").write_bytes(b"other")
    message = fault(["gone/data.bin", str(tmp_path), "pipe", "~nobody-here/x", "other.bin"], path)
    for words in (
        f"(gone/data.bin: there is no {tmp_path}/gone/data.bin; ",
        f"{tmp_path}: the folder has no data.bin; ",
        "pipe: a pipe, not a file; ",
        "~nobody-here/x: there is no ",
        "; other.bin: it is another",
    ):
        assert words in message
    assert (tmp_path / "other.bin").read_bytes() == b"other"


def test_an_empty_list_of_mirrors_is_reported(path):
    assert "no URL is given" in fault([], path)


def test_a_malformed_url_is_one_line(path, monkeypatch):
    monkeypatch.setattr(download, "FIRST_WAIT", 0.0)
    for url in ("http://", "http://[::1/data", "http://127.0.0.1:port/", "http://127.0.0.1/a b\n"):
        fault([url], path)


def test_a_file_url_is_copied_and_its_path_decoded(tmp_path, path):
    source = tmp_path / "my data.bin"
    source.write_bytes(DATA)
    fetch([source.as_uri()], path)
    assert "%20" in source.as_uri() and path.read_bytes() == DATA


def test_a_file_put_there_by_hand_is_used_without_any_mirror(path):
    path.parent.mkdir()
    path.write_bytes(DATA)
    assert fetch([], path) == path


def test_another_content_is_refused_and_the_addresses_are_doubted(serve, path):
    url = serve(data=b"wrong").url
    message = fault([url], path)
    assert (
        f"cannot get data.bin ({url}: it is another); check some_urls; put a and b by hand in c and run"
        in message
    )
    assert not path.exists() and not path.with_name("data.bin.part").exists()


def test_no_more_is_taken_than_a_file_known_by_its_content_can_have(serve, path):
    assert "it is 3,000,000 bytes, and the wanted file has at most 2,999,999" in fault(
        [serve().url], path, len(DATA) - 1
    )
    assert "sends more than 2,999,999 bytes" in fault(
        [serve(says_length=False).url], path, len(DATA) - 1
    )
    assert "check some_urls" not in fault([serve(statuses=[404]).url], path)


def test_a_folder_in_its_place_is_named_and_kept(path):
    path.mkdir(parents=True)
    message = fault([], path)
    assert (
        f"{path} is not the wanted file: it cannot be read (Is a directory); remove it to download it again"
        in message
    )


def test_another_content_put_there_by_hand_is_named_and_kept(path):
    path.parent.mkdir()
    path.write_bytes(b"other")
    message = fault([], path)
    assert (
        message
        == f"{path} is not the wanted file: it is another; remove it to download it again, and check some_urls"
    )
    assert path.read_bytes() == b"other"


def test_two_processes_download_once(serve, path):
    server = serve()
    spawn = multiprocessing.get_context("spawn")
    processes = [spawn.Process(target=fetch, args=([server.url], path)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(30)
    assert [process.exitcode for process in processes] == [0, 0]
    assert server.asked == [None] and path.read_bytes() == DATA
