"""The contracts of import-linter in pyproject.toml are effective: a forbidden import breaks its
contract.
"""

import pathlib
import shutil
import sys

import pytest

import processes
from ladder.sources import ROOT, SCRIPTS

LINTER = pathlib.Path(sys.executable).parent / "lint-imports"


@pytest.fixture
def project(tmp_path):
    """A copy of the library with its contracts."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copytree(
        SCRIPTS / "ladder", tmp_path / "ladder", ignore=shutil.ignore_patterns("__pycache__")
    )
    return tmp_path


def broken(project):
    """The names of the contracts that the copy breaks."""
    lines = processes.run(
        LINTER, "--no-cache", cwd=project, env={"PYTHONPATH": str(project), "COLUMNS": "200"}
    ).stdout.splitlines()
    assert any(line.startswith("Contracts: ") for line in lines), lines
    return {
        name for name, is_broken, _ in (line.partition(" BROKEN") for line in lines) if is_broken
    }


FORBIDDEN = {  # contract: (module, an import that breaks it)
    "Imports go downwards": ("store/artifacts.py", "from ladder.pages import figures"),
    "A plan does not know what runs it": (
        "plan/builder.py",
        "from ladder.executors import create",
    ),
    "An executor does not know the network": (
        "executors/sequential.py",
        "from ladder.network import networks",
    ),
    "The rungs of the CPU do not depend on those of the GPU": (
        "rungs/cpu.py",
        "from ladder.rungs import gpu_basic",
    ),
    "Only the CUDA executor, the SVM and the array libraries speak to a GPU": (
        "features/patches.py",
        "import cupy",
    ),
}


def test_a_forbidden_import_breaks_its_contract(project):
    for module, statement in FORBIDDEN.values():
        with open(project / "ladder" / module, "a") as file:
            file.write(f"\n{statement}\n")
    assert broken(project) == FORBIDDEN.keys()


def test_a_new_package_must_be_added_to_the_contracts(project):
    (project / "ladder/extra").mkdir()
    (project / "ladder/extra/__init__.py").write_text("")
    assert broken(project) == {"Imports go downwards"}
