"""Two processes that need the same function of Numba compile it once."""

import os
import subprocess
import sys

from ladder.sources import ROOT

PROGRAM = """
import sys
import numba
import one_compiler
from module import total
one_compiler.install()
print("ready", flush=True)
sys.stdin.readline()
total(3)
print(len(total.stats.cache_misses))
"""
MODULE = """
import numba

@numba.njit(cache=True)
def total(count):
    sums = 0
    for i in range(count):
        sums += i
    return sums
"""


def test_a_function_is_compiled_by_one_of_two_processes_and_found_by_the_other(tmp_path):
    (tmp_path / "module.py").write_text(MODULE)
    path = os.pathsep.join(map(str, (tmp_path, ROOT / "tests/support", ROOT / "workflow/scripts")))
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "PYTHONPATH": path},
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for _ in range(2)
    ]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    assert sorted(process.communicate()[0] for process in processes) == ["0\n", "1\n"]
