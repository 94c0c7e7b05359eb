"""The process of a Worker (processes.py): calls functions of one module, one after another, as the parent asks.

    python benchmarks/worker.py FILE_DESCRIPTOR MODULE

The parent sends (name of a function, arguments) and receives ("done", result) or ("failed", reason in one line). Results are
sent as JSON, so that the parent needs none of the module's libraries. An exception ends the process: after a CUDA error
nothing else in it can be trusted.
"""

import importlib
import json
import multiprocessing.connection
import os
import sys
import traceback


def main(descriptor, module):
    pipe = multiprocessing.connection.Connection(int(descriptor))
    while True:
        try:
            name, arguments = json.loads(pipe.recv_bytes())
        except EOFError:   # the parent has closed its end
            return
        try:
            value = getattr(importlib.import_module(module), name)(*arguments)
            answer = json.dumps(["done", value], default=float)
        except BaseException as error:   # SystemExit too: the parent must hear of everything
            traceback.print_exc()
            pipe.send_bytes(json.dumps(["failed", one_line(error)]).encode())
            sys.stderr.flush()
            os._exit(1)   # without CUDA's own end, which may hang after an error
        pipe.send_bytes(answer.encode())


def one_line(error, most=200):
    """An exception as one line: its message alone where it is meant for the user, else its type too."""
    text = " ".join(str(error).split())
    if type(error).__name__ not in ("UserError", "RunFailed", "Unavailable"):
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return text if len(text) <= most else f"{text[:most - 1]}…"


if __name__ == "__main__":
    main(*sys.argv[1:])
