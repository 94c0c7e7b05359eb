"""The frame of a program that a person or a rule calls, other than a stage: its status, its faults,
its end.
"""

import argparse
import contextlib
import pathlib
import signal
import sys

from ladder import caller
from ladder.errors import UserError


def run(main):
    """End the process with the status of `main`: with 2 and one line after a UserError, with 130
    after Ctrl-C.

    A reader that goes away (`| head`) ends it without a word, as it ends other programs. Not for
    servers, whose clients would.
    """
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    interrupt_once()
    try:
        sys.exit(main())
    except UserError as error:
        print(error, file=sys.stderr)
        repeat_at_the_end(str(error))
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)


def parser(description: str, of_configuration: bool = False) -> argparse.ArgumentParser:
    """For the arguments of a program; of_configuration: one is the file of a configuration."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    if of_configuration:
        parser.add_argument(
            "--config-file", type=pathlib.Path, required=True, help="the configuration as JSON"
        )
    return parser


def interrupt_once() -> None:
    """Let the first Ctrl-C end this process as usual, and ignore others while it ends: they would
    print a traceback.
    """

    def interrupt(number: int, frame: object) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        raise KeyboardInterrupt

    # not where a shell's background jobs are deaf to it
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt)


def repeat_at_the_end(message: str) -> None:
    """Make a message one of the last lines of the workflow's output, where a rule has called this
    program.
    """
    if errors := caller.fact("errors"):
        with contextlib.suppress(OSError), open(errors, "a", encoding="utf-8") as file:
            file.write(message + "\n")  # a full disk has no room for it either
