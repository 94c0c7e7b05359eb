"""The table of stages, and the pages that are part of no run."""

import pathlib

import pytest

import planned
from ladder.sources import ROOT
from ladder.workflow import runs
from ladder.workflow.stages import COPIES, LISTED, STAGES


def test_a_stage_has_a_script_and_its_pages_have_names_of_their_own():
    assert {stage.script for stage in STAGES.values()} <= {
        path.relative_to(ROOT).as_posix() for path in (ROOT / "workflow/scripts").glob("*.py")
    }
    pages = [page for copies in COPIES.values() for page in copies]
    assert len(pages) == len(set(pages)) and {pathlib.Path(page).parent.name for page in pages} == {
        "results"
    }
    assert LISTED > {*COPIES["search"], "runs", "results/runs.html"}


def test_a_search_is_made_from_the_reports_of_the_runs_that_can_run():
    run = planned.run()
    entries = [runs.Entry({}, run, "no such GPU"), runs.Entry({}, run, "")]
    parents = planned.page("search", search=entries).parents
    assert {name: parent.stage for name, parent in parents.items()} == {"report1": "report"}


def test_the_page_of_a_network_has_no_parents_and_depends_on_its_size():
    page = planned.page("network")
    assert page.parents == {}
    assert page.version != planned.page("network", planned.run(autoencoder_filters=[8, 4])).version


def test_a_model_is_made_from_the_report_and_from_what_answers_for_the_run():
    own = {"report", "data", "normalized", "train", "features", "svm"}
    assert planned.page("model").parents.keys() == own
    assert planned.page("model", planned.run(network="lenet_5")).parents.keys() == own - {
        "features",
        "svm",
    } | {"evaluate"}
    shifted = planned.run(
        evaluations=["ridge"], classify_shifts=1, features_concatenate=[{"seed": 5}]
    )
    assert planned.page("model", shifted).parents.keys() == own - {"svm"} | {
        "ridge",
        "joined",
        "train_part2",
        "features_part2",
        "shifted1",
        "shifted2",
    }


@pytest.mark.parametrize(
    "keys, stages",
    [
        ({}, {"data": "data", "features": "features", "predictions": "svm"}),
        ({"network": "lenet_5"}, {"data": "data", "predictions": "evaluate"}),
        (
            {"evaluations": ["ridge"], "features_concatenate": [{"seed": 5}]},
            {"data": "data", "features": "joined", "predictions": "ridge"},
        ),
    ],
)
def test_a_table_is_made_from_what_classifiers_read_and_what_answers(keys, stages):
    assert {
        name: parent.stage
        for name, parent in planned.page("table", planned.run(**keys)).parents.items()
    } == stages


def test_the_files_that_a_model_is_copied_from_are_part_of_its_version_alone():
    assert {
        "workflow/resources/model/predict.py",
        "workflow/scripts/ladder/export/layers.py",
    } <= planned.page("model").spec["sources"].keys()
    assert not any(
        "model/" in path or "/export/" in path for path in planned.chain()["report"].spec["sources"]
    )


@pytest.mark.parametrize(
    "keys, products",
    [
        ({}, ["float32"]),
        ({"network": "lenet_5", "precision": "bfloat16"}, ["bfloat16"]),
        ({"features_concatenate": [{"test_multiplier": "am16"}]}, ["am16", "float32"]),
    ],
)
def test_a_model_names_what_the_products_of_all_its_parts_are_rounded_to(keys, products):
    assert planned.page("model", planned.run(**keys)).spec["params"] == {"products": products}
