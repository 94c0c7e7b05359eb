"""The real chain on a folder of pictures without labels: its report, its table, its model, and a
page that shows none of them.
"""

import json
import re
import zipfile

import jsonschema
import numpy as np
import pyarrow.parquet
import pytest
from PIL import Image
from sklearn.datasets import load_digits

import page_text
import processes
from ladder.pages import summary_keys
from ladder.sources import ROOT

COUNT = 24
SETTINGS = ["epochs=2", "batch_size=8", "threads=1", "image_channels=1", "wta_filters=4"]


def run(folder, *words):
    """What `kernel-ladder` prints for these words in a folder."""
    program = [ROOT / "workflow/scripts/run_workflow.py", "-s", ROOT / "Snakefile", "--cores", "1"]
    done = processes.python(*program, *words, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder in which the report, the table and the model of pets/ were made."""
    home = tmp_path_factory.mktemp("home")
    (home / "pets/more").mkdir(parents=True)
    digits = np.uint8(load_digits().images[:COUNT] * 255 / 16)
    for number, digit in enumerate(digits):
        Image.fromarray(digit).save(home / f"pets/{'more/' * (number % 2)}scan{number:02d}.png")
    Image.fromarray(digits[0]).save(home / "pets/copy_of_scan00.png")
    (home / "said").write_text(
        run(home, "report", "table", "model", "pets", "--config", *SETTINGS), "utf-8"
    )
    return home


def test_the_report_says_how_often_changed_copies_are_found_and_nothing_of_classes(home):
    summary = json.loads((home / "results/summary.json").read_text())
    jsonschema.validate(summary, summary_keys.schema())
    copies, page = summary["changed_copies"], (home / "results/report.html").read_text()
    assert (copies["pictures"], copies["among"]) == (5, COUNT + 1)
    assert [control["control"] for control in copies["controls"]] == ["random", "pixels"]
    assert summary["verdict"] in (home / "said").read_text()
    assert summary["classes"] == [] and summary["test_accuracy"] is None
    assert sum(summary["likeness"]["clusters"]) == COUNT + 1
    headings = re.findall(r"<h2[^>]*>([^<]+)</h2>", page)
    assert headings[:4] == ["Your pictures", "Copies", "Like no other", "Clusters, as suggestions"]
    words = page_text.text_of(page)
    assert not re.search("accurac|confusion|SVM|misclassified", words, re.I)
    assert "copy_of_scan00.png" in re.search("<textarea[^>]*>([^<]*)<", page)[1]


def test_the_table_names_neighbours_clusters_and_copies(home):
    rows = pyarrow.parquet.read_table(home / "results/features.parquet").to_pylist()
    by_name = {row["file"]: row for row in rows}
    assert len(by_name) == len(rows) == COUNT + 1
    assert by_name["copy_of_scan00.png"]["copy_of"] == "scan00.png"
    assert [row["file"] for row in rows if row["copy_of"]] == ["copy_of_scan00.png"]
    assert by_name["scan00.png"]["neighbours"][0] == "copy_of_scan00.png"
    assert by_name["scan00.png"]["likeness"][0] == pytest.approx(1, abs=1e-5)
    assert {row["cluster"] for row in rows} == {1, 2}
    assert np.stack([row["features"] for row in rows]).std() > 0


def test_the_exported_model_finds_a_picture_among_those_of_its_run_and_places_it(home, tmp_path):
    with zipfile.ZipFile(home / "results/model.zip") as archive:
        archive.extractall(tmp_path)
    folder = tmp_path / "kernel_ladder_model"
    picture = home / "pets/more/scan07.png"
    done = processes.python(folder / "predict.py", picture)
    assert ": more/scan07.png (1.000), " in done.stdout, done.stderr
    names = json.loads((folder / "pictures.json").read_text())
    vectors, places = (np.load(folder / name) for name in ("pictures.npy", "map.npy"))
    cosines = vectors.astype(np.float32) @ vectors[names.index("more/scan07.png")]
    nearest = np.flatnonzero(cosines > max(0, np.sort(cosines)[-11]))
    x, y = cosines[nearest] @ places[nearest] / cosines[nearest].sum()
    found = re.search(
        r"on the map at ([\d.]+) from the left and ([\d.]+) from the top", done.stdout
    )
    assert [float(number) for number in found.groups()] == pytest.approx([x, y], abs=0.011)
    program = "import model_sklearn; model_sklearn.Classifier().predict([[0]])"
    done = processes.python("-c", program, cwd=folder)
    assert "had no labels, so it names no class; take Features" in done.stderr.splitlines()[-1]


def test_pages_show_no_picture_and_no_name_where_they_are_not_to_be_shared(home):
    (home / "out.txt").write_text("copy_of_scan00.png\n")
    lists = ["share=false", "leave_out=out.txt", "runs=[{svm_C: [3]}]", "feature_map=false"]
    run(home, "report", "runs", "pets", "--config", *SETTINGS, *lists)
    shared = json.loads((home / "results/summary.json").read_text())["versions"]["report"]
    pages = [home / "results/report.html", *home.glob(f"results/runs/{shared}*.*")]
    for page in pages:
        assert not re.search(r"scan\d|pets|image/webp", page.read_text()), page
    assert len(pages) == 2, "no pictures of errors"
    assert json.loads((home / "results/summary.json").read_text())["images"]["skipped"] == 1


def test_what_needs_labels_is_one_line(home):
    for words, line in (
        (
            ["report", "pets", "--config", "network=lenet_5", "batch_size=8"],
            "is trained with labels, but 20 of 20",
        ),
        (
            ["results/predictions.html", "pets", "--config", "predict=pets", "batch_size=8"],
            "it names no classes; .*results/model.zip, whose predict.py names the most alike",
        ),
    ):
        with pytest.raises(AssertionError, match=line):
            run(home, *words)
