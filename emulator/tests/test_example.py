"""The notebook is stripped and runs from top to bottom."""

import pathlib
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parents[1]
nbformat = pytest.importorskip("nbformat")


def test_the_notebook_runs_and_prints_the_race(tmp_path):
    from nbclient import NotebookClient

    notebook = nbformat.read(HERE / "example.ipynb", as_version=4)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.outputs == [] and cell.execution_count is None for cell in cells)
    client = NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}})
    client.create_kernel_manager().kernel_cmd = [
        sys.executable,
        "-m",
        "ipykernel_launcher",
        "-f",
        "{connection_file}",
    ]
    client.execute()
    printed = ["".join(output.get("text", "") for output in cell.outputs) for cell in cells]
    assert printed[1].startswith(
        "reverse: race: thread (32,0,0) of block (0,0,0) writes tile[32], "
    )
    assert printed[3].startswith("() ") and "bank conflict" in printed[4]
