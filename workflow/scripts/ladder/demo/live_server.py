"""A server of the page of the training that runs, for this machine alone. Standard library only, as
`make watch` needs no more.

One thread serves all connections, each for one request, and closes those that take longer than
local.SECONDS.
"""

import asyncio
import json

from ladder.demo import local
from ladder.pages import live

MOST_BYTES = 2**14  # of a request; a browser's has 1,000


async def serve(listening, results, logs):
    """Answer requests on a socket of `local.listen` until cancelled: GET / is the page, GET /state
    the numbers of the latest training, GET /state/VERSION those of another.

    results, logs: the folders that the numbers come from.
    """
    connections = set()

    async def accept(reader, writer):
        connections.add(writer)
        try:
            if len(connections) <= local.CONNECTIONS:
                async with asyncio.timeout(local.SECONDS):
                    request = await reader.readuntil(b"\r\n\r\n")
                    writer.write(response(request.decode("latin-1"), results, logs))
                    writer.close()
                    await writer.wait_closed()
        # the client's affair
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.transport.abort()
            connections.remove(writer)

    async with await asyncio.start_server(accept, sock=listening, limit=MOST_BYTES) as server:
        await server.serve_forever()


def response(request, results, logs):
    """The bytes that answer the head of a request; one by another name than this machine's own is
    refused.
    """
    line, *fields = request.split("\r\n")
    host = next((field[5:].strip() for field in fields if field.lower().startswith("host:")), "")
    method, path = f"{line}  ".split(" ")[:2]
    if host.partition(":")[0] not in local.NAMES:
        return _bytes("403 Forbidden", "text/plain", "this page is for this machine only")
    if method != "GET":
        return _bytes("405 Method Not Allowed", "text/plain", "this page can only be read")
    if path == "/":
        return _bytes("200 OK", "text/html; charset=utf-8", live.page())
    page, _, version = path.lstrip("/").partition("/")
    if page == "state":
        return _bytes(
            "200 OK",
            "application/json",
            json.dumps(live.state(results, logs, version), allow_nan=False),
        )
    return _bytes("404 Not Found", "text/plain", "there is no such page")


def _bytes(status, kind, text):
    data = text.encode()
    headers = {
        "Content-Type": kind,
        "Content-Length": len(data),
        "Connection": "close",
        **local.HEADERS,
    }
    head = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    return "\r\n".join(head).encode() + data
