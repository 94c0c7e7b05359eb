"""Commands that a test runs, with what they print as text."""

import subprocess
import sys


def run(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, **options)


def python(*arguments, **options):
    return run(sys.executable, *arguments, **options)
