"""The notebooks are stripped and run from top to bottom without a GPU; that for Google Colab names
what there is, and runs twice.
"""

import json
import re
import shutil
import sys

import nbformat
import pytest
from nbclient import NotebookClient

from ladder.rungs import catalog
from ladder.sources import ROOT
from ladder.workflow import settings
from ladder.workflow.stages import COPIES

NOTEBOOK = ROOT / "docs/colab.ipynb"
TEXT = "\n".join(cell["source"] for cell in nbformat.read(NOTEBOOK, as_version=4).cells)
LEFT_OUT = (
    ".git",
    ".venv*",
    "results",
    "logs",
    ".snakemake",
    "__pycache__",
    ".*_cache",
    "mine",
    "mine.py",
)


@pytest.mark.parametrize(
    "path", sorted((ROOT / "docs").glob("*.ipynb")), ids=lambda path: path.name
)
def test_it_is_a_valid_notebook_without_outputs(path):
    notebook = nbformat.read(path, as_version=nbformat.NO_CONVERT)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert cells and all(cell.outputs == [] and cell.execution_count is None for cell in cells)


def test_the_files_targets_keys_and_rungs_that_it_names_exist():
    paths = re.findall(r"\b(?:workflow|kernels|docs|benchmarks|envs)/[\w./-]*\w|\b[A-Z]+\.md", TEXT)
    assert (
        len(paths) > 5
        and [path for path in paths if not (ROOT / path).exists() and "/mine" not in path] == []
    )
    targets = re.search(r"^TARGETS = (.*)", (ROOT / "Makefile").read_text("utf-8"), re.M)[1].split()
    assert (
        set(re.findall(r"[`\"]make (\w+)", TEXT))
        == {"report", "rung", "check", "clean"}
        <= {*targets}
    )
    pages = {name for names in COPIES.values() for name in names}
    assert set(re.findall(r"results/\w+\.\w+", TEXT)) <= pages
    assert set(re.findall(r" (\w+)=", re.search(r"--config ([^\"]*)", TEXT)[0])) <= {*settings.KEYS}
    assert set(re.findall(r"\b(?:gpu_(?!check)|cpu_)\w+", TEXT)) <= {*catalog.RUNGS}


@pytest.mark.skipif(
    shutil.which("g++") is None or shutil.which("make") is None,
    reason="no g++ or make (Debian packages)",
)
def test_it_runs_from_top_to_bottom_and_again(tmp_path):
    checkout = checkout_in(tmp_path)
    before = {*checkout.iterdir()}
    first, second = run(checkout), run(checkout)
    for texts in first, second:
        assert "Chosen: the rung " in texts["numbers"] and "An SVM on features" in texts["numbers"]
        assert " ms</td></tr>" in texts["race"] and "results/parity.html" in texts["race"]
        assert "mine: out of bounds: conv2d_forward: thread" in texts["wrong"]
        assert re.search(
            r"mine: faster by counts: .* 1\.\d+ times as fast as gpu_basic", texts["right"]
        )
    assert (
        "wrote kernels/mine/conv2d.cu" in first["rung"]
        and "The rung mine is there already." in second["rung"]
    )
    assert [*tmp_path.iterdir()] == [checkout] and {*checkout.iterdir()} - before == {
        checkout / name for name in ("results", "logs", ".snakemake")
    }


def test_it_runs_from_pictures_to_a_table_a_map_and_neighbours(tmp_path):
    texts = run(checkout_in(tmp_path), "pictures")
    assert "150 pictures, " in texts["table"] and "<th>prediction</th>" in texts["table"]
    assert texts["map"].count("<image href") == 30  # a fifth are test pictures
    assert texts["neighbours"].count("<figure") == 9 and "<figcaption>1.00" in texts["neighbours"]


def test_it_runs_from_a_table_of_products_to_three_accuracies(tmp_path):
    texts = run(checkout_in(tmp_path), "multiplier")
    accuracies = [float(share) for share in re.findall(r"<td>([\d.]+) %", texts["accuracies"])]
    assert len(accuracies) == 3 and accuracies[0] > 80 and accuracies[0] - accuracies[1] < 5


def checkout_in(folder):
    checkout = shutil.copytree(ROOT, folder / "checkout", ignore=shutil.ignore_patterns(*LEFT_OUT))
    (checkout / ".venv").symlink_to(sys.prefix)
    return checkout


def run(checkout, name="colab"):
    """Cell -> the text of its outputs, as JSON."""
    notebook = nbformat.read(checkout / f"docs/{name}.ipynb", as_version=4)
    NotebookClient(
        notebook, timeout=900, resources={"metadata": {"path": checkout / "docs"}}
    ).execute()
    return {
        cell.id: json.dumps(cell.outputs) for cell in notebook.cells if cell.cell_type == "code"
    }
