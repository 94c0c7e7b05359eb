"""What a server of a page for this machine alone needs."""

import argparse
import errno
import socket

from ladder.errors import UserError

HOST = "127.0.0.1"
# allowed in the Host header: pages of other sites cannot read, not by DNS rebinding either
NAMES = [HOST, "localhost"]
SECONDS = 20  # for a request to arrive, and for a connection to stay open without one
CONNECTIONS = 500  # at a time, half of the files that a process may open
HEADERS = {
    "Content-Security-Policy": "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def listen(port):
    """A socket that listens on 127.0.0.1; port 0: any free port. Raises UserError if the port is
    not available.
    """
    try:
        return socket.create_server((HOST, port))
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            raise
        why = (
            "in use by another program"
            if error.errno == errno.EADDRINUSE
            else "reserved for privileged programs"
        )
        raise UserError(
            f"port {port} is {why}; choose another: make demo PORT={port + 1 if 1024 <= port < 65535 else 8001} "
            "(PORT=0 selects any free port)"
        ) from error


def port(text):
    """The number of a port on a command line."""
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text} is not a port; choose a number from 0 to 65535")
    return int(text)
