"""Sections of compute-sanitizer: each of its tools on a short step of each rung, which runs 10 to
100 times slower then.
"""

import itertools
import pathlib
import re
import sys

import programs
from ladder.machine.worker import Failed
from sections import Section, runnable

HERE = pathlib.Path(__file__).resolve().parent
TOOLS = ("racecheck", "memcheck", "synccheck", "initcheck")
FOUND = 86  # exit status where a tool has found something
SECONDS = 60  # time limit of one tool on one rung
MOST = 4000  # characters that are kept of what a tool says of a rung
SUMMARY = re.compile(r"(?:ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard)")


def sections(rungs):
    """A Section for each tool on each rung that this GPU runs; none where compute-sanitizer is not
    installed.
    """
    program = programs.find("compute-sanitizer")
    for tool in TOOLS if program else ():
        for rung in runnable(rungs):
            yield Section(
                section_name(tool, rung),
                lambda session, seconds, tool=tool, rung=rung: check(program, tool, rung, seconds),
                SECONDS,
            )


def section_name(tool, rung):
    return f"{tool}: {rung}"


def check(program, tool, rung, seconds):
    """{"errors": their number, "said": lines, "left_out": how many more lines}; raises Failed where
    the tool could not run.
    """
    step = [sys.executable, str(HERE / "one_step.py"), rung, "--batch", "3", "--warm-up", "1"]
    options = ["--racecheck-report", "all"] if tool == "racecheck" else []
    status, output = programs.run(
        [program, "--tool", tool, *options, "--error-exitcode", str(FOUND), *step], seconds
    )
    if status is None:
        raise Failed(f"was ended after {seconds:.0f} s", timed_out=True)
    said = [
        line.removeprefix("=========").strip() for line in output if line.startswith("=========")
    ]
    summary = SUMMARY.search("\n".join(output))
    if status not in (0, FOUND) or not summary:
        raise Failed(
            f"compute-sanitizer ended with status {status}: {(said or output or [''])[-1][:150]}"
        )
    said = [line for line in said if line and "COMPUTE-SANITIZER" not in line]
    sizes = itertools.accumulate(len(line) + 1 for line in said)
    shown = [line for line, size in zip(said, sizes, strict=True) if size <= MOST]
    return {
        "errors": int(summary[1] or summary[2] or 0),
        "said": shown,
        "left_out": len(said) - len(shown),
    }
