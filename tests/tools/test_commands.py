"""Every benchmark starts as a command of its own, as its docstring shows it."""

import sys

import pytest

import processes
from ladder.sources import ROOT

COMMANDS = sorted(
    path.name
    for path in (ROOT / "benchmarks").glob("*.py")
    if "parse_args" in (text := path.read_text("utf-8")) and "\nimport torch" not in text
)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_benchmark_says_how_it_is_used_without_help_of_pytests_paths(command):
    program = [sys.executable, ROOT / "benchmarks" / command, "--help"]
    run = processes.run(*program)
    assert (run.returncode, run.stderr) == (0, "") and command in run.stdout
