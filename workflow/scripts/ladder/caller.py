"""What a command of Snakemake tells the stages that it runs, on other machines too: one environment
variable, which holds JSON.

    started      nanoseconds since the epoch, by the clock of the file system
    errors       the file that collects error messages for the end of the command's output
    damaged      versions of the artifacts that are made again because they are damaged
    keep_failed  true for lists of runs, where one failed run does not stop the others
    checks       true where a choice of `auto` is worth a check that takes seconds
    elsewhere    true if other machines run the jobs
    watched      true if the command ends the processes that it starts
    quiet        true where the terminal has a line for each stage, and of what stages log only the
                 warnings

Standard library only.
"""

import json
import os
from typing import Any

VARIABLE = "LADDER_COMMAND"


def fact(name: str) -> Any:
    """What the command has told under this name; None if it has told nothing, or no command runs
    this.
    """
    return json.loads(os.environ.get(VARIABLE, "{}")).get(name)


def tell(**facts: Any) -> None:
    """Tell all processes that this one starts; what is told already and not among the facts
    stays.
    """
    os.environ[VARIABLE] = json.dumps(
        {**json.loads(os.environ.get(VARIABLE, "{}")), **facts}, sort_keys=True
    )
