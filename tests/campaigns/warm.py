"""Commands in forks of a process that has imported them already, which saves a second of each.

    warm.py train_network     serves the runs of one stage's script
    warm.py snakemake         serves those of Snakemake

A request is a JSON line. {"start": arguments, "output": file} starts a command in a session of its
own and is answered with its process id; {"wait": process id, "seconds": ...} with its exit status,
or null if it has not ended by then. What the first command that succeeds has imported is imported
for the others.
"""

import atexit
import contextlib
import gc
import importlib
import json
import os
import pathlib
import runpy
import signal
import subprocess
import sys
import time

SCRIPTS = pathlib.Path("workflow", "scripts")  # of a project


class Server:
    """The client's side. name: of a stage's script, or 'snakemake'; environment: beside this
    process's.
    """

    def __init__(self, name, folder, **environment):
        self._process = subprocess.Popen(
            [sys.executable, __file__, name],
            cwd=folder,
            text=True,
            env=os.environ | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def start(self, arguments, output):
        """The process id of a new command."""
        return self._ask({"start": list(map(str, arguments)), "output": str(output)})

    def wait(self, process, seconds):
        """Exit status, negative for a signal; None if it has not ended after `seconds`."""
        return self._ask({"wait": process, "seconds": seconds})

    def run(self, arguments, output, seconds=300):
        return self.wait(self.start(arguments, output), seconds)

    def close(self):
        self._process.stdin.close()
        self._process.wait()

    def _ask(self, request):
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


def main(name):
    if name == "snakemake":
        from snakemake import cli

        def command(arguments):
            sys.argv = ["snakemake", *arguments]
            cli.main(arguments)
    else:
        sys.path.insert(0, str(SCRIPTS.absolute()))
        importlib.import_module(name)

        def command(arguments):
            sys.argv = [str(SCRIPTS / f"{name}.py"), *arguments]
            runpy.run_path(sys.argv[0], run_name="__main__")

    gc.freeze()  # what no fork looks at is not copied
    reader, writer = os.pipe()
    learned = False
    for line in sys.stdin:
        request = json.loads(line)
        answer = _wait(**request) if "wait" in request else os.fork()
        if answer == 0 and "start" in request:
            _detach(request["output"])
            if not learned:
                atexit.register(_tell_modules, writer)
            # ends in sys.exit or here, so that functions registered with atexit run
            command(request["start"])
            sys.exit(0)
        if answer == 0 and not learned:
            learned = True
            _import(os.read(reader, 1 << 20).decode().split())
            gc.freeze()
        print(json.dumps(answer), flush=True)


def _tell_modules(writer):
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):  # others have failed, and told theirs
        os.write(writer, "\n".join(name for name in sys.modules if name.isascii()).encode())


def _import(names):
    """Import modules that belong to no project; a stage's own are imported with its script."""
    for name in names:
        if name.partition(".")[0] not in ("ladder", "__main__") and name not in sys.modules:
            with contextlib.suppress(Exception):
                importlib.import_module(name)


def _wait(wait, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        process, status = os.waitpid(wait, os.WNOHANG)
        if process:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    return None


def _detach(output):
    """Make this process the leader of a session that reads nothing, writes to the file `output` and
    ignores no signal.
    """
    os.setsid()
    # a shell lets its background jobs ignore it
    signal.signal(signal.SIGINT, signal.default_int_handler)
    written = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (written, 1), (written, 2)):
        os.dup2(source, target)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main(sys.argv[1])
