"""The inputs of the rule that makes each artifact, by what is there: plain Python, no Snakemake."""

import dataclasses
import json
import os
import pathlib

import pytest

import manifest_files
from ladder import caller
from ladder.errors import UserError
from ladder.machine import requirements
from ladder.rungs import catalog
from ladder.workflow import copies, jobs, listed, plans
from ladder.workflow.commands import Command
from ladder.workflow.stages import COPIES

RAW = {
    "svm_backend": "sklearn",
    "array_library": "numpy",
    "variant": "cpu",
    "controls": [],
    "feature_map": False,
}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(caller.VARIABLE, "{}")


@pytest.fixture(scope="module")
def plan():
    return plans.load(RAW)


def jobs_of(plan, text="", now="now"):
    return jobs.Jobs(plan, Command(tuple(text.split()), pathlib.Path(now)), COPIES)


def make(artifact, second, **more):
    """The manifest of an artifact that was made at this second."""
    manifest_files.write(pathlib.Path(artifact.folder), artifact.spec, **more)
    os.utime(artifact.manifest, (second, second))


def make_all(plan, *but):
    for second, (role, artifact) in enumerate(plan.chain.items()):
        if role not in but and artifact.stage not in (
            "parity",
            "network",
            "compare",
            "multipliers",
            "search",
        ):
            make(artifact, 1000 + second)


def inputs(made, plan, role):
    """{role or 'now': whether its time counts} of a stage's inputs."""
    names = {artifact.manifest: name for name, artifact in plan.chain.items()} | {made.now: "now"}
    return {
        names[path]: not is_ancient for path, is_ancient in made.inputs(plan.chain[role].version)
    }


def test_what_is_not_there_waits_for_its_parents(plan):
    assert inputs(jobs_of(plan), plan, "features") == {"normalized": True, "train": True}
    (only,) = jobs_of(plan).inputs(plan.chain["features"].version, "weights")
    assert only == (plan.chain["train"].manifest, False)


def test_what_is_there_follows_parents_that_are_made_again_but_not_newer_file_times(plan):
    make_all(plan)
    assert inputs(jobs_of(plan), plan, "features") == {"normalized": True, "train": True}
    os.utime(plan.chain["train"].manifest, (5000, 5000))  # copied from elsewhere
    assert inputs(jobs_of(plan), plan, "features") == {"normalized": True, "train": False}


def test_a_target_asks_only_for_what_is_damaged_or_missing_above_what_is_whole(plan):
    make_all(plan, "initial")
    pathlib.Path(plan.chain["train"].manifest).write_text("{")
    wanted = {plan.chain[role].manifest for role in ("features", "train", "initial")}
    assert {path for path, _ in jobs_of(plan).inputs_of("features")} == wanted
    assert {path for path, _ in jobs_of(plan).inputs_of("data")} == {plan.chain["data"].manifest}


def test_a_damaged_artifact_is_made_again_and_its_children_are_not(plan):
    make_all(plan)
    pathlib.Path(plan.chain["train"].manifest).write_text("{")
    made = jobs_of(plan)
    assert inputs(made, plan, "train") == {"now": True, "normalized": True, "initial": True}
    assert inputs(made, plan, "features") == {"normalized": True, "train": False}
    assert made.why(plan.chain["train"].version).startswith(
        f"damaged: {plan.chain['train'].manifest} ("
    )
    assert caller.fact("damaged") == [plan.chain["train"].version]


@pytest.mark.parametrize("text", ["-f train", "train -R train"])
def test_a_forced_target_is_made_again_and_so_are_its_children(plan, text):
    make_all(plan)
    made = jobs_of(plan, text)
    assert inputs(made, plan, "train")["now"] and inputs(made, plan, "features") == {
        "normalized": True,
        "train": True,
    }
    assert "now" not in inputs(made, plan, "data")


def test_a_run_that_failed_in_a_list_repeats_its_reason_when_asked_for_alone(plan, monkeypatch):
    make_all(plan)
    make(plan.chain["train"], 2000, failed="it diverged")
    assert "now" in inputs(jobs_of(plan), plan, "train")
    caller.tell(keep_failed=True)
    assert "now" not in inputs(jobs_of(plan), plan, "train")


def test_a_job_that_cannot_run_here_is_refused_and_an_artifact_of_elsewhere_is_taken(monkeypatch):
    monkeypatch.setattr(catalog, "no_gpu", lambda: "needs an NVIDIA GPU")
    plan = plans.load(RAW | {"variant": "gpu_basic"})
    with pytest.raises(UserError, match="variant gpu_basic needs an NVIDIA GPU"):
        jobs_of(plan).inputs(plan.chain["train"].version)
    make_all(plan)
    assert "now" not in inputs(jobs_of(plan), plan, "train")


def test_a_stage_that_the_run_lacks_is_named_with_those_that_it_has(plan):
    with pytest.raises(
        UserError, match="evaluate: this configuration has no such stage; it has data, normalized,"
    ):
        jobs_of(plan).inputs_of("evaluate")


def test_copies_that_are_not_those_of_the_artifact_are_made_anew(plan):
    report = plan.chain["report"]
    make_all(plan)
    for name in ("report.html", "summary.json", "scored_images.csv"):
        manifest_files.add_file(pathlib.Path(report.folder), name, b"<body>\n")
        pathlib.Path("results", name).write_bytes(b"<body>\n")
    assert jobs_of(plan).copied("report") == [(report.manifest, False)]
    pathlib.Path("results/summary.json").write_bytes(b"another")
    assert jobs_of(plan).copied("report") == [(report.manifest, False), ("now", False)]


def test_an_archive_in_results_is_the_file_of_its_artifact_and_no_second_one(
    plan,
):
    artifact, archive = plan.chain["model"], pathlib.Path("results/model.zip")
    make_all(plan)
    manifest_files.add_file(pathlib.Path(artifact.folder), "model.zip", b"PK")
    assert ("now", False) in jobs_of(plan).copied("model")
    copies.publish(artifact.folder, archive)
    assert archive.samefile(pathlib.Path(artifact.folder, "model.zip"))
    assert jobs_of(plan).copied("model") == [(artifact.manifest, False)]
    archive.unlink()
    archive.write_bytes(b"PK")
    assert jobs_of(plan).copied("model") == [(artifact.manifest, False)], (
        "a disk without links has a copy"
    )


def test_a_table_without_its_library_is_a_line_before_anything_is_made(plan, monkeypatch):
    monkeypatch.setattr(requirements.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        UserError,
        match="^table needs pyarrow, not installed here: `make table`, or `pip install pyarrow`$",
    ):
        jobs_of(plan).inputs(plan.chain["table"].version)


def test_a_copy_on_a_disk_without_links_is_compared_with_its_file(plan):
    folder, copy = (
        pathlib.Path(plan.chain["table"].folder),
        pathlib.Path("results/features.parquet"),
    )
    make_all(plan)
    manifest_files.add_file(folder, copy.name, b"PAR1")
    for content in (b"PAR1", b"PAR2"):
        copy.write_bytes(content)
        assert copies.is_published(folder, copy) == (content == b"PAR1")


def test_a_model_that_cannot_be_exported_is_a_line_before_its_parents_are_made():
    plan = plans.load(RAW | {"test_multiplier": "am16"})
    with pytest.raises(UserError, match="the products of this run are rounded .am16."):
        jobs_of(plan).inputs(plan.chain["model"].version)


def test_links_of_a_copy_lead_to_the_artifacts_from_wherever_it_is():
    folder = pathlib.Path("results/report/r0")
    folder.mkdir(parents=True)
    (folder / "report.html").write_bytes(b'<a href="../../train/t0/manifest.json">')
    for copy, link in (
        ("results/report.html", b"train/t0"),
        ("first/results/report.html", b"../../results/train/t0"),
    ):
        os.makedirs(os.path.dirname(copy), exist_ok=True)
        copies.publish(folder, copy)
        assert copies.is_published(folder, copy)
        assert pathlib.Path(copy).read_bytes() == b'<a href="' + link + b'/manifest.json">'


def test_file_times_are_put_in_the_order_of_the_work_and_none_lies_ahead(plan):
    make_all(plan)
    for second, role in ((9000, "data"), (50, "features"), (10**11, "svm")):
        os.utime(plan.chain[role].manifest, (second, second))
    now = 8000 * 10**9
    jobs_of(plan).put_in_order(now)
    times = {
        role: os.stat(artifact.manifest).st_mtime_ns
        for role, artifact in plan.chain.items()
        if os.path.exists(artifact.manifest)
    }
    assert times["data"] == now and max(times.values()) <= now
    for role, artifact in plan.chain.items():
        for above in (
            one.role for one in artifact.parents.values() if role in times and one.role in times
        ):
            assert times[above] <= times[role], (above, role)
    jobs_of(plan).put_in_order(now)
    assert {role: os.stat(plan.chain[role].manifest).st_mtime_ns for role in times} == times, (
        "nothing moves again"
    )


def test_a_command_with_nothing_to_do_is_idle_and_one_with_work_is_not(plan):
    made = jobs_of(plan)
    assert made.idle is None
    made.inputs_of("train")
    made.inputs(plan.chain["train"].version)
    assert made.idle is False
    make_all(plan)
    made = jobs_of(plan)
    for role in ("train", "normalized", "data", "initial"):
        made.inputs_of(role)
        made.inputs(plan.chain[role].version)
    assert made.idle is True


def test_options_and_threads_are_those_of_the_run_that_needs_the_artifact():
    plan = plans.load(
        RAW | {"threads": 2, "runs": [{"threads": 1, "seed": 5, "data_residency": "host"}]}
    )
    made, other = (
        jobs_of(plan),
        plan.runs.keys() - {artifact.version for artifact in plan.chain.values()},
    )
    of_seed_5 = next(version for version in other if plan.artifacts[version].stage == "train")
    assert (
        made.threads(plan.chain["train"].version),
        made.threads(of_seed_5),
        made.threads(None),
    ) == (2, 1, 2)
    assert (
        made.options(of_seed_5, "data_residency", fixed="a b")
        == "--option data_residency=host --option 'fixed=a b'"
    )


def test_the_page_of_runs_needs_the_report_of_each_run_that_is_listed():
    entries = [{"seed": [1, 5], "tag": "seeds"}, {"svm_C": 3, "name": "soft"}]
    search = {"keys": {"optimizer": ["sgd", "adam"]}, "strategy": "grid"}
    plan = plans.load(RAW | {"runs": entries, "search": search})
    rows = json.loads(json.dumps(listed.rows(plan.listed)))
    assert [(row["name"], row["tags"], row["settings"]) for row in rows] == [
        ("", ["seeds"], {}),
        ("", ["seeds"], {"seed": 5}),
        ("soft", [], {"svm_C": 3}),
        ("", ["search"], {"optimizer": "sgd"}),
        ("", ["search"], {"optimizer": "adam"}),
    ]
    assert rows[0]["report"] == plan.chain["report"].folder
    read = {path for path, _ in jobs_of(plan).listed()}
    assert {f"{row[key]}/manifest.json" for row in rows for key in ("report", "weights")} == read


@pytest.mark.parametrize(
    "dataset, keys, trains, threads",
    [
        ("digits", {"epochs": 1}, 3, 3),
        ("digits", {"epochs": 1000}, 7, 3),
        ("digits", {"steps": 20}, 3, 3),
        ("digits", {"steps": 20_000}, 7, 3),
        ("digits", {"network": "autoencoder", "training": "patches"}, 7, 3),
        ("cifar10", {"epochs": 1}, 7, 7),
    ],
)
def test_stages_on_few_images_and_short_trainings_share_all_threads(
    monkeypatch, dataset, keys, trains, threads
):
    monkeypatch.setattr(jobs.runtime, "available_cores", lambda: 7)
    plan = plans.load({**RAW, "dataset": dataset, **keys, "threads": "all"})
    made = jobs_of(plan)
    found = [made.threads(plan.chain[role].version) for role in ("train", "normalized", "report")]
    assert found == [trains, threads, 1]


@pytest.mark.parametrize("dataset, threads", [("mnist", 3), ("cifar10", 7)])
def test_stages_without_a_training_share_the_threads_of_more_images(monkeypatch, dataset, threads):
    monkeypatch.setattr(jobs.runtime, "available_cores", lambda: 7)
    fitted = {"network": "patch_net", "training": "patches", "features_pool": "none"}
    # "strong" is the untrained network of a run that would be trained
    fitted |= {"controls": ["strong"]}
    plan = plans.load({**RAW, **fitted, "dataset": dataset, "threads": "all"})
    assert jobs_of(plan).threads(plan.chain["patches"].version) == threads


def test_presets_and_lists_are_reached_and_a_preset_that_fits_nothing_is_named(plan):
    pathlib.Path("presets").mkdir()
    pathlib.Path("presets/odd.yaml").write_text("network: lenet_5\nfeatures_layer: latent\n")
    pathlib.Path("presets/mine.yaml").write_text("seed: 77\n")
    artifacts, faults = plans.reached(plan)
    assert f"train/{plan.chain['train'].version}" in artifacts
    assert f"train/{plans.load(RAW | {'seed': 77}).chain['train'].version}" in artifacts
    assert len(faults) == 1 and faults[0].startswith(
        "presets/odd.yaml does not go with config.yaml: config: features_layer"
    )


def test_the_settings_of_the_command_line_are_merged_into_those_of_config_yaml():
    pathlib.Path("config.yaml").write_text("search: {budget: 3, seed: 2}\ntags: [a, b]\n")
    assert plans.base({"search": {"seed": 5}, "tags": ["c"]}, here=True) == {
        "search": {"budget": 3, "seed": 5},
        "tags": ["c"],
    }
    assert "search" not in plans.base({}, here=False)
    with pytest.raises(UserError, match="epochs is {}, but must be a whole number"):
        plans.base({"epochs": {}}, here=True)


def test_a_run_is_frozen(plan):
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan.run.network = None
