"""Processes that the permissions of files bind."""

import os


def unprivileged():
    """The beginning of a command that file permissions bind, as they do not bind root."""
    dropped = "-dac_override,-dac_read_search"
    return (
        ["setpriv", "--bounding-set", dropped, "--inh-caps", dropped] if os.geteuid() == 0 else []
    )
