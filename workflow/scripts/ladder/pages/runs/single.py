"""The files of one run in results/runs/, which the page loads when the run is chosen: its answers,
curves, stages and weights as a script, its decisions as another, pictures of its errors, and its
filters.

A script calls `kernelLadder` with data alone; a page that was opened from a disk can load no other
kind of file. Arrays are base64 of little-endian values.
"""

import base64
import functools
import json

import numpy as np

from ladder.errors import UserError
from ladder.network import networks, weights
from ladder.pages import facts, figures, reproduce, roles
from ladder.pages.runs import answers as run_answers
from ladder.pages.runs import discovery
from ladder.pages.sections import pictures
from ladder.store import artifacts, disk, lineage

ERRORS = 400  # pictures of errors at most, the first ones
SKETCH = 1024  # values of a tensor's sketch
STRONGEST = 3  # columns and rows of filters
BLOCK = 1 << 20
MACHINE = {
    "host": "machine",
    "system": "system",
    "processor": "processor",
    "cores": "cores",
    "python": "Python",
    "blas": "BLAS",
}


@functools.cache
def mark():
    """In the names of the files: those that another release or user has made are made anew."""
    return f"-{discovery.seal(__file__)[:12]}"


def write(run, folder, decides, store):
    """Write the files of a finished or trained run into `folder`; returns their names.

    decides: whether its decisions are among them; store: the lineage.Store with its artifacts.
    """
    inputs = _inputs(run, store)
    answers = run_answers.answers(run) if run.summary else None
    shared = answers is not None and run.summary.get("share", True)  # release 0.1.0 has no such key
    shown = shared and run.about["scored_on"] != "changed copies"
    wrong = np.flatnonzero(answers.labels != answers.predictions)[:ERRORS] if shown else []
    makers = {
        f"{run.version}{mark()}.js": lambda: _script("run", _details(run, inputs, answers, wrong))
    }
    if decides and answers and run.about["scored_on"] != "changed copies":
        makers[f"{run.version}-decisions{mark()}.js"] = lambda: _decisions(run, answers)
    if len(wrong):
        makers[f"{run.version}-errors{mark()}.webp"] = lambda: _errors(answers, wrong)
    if run.about["train"] in [inputs[role].version for role in facts.WEIGHTS if role in inputs]:
        makers[f"{run.about['train']}{mark()}.png"] = lambda: _filters(inputs)
    for name, make in reversed(makers.items()):  # the script last: with it the others are there
        keep(folder / name, make)
    return set(makers)


def keep(path, make):
    """Write what `make` returns where there is no such file yet."""
    if not path.exists():
        disk.write_atomically(path, make())


def files_of(run, folder, decides):
    """The names of the run's files if all of them are there already; else none. The version and
    the mark stand for their bytes, so they are never written anew.
    """
    version, train = run.version, run.about.get("train")
    needed = {f"{version}{mark()}.js", *([f"{version}-decisions{mark()}.js"] if decides else [])}
    names = {*needed, f"{train}{mark()}.png", f"{version}-errors{mark()}.webp"}
    there = {name for name in names if (folder / name).exists()}
    return there if needed <= there else set()


def _inputs(run, store):
    """Role -> artifact of those of the run that are still there."""
    versions = run.summary["versions"] if run.summary else store.parents(run.version)
    own = {} if run.summary else {"train": run.version}
    inputs = {}
    for role, version in {**versions, **own}.items():
        try:
            inputs[role] = artifacts.Artifact(store.folders()[version])
        except (UserError, KeyError):
            continue
    return inputs


def _script(kind, data):
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=True).replace("</", "<\\/")
    return f"kernelLadder({json.dumps(kind)},{text});\n".encode()


def packed(values, kind):
    """An array for a script: {"kind": 'u1', 'u2' or 'f4', "shape", "data": base64}."""
    array = np.ascontiguousarray(values, np.dtype(kind).newbyteorder("<"))
    data = base64.b64encode(array.tobytes()).decode()
    return {"kind": kind, "shape": list(array.shape), "data": data}


def _details(run, inputs, answers, wrong):
    summary = run.summary or {}
    used = reproduce.multipliers_of(inputs)
    named = {key: run.settings.get(key, "same") for key in used}
    tables = {name: named[key] for key, name in used.items() if named[key] != "same"}
    return {
        "run": run.version,
        "curves": _curves(summary, inputs),
        "answers": answers and _answers(answers, wrong),
        "stages": [_stage(role, inputs[role], tables) for role in roles.in_order(inputs)],
        "weights": _weights(inputs),
    }


def _curves(summary, inputs):
    """The curves of a summary, with the steps of an epoch and the seconds of each; None without."""
    if not summary.get("curves") or "train" not in inputs or not summary["steps"]:
        return None
    curve = summary.get("validation_curve")
    return {
        **summary["curves"],
        # release 0.1.0 had whole passes alone
        "epoch": summary["steps"] / summary.get("passes", summary["epochs"]),
        "seconds": [sum(epoch.values()) for epoch in summary["seconds_by_pass"] or []],
        "validation": curve and {key: curve[key] for key in ("step", "loss", "accuracy")},
    }


def _answers(answers, wrong):
    classes = answers.data.metrics["classes"] or ["", "found"]
    kind = "u1" if max(answers.labels.max(), answers.predictions.max()) < 256 else "u2"
    packed_answers = {
        "images": list(answers.images),
        "classes": list(map(str, classes)),
        "labels": packed(answers.labels, kind),
        "predictions": packed(answers.predictions, kind),
    }
    if len(wrong):
        height, width = answers.data.array("test_images.npy").shape[1:3]
        step = -(-max(height, width) // figures.SMALL)
        packed_answers["errors"] = {
            "rows": wrong.tolist(),
            "columns": int(np.ceil(np.sqrt(len(wrong)))),
            "width": -(-width // step),
            "height": -(-height // step),
        }
    return packed_answers


def _errors(answers, wrong):
    images = np.asarray(answers.data.array("test_images.npy")[wrong])
    return base64.b64decode(figures.sheet(images)["image"].partition(",")[2])


def _decisions(run, answers):
    decided = run_answers.decided(answers)
    values = decided and packed(decided["values"], "f4")
    return _script("decisions", {"run": run.version, **(decided or {}), "values": values})


def _stage(role, artifact, tables):
    """A stage with all that two runs can differ in; tables: identity of a multiplier -> its name in
    the settings of the run.
    """
    manifest = artifact.manifest
    names = lineage.KEYS.get(manifest["spec"]["stage"], {})
    machine = {MACHINE.get(key, key): value for key, value in manifest["machine"].items()}
    return {
        "role": roles.title(role),
        "version": artifact.version,
        "settings": {
            names.get(key, key): tables.get(value, value) if key == "multiplier" else value
            for key, value in manifest["spec"]["params"].items()
            if key not in lineage.DERIVED
        },
        "sources": {path: digest[:12] for path, digest in manifest["spec"]["sources"].items()},
        "machine": {**machine, "threads": manifest["threads"], **manifest["libraries"]},
        "seconds": manifest["seconds"],
        "memory": manifest["peak_memory_bytes"],
        "numbers": dict(_numbers(manifest["metrics"])),
    }


def _numbers(metrics):
    """(name, number) of what a stage has measured; of a list by epoch the last value."""
    for name, value in metrics.items():
        last = value[-1] if isinstance(value, list) and value else value
        if isinstance(last, (int, float)) and not isinstance(last, bool):
            yield name, last
        elif name == "seconds_by_operation" and isinstance(value, dict):
            yield from ((f"seconds, {part}", seconds) for part, seconds in value.items())


# Weights.


def _weights(inputs):
    """Tensor -> {"count", "values"}: of a tensor of at most SKETCH values these, of a larger one
    its sketch; None without weights.
    """
    artifact = next((inputs[role] for role in facts.WEIGHTS if role in inputs), None)
    try:
        network = networks.from_params(artifact.manifest["spec"]["params"])
        tensors = weights.of_artifact(artifact, network)
    except (UserError, KeyError, AttributeError, OSError):
        return None
    return {
        name: {"count": tensor.size, "values": packed(sketch(tensor), "f4")}
        for name, tensor in tensors.items()
    }


def sketch(tensor):
    """float32 (at most SKETCH,): a tensor's values, or sums of them with signs, by which the
    distance of two large tensors is known without them.

    Value i is added to one of SKETCH sums, with a sign, both drawn for i (M. Charikar, K. Chen and
    M. Farach-Colton, "Finding frequent items in data streams", 2004). The squared norm of a
    difference of two sketches is that of the tensors on average, with a relative standard deviation
    of at most sqrt(2 / SKETCH), 4.4 %, so 2.2 % of the distance.
    """
    values = np.asarray(tensor, np.float64).ravel()
    if values.size <= SKETCH:
        return values.astype(np.float32)
    random, sums = np.random.Philox(key=SKETCH), np.zeros(SKETCH)
    for start in range(0, values.size, BLOCK):
        part = values[start : start + BLOCK]
        drawn = random.random_raw(part.size)
        signs = 1.0 - 2.0 * (drawn & np.uint64(1))
        places = (drawn >> np.uint64(64 - 10)).astype(np.int64)  # its first ten bits
        sums += np.bincount(places, signs * part, SKETCH)
    return sums.astype(np.float32)


# Filters.


def _filters(inputs):
    filters = pictures.filters_of(
        facts.final(inputs), facts.network(inputs), pictures.atoms(inputs)
    )
    if filters is None:
        return figures.png(np.zeros((1, 1, 4), np.uint8))
    return figures.png(pictures.rows(filters["pictures"][: STRONGEST**2], STRONGEST))
