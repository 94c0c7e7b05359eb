"""A results folder with several synthetic runs (synthetic_run.py), each with its own versions, made
without training.
"""

import hashlib
import json
import os
import pathlib
import shutil

import numpy as np

import make_report
import manifest_files
import synthetic_run
from ladder.network import networks, weights
from ladder.pages import intervals
from ladder.store import artifacts

# Setting -> (stage, parameter) that it changes, besides the parameters of the training.
ADDED = {
    "svm_C": ("svm", "C"),
    "normalization": ("normalized", "normalization"),
    "train_limit": ("data", "train_limit"),
}


def add(
    results,
    made="2026-01-31T12:34:56Z",
    name=None,
    tags=None,
    faster=1.0,
    noise=None,
    loss=1.0,
    sources=None,
    **settings,
):
    """Write a run with its report below `results`; returns {role: artifacts.Artifact}.

    settings: of synthetic_run.SyntheticSettings, and parameters of the training or of ADDED;
    faster: speed-up of its training; noise: standard deviation of the noise added to its weights;
    loss: factor of its losses; sources: {stage: digest of its file}.
    """
    own = {
        key: settings.pop(key)
        for key in list(settings)
        if key in synthetic_run.SyntheticSettings.__dataclass_fields__
    }
    fresh = pathlib.Path(results, ".fresh")
    run = synthetic_run.make(fresh, **own)
    if "train" in run:
        _change_training(
            run["train"],
            faster,
            noise,
            loss,
            {key: value for key, value in settings.items() if key not in ADDED},
        )
    _report(fresh, run, {key: value for key, value in (("name", name), ("tags", tags)) if value})
    renamed = {}
    order = {one.version: one for one in run.values()} | {synthetic_run.version("report"): None}
    for version in order:
        renamed[version] = _move(results, fresh, version, renamed, settings, made, sources or {})
    shutil.rmtree(fresh)
    roles = {role: one.version for role, one in run.items()} | {
        "report": synthetic_run.version("report")
    }
    return {role: artifacts.Artifact(renamed[version]) for role, version in roles.items()}


def vary(results, run, made, accuracy, **training):
    """Write a copy of a run's report with another time and accuracy, and of its training with other
    parameters.

    run: of `add`; accuracy: about the one in its summary, a whole number of images. Returns the
    version of the report.
    """
    digits = hashlib.sha256(json.dumps([made, training]).encode()).hexdigest()[:11]
    train, report = (
        shutil.copytree(
            run[role].folder,
            pathlib.Path(results, role, f"{role[0]}{digits}"),
            copy_function=os.link,
        )
        for role in ("train", "report")
    )
    spec = run["train"].manifest["spec"]
    manifest_files.rewrite(train, spec={**spec, "params": {**spec["params"], **training}})
    summary = run["report"].json("summary.json")
    images = sum(map(sum, summary["confusion"]))
    reached = round(accuracy * images) / images
    (report / "summary.json").unlink()  # it is a link
    (report / "summary.json").write_text(
        json.dumps(
            summary
            | {"test_accuracy": reached, "accuracy_interval": intervals.wilson(reached, images)}
        )
    )
    spec = run["report"].manifest["spec"]
    manifest_files.rewrite(
        report, made=made, spec={**spec, "parents": {**spec["parents"], "train": train.name}}
    )
    return report.name


def _change_training(train, faster, noise, loss, params):
    manifest = json.loads((train.folder / "manifest.json").read_text())
    manifest["spec"]["params"] |= params
    manifest["seconds"] /= faster
    of = manifest["metrics"]
    of["images_per_second"] *= faster
    of["loss"] = [value * loss for value in of["loss"]]
    of["seconds_by_operation"] = {
        name: value / faster for name, value in of["seconds_by_operation"].items()
    }
    history = train.tensors("history.safetensors")
    artifacts.save_tensors(
        train.folder / "history.safetensors", history | {"losses": history["losses"] * loss}
    )
    if noise is not None:
        network = networks.from_params(manifest["spec"]["params"])
        path, random = (
            train.folder / weights.file_name(network),
            np.random.default_rng(round(1000 * noise)),
        )
        weights.save(
            path,
            network,
            {
                key: value
                + random.normal(0, noise * (np.std(value) or 1), value.shape).astype(np.float32)
                for key, value in weights.load(path, network).items()
            },
        )
    manifest_files.rewrite(train.folder, **manifest)


def _report(results, run, extra):
    inputs = {role: artifacts.Artifact(one.folder) for role, one in run.items()}
    made = inputs.get("train", inputs["initial"]).manifest["spec"]["params"]
    params = {"variant": "cpu", "batch_size": 64, "seed": 1} | {
        key: made[key] for key in ("network", "variant", "batch_size", "seed") if key in made
    }
    spec = {
        "stage": "report",
        "params": {
            **params,
            "dataset": inputs["data"].manifest["spec"]["params"]["dataset"],
            **extra,
        },
        "sources": {"workflow/scripts/make_report.py": "0" * 16},
        "parents": {role: one.version for role, one in inputs.items()},
    }
    with artifacts.making(results / "report" / synthetic_run.version("report"), spec) as work:
        make_report.make(work, inputs, spec["params"])


def _move(results, fresh, version, renamed, settings, made, sources):
    """Move an artifact into `results` under the version of its spec, with the new versions of its
    parents.
    """
    (folder,) = fresh.glob(f"*/{version}")
    manifest = json.loads((folder / "manifest.json").read_text())
    spec, stage = manifest["spec"], folder.parent.name
    spec["params"] |= {
        key: settings[name] for name, (of, key) in ADDED.items() if of == stage and name in settings
    }
    spec["parents"] = {
        name: renamed[parent].name if parent in renamed else parent
        for name, parent in spec["parents"].items()
    }
    spec["sources"] = {path: sources.get(stage, digest) for path, digest in spec["sources"].items()}
    manifest["made"] = made
    name = stage[0] + hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()[:11]
    if stage == "report":
        text = (folder / "summary.json").read_text()
        for old, new in (*((old, new.name) for old, new in renamed.items()), (version, name)):
            text = text.replace(old, new)
        (folder / "summary.json").write_text(text)
    target = pathlib.Path(results, stage, name)
    target.parent.mkdir(exist_ok=True)
    if target.exists():
        shutil.rmtree(folder)
    else:
        os.rename(folder, target)
        manifest_files.rewrite(target, **manifest)
    return target
