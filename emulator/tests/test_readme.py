"""What README.md shows runs and prints what it says, and it names every kind of fault."""

import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

import cuda_emulator

HERE = pathlib.Path(__file__).resolve().parents[1]
TEXT = (HERE / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
KERNEL, PROGRAM, COPY = (text for language, text in BLOCKS if language == "cuda")
_, SCRIPT = (text for language, text in BLOCKS if language == "python")
SHOWN, SUMMARY, OF_PROGRAM, FAULT = (text for language, text in BLOCKS if not language)
_, COMMAND, _, RUN = (text for language, text in BLOCKS if language == "sh")
RIGHT = KERNEL.replace("    y[i]", "    __syncthreads();\n    y[i]")


def example(folder, kernel, *words):
    """A process that has ended, with the example's kernel in its folder; words: of Python."""
    (folder / "reverse.cu").write_text(kernel)
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_script_ends_with_the_fault_that_it_has(tmp_path):
    run = example(tmp_path, KERNEL, "-c", SCRIPT)
    assert (run.returncode, run.stdout) == (1, "")
    assert run.stderr.splitlines()[-1] == " ".join(FAULT.split())


def test_the_script_prints_its_counts_once_it_has_the_barrier(tmp_path):
    run = example(tmp_path, RIGHT, "-c", SCRIPT)
    assert (run.returncode, run.stderr) == (0, "") and f"it prints `{run.stdout.strip()}`" in TEXT


@pytest.mark.parametrize("kernel, status, shown", [(KERNEL, 1, SHOWN), (RIGHT, 0, SUMMARY)])
def test_the_command_prints_what_is_shown(tmp_path, kernel, status, shown):
    words = COMMAND.split()
    assert words[0] == "cuda-emulator"
    run = example(tmp_path, kernel, "-m", "cuda_emulator", *words[1:])
    printed = " ".join(run.stdout.replace(f"{tmp_path}{os.sep}", "").split())
    assert run.returncode == status and printed.startswith(" ".join(shown.split()))


def test_the_program_runs_and_its_launch_has_the_fault(tmp_path):
    (tmp_path / "main.cu").write_text(PROGRAM)
    run = example(tmp_path, KERNEL, "-m", "cuda_emulator", *RUN.split()[1:])
    printed = " ".join(run.stderr.replace(f"{tmp_path}{os.sep}", "").split())
    assert (run.returncode, run.stdout) == (1, "1000\n")
    assert " ".join(OF_PROGRAM.split()) in printed


def test_a_kernel_calls_the_emulator_in_place_of_ptx(tmp_path):
    (tmp_path / "copied.cu").write_text(
        COPY
        + """
extern "C" __global__ void copied(const float* x, float* y) {
    __shared__ __align__(16) float held[4];
    copy_16_bytes(held, x);
    emulator::cp_async_commit_group();
    emulator::cp_async_wait_group<0>();
    for (int i = 0; i < 4; i++) y[i] = held[i];
}
"""
    )
    x, y = np.arange(4, dtype=np.float32), np.zeros(4, np.float32)
    cuda_emulator.check(
        cuda_emulator.load(tmp_path / "copied.cu").get_function("copied"), (1,), (1,), (x, y)
    )
    assert (x == y).all()


def test_every_kind_of_fault_is_in_the_table():
    sources = "".join(
        path.read_text() for path in (HERE / "src/cuda_emulator").iterdir() if path.is_file()
    )
    named = "|".join(
        [
            r"describe\(\s*(?:\w+ \? )?",
            r"without_thread\(",
            r"sizeof fault.kind, ",
            r"KernelFault\(\s*[\w.]+,\s*",
            r"Fault\(\s*[\w.]+,\s*",
            r'(?:=|else) (?="order of)',
        ]
    )
    kinds = {
        *re.findall(rf'(?:{named})"([a-z .]+)"', sources),
        *(f"bad {what}" for what in re.findall(r'must_be_shared\(.*"(.+)"\)', sources)),
    }
    assert set(re.findall(r"^\| `(.+?)` \|", TEXT, re.MULTILINE)) == kinds
