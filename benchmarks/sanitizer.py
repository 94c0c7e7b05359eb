"""Sections of compute-sanitizer: each of its tools on a short step of each rung, which runs 10 to 100 times slower then."""

import pathlib
import re
import sys

import tools
from ladder.machine.worker import Failed
from ladder.rungs import catalog
from sections import Section

HERE = pathlib.Path(__file__).resolve().parent
TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
FOUND = 86            # exit status where a tool has found something
SECONDS = 120         # time limit of one tool on one rung
UNTIL = 0.35          # of the time: times are measured after that
SUMMARY = re.compile(r"(?:ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard)")


def sections(record, rungs, torch_python):
    """A Section for each tool on each rung that this GPU runs; none where compute-sanitizer is not installed."""
    program = tools.find("compute-sanitizer")
    for rung in rungs if program else ():
        for tool in TOOLS if catalog.unavailable(rung) is None else ():
            yield Section(section_name(tool, rung), lambda session, seconds, tool=tool, rung=rung:
                          check(program, tool, rung, seconds), SECONDS, until=UNTIL)


def section_name(tool, rung):
    return f"{tool}: {rung}"


def check(program, tool, rung, seconds):
    """{"errors": their number, "first": the first one}; raises Failed where the tool could not run."""
    step = [sys.executable, str(HERE / "one_step.py"), rung, "--batch", "3", "--warm-up", "1"]
    status, output = tools.run([program, "--tool", tool, "--error-exitcode", str(FOUND), *step], seconds)
    if status is None:
        raise Failed(f"was ended after {seconds:.0f} s", timed_out=True)
    said = [line.removeprefix("=========").strip() for line in output if line.startswith("=========")]
    summary = SUMMARY.search("\n".join(output))
    if status not in (0, FOUND) or not summary:
        raise Failed(f"compute-sanitizer ended with status {status}: {(said or output or [''])[-1][:150]}")
    errors = int(summary[1] or summary[2] or 0)
    first = next((line for line in said if "COMPUTE-SANITIZER" not in line), "")
    return {"errors": errors, "first": first[:200] if errors else ""}
