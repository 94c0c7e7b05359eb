"""Snakemake in a process that has imported it already: each command runs in a fork, which saves a
second of every call.

`python snakemake_server.py` reads a JSON object a line, {"arguments", "folder", "environment",
"output": a file}, runs `snakemake` with them as a new process would, and answers with its exit
status. Nothing of the project is imported before the fork.
"""

import atexit
import functools
import importlib
import json
import os
import subprocess
import sys

# What every command imports later, a fifth of the time of one that does nothing.
LATER = (
    "PIL.ImageOps",
    "requests",
    "smart_open",
    "snakemake.report.html_reporter",
    "snakemake.storage",
)


@functools.cache
def server():
    """One process for all tests of this one."""
    process = subprocess.Popen(
        [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    atexit.register(process.stdin.close)
    return process


def run(arguments, folder, **environment):
    """(exit status, output) of `snakemake` with these arguments in the folder; environment: beside
    this process's.
    """
    output = folder / ".output.txt"
    request = {
        "arguments": list(arguments),
        "folder": str(folder),
        "environment": dict(os.environ | environment),
        "output": str(output),
    }
    server().stdin.write(json.dumps(request) + "\n")
    server().stdin.flush()
    return int(server().stdout.readline()), output.read_text()


def become(request):
    """Make this process what a new one for the request would be."""
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    output = os.open(request["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    sys.argv = ["snakemake", *request["arguments"]]


def main():
    from snakemake import cli

    for name in LATER:
        importlib.import_module(name)
    for line in sys.stdin:
        request = json.loads(line)
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            become(request)
            # ends in sys.exit, so that functions registered with atexit run
            cli.main(request["arguments"])
            sys.exit(0)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
